"""Runs blocking work in a thread that ends soon after it is cancelled."""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

from bakeoff._lib.process import run_to_completion
from bakeoff.core.errors import SandboxError

P = ParamSpec("P")
T = TypeVar("T")
_TIME_S = 300.0


class WorkCancelledError(Exception):
    """The work was cancelled."""


class ThreadWork:
    """The handle with which blocking work checks for cancellation and runs programs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._running: subprocess.Popen[bytes] | None = None

    def check_cancelled(self) -> None:
        """Raise WorkCancelledError where the work was cancelled."""
        if self._cancelled:
            raise WorkCancelledError

    def cancel(self) -> None:
        """Cancel the work, and kill the program that it waits for."""
        with self._lock:
            self._cancelled = True
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
        """Run a program and return its output.

        Where *stdin* is an iterable, the program must print little before it has read all of it.
        """
        with self._lock:
            self.check_cancelled()
            # its own process group: git starts other programs, which must end with it
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
        self.check_cancelled()
        return subprocess.CompletedProcess(argv, process.returncode, output, errors)


def _feed(process: subprocess.Popen[bytes], chunks: Iterable[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101 -- it was asked for
    try:
        for chunk in chunks:
            process.stdin.write(chunk)
    except BrokenPipeError:
        return  # its exit code and output say why


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it has already been waited for
            os.killpg(process.pid, signal.SIGKILL)


async def in_thread(
    function: Callable[Concatenate[ThreadWork, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run *function* in a thread; on cancellation, wait until the thread has ended.

    Clean-up after it can rely on nothing being written any more.
    """
    work = ThreadWork()
    running = asyncio.ensure_future(asyncio.to_thread(function, work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        work.cancel()
        await run_to_completion(_wait_done(running))
        if not running.cancelled():
            running.exception()  # retrieved, so that asyncio does not warn
        raise


async def _wait_done(running: asyncio.Future[T]) -> None:
    await asyncio.wait({running})
