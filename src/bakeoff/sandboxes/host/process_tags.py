"""Processes found by the mark of their box, which they carry in their environment.

A process that left its group and its session still has the environment it was started with.
"""

import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

from bakeoff._lib import process_identity

VARIABLE = "BAKEOFF_BOX"
_MAX_ROUNDS = 100  # a process may fork while it is looked for: look until there is none


def new_tag() -> str:
    """Return a mark for a new box of this process."""
    return f"{process_identity.current()}-{secrets.token_hex(4)}"


def has_tag(tag: str) -> Callable[[str], bool]:
    """Return what tells a process of the box (or of the one command) with *tag*."""
    return lambda value: value == tag or value.startswith(f"{tag}.")


def has_dead_owner(value: str) -> bool:
    """Whether a process belongs to a box whose owner is gone."""
    tag = process_identity.find(value)
    return tag is not None and process_identity.is_dead(tag)


def tagged_processes(belongs: Callable[[str], bool]) -> list[int]:
    """Return the processes whose mark *belongs*; those that are no more but a zombie are left out."""
    if not Path("/proc/self").exists():
        return []
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and belongs(_tag_of(pid))]


def _tag_of(pid: int) -> str:
    """Return the mark a process carries; "" where it has none, is gone, or of another user."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    _, separator, rest = b"\0".join([b"", environment]).partition(f"\0{VARIABLE}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if separator else ""


def kill(belongs: Callable[[str], bool]) -> int:
    """Kill the processes whose mark *belongs* until there is none, and return how many there were."""
    killed: set[int] = set()
    for round_number in range(_MAX_ROUNDS):
        pids = tagged_processes(belongs)
        if not pids:
            break
        for pid in pids:
            kill_if_running(pid)
        killed.update(pids)
        time.sleep(0.001 * min(round_number + 1, 20))
    return len(killed)


def kill_if_running(pid: int) -> None:
    """Kill a process that may just have gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
