"""Finds processes by the tag of their box, which is in their environment.

A process that left its process group and session keeps the environment it was started with.
"""

import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

from bakeoff._lib import process_identity

VARIABLE = "BAKEOFF_BOX"
_MAX_ROUNDS = 100  # processes may fork meanwhile: repeat until there is none


def new_tag() -> str:
    """Return a tag for a new box of this process."""
    return f"{process_identity.current()}-{secrets.token_hex(4)}"


def has_tag(tag: str) -> Callable[[str], bool]:
    """Return a predicate for the tags of the box, or of its one command, with *tag*."""
    return lambda value: value == tag or value.startswith(f"{tag}.")


def has_dead_owner(value: str) -> bool:
    """Whether a tag belongs to a box whose owner is dead."""
    tag = process_identity.find(value)
    return tag is not None and process_identity.is_dead(tag)


def tagged_processes(belongs: Callable[[str], bool]) -> list[int]:
    """Return the processes whose tag *belongs*; zombies, which have no environment, are left out."""
    if not Path("/proc/self").exists():
        return []
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and belongs(_tag_of(pid))]


def _tag_of(pid: int) -> str:
    """Return the tag of a process; "" where it has none, has ended, or has another user."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    _, separator, rest = b"\0".join([b"", environment]).partition(f"\0{VARIABLE}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if separator else ""


def kill(belongs: Callable[[str], bool]) -> int:
    """Kill processes whose tag *belongs* until there is none, and return how many there were."""
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
    """Kill a process that may have ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
