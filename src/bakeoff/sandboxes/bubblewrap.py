"""Boxes of Linux namespaces, by bubblewrap: no daemon, no image, and started in milliseconds."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff.core.allowed_hosts import Network
from bakeoff.core.boxes import Box, BoxSpec
from bakeoff.core.errors import BakeoffError, SandboxError, UsageError
from bakeoff.core.workspace import Image
from bakeoff.sandboxes import uplink
from bakeoff.sandboxes.bubblewrap_box import BubblewrapBox
from bakeoff.sandboxes.bubblewrap_ground import Ground, installed, prepare, usable_namespaces
from bakeoff.sandboxes.egress_proxy import checked_private_hosts, open_proxy
from bakeoff.sandboxes.imageless import refuse_image, refuse_whole_box
from bakeoff.sandboxes.leftovers import reap

_NO_UPLINK = (
    "bubblewrap cannot give a task with `network = true` a network of its own: {why}. Or let the "
    'task list its hosts, which needs nothing installed: network = ["pypi.org", ...] ("*" is any '
    "public one); or choose a container: --sandbox docker; or share the host's network and all that "
    'listens on it, in your run file: sandbox = {{ name = "bubblewrap", settings = {{ network = '
    '"host" }} }}'
)


class Bubblewrap:
    """Opens boxes of namespaces.

    With a *rootfs*, boxes see the programs of that unpacked image instead of the host's. Without
    control groups, which need rights that not every user has, rlimits keep the limits.

    A task that asks for a network gets one of its own, without the host's loopback; with
    `network="host"` it gets the host's. *private_hosts* may be reached where a task lists them.
    """

    name = "bubblewrap"
    isolates = True

    def __init__(
        self,
        *,
        rootfs: str | Path | None = None,
        control_groups: bool = True,
        network: str | None = None,
        private_hosts: Sequence[str] = (),
    ) -> None:
        if network not in (None, "host"):
            raise UsageError(
                f"network of the sandbox bubblewrap is {network!r}; "
                'write "host" to share the host\'s network with tasks that ask for one, or nothing'
            )
        self._host_network = network == "host"
        self._private_hosts = checked_private_hosts(private_hosts)
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

    def check_network(self, network: Network) -> None:
        """Raise where no box can have this *network* here; the host's own is only for who says so."""
        if network is not True or self._host_network:
            return
        if why := uplink.why_none():
            raise UsageError(_NO_UPLINK.format(why=why))

    async def image(self, image: Image | None) -> None:
        """Refuse an image: only a container can start from one."""
        refuse_image(image, sandbox="bubblewrap")

    async def open(self, spec: BoxSpec) -> Box:
        """Return a box that is ready."""
        refuse_whole_box(spec)
        self.check_network(spec.network)
        if self._ready is None:
            work = asyncio.to_thread(prepare, self._rootfs, with_cgroups=self._control_groups)
            self._ready = asyncio.create_task(work)
        ready = self._ready
        try:
            return await self._opened(spec, await asyncio.shield(ready))
        except OSError as error:
            raise SandboxError(f"no box can be opened: {error}") from error
        finally:
            if ready.done() and _failed(ready):
                self._ready = None  # somebody may mend it, and try again

    async def _opened(self, spec: BoxSpec, ground: Ground) -> Box:
        proxy = await open_proxy(spec.network, private_hosts=self._private_hosts)
        try:
            return BubblewrapBox(spec, ground, proxy=proxy, host_network=self._host_network)
        except BaseException:
            if proxy is not None:
                await proxy.close()
            raise

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
