"""Connects a network namespace to the Internet with slirp4netns, which needs no privileges.

The namespace reaches the public Internet as far as the host does. It does not reach the host's
loopback, which slirp4netns refuses, nor the host's other addresses or private networks, which are
refused by routes that the box may not change.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from bakeoff._lib.process import run_to_completion
from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import SandboxError
from bakeoff.sandboxes.egress.proxy import closed_networks

NAMESERVER = "10.0.2.3"  # of slirp4netns, which forwards to the host's
_NETWORK = "10.0.2.0/24"
_PROGRAM = "slirp4netns"
_TUNNELS = Path("/dev/net/tun")
_START_SCRIPT = Path(__file__).with_name("uplink_process.py")
_READY_S = 30.0
_END_S = 10.0


def unavailable_reason() -> str | None:
    """Return why uplinks are not available here, and what to install; None where they are."""
    if shutil.which(_PROGRAM) is None:
        return f"it needs {_PROGRAM}, which is not installed (apt install {_PROGRAM})"
    if not os.access(_TUNNELS, os.R_OK | os.W_OK):
        return f"{_PROGRAM} needs {_TUNNELS}, which this user may not open (sudo chmod 666 it)"
    return None


class Uplink:
    """The uplink of one command's namespaces; it ends with this process at the latest."""

    def __init__(self, process: asyncio.subprocess.Process, end: ExitStack) -> None:
        self._process = process
        self._end = end

    async def close(self) -> None:
        """End it."""
        self._end.close()
        try:
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


class AwaitedUplink:
    """Makes bubblewrap wait with its command until the command's namespaces have an uplink.

    Use it as a context around the command; pass `arguments` and `pass_fds` to bubblewrap.
    """

    def __init__(self, files: ExitStack) -> None:
        self._info, info = _pipe(files)
        blocking, self._go = _pipe(files)
        os.set_blocking(blocking, True)
        self.arguments = ["--info-fd", str(info), "--block-fd", str(blocking)]
        self.pass_fds = (info, blocking)
        self._uplink: Uplink | None = None

    async def __aenter__(self) -> None:
        """Start waiting for the namespaces."""
        self._task = asyncio.create_task(self._provide())

    async def __aexit__(self, *_: object) -> None:
        """End the uplink; raise where it could not be set up."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._uplink is not None:
            await run_to_completion(self._uplink.close())
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def _provide(self) -> None:
        printed = b""
        while b"}" not in printed:
            await _readable(self._info)
            printed += os.read(self._info, 65536)
        pid = json.loads(printed)["child-pid"]
        try:
            self._uplink = await attach(pid)
        except SandboxError:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # it is waiting; without a network it must not start
            raise
        os.write(self._go, b"1")


def _pipe(files: ExitStack) -> tuple[int, int]:
    ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    for end in ends:
        files.callback(os.close, end)
    return ends


async def attach(pid: int) -> Uplink:
    """Start an uplink for the network namespace of process *pid*, and wait until it works."""
    with ExitStack() as ends:
        ready, ready_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ends.callback(os.close, ready)
        exit_read, end = os.pipe2(os.O_CLOEXEC)
        closing = ends.enter_context(ExitStack())
        closing.callback(os.close, end)
        try:
            process = await asyncio.create_subprocess_exec(
                *_arguments(pid, ready=ready_write, end=exit_read),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(ready_write, exit_read),
                env={"PATH": os.defpath},
            )
        except OSError as error:
            raise SandboxError(f"{_PROGRAM} could not be started: {error}") from error
        finally:
            os.close(ready_write)
            os.close(exit_read)
        uplink = Uplink(process, closing.pop_all())
        try:
            await _wait_ready(process, ready)
        except BaseException:
            await uplink.close()
            raise
        return uplink


def _arguments(pid: int, *, ready: int, end: int) -> tuple[str, ...]:
    closed = closed_networks(_NETWORK)
    starter = (sys.executable, "-I", "-S", str(_START_SCRIPT), str(pid), ",".join(closed), "--")
    program = shutil.which(_PROGRAM) or _PROGRAM
    return (
        *(*starter, program, "--configure", "--disable-host-loopback"),
        f"--cidr={_NETWORK}",
        *("--enable-sandbox", "--enable-seccomp", f"--ready-fd={ready}", f"--exit-fd={end}"),
        *("--netns-type=path", "--userns-path", "{userns}", "{netns}", "tap0"),
    )


async def _wait_ready(process: asyncio.subprocess.Process, ready: int) -> None:
    """Wait until the uplink works; SandboxError with its error where it does not."""
    try:
        async with asyncio.timeout(_READY_S):
            await _readable(ready)
    except TimeoutError:
        raise SandboxError(f"{_PROGRAM} was not ready within {_READY_S:g} s") from None
    if not os.read(ready, 1):
        stderr = await process.stderr.read() if process.stderr is not None else b""
        why = one_line(stderr.decode(errors="replace"), width=400)
        raise SandboxError(f"{_PROGRAM} gave the box no network: {why}")


async def _readable(number: int) -> None:
    """Wait until the descriptor *number* is readable or at its end."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(number, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(number)
