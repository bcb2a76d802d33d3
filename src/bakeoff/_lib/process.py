"""Child processes that end in time, with all their children, whatever they do.

asyncio's own wait for the end of the output, which a grandchild may hold open for ever, and they
behave differently under each event loop. Here the end of the child itself counts; what it printed
until then is read, and then its whole group is gone.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import IO

from bakeoff._lib.value_object import value_object

_MARK = "\n[... {left_out:,} bytes left out ...]\n"
_ROOM_FOR_MARK = 64
_WORTH_A_MARK = 4 * _ROOM_FOR_MARK


class BoundedOutput:
    """Collects output and keeps at most *most* bytes: the first half and the last half."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._room_for_mark = _ROOM_FOR_MARK if most >= _WORTH_A_MARK else 0
        self._head_room = (most - self._room_for_mark) // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self.total += len(piece)
        taken = self._head_room - len(self._head)
        self._head += piece[:taken]
        self._tail += piece[taken:]
        room = self._most - self._head_room
        if len(self._tail) > 2 * room:  # seldom, so that each byte is moved about once
            del self._tail[: len(self._tail) - room]

    @property
    def truncated(self) -> bool:
        """Whether something had to be left out."""
        return self.total > self._most

    def text(self) -> str:
        """Return what is kept, with a line where something was left out."""
        if not self.truncated:
            return (self._head + self._tail).decode(errors="replace")
        room = self._most - self._room_for_mark - self._head_room
        tail = self._tail[len(self._tail) - room :]
        left_out = self.total - len(self._head) - len(tail)
        mark = _MARK.format(left_out=left_out) if self._room_for_mark else ""
        return self._head.decode(errors="replace") + mark + tail.decode(errors="replace")


_GRACE_S = 0.25  # for what is still in the pipe when the child has gone but others hold it open
_DEATH_S = 10.0  # a killed process is gone in no time, unless the kernel holds it
_PIECE = 65536
_FREE_PIECES = 256  # then the output is a flood: it is read slowly, so that it costs no one much
_FLOOD_PAUSE_S = 0.01
_POLL_S = 0.01


class NotEndedError(Exception):
    """A process was killed and is still there."""


