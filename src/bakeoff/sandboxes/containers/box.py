"""One open container: runs commands with `exec`, watches its disk, ends stuck processes by a restart."""

import asyncio
import os
import posixpath
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from bakeoff._lib.process import ProcessResult, run_to_completion
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import BoxSpec, Command, CommandResult
from bakeoff.sandboxes.containers import change as container_change
from bakeoff.sandboxes.containers.calls import EngineCalls, Exec, NewContainer, run_in
from bakeoff.sandboxes.containers.ending import BackgroundRemoval, kill_first_process
from bakeoff.sandboxes.containers.engine import HOME, no_folder_marker, preamble, wrap_command
from bakeoff.sandboxes.containers.relay import FIND, Relay, choose
from bakeoff.sandboxes.containers.relay import PORT as GATEWAY_PORT
from bakeoff.sandboxes.egress.proxy import PORT as PROXY_PORT
from bakeoff.sandboxes.egress.proxy import EgressProxy, proxy_environment
from bakeoff.sandboxes.host.disk_watch import DiskWatch, Watch
from bakeoff.sandboxes.host.shell_limits import StartMarker
from bakeoff.sandboxes.host.supervision import Supervision, not_started, unstartable

_CHECK_S = 2.0
_DEATH_S, _DEATH_LOOK_S, _DEATH_POLL_S = 60.0, 0.5, 0.02
# podman, of a fork bomb on a busy machine, and of a container that it sees end at this moment
_STILL_DYING = re.compile("did not die within timeout|container state improper")
_PAUSE_FACTOR = 20  # asking takes podman a quarter of a second


async def disk_watch_for(calls: EngineCalls, container: str, spec: BoxSpec) -> Watch | None:
    """Return the disk watch of a box; None where it has no limit.

    Where the container's files are in a folder that this user may read, that folder is watched,
    which is cheap; otherwise the engine is asked.
    """
    if spec.limits.disk_mb is None:
        return None
    folders = () if spec.folder is None else (spec.folder,)
    state = await calls.state(container)
    if state.layer.startswith("/") and os.access(state.layer, os.R_OK | os.X_OK):
        procs_files, layer = _procs_files(state.pid), Path(state.layer)
        return DiskWatch(
            (*folders, layer), spec.limits.disk_mb, processes=lambda: _processes(procs_files)
        )
    engine_watch = _EngineDiskWatch(calls, container, spec.limits.disk_mb)
    return (
        _BothWatches(DiskWatch(folders, spec.limits.disk_mb), engine_watch)
        if folders
        else engine_watch
    )


def _procs_files(pid: str) -> list[Path]:
    """Return the cgroup.procs files of a container, found by its first process."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    procs_files = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "pids"}:
            procs_files.append(
                Path("/sys/fs/cgroup", controllers, path.lstrip("/"), "cgroup.procs")
            )
    return procs_files


def _processes(procs_files: list[Path]) -> set[int]:
    pids: set[int] = set()
    for path in procs_files:
        try:
            pids.update(int(pid) for pid in path.read_text().split())
        except OSError:
            continue  # not mounted there, or the container is restarting
    return pids


class _EngineDiskWatch:
    """Watches the size of a container's layer by asking the engine."""

    def __init__(self, calls: EngineCalls, container: str, max_mb: int) -> None:
        self._calls = calls
        self._container = container
        self._max_mb = max_mb

    async def watch(self, on_exceeded: Callable[[str], None]) -> None:
        pause_s = _CHECK_S
        while True:
            await asyncio.sleep(pause_s)
            started = time.monotonic()
            if await self._calls.used_bytes(self._container) > self._max_mb << 20:
                on_exceeded(f"its disk was full: the box may take {self._max_mb} MB")
            pause_s = max(_CHECK_S, _PAUSE_FACTOR * (time.monotonic() - started))


class _BothWatches:
    """Runs two watches at the same time."""

    def __init__(self, first: Watch, second: Watch) -> None:
        self._first = first
        self._second = second

    async def watch(self, on_exceeded: Callable[[str], None]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._first.watch(on_exceeded))
            group.create_task(self._second.watch(on_exceeded))


_KILLED = 137
_MAX_SHOWN = 2000
_CALL_S = 120.0
_OOM_FILES = "/sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control"
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_DIFF_AGAIN_S = (0.2, 1.0, 0.0)
# a line of `diff` that reports a change in the folders of the shell and its libraries
_PROGRAMS_CHANGED = re.compile(r"^[CD] /(?:usr/(?:local/)?)?(?:s?bin|lib\w*)/", re.MULTILINE)


