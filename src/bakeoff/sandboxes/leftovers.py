"""What dead runs left on this machine: control groups, processes, folders."""

from bakeoff._lib import scratch
from bakeoff.sandboxes import cgroups, marks


def reap() -> list[str]:
    """Take away what runs left whose owners are gone; return a line for each thing."""
    lines = cgroups.reap()
    killed = marks.kill(marks.is_of_the_dead)
    if killed:
        lines.append(f"{killed} processes")
    return [*lines, *(f"folder {folder}" for folder in scratch.reap())]
