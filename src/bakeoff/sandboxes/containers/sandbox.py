"""The docker and podman sandboxes, and the images they start from.

The engine is the one that the user's own client talks to; it is asked at its socket where it has one.

A container sees its folder, its mounts and its image. It has no network unless the task asks for
one, no capabilities except those of package managers in a whole-box task, and the limits of its
task. Its name identifies its run, so that leftovers of dead runs can be found.
"""

import asyncio
import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bakeoff._lib import process_identity, scratch
from bakeoff._lib.digest import digest
from bakeoff._lib.process import run_to_completion
from bakeoff.core.errors import SandboxError, UsageError
from bakeoff.core.sandbox import Box, BoxSpec, Mount
from bakeoff.core.workspace import Image
from bakeoff.sandboxes.containers import relay
from bakeoff.sandboxes.containers.api import ApiCalls, PodmanApiCalls
from bakeoff.sandboxes.containers.box import ContainerBox, sockets
from bakeoff.sandboxes.containers.calls import ClientCalls, EngineCalls, NewContainer
from bakeoff.sandboxes.containers.ending import BackgroundRemoval, end_exec_monitors
from bakeoff.sandboxes.containers.engine import Engine, EngineName
from bakeoff.sandboxes.containers.engine_socket import (
    acquire_socket,
    docker_socket,
    has_died,
    release_socket,
)
from bakeoff.sandboxes.egress.proxy import checked_private_hosts, open_proxy
from bakeoff.sandboxes.host import cleanup

_LAST_LINES = 25
_FETCH_S = 1800.0


class Images:
    """Pulls and builds images on one engine, each once.

    A failed build is not repeated: every caller gets the same error.
    """

    def __init__(self, engine: Engine, *, default: str, build_s: float) -> None:
        self._engine = engine
        self._default = default
        self._build_s = build_s
        self._ready: set[str] = set()
        self._broken: dict[str, str] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ready(self, image: Image | None) -> str:
        """Return the name of an available image; UsageError where it cannot be pulled or built."""
        name = _name(image, self._default)
        async with self._locks[name]:
            if name in self._broken:
                raise UsageError(self._broken[name])
            if name not in self._ready and not await self._exists(name):
                if image is not None and image.context is not None:
                    await self._build(image, name)
                else:
                    await self._fetch(name)
            self._ready.add(name)
        return name

    async def _exists(self, name: str) -> bool:
        inspected = await self._engine.ask("image", "inspect", "--format", "{{.Id}}", name)
        return inspected.code == 0

    async def _fetch(self, name: str) -> None:
        ended = await self._engine.ask("pull", "-q", name, time_s=_FETCH_S)
        if ended.code != 0:
            why = ended.stopped or ended.output.strip()[-1000:]
            raise UsageError(
                f"{self._engine.name} cannot fetch the image {name!r}: {why}. Check its name, "
                f"or make it here first: {self._engine.name} build -t {name} FOLDER"
            )

    async def _build(self, image: Image, name: str) -> None:
        folder, dockerfile_path = _find_dockerfile(image)
        async with _build_context(folder, image.left_out) as context:
            file = context / dockerfile_path.relative_to(folder)
            ended = await self._engine.ask(
                "build", "--force-rm", "-t", name, "--label", "bakeoff.image=1",
                "-f", str(file), str(context), time_s=self._build_s,
            )  # fmt: skip
        if ended.code != 0:
            why = f"stopped, {ended.stopped}" if ended.stopped else "the build failed"
            last = "\n".join(ended.output.strip().splitlines()[-_LAST_LINES:])
            hidden = [path for path in image.left_out if Path(path).name in last]
            hint = f" The build does not see {', '.join(hidden)}." if hidden else ""
            self._broken[name] = (
                f"no image from {dockerfile_path}: {why}.{hint} Its last lines:\n{last}"
            )
            raise UsageError(self._broken[name])


@asynccontextmanager
async def _build_context(folder: Path, left_out: tuple[str, ...]) -> AsyncIterator[Path]:
    """Provide the build context: *folder* itself, or a copy of it without *left_out*."""
    if not left_out:
        yield folder
        return
    copy = scratch.new_folder("image")

    def ignored(here: str, names: list[str]) -> set[str]:
        return {name for name in names if str(Path(here, name).relative_to(folder)) in left_out}

    try:
        context = copy / "context"
        await asyncio.to_thread(shutil.copytree, folder, context, symlinks=True, ignore=ignored)
        yield context
    finally:
        scratch.remove(copy)


def _name(image: Image | None, default: str) -> str:
    if image is None:
        return default
    if image.context is not None:
        return f"bakeoff-{digest(image.identity())}"
    return image.name or default


def _find_dockerfile(image: Image) -> tuple[Path, Path]:
    """Return the folder to build from and its Dockerfile; both exist."""
    tree = image.context
    if tree is None or tree.commit is not None:
        raise UsageError(f"an image is built from a folder, not from {tree}")
    folder = Path(tree.path, tree.subdir or "").resolve()
    dockerfile_path = folder / image.dockerfile
    if not dockerfile_path.is_file():
        raise UsageError(f"there is no {dockerfile_path} to build an image from")
    return folder, dockerfile_path


DEFAULT_IMAGE = "python:3.11-slim"
_OWNER = "bakeoff.owner"