def sockets(spec: BoxSpec, proxy: EgressProxy | None) -> dict[int, str]:
    """Return the ports of a box that are relayed to a socket of the host, and the socket."""
    gateway = {} if spec.gateway is None else {GATEWAY_PORT: spec.gateway.socket}
    return gateway if proxy is None else {**gateway, PROXY_PORT: str(proxy.socket)}


class ContainerBox:
    """A running container; await `ready` before the first command."""

    def __init__(
        self,
        calls: EngineCalls,
        container: NewContainer,
        *,
        user: str | None,
        most_change_mb: int,
        proxy: EgressProxy | None,
        relay: Relay | None,
        removals: BackgroundRemoval,
    ) -> None:
        self.name = container.name
        self.relay = relay
        self._calls = calls
        self._spec = container.spec
        self._mounts = container.mounts
        self._removals = removals
        self._user = user
        self._most_change_mb = most_change_mb
        self._proxy = proxy
        self._oom_kills = 0
        self._restarts = 0
        self._stopped = False
        self._ended = False
        self._is_closed = False
        self._started_in: set[str] = set()
        self._supervision = Supervision(self._spec.limits, cgroup=None, disk=None)

    async def ready(self) -> None:
        """Apply the change of the spec, choose a relay, start watching the disk."""
        disk = await disk_watch_for(self._calls, self.name, self._spec)
        self._supervision = Supervision(self._spec.limits, cgroup=None, disk=disk)
        await self._apply()
        if sockets(self._spec, self._proxy) and self.relay is None:
            result = await self._exec(Command(argv=FIND, cwd="/", time_s=60))
            self.relay = choose(result.output, image=self._spec.image)

    @property
    def gateway_url(self) -> str | None:
        """The URL of the gateway for commands in the box."""
        return None if self._spec.gateway is None else f"http://127.0.0.1:{GATEWAY_PORT}"

    @property
    def refused_traffic(self) -> tuple[str, ...]:
        """What the box's proxy refused."""
        return () if self._proxy is None else self._proxy.refused

    async def run(self, command: Command) -> CommandResult:
        """Run *command*; stopping it early ends every process of the box."""
        if (ran := unstartable(command)) is not None:
            return ran
        if ports := sockets(self._spec, self._proxy):
            assert self.relay is not None  # noqa: S101 -- chosen before the first command
            command = replace(command, argv=self.relay.wrap(command.argv, ports))
        return await self._exec(command)

    async def stop(self) -> None:
        """End every process; the container stays, stopped."""
        self._stopped = True
        await self._supervision.stop()
        if not self._ended:
            await self._kill()
            self._ended = True

    async def _kill(self) -> None:
        state = await self._calls.state(self.name)
        if not state.running:
            return
        # an engine that is to read the container's own layer afterwards must know of the end
        if self._spec.folder is not None and await kill_first_process(state):
            return
        await self._calls.kill(self.name)
        clock = asyncio.get_running_loop().time
        until = clock() + _DEATH_S
        while (await self._calls.state(self.name)).running:
            if clock() > until:
                raise SandboxError(f"the processes of container {self.name} do not end")
            await asyncio.sleep(_DEATH_POLL_S)

    async def change(self) -> tuple[bytes, tuple[str, ...]]:
        """Return how the stopped container differs from its image: an archive, and deleted paths."""
        own = [mount.target for mount in self._mounts]
        return await self._calls.change(self.name, own=own, max_mb=self._most_change_mb)

    async def close(self) -> None:
        """End every process, and leave the container to be removed in the background."""
        self._stopped = True
        try:
            await run_to_completion(self._end())
        finally:
            if self._proxy is not None:
                await run_to_completion(self._proxy.close())

    async def _end(self) -> None:
        try:
            await self.stop()
        except SandboxError:
            await self._remove()  # which kills too, or says why it cannot
        else:
            if not self._is_closed:
                await self._removals.add(self._remove())
        self._is_closed = True

    async def _remove(self) -> None:
        await _until_dead(self._calls.remove, self.name)

    # --- commands ---------------------------------------------------------------------------------

    async def _exec(self, command: Command, *, retry: bool = True) -> CommandResult:
        marker = f"started-{secrets.token_hex(8)}"
        restarts_before, start_marker = self._restarts, StartMarker(marker, command.on_output)
        wrapped = Exec(
            argv=tuple(wrap_command(command.argv, marker)),
            user=self._user,
            stdin=self._preamble(command, marker) + command.stdin,
            most_output=command.most_output,
            on_output=start_marker,
        )
        ran = await self._supervision.run(
            command, lambda: self._calls.exec(self.name, wrapped), self._after
        )
        if not start_marker.started and ran.stopped is None:
            printed, no_folder, _ = ran.output.partition(no_folder_marker(marker))
            if retry and not no_folder and not self._stopped:
                # the container has ended, or has too many processes to start another
                await self._restart()
                return await self._exec(command, retry=False)
            why = await self._start_failure(command, printed)
            if not self._stopped and await self._broken_from_inside(
                command, no_folder=bool(no_folder)
            ):
                return not_started(why)
            raise SandboxError(why)
        self._started_in.add(self._start_of(command))
        ran = replace(ran, output=ran.output.removeprefix(f"{marker}\n"))
        if ran.code and self._restarts != restarts_before:
            return replace(ran, code=None, stopped="it ended with another command of its box")
        if ran.code == _KILLED and await self._ran_out_of_memory():
            why = f"out of memory: the box may take {self._spec.limits.memory_mb} MB"
            return replace(ran, code=None, stopped=why)
        return ran

    async def _start_failure(self, command: Command, printed: str) -> str:
        why = f"{command.argv[0]!r} could not be started: {printed.strip()}"
        if self._stopped or await self._is_running():
            return why
        last = await self._calls.last_output(self.name)
        return f"{why}. The container has ended; it printed: {last.strip() or 'nothing'}"

    async def _broken_from_inside(self, command: Command, *, no_folder: bool) -> bool:
        """Whether earlier commands are the reason that a command can no longer be started."""
        if no_folder:
            return self._start_of(command) in self._started_in
        return bool(self._started_in) and await self._has_changed_programs()

    async def _has_changed_programs(self) -> bool:
        # a container that has just failed to start may not be readable yet
        for pause_s in _DIFF_AGAIN_S:
            try:
                changed = await self._calls.changed_paths(self.name)
            except SandboxError:
                await asyncio.sleep(pause_s)
            else:
                return _PROGRAMS_CHANGED.search(changed) is not None
        return False  # unknown; the caller reports its own error

    def _start_of(self, command: Command) -> str:
        return posixpath.join(self._spec.root, command.cwd or self._spec.workdir)

    def _preamble(self, command: Command, marker: str) -> bytes:
        spec = self._spec
        own = {"HOME": HOME, "LANG": "C.UTF-8"} if spec.folder is not None else {}
        own["BAKEOFF_ROOT"] = spec.root
        own |= {} if self._proxy is None else proxy_environment()
        return preamble(
            {**own, **spec.environment, **command.environment},
            cwd=self._start_of(command),
            disk_mb=spec.limits.disk_mb,
            marker=marker,
        )

    async def _after(self, ended: ProcessResult | None) -> None:
        """Restart after a client was killed, which leaves its command running in the container."""
        if (ended is None or ended.stopped is not None) and not self._stopped:
            await self._restart()

    async def _restart(self) -> None:
        self._restarts += 1
        self._oom_kills = 0
        try:
            await _until_dead(self._calls.restart, self.name)
        except SandboxError:
            # its processes have ended anyway; without its shell it cannot start again
            if not await self._has_changed_programs():
                raise

    async def _is_running(self) -> bool:
        return (await self._calls.state(self.name)).running

    async def _ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed a process of the box since the last call."""
        # read in the container: the engine's own flag covers its first process only
        command = Exec(argv=("sh", "-c", f"cat {_OOM_FILES} 2>/dev/null"), user=self._user)
        result = await run_in(self._calls, self.name, command, time_s=_CALL_S)
        kills = sum(int(count) for count in _OOM_KILLS.findall(result.output))
        before, self._oom_kills = self._oom_kills, kills
        return kills > before

    # --- the change of a whole box ----------------------------------------------------------------

    async def _apply(self) -> None:
        packed, gone = self._spec.archive, self._spec.gone
        entries = await asyncio.to_thread(container_change.clear_input, packed, gone)
        if entries:
            clear = Exec(argv=container_change.CLEAR, user="0:0", stdin=entries)
            ended = await run_in(self._calls, self.name, clear, time_s=_CALL_S)
            if ended.code != 0:
                why = ended.stopped or ended.output.strip()[-_MAX_SHOWN:]
                raise SandboxError(f"the files of the box could not be replaced: {why}")
        if packed is not None:
            await self._calls.put(self.name, packed)


async def _until_dead(call: Callable[[str], Awaitable[None]], name: str) -> None:
    """Make a call that ends processes, again while the engine says that they take long to die."""
    clock = asyncio.get_running_loop().time
    until = clock() + _DEATH_S
    while True:
        try:
            await call(name)
        except SandboxError as error:
            if not _STILL_DYING.search(str(error)) or clock() > until:
                raise
            await asyncio.sleep(_DEATH_LOOK_S)
        else:
            return
