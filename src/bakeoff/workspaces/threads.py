"""Work that blocks, done in a thread that ends soon after it is not wanted any more."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

from bakeoff._lib.process import uncancelled
from bakeoff.core.errors import SandboxError

P = ParamSpec("P")
T = TypeVar("T")
_TIME_S = 300.0


class UnwantedError(Exception):
    """The work goes on for nobody."""


class ThreadWork:
    """What blocking work asks whether it is still wanted, and has its programs run by."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unwanted = False
        self._running: subprocess.Popen[bytes] | None = None

    def go_on(self) -> None:
        """Raise where the work is not wanted any more."""
        if self._unwanted:
            raise UnwantedError

    def end(self) -> None:
        """Let the work end, and the program that it waits for."""
        with self._lock:
            self._unwanted = True
            if self._running is not None:
                _kill(self._running)

    def run(
        self,
        argv: tuple[str, ...],
        *,
        stdin: bytes | Iterable[bytes] = b"",
        env: Mapping[str, str] | None = None,
        time_s: float = _TIME_S,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end; its output is kept in memory.

        Where *stdin* comes piece by piece, the program may print little before the last one.
        """
        with self._lock:
            self.go_on()
            # a group of its own: git starts others, and they must end with it
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                process_group=0,
            )
            self._running = process
        try:
            if not isinstance(stdin, bytes):
                _feed(process, stdin)
                stdin = b""
            output, errors = process.communicate(stdin, timeout=time_s)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise SandboxError(f"{' '.join(argv[:2])} did not end within {time_s:g} s") from error
        except BaseException:
            _kill(process)
            raise
        finally:
            with self._lock:
                self._running = None
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                with suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()
        self.go_on()
        return subprocess.CompletedProcess(argv, process.returncode, output, errors)


def _feed(process: subprocess.Popen[bytes], pieces: Iterable[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101 -- it was asked for
    try:
        for piece in pieces:
            process.stdin.write(piece)
    except BrokenPipeError:
        return  # how it ended tells why


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):  # whoever waits for it was faster
            os.killpg(process.pid, signal.SIGKILL)


async def in_thread(
    function: Callable[Concatenate[ThreadWork, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what *function* returns; where this is cancelled, wait until the thread has ended.

    So whoever cleans up afterwards can be sure that nobody still writes there.
    """
    work = ThreadWork()
    running = asyncio.ensure_future(asyncio.to_thread(function, work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        work.end()
        await uncancelled(_over(running))
        if not running.cancelled():
            running.exception()  # looked at, so that nobody warns of it
        raise


async def _over(running: asyncio.Future[T]) -> None:
    await asyncio.wait({running})
