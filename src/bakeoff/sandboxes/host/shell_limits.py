"""Shell prefixes that set limits before a command is exec'ed, and the marker of its start.

Setting them in Python between fork and exec is not safe in a process with threads.
"""

import shlex
from collections.abc import Callable
from pathlib import Path


def enter_cgroups(entry_files: list[Path], *, max_file_mb: int | None) -> tuple[str, ...]:
    """Return the argv prefix that enters control groups and limits the size of files."""
    steps = [f"echo 0 > {shlex.quote(str(path))} || exit 125" for path in entry_files]
    steps.append("ulimit -c 0")
    if max_file_mb is not None:
        steps.append(file_size_limit(max_file_mb))
    return _shell(steps)


def file_size_limit(max_mb: int) -> str:
    """Return the shell command that limits the size of files."""
    return f"ulimit -f {max_mb * 2048}"  # POSIX counts in blocks of 512 bytes


def set_rlimits(*, memory_mb: int | None, processes: int | None) -> tuple[str, ...]:
    """Return the argv prefix that limits each process, for where there is no control group.

    Memory is limited by data size, not address space: some programs reserve far more than they use.
    """
    steps = []
    if memory_mb is not None:
        steps.append(f"ulimit -d {memory_mb * 1024}")
    if processes is not None:  # -u in bash and zsh, -p in dash and ash
        steps.append(f"ulimit -u {processes} 2>/dev/null || ulimit -p {processes}")
    return _shell(steps)


def _shell(steps: list[str]) -> tuple[str, ...]:
    return ("/bin/sh", "-c", "; ".join([*steps, 'exec "$@"']), "sh")


class StartMarker:
    """Passes on output after the start marker, the first line of a command that was started."""

    def __init__(self, marker: str, on_output: Callable[[bytes], None] | None) -> None:
        self.marker = marker
        self._line = f"{marker}\n".encode()
        self._on_output = on_output
        self._pending: bytes | None = b""
        self.started = False

    def __call__(self, chunk: bytes) -> None:
        """Take the next chunk of output."""
        if self._pending is not None:
            chunk = self._pending + chunk
            if len(chunk) < len(self._line) and self._line.startswith(chunk):
                self._pending = chunk
                return
            self._pending = None
            self.started = chunk.startswith(self._line)
            chunk = chunk.removeprefix(self._line)
        if chunk and self._on_output is not None:
            self._on_output(chunk)
