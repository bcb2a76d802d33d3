"""A program at a terminal of its own, and whoever types there."""

import os
import pty
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

_MOST_S = 60.0


class Terminal:
    """The other end of somebody's terminal."""

    def __init__(self, fd: int, pid: int) -> None:
        self._fd, self._pid = fd, pid
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str, *, after: int = 0) -> int:
        """Read until *text* is on the screen, and return where it ends."""
        until = time.monotonic() + _MOST_S
        while (at := self.seen.find(text, after)) < 0:
            assert time.monotonic() < until, f"{text!r} never came; there was {self.seen!r}"
            self._read()
        return at + len(text)

    def end(self) -> int:
        """Read to the end and return the exit code."""
        until = time.monotonic() + _MOST_S
        while time.monotonic() < until:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._read()
            if pid:
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it did not end; there was {self.seen!r}")

    def _read(self) -> None:
        ready, _, _ = select.select([self._fd], [], [], 0.05)
        if ready:
            try:
                self.seen += os.read(self._fd, 65536).decode(errors="replace")
            except OSError:  # Linux says so where the last program has left
                time.sleep(0.01)


@contextmanager
def at_terminal(words: list[str]) -> Iterator[Terminal]:
    """Run a program with a pseudo-terminal as its controlling one; it does not outlive the block."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(words[0], words)
    try:
        yield Terminal(fd, pid)
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it ended, as it should
        os.close(fd)
