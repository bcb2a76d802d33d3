"""All calls to Modal's SDK, which is imported at the first call.

What the SDK returns is passed through as `Any`: its types are unknown where it is not installed.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bakeoff._lib.value_object import value_object

INSTALL = "pip install 'bakeoff[modal]', then: modal setup"


def unavailable_reason() -> str | None:
    """Return None where the SDK is installed and has a token, else what to do."""
    if find_spec("modal") is None:
        return f"Modal's SDK is not installed; {INSTALL}"
    if not import_module("modal.config").config.get("token_id"):
        return "Modal's SDK has no token; run: modal setup"
    return None


@value_object
class ModalBoxSpec:
    """A remote box to create: its image, limits and tags."""

    image: Any
    lifetime_s: int
    block_network: bool
    memory_mb: int | None
    cpus: float | None
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Remote:
    """A box on Modal."""

    sandbox: Any

    async def start(self, argv: Sequence[str], *, environment: Mapping[str, str]) -> Any:
        """Start a program in the box, with both of its outputs as bytes."""
        return await self.sandbox.exec.aio(*argv, env=dict(environment), text=False)

    async def put(self, local: Path, remote: str) -> None:
        """Copy a file into the box."""
        await self.sandbox.filesystem.copy_from_local.aio(str(local), remote)

    async def get(self, remote: str, local: Path) -> None:
        """Copy a file out of the box."""
        await self.sandbox.filesystem.copy_to_local.aio(remote, str(local))

    async def terminate(self) -> None:
        """End the box, and wait until it has ended."""
        await self.sandbox.terminate.aio(wait=True)

    async def tags(self) -> dict[str, str]:
        """Return the tags it was created with."""
        return dict(await self.sandbox.get_tags.aio())


class Sdk:
    """Modal's API for one app, which is created if it does not exist."""

    def __init__(self, app: str) -> None:
        self._name = app
        self._app_handle: Any = None

    async def _app(self) -> Any:
        if self._app_handle is None:
            modal = import_module("modal")
            self._app_handle = await modal.App.lookup.aio(self._name, create_if_missing=True)
        return self._app_handle

    def image_by_name(self, name: str, *, add_python: str | None) -> Any:
        """Return an image from a registry."""
        return import_module("modal").Image.from_registry(name, add_python=add_python)

    def image_from_dockerfile(
        self, dockerfile: Path, folder: Path, *, left_out: tuple[str, ...], add_python: str | None
    ) -> Any:
        """Return an image built from a Dockerfile, without the paths in *left_out*."""
        image = import_module("modal").Image
        ignored = {"ignore": list(left_out)} if left_out else {}
        return image.from_dockerfile(
            str(dockerfile), context_dir=str(folder), add_python=add_python, **ignored
        )

    async def build(self, image: Any) -> None:
        """Build an image now, so that errors show here and not with the first box."""
        await image.build.aio(await self._app())

    async def create(self, spec: ModalBoxSpec) -> Remote:
        """Create a box that sleeps until commands are run in it."""
        sandbox = await import_module("modal").Sandbox.create.aio(
            "sleep",
            "infinity",
            app=await self._app(),
            image=spec.image,
            timeout=spec.lifetime_s,
            block_network=spec.block_network,
            memory=None if spec.memory_mb is None else (spec.memory_mb, spec.memory_mb),
            cpu=None if spec.cpus is None else (spec.cpus, spec.cpus),
            tags=dict(spec.tags),
        )
        return Remote(sandbox)

    async def running(self, tags: Mapping[str, str]) -> AsyncIterator[Remote]:
        """Yield the boxes of the app that carry *tags*."""
        app = await self._app()
        sandboxes = import_module("modal").Sandbox.list.aio(app_id=app.app_id, tags=dict(tags))
        async for sandbox in sandboxes:
            yield Remote(sandbox)


async def feed(process: Any, data: bytes, *, chunk: int = 1 << 20) -> None:
    """Write *data* to a program's standard input, and close it."""
    for start in range(0, len(data), chunk):
        process.stdin.write(data[start : start + chunk])
        await process.stdin.drain.aio()
    process.stdin.write_eof()
    await process.stdin.drain.aio()


async def output(process: Any) -> AsyncIterator[bytes]:
    """Yield a program's output as it arrives."""
    async for chunk in process.stdout:
        yield chunk


async def code(process: Any) -> int:
    """Wait for a program and return its exit code."""
    return int(await process.wait.aio())
