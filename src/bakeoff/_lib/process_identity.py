"""The identity of the process that made a folder, a container or a cgroup, to find orphans later.

It holds the machine with its boot and PID namespace, the process, and its start time, so that a
reused process number is not mistaken for the old process.
"""

import os
import re
import socket
from functools import cache
from pathlib import Path

from bakeoff._lib.digest import digest

_IDENTITY = re.compile(r"([0-9a-f]{8})-(\d+)-(\d+)")


def current() -> str:
    """Return the identity of this process; letters, digits and hyphens only."""
    pid = os.getpid()
    return f"{_machine()}-{pid}-{_started(pid) or 0}"


def is_dead(identity: str) -> bool:
    """Whether *identity* is of a process of this machine that has ended; False if unknown."""
    parts = _IDENTITY.fullmatch(identity)
    if parts is None or parts[1] != _machine():
        return False
    started = _started(int(parts[2]))
    return started is None or started != int(parts[3])


def find(text: str) -> str | None:
    """Return the identity in *text*, such as the name of a folder; None without one."""
    match = _IDENTITY.search(text)
    return match[0] if match else None


@cache
def _machine() -> str:
    known = [socket.gethostname()]
    for path in (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")):
        try:
            known.append(str(path.readlink()) if path.is_symlink() else path.read_text())
        except OSError:
            known.append("")  # not Linux: the name of the host must do
    return digest(known)[:8]


def _started(pid: int) -> int | None:
    """Return when a process started, in the kernel's ticks; None where there is none, or it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None if Path("/proc/self").exists() else _alive(pid)
    fields = stat.rpartition(")")[2].split()
    ended = fields[0] in "ZX"  # only its entry is left, until its parent looks
    return None if ended else int(fields[19])


def _alive(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0
