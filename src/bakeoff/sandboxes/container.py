"""Boxes that are containers of docker or podman, through the client that the user has.

A container sees its folder, its mounts and its image; it has no network unless the task asks for
one, no capability but those of package managers where the whole box is the work, and the limits of
its task. It carries the mark of its run in its name, so that what a dead run left can be found.
"""

import asyncio
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bakeoff._lib import owner
from bakeoff._lib.process import uncancelled
from bakeoff.core.boxes import Box, BoxSpec, Mount
from bakeoff.core.workspace import Image
from bakeoff.sandboxes import container_relay, leftovers
from bakeoff.sandboxes.container_box import ContainerBox, sockets
from bakeoff.sandboxes.container_engine import Engine, EngineName
from bakeoff.sandboxes.container_images import Images
from bakeoff.sandboxes.container_words import run_words
from bakeoff.sandboxes.egress_proxy import checked_private_hosts, open_proxy

DEFAULT_IMAGE = "python:3.11-slim"
_OWNER = "bakeoff.owner"


@dataclass(kw_only=True)
class Container:
    """Opens containers on one engine.

    `default_image` is for tasks that name none. `environment` is the client's own, such as
    DOCKER_HOST; None is that of this process. Nothing of it enters a container. `private_hosts` may
    be reached where a task lists them.
    """

    name: EngineName
    default_image: str = DEFAULT_IMAGE
    build_s: float = 1800.0
    most_change_mb: int = 64
    environment: Mapping[str, str] | None = None
    private_hosts: tuple[str, ...] = ()
    isolates: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.private_hosts = checked_private_hosts(self.private_hosts)
        # the client finds its engine, its user and its settings by the environment, as in a shell
        environment = os.environ if self.environment is None else self.environment
        self._engine = Engine(self.name, dict(environment))
        self._images = Images(self._engine, default=self.default_image, build_s=self.build_s)
        self._user: str | None = None

    def available(self) -> str | None:
        """Return None where the engine answers, else why not and what to install."""
        return self._engine.why_not()

    async def image(self, image: Image | None) -> str:
        """Return the name of the image, fetched or built where it must be."""
        return await self._images.ready(image)

    async def open(self, spec: BoxSpec) -> Box:
        """Return a running container that shows the folder of *spec*."""
        image = spec.image or await self._images.ready(None)
        user = None if spec.folder is None else await self._caller()
        proxy = await open_proxy(spec.network, private_hosts=self.private_hosts)
        relayed = container_relay.mounts(sockets(spec, proxy))
        mounts = (*_folder(spec), *spec.mounts, *spec.pinned, *relayed)
        name = f"bakeoff-{owner.mine()}-{secrets.token_hex(6)}"
        box = ContainerBox(
            self._engine,
            spec,
            name=name,
            mounts=mounts,
            user=user,
            most_change_mb=self.most_change_mb,
            proxy=proxy,
        )
        labels = ("--label", f"{_OWNER}={owner.mine()}", "--label", f"bakeoff.label={spec.label}")
        words = ("-d", "--name", name, *labels, *self._engine.dialect.run)
        try:
            # not cut short: an engine that was asked for a container makes it, whoever still waits
            await uncancelled(self._start(*words, *run_words(spec, mounts, image)))
            await box.ready()
        except BaseException:
            await uncancelled(self._remove(name))
            if proxy is not None:
                await uncancelled(proxy.close())
            raise
        return box

    async def _start(self, *words: str) -> None:
        await self._engine.call("run", *words)

    async def _remove(self, name: str) -> None:
        await self._engine.ask(*self._engine.dialect.remove, name)

    async def _caller(self) -> str:
        """Return the user in a container to whom a folder of ours belongs."""
        if self._user is None:
            outside = os.getuid()
            is_root = outside == 0 or await self._engine.is_rootless()
            self._user = "0:0" if is_root else f"{outside}:{os.getgid()}"
        return self._user

    async def reap(self) -> Sequence[str]:
        """Take away this engine's containers of dead runs, running or not, then their folders."""
        words = ("ps", "-a", "--filter", f"label={_OWNER}", "--format", "name={{.Names}}")
        seen = await self._engine.ask(*words)
        lines = []
        for word in seen.output.split():  # nothing where no engine answers: no container either
            mark = owner.find(word)
            if word.startswith("name=bakeoff-") and mark is not None and owner.is_dead(mark):
                name = word.removeprefix("name=")
                await self._remove(name)
                lines.append(f"container {name}")
        return [*lines, *await asyncio.to_thread(leftovers.reap)]

    async def close(self) -> None:
        """Nothing is held for the whole run."""


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
