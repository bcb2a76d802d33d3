"""A data set of JSON Lines that grows: time to the first trial, and memory while its rows stream."""

import argparse
import json
import os
import tempfile
from pathlib import Path
from time import perf_counter

from perf.growth import FirstTrial, spent
from perf.measure import PARALLEL, Reading, child, report, trials
from perf.workload import prompt

SIZES = (20_000, 100_000)
LARGEST = 1_000_000
MOST_MB, MOST_S = 200, 3.0  # for a million rows
_GROWTH = 0.3  # kB of memory for each further row: that of its id, its place and its statistics


def measure(*, largest: bool = False) -> list[Reading]:
    """Run data sets of growing size with the scripted model, each in a process of its own."""
    sizes = [size for size in (*SIZES, *([LARGEST] * largest)) if size <= trials(LARGEST)]
    ran = {size: _ran(size) for size in sizes or [trials(LARGEST)]}
    (small, first), *_, (large, last) = [*ran.items()] * (2 if len(ran) == 1 else 1)
    further = max(large - small, 1)
    shown = {
        key: ", ".join(f"{size:,}: {steps[key]:.3g}" for size, steps in ran.items())
        for key in ("peak_mb", "first_s", "wall_s")
    }
    readings = [
        Reading(
            name="rows: peak memory of a run, each further row",
            value=(last["peak_mb"] - first["peak_mb"]) * 1e3 / further,
            unit="kB",
            bar=_GROWTH,
            note=f"MB at {shown['peak_mb']}; whole runs took s: {shown['wall_s']}",
        ),
        Reading(
            name="rows: each further row before the first trial / json.loads of its line",
            value=_further(first, last, "first_s") / _further(first, last, "floor_s"),
            unit="×",
            bar=2.0,
            note=f"s at {shown['first_s']}; the floor {last['floor_s']:.3g}",
        ),
    ]
    if largest:
        readings += [
            Reading(
                name=f"{large:,} rows: peak memory", value=last["peak_mb"], unit="MB", bar=MOST_MB
            ),
            Reading(
                name=f"{large:,} rows: first trial", value=last["first_s"], unit="s", bar=MOST_S
            ),
        ]
    return readings


def _further(first: dict[str, float], last: dict[str, float], key: str) -> float:
    """Return what more rows take: constant costs drop out, unless there was one size only."""
    return last[key] - first[key] if last is not first else last[key]


def _ran(size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        floor = child("rows", "write", folder, size)
        return {**floor, **child("rows", "run", folder, size)}


def write(folder: Path, count: int) -> dict[str, float]:
    """Write the rows, and return how long it takes to parse each of them."""
    path = folder / "rows.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = {
                "id": f"q{number}",
                "question": prompt(number),
                "answer": "Paris",
                "level": number % 7,
            }
            file.write(json.dumps(row) + "\n")
    began = perf_counter()
    with path.open("rb") as lines:
        assert all(json.loads(line)["id"] for line in lines)
    return {"floor_s": perf_counter() - began}


def run(folder: Path, count: int) -> dict[str, float]:
    """Run every row, from reading the file to the summary."""
    import bakeoff

    first = FirstTrial()
    began = perf_counter()
    bakeoff.run(
        folder / "rows.jsonl",
        models=["scripted/echo"],
        parallel=PARALLEL,
        output=folder,
        listener=first,
    )
    assert first.ended == count
    assert first.started is not None
    return {**spent(0.0, began), "first_s": first.started - began}


if __name__ == "__main__":
    parts = {"write": write, "run": run}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=parts)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("--largest", action="store_true", help=f"also {LARGEST:,} rows")
    given = parser.parse_args()
    if given.part is None:
        report(measure(largest=given.largest))
    print(json.dumps(parts[given.part](given.folder, given.count)))
