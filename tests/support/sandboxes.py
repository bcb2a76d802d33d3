"""Every sandbox of the contract suite: one small factory each, and how to see what one leaves.

A further backend is one more line in BACKENDS.
"""

import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bakeoff._lib import scratch
from bakeoff.core.sandbox import Box, BoxSpec, Sandbox
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from bakeoff.sandboxes.host.local import Local
from support.container_boxes import sandbox as container_sandbox
from support.container_engines import engine, why_no_engine
from support.parts import require


async def _no_image(_: Sandbox) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A kind of sandbox and what may be expected of it.

    `missing` says what to install, None where it can be used. `image` builds or names what boxes
    start from; it must have a POSIX shell with the usual tools, and python3. In a backend that
    `shows_root` the files are at the box's root; `outlives` is whether a process may outlive the
    command that started it.
    """

    name: str
    make: Callable[[], Sandbox]
    missing: Callable[[], str | None]
    image: Callable[[Sandbox], Coroutine[Any, Any, str | None]] = _no_image
    shows_root: bool = True
    outlives: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def isolates(self) -> bool:
        return self.make().isolates

    def require(self) -> None:
        """Skip the test, or fail it in CI, where the backend cannot be used."""
        missing = self.missing()
        require(f"the {self.name} sandbox", missing is None, missing or "")

    @asynccontextmanager
    async def sandbox(self) -> AsyncIterator["Opener"]:
        """A sandbox for one test."""
        made = self.make()
        try:
            yield Opener(sandbox=made, image=await self.image(made))
        finally:
            await made.close()

    @asynccontextmanager
    async def box(self, folder: Path, **spec: Any) -> AsyncIterator[Box]:
        """A sandbox with one open box that shows *folder*."""
        async with self.sandbox() as opener:
            box = await opener.open(folder, **spec)
            try:
                yield box
            finally:
                await box.close()


@dataclass(frozen=True, kw_only=True)
class Opener:
    """A sandbox together with the image its boxes start from."""

    sandbox: Sandbox
    image: str | None

    async def open(self, folder: Path, **spec: Any) -> Box:
        """Open a box that shows *folder*."""
        wanted = {"label": "contract", "image": self.image, **spec}
        return await self.sandbox.open(BoxSpec(folder=folder, **wanted))


def local() -> Backend:
    path = os.environ["PATH"]
    return Backend(
        name="local",
        make=lambda: Local(path=path),
        missing=Local.available,
        shows_root=False,
    )


def bubblewrap() -> Backend:
    return Backend(name="bubblewrap", make=Bubblewrap, missing=Bubblewrap.available, outlives=False)


def container(name: str) -> Backend:
    """Boxes in the tests' own docker or podman, started when the first of them is opened."""

    async def python_image(_: Sandbox) -> str:
        return engine(name).with_python()

    return Backend(
        name=name,
        make=lambda: container_sandbox(engine(name)),
        missing=lambda: why_no_engine(name),
        image=python_image,
    )


BACKENDS: tuple[Backend, ...] = (local(), bubblewrap(), container("docker"), container("podman"))


def new_token() -> str:
    """A number of seconds that is far off and that nobody else sleeps for."""
    return f"86400.{secrets.randbelow(10**9):09d}"


def processes_with(token: str) -> list[str]:
    """Every process of this machine that has *token* in its arguments; no zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            argv = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if token in argv:
            found.append(f"{entry.name}: {argv}")
    return found


def cgroups_with(mark: str) -> list[Path]:
    """Every control group that carries *mark* in its name."""
    top = Path("/sys/fs/cgroup")
    return [Path(folder) for folder, _, _ in os.walk(top) if mark in Path(folder).name]


def folders_with(mark: str) -> list[Path]:
    """Every private folder that carries *mark* in its name."""
    return [path for path in scratch.base().iterdir() if mark in path.name]


def mounts_with(text: str) -> list[str]:
    """Every mount of this machine in which *text* stands."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if text in line]
