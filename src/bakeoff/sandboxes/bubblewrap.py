"""Boxes of Linux namespaces, by bubblewrap: no daemon, no image, and started in milliseconds."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff.core.boxes import Box, BoxSpec
from bakeoff.core.errors import BakeoffError, SandboxError
from bakeoff.core.workspace import Image
from bakeoff.sandboxes.bubblewrap_box import BubblewrapBox
from bakeoff.sandboxes.bubblewrap_ground import Ground, installed, prepare, usable_namespaces
from bakeoff.sandboxes.imageless import refuse_image, refuse_whole_box
from bakeoff.sandboxes.leftovers import reap


class Bubblewrap:
    """Opens boxes of namespaces.

    With a *rootfs*, boxes see the programs of that unpacked image instead of the host's. Without
    control groups, which need rights that not every user has, rlimits keep the limits.
    """

    name = "bubblewrap"
    isolates = True

    def __init__(self, *, rootfs: str | Path | None = None, control_groups: bool = True) -> None:
        self._rootfs = None if rootfs is None else Path(rootfs)
        self._control_groups = control_groups
        self._ready: asyncio.Task[Ground] | None = None

    @classmethod
    def available(cls) -> str | None:
        """Return why no box can be had here, and what to do about it; None where all is fine."""
        if not sys.platform.startswith("linux"):
            return "bubblewrap needs Linux; choose a container: --sandbox docker"
        try:
            usable_namespaces(installed())
        except BakeoffError as error:
            return str(error)
        return None

    async def image(self, image: Image | None) -> None:
        """Refuse an image: only a container can start from one."""
        refuse_image(image, sandbox="bubblewrap")

    async def open(self, spec: BoxSpec) -> Box:
        """Return a box that is ready."""
        refuse_whole_box(spec)
        if self._ready is None:
            work = asyncio.to_thread(prepare, self._rootfs, with_cgroups=self._control_groups)
            self._ready = asyncio.create_task(work)
        ready = self._ready
        try:
            return BubblewrapBox(spec, await asyncio.shield(ready))
        except OSError as error:
            raise SandboxError(f"no box can be opened: {error}") from error
        finally:
            if ready.done() and _failed(ready):
                self._ready = None  # somebody may mend it, and try again

    async def reap(self) -> Sequence[str]:
        """Take away the control groups, processes and folders of dead runs."""
        return await asyncio.to_thread(reap)

    async def close(self) -> None:
        """Take away what all boxes shared."""
        ready, self._ready = self._ready, None
        if ready is not None:
            await asyncio.wait([ready])
            if not _failed(ready):
                await asyncio.to_thread(scratch.remove, ready.result().support)


def _failed(ready: asyncio.Task[Ground]) -> bool:
    return ready.cancelled() or ready.exception() is not None
