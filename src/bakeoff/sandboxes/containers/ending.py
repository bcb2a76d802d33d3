"""How containers end: killed by their first process, and removed in the background."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path

from bakeoff._lib.process import run_to_completion
from bakeoff.sandboxes.containers.calls import ContainerState

_DEATH_S = 10.0
_AT_ONCE = 8  # so that a busy engine does not fall ever further behind


async def kill_first_process(state: ContainerState) -> bool:
    """Kill a running container's first process and wait until all of its processes have ended.

    The kernel ends every other process of the container before the first one is gone. False where
    this process may not do that, or cannot tell that it is the container's: the engine can.
    """
    if not hasattr(os, "pidfd_open") or not state.id or not state.pid.isdigit():
        return False
    try:
        opened = os.pidfd_open(int(state.pid))
    except OSError:
        return False
    try:
        # looked up after it was opened: the number may have been given to another process
        if not _is_first_process(int(state.pid), state.id):
            return False
        signal.pidfd_send_signal(opened, signal.SIGKILL)
        return await _ends(opened)
    except OSError:
        return False
    finally:
        os.close(opened)


def _is_first_process(pid: int, container: str) -> bool:
    """Whether a process is in the control group of *container*, and the first of its namespace."""
    if container not in Path(f"/proc/{pid}/cgroup").read_text():
        return False
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            numbers = line.split()[1:]
            return len(numbers) > 1 and numbers[-1] == "1"
    return False


async def _ends(pidfd: int) -> bool:
    """Whether the process of *pidfd* ends in time."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), _DEATH_S)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
    return True


def end_exec_monitors(container: str) -> None:
    """End the processes with which podman watched the commands of a removed container.

    Each would wait five minutes for a question about how its command ended, and then start podman.
    """
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if (folder / "comm").read_text() != "conmon\n":
                continue
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
            if b"--exec-attach" in arguments and container.encode() in arguments:
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue  # it has just ended, or belongs to another user


class BackgroundRemoval:
    """Removes containers while other work goes on; `wait` must be awaited before the loop ends."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._errors: list[Exception] = []

    async def add(self, removal: Coroutine[object, object, None]) -> None:
        """Start *removal*; wait first where many are under way. It is never cancelled."""
        task = asyncio.ensure_future(self._run(removal))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        while len(self._running) > _AT_ONCE:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def wait(self) -> None:
        """Wait until every container is removed; raise the first error."""
        await run_to_completion(self._wait())
        errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    async def _wait(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    async def _run(self, removal: Coroutine[object, object, None]) -> None:
        try:
            await removal
        except Exception as error:  # noqa: BLE001 -- raised by `wait`
            self._errors.append(error)
