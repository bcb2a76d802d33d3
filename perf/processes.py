"""Worker processes: what two carry over one, at a latency, and what they cost over one process."""

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from perf import limit_server
from perf.fast_server import serving
from perf.measure import Reading, child, cpu_s, report, trials
from perf.workload import MODEL, prompt, write_suite

SCALING, EFFICIENCY = 1.7, 0.9  # times as much with two workers; of the ideal rate
DEARER, START_S = 1.4, 1.0
REPETITIONS = 3
_TESTS = 500
_AT_ONCE = 512
# seconds, and how often the suite is asked; the short one takes all cores
_LATENCIES = ((2.0, 4), (0.05, 40))
_SCORED = 600


def measure() -> list[Reading]:
    """Measure each pair in turns and compare the least of both: whatever else the machine does only adds."""
    latencies = [reading for given in _LATENCIES for reading in _latency(*given)]
    return [*_scaling(), *latencies, _dearer(), _start()]


def _scaling() -> list[Reading]:
    seen: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(REPETITIONS):
        for workers, readings in seen.items():
            readings.append(child("processes", "scored", "-", workers))
    times, busiest = (
        {n: [r[what] for r in readings] for n, readings in seen.items()}
        for what in ("s", "busiest")
    )
    return [
        Reading(
            name=f"{what} with two workers / with one, CPU-bound scorer",
            value=min(values[2]) / min(values[1]),
            unit="×",
            bar=bar,
            note=f"{_SCORED} trials; {_listed(values[2])} and {_listed(values[1])} s",
        )
        for what, values, bar in (
            ("CPU of the busiest process", busiest, 1 / SCALING),
            ("time", times, None),
        )
    ]


def _latency(latency_s: float, suites: int) -> Iterator[Reading]:
    count = suites * _TESTS
    ideal_s = -(-count // _AT_ONCE) * latency_s
    rule = limit_server.Rule(latency_s=latency_s)
    with limit_server.serving(rule) as url:
        for workers, who in ((2, "two workers"), (0, "one process")):
            seen = child("processes", "prompts", url, workers, count, _AT_ONCE)
            yield Reading(
                name=f"time / ideal time, {latency_s:g} s latency, {_AT_ONCE} in flight, {who}",
                value=seen["s"] / ideal_s,
                unit="×",
                bar=1 / EFFICIENCY if workers and latency_s >= 1 else None,
                note=f"{count:,} prompts, {count / seen['s']:,.0f} per second, {seen['cpu']:.2g} s of CPU",
            )


def _dearer() -> Reading:
    count = max(trials(10_000), 2 * _TESTS)
    costs: dict[int, list[float]] = {0: [], 2: []}
    with serving() as url:
        for _ in range(REPETITIONS):
            for workers, seen in costs.items():
                more = _cpu_s(url, workers, count) - _cpu_s(url, workers, _TESTS)
                seen.append(more / (count - _TESTS) * 1e6)
    return Reading(
        name="CPU per trial, two workers / one process",
        value=min(costs[2]) / min(costs[0]),
        unit="×",
        bar=DEARER,
        note=f"{_listed(costs[2])} and {_listed(costs[0])} µs",
    )


def _start() -> Reading:
    with serving() as url:
        costs = [_cpu_s(url, 2, 1) - _cpu_s(url, 0, 1) for _ in range(REPETITIONS)]
    return Reading(
        name="CPU to start and end two workers", value=median(costs), unit="s", bar=START_S
    )


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _cpu_s(url: str, workers: int, count: int) -> float:
    return child("processes", "prompts", url, workers, count, 64)["cpu"]


def prompts(url: str, workers: int, count: int, at_once: int) -> dict[str, float]:
    """Run *count* prompts, in this process where there are no *workers*."""
    with tempfile.TemporaryDirectory() as folder:
        tests = min(count, _TESTS)
        suite, rollouts = write_suite(Path(folder), tests), -(-count // tests)
        how = {"at_once": at_once, "rollouts": rollouts, "trials_of_run": tests * rollouts}
        return _run(suite, workers, folder, url=url, **how)


def scored(workers: int) -> dict[str, float]:
    """Run prompts whose answers, their own echo, take a scorer some milliseconds each."""
    said = " ".join(map(prompt, range(40)))
    tests = [
        {"id": f"t{number}", "name": f"T{number}", "category": "c",
         "prompt": f"{said} {number}", "expected": said[::-1],
         "scorers": [{"scorer": "edit-similarity"}]}
        for number in range(_SCORED)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "suite.json"
        suite.write_text(json.dumps({"suite_info": {"name": "scored"}, "tests": tests}))
        return _run(suite, workers, folder, at_once=8, trials_of_run=_SCORED)


def _run(
    suite: Path,
    workers: int,
    folder: str,
    *,
    url: str | None = None,
    at_once: int,
    trials_of_run: int,
    rollouts: int = 1,
) -> dict[str, float]:
    """Return the seconds between the first trial and the last, and the CPU of all."""
    import bakeoff
    from bakeoff.core.events import Event, TrialEnded, TrialStarted

    began, ended, busiest, left = 0.0, 0.0, 0.0, trials_of_run

    def listen(event: Event) -> None:
        nonlocal began, ended, busiest, left
        if isinstance(event, TrialStarted) and not began:
            began = time.perf_counter()
        elif isinstance(event, TrialEnded):
            ended, left = time.perf_counter(), left - 1
            if not left:
                busiest = max([cpu_s(), *_workers_cpu_s()])

    before = _all_cpu_s()
    done = bakeoff.run(
        suite,
        models=[_fixed(url, at_once) if url else "scripted"],
        executor="processes" if workers else "local",
        workers=workers or None,
        parallel=at_once,
        rollouts=rollouts,
        output=folder,
        listener=listen,
    )
    assert done.summary().buckets.faults == 0
    return {"s": ended - began, "cpu": _all_cpu_s() - before, "busiest": busiest}


def _workers_cpu_s() -> Iterator[float]:
    """Yield the CPU of each process that this one has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                yield (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _fixed(url: str, at_once: int) -> Any:
    """Return a model that is asked *at_once* from the start: how that is found is measured elsewhere."""
    import bakeoff

    settings = {"max_concurrency": at_once, "adaptive": False}
    return bakeoff.ModelSpec(
        name=MODEL, provider="openai-compatible", base_url=url, settings=settings
    )


def _all_cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", choices=["prompts", "scored"])
    parser.add_argument("url", nargs="?")
    parser.add_argument("workers", nargs="?", type=int)
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("at_once", nargs="?", type=int)
    given = parser.parse_args()
    if given.part is None:
        report(measure())
    if given.part == "scored":
        print(json.dumps(scored(given.workers)))
    else:
        print(json.dumps(prompts(given.url, given.workers, given.count, given.at_once)))
