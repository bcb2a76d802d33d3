"""`bakeoff --help` must feel instant: its CPU, and what it must not import for it."""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from perf.measure import ROOT, Reading, report

BAR_MS = 150.0
RUNS = 10
HEAVY = ("aiohttp", "jsonschema", "msgspec", "numpy", "rich", "scipy", "uvloop")


def measure() -> list[Reading]:
    """Start Python and bakeoff in turns."""
    python = [sys.executable, "-c", "pass"]
    bakeoff = [str(Path(sys.executable).with_name("bakeoff")), "--help"]
    cpu_ms(bakeoff)  # the first start may have to compile
    bare, ours = [], []
    for _ in range(RUNS):
        bare.append(cpu_ms(python))
        ours.append(cpu_ms(bakeoff))
    heavy = heavy_imports()
    return [
        Reading(
            name="bakeoff --help: CPU",
            value=median(ours),
            unit="ms",
            bar=BAR_MS,
            note=f"median of {RUNS}; {median(ours) / median(bare):.1f} × `python -c pass` "
            f"({median(bare):.0f} ms)",
        ),
        Reading(
            name="bakeoff --help: heavy imports",
            value=len(heavy),
            bar=0,
            note=", ".join(heavy) or f"none of {', '.join(HEAVY)}",
        ),
    ]


def heavy_imports() -> list[str]:
    """Return the heavy packages that help imports."""
    command = [sys.executable, "-X", "importtime", "-m", "bakeoff", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    return sorted(imported.intersection(HEAVY))


def cpu_ms(command: list[str]) -> float:
    """Run *command* and return its CPU, user and system."""
    with Path(os.devnull).open("wb") as nowhere:
        process = subprocess.Popen(command, cwd=ROOT, stdout=nowhere)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return (used.ru_utime + used.ru_stime) * 1000


if __name__ == "__main__":
    report(measure())
