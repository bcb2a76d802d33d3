"""A suite of 100,000 tests: read, expanded and digested, over parsing its JSON alone."""

import argparse
import json
import tempfile
from pathlib import Path

from perf.measure import Reading, child, cpu_s, peak_rss_mb, report, trials
from perf.workload import MODEL, write_suite

TESTS = 100_000


def measure() -> list[Reading]:
    """Plan the suite in a process of its own."""
    count = trials(TESTS)
    with tempfile.TemporaryDirectory() as folder:
        path = write_suite(Path(folder), count)
        floor, ours = child("planning", "floor", path), child("planning", "plan", path)
    return [
        Reading(
            name=f"plan of {count:,} tests / json.loads",
            value=ours["cpu_s"] / floor["cpu_s"],
            unit="×",
            note=f"CPU {floor['cpu_s']:.2f} → {ours['cpu_s']:.2f} s "
            f"(read and expand {ours['read_s']:.2f}, digest {ours['digest_s']:.2f}), "
            f"peak memory {ours['peak_mb']:.0f} MB",
        )
    ]


def floor(path: Path) -> dict[str, float]:
    """Parse the file and no more."""
    before_s = cpu_s()
    assert json.loads(path.read_text(encoding="utf-8"))["tests"]
    return {"cpu_s": cpu_s() - before_s}


def plan(path: Path) -> dict[str, float]:
    """Read and expand the suite, and digest every task of the plan."""
    import bakeoff.app

    started_s = cpu_s()
    prepared = bakeoff.app.plan(path, models=[MODEL], base_url="http://127.0.0.1:1/v1")
    read_s = cpu_s() - started_s
    assert prepared.plan.digest
    all_s = cpu_s() - started_s
    return {
        "cpu_s": all_s,
        "read_s": read_s,
        "digest_s": all_s - read_s,
        "peak_mb": peak_rss_mb(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", choices=["floor", "plan"])
    parser.add_argument("path", nargs="?", type=Path)
    given = parser.parse_args()
    if given.part is None:
        report(measure())
    print(json.dumps(floor(given.path) if given.part == "floor" else plan(given.path)))
