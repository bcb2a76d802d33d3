"""A million trials: memory while they run, then what a summary and a resume of them take."""

import argparse
import json
import os
import tempfile
from pathlib import Path
from time import perf_counter

from perf.measure import PARALLEL, Reading, child, cpu_s, peak_rss_mb, report, trials
from perf.workload import Books, write_suite

BAR = 1.25
TRIALS = 1_000_000
_TESTS = 1_000
_SAMPLES = (10_000, 100_000, 500_000, 1_000_000)


def measure() -> list[Reading]:
    """Run, summarize and resume, each in a process of its own."""
    count = max(trials(TRIALS) // _TESTS, 20) * _TESTS
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        ran = child("memory", "run", folder, count)
        summary = child("memory", "summarize", folder, count)
        resumed = child("memory", "resume", folder, count)
        ledger_mb = sum(f.stat().st_size for f in Path(folder).rglob("ledger.sqlite")) / 1e6
    samples = [n for n in _SAMPLES if f"rss_{n}" in ran] or [10_000]
    if samples[-1] != count:
        samples.append(count)
    first, last = ran[f"rss_{samples[0]}"], ran[f"rss_{samples[-1]}"]
    shown = ", ".join(f"{n:,}: {ran[f'rss_{n}']:.0f}" for n in samples)
    return [
        Reading(
            name=f"memory at {samples[-1]:,} / at {samples[0]:,} trials",
            value=last / first,
            unit="×",
            bar=BAR,
            note=f"MB at {shown}",
        ),
        Reading(
            name=f"{count:,} trials: CPU per trial",
            value=ran["cpu_s"] / count * 1e6,
            unit="µs",
            note=f"scripted model, {PARALLEL} at once, {ran['wall_s']:.0f} s, ledger {ledger_mb:.0f} MB",
        ),
        Reading(
            name=f"summary of {count:,} trials: CPU",
            value=summary["cpu_s"],
            unit="s",
            note=f"{summary['wall_s']:.1f} s, peak memory {summary['peak_mb']:.0f} MB",
        ),
        Reading(
            name=f"resume of {count:,} finished trials: CPU",
            value=resumed["cpu_s"],
            unit="s",
            note=f"{resumed['wall_s']:.1f} s, peak memory {resumed['peak_mb']:.0f} MB",
        ),
    ]


def run(folder: Path, count: int) -> dict[str, float]:
    """Run *count* trials of the scripted model."""
    import bakeoff

    books = Books(every=_TESTS)
    began = perf_counter()
    bakeoff.run(
        write_suite(folder, _TESTS),
        models=["scripted/echo"],
        rollouts=count // _TESTS,
        parallel=PARALLEL,
        output=folder,
        listener=books,
    )
    samples = {f"rss_{n}": books.rss[n] for n in (*_SAMPLES, count) if n in books.rss}
    used_s = books.cpu[count] - books.cpu[0]
    return {**samples, "cpu_s": used_s, "wall_s": perf_counter() - began}


def summarize(folder: Path, count: int) -> dict[str, float]:
    """Summarize the run in *folder* from its ledger."""
    import bakeoff

    before_s, began = cpu_s(), perf_counter()
    summary = bakeoff.summarize("latest", output=folder)
    assert summary.buckets.scored == count
    return _spent(before_s, began)


def resume(folder: Path, count: int) -> dict[str, float]:
    """Resume the run in *folder*, of which nothing is missing."""
    import bakeoff

    books = Books(every=count)
    before_s, began = cpu_s(), perf_counter()
    bakeoff.run(resume="latest", output=folder, listener=books)
    assert books.ended == 0
    return _spent(before_s, began)


def _spent(cpu_before_s: float, began: float) -> dict[str, float]:
    return {
        "cpu_s": cpu_s() - cpu_before_s,
        "wall_s": perf_counter() - began,
        "peak_mb": peak_rss_mb(),
    }


if __name__ == "__main__":
    parts = {"run": run, "summarize": summarize, "resume": resume}
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", choices=parts)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("count", nargs="?", type=int)
    given = parser.parse_args()
    if given.part is None:
        report(measure())
    print(json.dumps(parts[given.part](given.folder, given.count)))
