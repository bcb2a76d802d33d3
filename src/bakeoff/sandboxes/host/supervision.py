"""Supervises the commands of one box: time limits, memory, disk, and ending all of them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Protocol

from bakeoff._lib.process import NotEndedError, ProcessResult, run_to_completion
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Command, CommandResult
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.host.cgroups import Cgroup
from bakeoff.sandboxes.host.disk_watch import Watch

_NOT_RUNNABLE = 126  # the exit code of shells
_MAX_ARGUMENT = 128 << 10  # the kernel's limit

AfterCommand = Callable[[ProcessResult | None], Coroutine[object, object, None]]


class RunningCommand(Protocol):
    """A command that has been started: a child process, or a stream of a container engine."""

    def kill(self, why: str) -> None:
        """End it now; the first to call it says why."""

    async def end(self, *, time_s: float | None = None) -> ProcessResult:
        """Wait until it has ended, for *time_s* at most, and return how."""


class Supervision:
    """Starts commands, waits for them, and can end all that are running."""

    def __init__(self, limits: BoxLimits, *, cgroup: Cgroup | None, disk: Watch | None) -> None:
        self._limits = limits
        self._cgroup = cgroup
        self._disk = disk
        self._running: dict[RunningCommand, asyncio.Future[None]] = {}
        self._stopped = False

    async def run(
        self, command: Command, start: Callable[[], RunningCommand], after: AfterCommand
    ) -> CommandResult:
        """Run *command*, which *start* starts in the box; *after* cleans up after it."""
        if self._stopped:
            raise SandboxError("the box has been stopped: nothing can be run in it any more")
        kills_before = self._oom_kills()
        try:
            child = start()
        except OSError as error:
            raise SandboxError(f"{command.argv[0]!r} could not be started: {error}") from error
        ended = await self._wait_for(child, command.time_s, after)
        stopped = ended.stopped
        if stopped is None and ended.code != 0 and self._oom_kills() > kills_before:
            stopped = f"out of memory: the box may take {self._limits.memory_mb} MB"
        return CommandResult(
            code=None if stopped else ended.code,
            output=ended.output,
            elapsed_s=ended.elapsed_s,
            stopped=stopped,
            truncated=ended.truncated,
        )

    async def _wait_for(
        self, child: RunningCommand, time_s: float | None, after: AfterCommand
    ) -> ProcessResult:
        finished = self._running[child] = asyncio.get_running_loop().create_future()
        watch_task = self._start_watch(child)
        ended: ProcessResult | None = None
        try:
            ended = await child.end(time_s=time_s)
        except NotEndedError as error:
            raise SandboxError(str(error)) from error
        finally:
            if watch_task is not None:
                watch_task.cancel()
            try:
                await run_to_completion(after(ended))
            finally:
                del self._running[child]
                finished.set_result(None)
        return ended

    def _start_watch(self, child: RunningCommand) -> asyncio.Task[None] | None:
        if self._disk is None:
            return None
        return asyncio.create_task(self._disk.watch(child.kill))

    def _oom_kills(self) -> int:
        return 0 if self._cgroup is None else self._cgroup.oom_kills

    async def stop(self) -> None:
        """End every running command; no command can be started after this."""
        self._stopped = True
        unfinished = list(self._running.values())
        for child in self._running:
            child.kill("the box was stopped")
        if unfinished:
            await asyncio.wait(unfinished)


def unstartable(command: Command) -> CommandResult | None:
    """Return the result of a command that no system can start; None for any other.

    The command is at fault, not the box. A null byte would also split an argument, and the rest
    would be taken for arguments of ours.
    """
    texts = (*command.argv, command.cwd or "", *command.environment, *command.environment.values())
    if any("\0" in text for text in texts):
        return not_started("embedded null byte")
    if any(len(text.encode(errors="replace")) >= _MAX_ARGUMENT for text in texts):
        return not_started("Argument list too long")
    return None


def not_started(why: str) -> CommandResult:
    """Return the result of a command that could not be started through no fault of the box."""
    return CommandResult(code=_NOT_RUNNABLE, output=f"{why}\n", elapsed_s=0.0)
