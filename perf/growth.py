"""Suites of 10^3 to 10^6 distinct tests: memory, start, resume, summary, report and ledger per test."""

import argparse
import json
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from perf.measure import PARALLEL, Reading, child, cpu_s, peak_rss_mb, report, trials
from perf.workload import write_suite

SIZES = (1_000, 10_000, 100_000)
LARGEST = 1_000_000
_PARTS = ("run", "resume", "summarize", "report")


def measure(*, largest: bool = False) -> list[Reading]:
    """Run, resume, summarize and report suites of growing size, each step in a process of its own."""
    sizes = [size for size in (*SIZES, *([LARGEST] * largest)) if size <= trials(LARGEST)]
    curves = {size: _steps(size) for size in sizes or [trials(LARGEST)]}
    return [
        *_curve(
            curves, "run", "peak_mb", name="peak memory of a run", unit="kB per test", scale=1e3
        ),
        *_curve(curves, "run", "first_s", name="time to the first trial", unit="µs per test"),
        *_curve(curves, "run", "cpu_s", name="CPU of a run", unit="µs per test"),
        *_curve(
            curves, "resume", "cpu_s", name="CPU of resuming a finished run", unit="µs per test"
        ),
        *_curve(curves, "resume", "peak_mb", name="its peak memory", unit="kB per test", scale=1e3),
        *_curve(curves, "summarize", "cpu_s", name="CPU of a summary", unit="µs per test"),
        *_curve(
            curves, "summarize", "peak_mb", name="its peak memory", unit="kB per test", scale=1e3
        ),
        *_curve(curves, "report", "cpu_s", name="CPU of an HTML report", unit="µs per test"),
        *_curve(curves, "report", "peak_mb", name="its peak memory", unit="kB per test", scale=1e3),
        *_curve(curves, "run", "ledger_mb", name="ledger", unit="B per test"),
    ]


def _steps(size: int) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        # in a process of its own: a child begins with the peak memory of its parent
        child("growth", "write", folder, size)
        steps = {part: child("growth", part, folder, size) for part in _PARTS}
        size_b = sum(file.stat().st_size for file in Path(folder).rglob("ledger.sqlite"))
    steps["run"]["ledger_mb"] = size_b / 1e6
    return steps


def _curve(
    curves: dict[int, dict[str, dict[str, float]]],
    part: str,
    key: str,
    *,
    name: str,
    unit: str,
    scale: float = 1e6,
) -> list[Reading]:
    """Return what each further test adds, from one size to the next: constant costs drop out."""
    points = {size: steps[part][key] for size, steps in curves.items()}
    kind = "s" if key.endswith("_s") else "MB"
    note = ", ".join(f"{size:,}: {value:.3g} {kind}" for size, value in points.items())
    if len(points) == 1:
        ((size, value),) = points.items()
        return [Reading(name=name, value=value / size * scale, unit=unit, note=note)]
    slopes = [
        (after - before) / (larger - smaller) * scale
        for (smaller, before), (larger, after) in pairwise(points.items())
    ]
    growth = f"; last / first step {slopes[-1] / slopes[0]:.2f} ×" if slopes[0] > 0 else ""
    return [Reading(name=name, value=slopes[-1], unit=unit, note=f"{note}{growth}")]


class FirstTrial:
    """Writes down when the first trial starts, and counts those that end."""

    def __init__(self) -> None:
        self.started: float | None = None
        self.ended = 0

    def __call__(self, event: Any) -> None:
        # by name, not by type: this also listens to versions that keep their events elsewhere
        kind = type(event).__name__
        if kind == "TrialStarted" and self.started is None:
            self.started = perf_counter()
        elif kind == "TrialEnded":
            self.ended += 1


def write(folder: Path, count: int) -> dict[str, float]:
    """Write the suite."""
    write_suite(folder, count)
    return {}


def run_once(folder: Path, count: int) -> dict[str, float]:
    """Run *count* distinct tests with the scripted model, from reading the suite to the summary."""
    import bakeoff

    first = FirstTrial()
    before_s, began = cpu_s(), perf_counter()
    bakeoff.run(
        folder / "suite.json",
        models=["scripted/echo"],
        parallel=PARALLEL,
        output=folder,
        listener=first,
    )
    assert first.ended == count
    assert first.started is not None
    return {**spent(before_s, began), "first_s": first.started - began}


def resume(folder: Path, count: int) -> dict[str, float]:
    """Resume the run in *folder*, of which nothing is missing."""
    import bakeoff

    first = FirstTrial()
    before_s, began = cpu_s(), perf_counter()
    bakeoff.run(resume="latest", output=folder, listener=first)
    assert first.ended == 0, count
    return spent(before_s, began)


def summarize(folder: Path, count: int) -> dict[str, float]:
    """Summarize the run in *folder* from its ledger."""
    import bakeoff

    before_s, began = cpu_s(), perf_counter()
    assert bakeoff.summarize("latest", output=folder).buckets.scored == count
    return spent(before_s, began)


def report_once(folder: Path, count: int) -> dict[str, float]:
    """Write the HTML report of the run in *folder*."""
    import bakeoff

    before_s, began = cpu_s(), perf_counter()
    assert bakeoff.report("latest", output=folder), count
    return spent(before_s, began)


def spent(cpu_before_s: float, began: float) -> dict[str, float]:
    """Return the CPU and the time since then, and the peak of memory."""
    return {
        "cpu_s": cpu_s() - cpu_before_s,
        "wall_s": perf_counter() - began,
        "peak_mb": peak_rss_mb(),
    }


if __name__ == "__main__":
    parts = {
        "write": write,
        "run": run_once,
        "resume": resume,
        "summarize": summarize,
        "report": report_once,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=parts)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("--largest", action="store_true", help=f"also {LARGEST:,} tests")
    given = parser.parse_args()
    if given.part is None:
        report(measure(largest=given.largest))
    print(json.dumps(parts[given.part](given.folder, given.count)))