@dataclass(kw_only=True)
class Container:
    """Opens containers on one engine.

    `default_image` is for tasks that name none. `environment` is the client's, such as DOCKER_HOST;
    None is that of this process; containers do not get it. `private_hosts` can be reached where a
    task lists them. With `use_socket` false everything goes through the client.
    """

    name: EngineName
    default_image: str = DEFAULT_IMAGE
    build_s: float = 1800.0
    most_change_mb: int = 64
    environment: Mapping[str, str] | None = None
    private_hosts: tuple[str, ...] = ()
    use_socket: bool = True
    isolates: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.private_hosts = checked_private_hosts(self.private_hosts)
        # the client finds its engine and settings through the environment, as in a shell
        environment = os.environ if self.environment is None else self.environment
        self._engine = Engine(self.name, dict(environment))
        self._calls: EngineCalls | None = None
        self._images = Images(self._engine, default=self.default_image, build_s=self.build_s)
        self._user: str | None = None
        self._removals = BackgroundRemoval()
        self._relays: dict[str, relay.Relay] = {}  # by the image that has its interpreter

    def available(self) -> str | None:
        """Return why the engine cannot be used, and what to install; None where it works."""
        return self._engine.unavailable_reason()

    async def image(self, image: Image | None) -> str:
        """Return the name of the image, pulled or built if necessary."""
        return await self._images.ready(image)

    async def open(self, spec: BoxSpec) -> Box:
        """Return a running container that shows the folder of *spec*."""
        image = spec.image or await self._images.ready(None)
        user = None if spec.folder is None else await self._container_user()
        calls = await self._engine_calls()
        proxy = await open_proxy(spec.network, private_hosts=self.private_hosts)
        relay_mounts = relay.mounts(sockets(spec, proxy))
        mounts = (*_folder(spec), *spec.mounts, *spec.pinned, *relay_mounts)
        name = f"bakeoff-{process_identity.current()}-{secrets.token_hex(6)}"
        labels = (f"{_OWNER}={process_identity.current()}", f"bakeoff.label={spec.label}")
        container = NewContainer(name=name, labels=labels, spec=spec, mounts=mounts, image=image)
        box = ContainerBox(
            calls,
            container,
            user=user,
            most_change_mb=self.most_change_mb,
            proxy=proxy,
            relay=self._relays.get(image) if spec.archive is None else None,
            removals=self._removals,
        )
        try:
            # not cancelled: an engine that was asked for a container creates it anyway
            await run_to_completion(calls.start(container))
            await box.ready()
        except BaseException:
            await run_to_completion(self._remove_failed(calls, name))
            if proxy is not None:
                await run_to_completion(proxy.close())
            raise
        if box.relay is not None and spec.archive is None:
            self._relays[image] = box.relay
        return box

    async def _remove_failed(self, calls: EngineCalls, name: str) -> None:
        try:
            await calls.remove(name)
        except SandboxError:
            await self._remove(name)

    async def _engine_calls(self) -> EngineCalls:
        if self._calls is None or (self.name == "podman" and has_died(self._engine)):
            self._calls = await self._choose_calls()
        return self._calls

    async def _choose_calls(self) -> EngineCalls:
        if not self.use_socket:
            return ClientCalls(self._engine)
        if self.name == "docker":
            socket = await docker_socket(self._engine)
            return ClientCalls(self._engine) if socket is None else ApiCalls(self._engine, socket)
        socket = await acquire_socket(self._engine, user=self)
        return ClientCalls(self._engine) if socket is None else PodmanApiCalls(self._engine, socket)

    async def _remove(self, name: str) -> None:
        await self._engine.ask(*self._engine.dialect.remove, name)

    async def _container_user(self) -> str:
        """Return the user in a container that owns the mounted folder."""
        if self._user is None:
            outside = os.getuid()
            is_root = outside == 0 or await self._engine.is_rootless()
            self._user = "0:0" if is_root else f"{outside}:{os.getgid()}"
        return self._user

    async def reap(self) -> Sequence[str]:
        """Remove this engine's containers of dead runs, then their folders."""
        arguments = ("ps", "-a", "--filter", f"label={_OWNER}", "--format", "name={{.Names}}")
        listed = await self._engine.ask(*arguments)
        lines = []
        for word in listed.output.split():  # empty where no engine answers
            owner = process_identity.find(word)
            if (
                word.startswith("name=bakeoff-")
                and owner is not None
                and process_identity.is_dead(owner)
            ):
                name = word.removeprefix("name=")
                await self._remove(name)
                await asyncio.to_thread(end_exec_monitors, name)
                lines.append(f"container {name}")
        return [*lines, *await asyncio.to_thread(cleanup.reap)]

    async def close(self) -> None:
        """Wait until closed boxes are removed, and give back the engine's socket."""
        try:
            await self.wait_removed()
        finally:
            self._calls = None
            if self.name == "podman":
                await release_socket(self._engine, user=self)

    async def wait_removed(self) -> None:
        """Wait until the containers of closed boxes are removed; raise the first error."""
        await self._removals.wait()


def _folder(spec: BoxSpec) -> tuple[Mount, ...]:
    if spec.folder is None:
        return ()
    return (Mount(source=str(spec.folder), target=spec.root, writable=True),)


@dataclass(kw_only=True)
class Docker(Container):
    """Containers of Docker."""

    name: EngineName = field(default="docker", init=False)


@dataclass(kw_only=True)
class Podman(Container):
    """Containers of podman."""

    name: EngineName = field(default="podman", init=False)
