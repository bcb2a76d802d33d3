"""What the measurements share: CPU and memory of a process, clean children, readings with a bar."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARALLEL = 64


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One number that was measured; with a bar, it must not be above it."""

    name: str
    value: float
    unit: str = ""
    bar: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.bar is None or self.value <= self.bar

    def as_data(self) -> dict[str, object]:
        return {**asdict(self), "passed": self.passed}


def cpu_s() -> float:
    """Return the CPU this process has used, in user and system, in all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_mb() -> float:
    """Return the memory this process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_rss_mb() -> float:
    """Return the most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def trials(default: int) -> int:
    """Return how many trials to run: BENCH_TRIALS caps every benchmark, for a quick look."""
    return min(default, int(os.environ.get("BENCH_TRIALS", default)))


def child(module: str, *args: object, python: str | Path = sys.executable) -> dict[str, float]:
    """Run `perf.<module>` as a process of its own and return what it prints last."""
    command = [str(python), "-m", f"perf.{module}", *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def table(readings: list[Reading]) -> str:
    """Return the readings as a person reads them."""
    rows = [("what", "measured", "bar", "", "")]
    for r in readings:
        bar = "" if r.bar is None else f"{_shown(r.bar)} {r.unit}".rstrip()
        verdict = "" if r.bar is None else "pass" if r.passed else "FAIL"
        rows.append((r.name, f"{_shown(r.value)} {r.unit}".rstrip(), bar, verdict, r.note))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def report(readings: list[Reading]) -> None:
    """Print the readings, and leave with 1 where one is above its bar."""
    print(table(readings))
    sys.exit(0 if all(r.passed for r in readings) else 1)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.2f}"
