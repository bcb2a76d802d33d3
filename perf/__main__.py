"""Run every benchmark and print one table; leave with 1 where a bar is missed.

python -m perf                       everything; takes minutes
BENCH_TRIALS=20000 python -m perf    a quick look
python -m perf --only startup trial_cost --json results.json
python -m perf --only growth rows --largest   suites and data sets of 10^6 tests, too
"""

import argparse
import json
import platform
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter

from perf.measure import Reading, report

BENCHMARKS = (
    "startup",
    "trial_cost",
    "end_to_end",
    "limits",
    "planning",
    "growth",
    "rows",
    "flat",
    "memory",
    "viewer",
    "boxes",
    "processes",
    "others",
)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m perf",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS)
    parser.add_argument("--largest", action="store_true", help="growth, rows: up to 10^6 tests")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the readings here")
    given = parser.parse_args()
    readings: list[Reading] = []
    for name in given.only:
        began = perf_counter()
        options = {"largest": True} if name in {"growth", "rows"} and given.largest else {}
        readings += import_module(f"perf.{name}").measure(**options)
        print(f"{name}: {perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    if given.json:
        data = {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "readings": [reading.as_data() for reading in readings],
        }
        given.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    report(readings)


if __name__ == "__main__":
    main()
