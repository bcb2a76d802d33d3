"""A few words of shell before a command: what must be done in the process that becomes it.

Doing it in Python between fork and exec is not safe in a process with threads.
"""

import shlex
from collections.abc import Callable
from pathlib import Path


def entering(doors: list[Path], *, most_file_mb: int | None) -> tuple[str, ...]:
    """Return the words before an argv that enter control groups and limit the size of files."""
    steps = [f"echo 0 > {shlex.quote(str(door))} || exit 125" for door in doors]
    steps.append("ulimit -c 0")
    if most_file_mb is not None:
        steps.append(largest_file(most_file_mb))
    return _shell(steps)


def largest_file(most_mb: int) -> str:
    """Return the line of shell that limits how large a file can get."""
    return f"ulimit -f {most_mb * 2048}"  # POSIX counts in blocks of 512 bytes


def within_rlimits(*, memory_mb: int | None, processes: int | None) -> tuple[str, ...]:
    """Return the words before an argv that limit each process where no control group can.

    Memory is what a process writes to, not what it reserves: some reserve far more than they use.
    """
    steps = []
    if memory_mb is not None:
        steps.append(f"ulimit -d {memory_mb * 1024}")
    if processes is not None:  # one letter in bash and zsh, another in dash and ash
        steps.append(f"ulimit -u {processes} 2>/dev/null || ulimit -p {processes}")
    return _shell(steps)


def _shell(steps: list[str]) -> tuple[str, ...]:
    return ("/bin/sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh")


class StartMarker:
    """Hears what comes after the mark, which is the first line of a command that was started."""

    def __init__(self, mark: str, hears: Callable[[bytes], None] | None) -> None:
        self.mark = mark
        self._mark = f"{mark}\n".encode()
        self._hears = hears
        self._waiting: bytes | None = b""
        self.started = False

    def __call__(self, piece: bytes) -> None:
        """Hear the next piece."""
        if self._waiting is not None:
            piece = self._waiting + piece
            if len(piece) < len(self._mark) and self._mark.startswith(piece):
                self._waiting = piece
                return
            self._waiting = None
            self.started = piece.startswith(self._mark)
            piece = piece.removeprefix(self._mark)
        if piece and self._hears is not None:
            self._hears(piece)
