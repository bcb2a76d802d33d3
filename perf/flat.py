"""The cost of a trial does not grow: CPU per trial late in a run over CPU per trial early in it."""

import argparse
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median

from perf.fast_server import serving
from perf.measure import PARALLEL, Reading, child, report, trials
from perf.workload import MODEL, Books, write_suite

BAR = 1.25
TRIALS = 200_000
_WINDOW = 1_000
_WINDOWS = 10  # the cheapest of so many stands for "early" and for "late": noise only adds
_TESTS = 100


def measure() -> list[Reading]:
    """Run many trials with the scripted model, and again over HTTP."""
    count = max(trials(TRIALS), 2 * _WINDOWS * _WINDOW)
    with serving() as url:
        return [*_readings("scripted", "-", count), *_readings("loopback HTTP", url, count)]


def _readings(name: str, url: str, count: int) -> list[Reading]:
    seen = child("flat", url, count)
    note = f"trials 1,000–11,000 against the last 10,000 of {count:,}"
    return [
        Reading(
            name=f"{name}: CPU per trial, late / early",
            value=seen["late_us"] / seen["early_us"],
            unit="×",
            bar=BAR,
            note=f"{seen['early_us']:.0f} → {seen['late_us']:.0f} µs, {note} "
            f"(medians: {seen['median_ratio']:.2f} ×)",
        ),
        Reading(
            name=f"{name}: memory, late / early",
            value=seen["late_mb"] / seen["early_mb"],
            unit="×",
            bar=BAR,
            note=f"{seen['early_mb']:.0f} → {seen['late_mb']:.0f} MB",
        ),
    ]


def run(url: str, count: int) -> dict[str, float]:
    """Run *count* trials and compare the first windows with the last."""
    import bakeoff

    books = Books(every=_WINDOW)
    scripted = url == "-"
    with tempfile.TemporaryDirectory() as folder:
        bakeoff.run(
            write_suite(Path(folder), _TESTS),
            models=["scripted/echo" if scripted else MODEL],
            base_url=None if scripted else url,
            rollouts=count // _TESTS,
            parallel=PARALLEL,
            output=folder,
            listener=books,
        )
    ends = sorted(books.cpu)
    costs = [(books.cpu[b] - books.cpu[a]) / (b - a) * 1e6 for a, b in pairwise(ends)]
    # the first window also opens the connections
    early, late = costs[1 : 1 + _WINDOWS], costs[-_WINDOWS:]
    return {
        "early_us": min(early),
        "late_us": min(late),
        "median_ratio": median(late) / median(early),
        "early_mb": books.rss[ends[1 + _WINDOWS]],
        "late_mb": books.rss[ends[-1]],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?", help="of a server; - is the scripted model")
    parser.add_argument("count", nargs="?", type=int)
    given = parser.parse_args()
    if given.url is None:
        report(measure())
    print(json.dumps(run(given.url, given.count)))
