"""The worker processes of a run, as the system sees them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

MODULE = "bakeoff.app.run_worker"


def workers_of(run: int) -> list[int]:
    """Return the processes that work for the run with this process number, those that ended left out."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            ended = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if MODULE.encode() in words and words[-2] == str(run).encode() and not ended:
                found.append(int(folder.name))
    return sorted(found)


def send(process: int, number: int) -> bool:
    """Send a signal; False where the process is gone."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def end(processes: list[int]) -> None:
    """Kill what a failed test left behind."""
    for process in processes:
        send(process, signal.SIGKILL)