@value_object
class Program:
    """What to start; nothing of our environment or open files goes with it but what is named here.

    Its output is standard output and error in the order in which they came.
    With `keeps_children`, children that outlive the program are left alone.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str = "/"
    stdin: bytes = b""
    most_output: int = 1_000_000
    on_output: Callable[[bytes], None] | None = field(default=None, repr=False, compare=False)
    pass_fds: tuple[int, ...] = ()
    keeps_children: bool = False


@value_object
class ProcessResult:
    """How a program ended: `code` as a shell would say it, or None where it was `stopped`."""

    code: int | None
    output: str
    elapsed_s: float
    stopped: str | None = None
    truncated: bool = False


async def run(program: Program, *, time_s: float | None = None) -> ProcessResult:
    """Run *program* to its end, which comes after *time_s* at the latest."""
    return await Child(program).end(time_s=time_s)


class Child:
    """A running program; `end` must be awaited. It is started by the constructor.

    Start it from the thread of the event loop: what dies with its parent dies with that thread.
    """

    def __init__(self, program: Program) -> None:
        self._loop = asyncio.get_running_loop()
        self._program = program
        self._bounded = BoundedOutput(program.most_output)
        self._stopped: str | None = None
        self._listener_error: Exception | None = None
        self._pieces = 0
        self._started = time.monotonic()
        self._exit: asyncio.Future[None] = self._loop.create_future()
        self._silent: asyncio.Future[None] = self._loop.create_future()
        self._again: asyncio.TimerHandle | None = None
        self._poll: asyncio.TimerHandle | None = None
        with _input(program.stdin) as stdin:
            self._process = subprocess.Popen(
                program.argv,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(program.environment),
                cwd=program.cwd,
                start_new_session=True,
                pass_fds=program.pass_fds,
                bufsize=0,
            )
        assert self._process.stdout is not None  # noqa: S101 -- it was asked for
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._out, False)
        self._loop.add_reader(self._out, self._read)
        self._pidfd = _pidfd(self._process.pid)
        if self._pidfd is None:
            self._poll_exit()
        else:
            self._loop.add_reader(self._pidfd, self._exited)

    @property
    def pid(self) -> int:
        """The process, which leads its own group and session."""
        return self._process.pid

    def kill(self, why: str) -> None:
        """End the whole group now; the first to call it says why."""
        if self._stopped is None and not self._exit.done():
            self._stopped = why
        self._kill_group()

    async def end(self, *, time_s: float | None = None) -> ProcessResult:
        """Wait until the program has ended, and return how; nothing of its group is left then.

        Where the wait is cancelled, everything is killed before the cancellation goes on.
        """
        try:
            await asyncio.wait([self._exit], timeout=time_s)
            if not self._exit.done():
                self.kill(f"its time was over after {time_s:g} s")
        except asyncio.CancelledError:
            self.kill("it was cancelled")
            raise
        finally:
            await run_to_completion(self._finish())
        if self._listener_error is not None:
            raise self._listener_error
        code = self._process.returncode
        return ProcessResult(
            code=None if self._stopped else code if code >= 0 else 128 - code,
            output=self._bounded.text(),
            elapsed_s=time.monotonic() - self._started,
            stopped=self._stopped,
            truncated=self._bounded.truncated,
        )

    async def _finish(self) -> None:
        """See the child off: its last output, its group, its files."""
        try:
            if not self._exit.done():
                await asyncio.wait([self._exit], timeout=_DEATH_S)
            if not self._exit.done():
                raise NotEndedError(f"process {self.pid} was killed and is still there")
            if self._stopped is not None or not self._program.keeps_children:
                self._kill_group()
            if not self._silent.done():
                await asyncio.wait([self._silent], timeout=_GRACE_S)
        finally:
            self._close()

    def _close(self) -> None:
        for timer in (self._again, self._poll):
            if timer is not None:
                timer.cancel()
        self._stop_reading()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._exit.done():
            self._process.wait()

    def _kill_group(self) -> None:
        # not reaped yet, so that the number cannot be anybody else's
        if self._process.returncode is None or self._pidfd is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def _poll_exit(self) -> None:
        """Where the kernel cannot tell of an exit (macOS), look from time to time."""
        if self._process.poll() is not None:
            self._exited()
        else:
            self._poll = self._loop.call_later(_POLL_S, self._poll_exit)

    def _exited(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
        if not self._exit.done():
            self._exit.set_result(None)

    def _read(self) -> None:
        self._again = None
        try:
            piece = os.read(self._out, _PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._stop_reading()
            return
        self._pieces += 1
        self._bounded.add(piece)
        self._notify(piece)
        if self._pieces > _FREE_PIECES and not self._silent.done():
            self._loop.remove_reader(self._out)
            self._again = self._loop.call_later(_FLOOD_PAUSE_S, self._read_on)

    def _read_on(self) -> None:
        if not self._silent.done():
            self._loop.add_reader(self._out, self._read)
            self._read()

    def _notify(self, piece: bytes) -> None:
        if self._program.on_output is None:
            return
        try:
            self._program.on_output(piece)
        except Exception as error:  # noqa: BLE001 -- raised again in the waiting coroutine
            self._listener_error = error
            self._stop_reading()
            self.kill("its output could not be read")

    def _stop_reading(self) -> None:
        self._loop.remove_reader(self._out)
        if not self._silent.done():
            self._silent.set_result(None)


async def run_to_completion(work: Coroutine[object, object, None]) -> None:
    """Await *work* to its end, also where the wait for it is cancelled, and only then go on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None and task.exception() is None:
        raise cancelled
    task.result()


def _input(data: bytes) -> IO[bytes]:
    """Return an open file with *data*: a pipe would block if the child never reads it."""
    if not data:
        return Path(os.devnull).open("rb")
    opened: IO[bytes]
    if hasattr(os, "memfd_create"):
        opened = os.fdopen(os.memfd_create("stdin", os.MFD_CLOEXEC), "w+b")
    else:
        opened = tempfile.TemporaryFile()  # noqa: SIM115 -- the caller closes it
    opened.write(data)
    opened.seek(0)
    return opened


def _pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
