"""The images that containers start from: found, fetched or built, each once."""

import asyncio
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff._lib.digest import digest
from bakeoff.core.errors import UsageError
from bakeoff.core.workspace import Image
from bakeoff.sandboxes.container_engine import Engine

_LAST_LINES = 25
_FETCH_S = 1800.0


class Images:
    """Makes images ready on one engine; who asks for the same one waits for the same work.

    A build that failed is not tried again: everybody who needs it gets the same message.
    """

    def __init__(self, engine: Engine, *, default: str, build_s: float) -> None:
        self._engine = engine
        self._default = default
        self._build_s = build_s
        self._ready: set[str] = set()
        self._broken: dict[str, str] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ready(self, image: Image | None) -> str:
        """Return the name of an image that is there; UsageError where it cannot be had."""
        name = _name(image, self._default)
        async with self._locks[name]:
            if name in self._broken:
                raise UsageError(self._broken[name])
            if name not in self._ready and not await self._is_here(name):
                if image is not None and image.context is not None:
                    await self._build(image, name)
                else:
                    await self._fetch(name)
            self._ready.add(name)
        return name

    async def _is_here(self, name: str) -> bool:
        seen = await self._engine.ask("image", "inspect", "--format", "{{.Id}}", name)
        return seen.code == 0

    async def _fetch(self, name: str) -> None:
        ended = await self._engine.ask("pull", "-q", name, time_s=_FETCH_S)
        if ended.code != 0:
            why = ended.stopped or ended.output.strip()[-1000:]
            raise UsageError(
                f"{self._engine.name} cannot fetch the image {name!r}: {why}. Check its name, "
                f"or make it here first: {self._engine.name} build -t {name} FOLDER"
            )

    async def _build(self, image: Image, name: str) -> None:
        folder, recipe = _recipe(image)
        async with _seen(folder, image.left_out) as context:
            file = context / recipe.relative_to(folder)
            ended = await self._engine.ask(
                "build", "--force-rm", "-t", name, "--label", "bakeoff.image=1",
                "-f", str(file), str(context), time_s=self._build_s,
            )  # fmt: skip
        if ended.code != 0:
            why = f"stopped, {ended.stopped}" if ended.stopped else "the build failed"
            last = "\n".join(ended.output.strip().splitlines()[-_LAST_LINES:])
            unseen = [path for path in image.left_out if Path(path).name in last]
            hint = f" The build does not see {', '.join(unseen)}." if unseen else ""
            self._broken[name] = f"no image from {recipe}: {why}.{hint} Its last lines:\n{last}"
            raise UsageError(self._broken[name])


@asynccontextmanager
async def _seen(folder: Path, left_out: tuple[str, ...]) -> AsyncIterator[Path]:
    """Give a folder that holds what a build may see: *folder* itself, or a copy without some paths."""
    if not left_out:
        yield folder
        return
    place = scratch.new_folder("image")

    def without(here: str, names: list[str]) -> set[str]:
        return {name for name in names if str(Path(here, name).relative_to(folder)) in left_out}

    try:
        context = place / "context"
        await asyncio.to_thread(shutil.copytree, folder, context, symlinks=True, ignore=without)
        yield context
    finally:
        scratch.remove(place)


def _name(image: Image | None, default: str) -> str:
    if image is None:
        return default
    if image.context is not None:
        return f"bakeoff-{digest(image.identity())}"
    return image.name or default


def _recipe(image: Image) -> tuple[Path, Path]:
    """Return the folder to build from and the Dockerfile, both there."""
    tree = image.context
    if tree is None or tree.commit is not None:
        raise UsageError(f"an image is built from a folder, not from {tree}")
    folder = Path(tree.path, tree.subdir or "").resolve()
    recipe = folder / image.dockerfile
    if not recipe.is_file():
        raise UsageError(f"there is no {recipe} to build an image from")
    return folder, recipe
