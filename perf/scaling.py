"""What a run of 10^8 trials on 100 machines costs, from what a trial costs here.

python -m perf.scaling                              measure, then print the tables of docs/background/scaling.md
python -m perf.scaling --json inputs.json           also keep what was measured
python -m perf.scaling --inputs inputs.json --machines 1000 --latency-s 5    other questions, nothing measured again
python -m perf.scaling --speed-up                   one process, two workers and two shards, where scoring is the work

All inputs but the options are CPU times measured here: what a further trial, task or record costs, from two
sizes each, so that what a start costs drops out.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perf.fast_server import serving
from perf.measure import PARALLEL, child, cpu_s, peak_rss_mb
from perf.workload import MODEL, Books, write_suite

_TESTS = 500
_SIZES = (5_000, 20_000)  # trials
_PLANS = (5_000, 20_000)  # tasks
_SHARDS = 4


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was measured: seconds of CPU for each further one, and bytes."""

    local_s: float  # a trial, in one process
    coordinator_s: float  # a trial with worker processes: the process that keeps the ledger
    worker_s: float  # a trial with worker processes: all of those
    cut_s: float  # a task: read, planned and cut
    merge_s: float  # a trial, merged, with the summary at the end
    merge_mb: float  # peak memory of the larger merge
    merge_growth_mb: float  # how much more that was than in the smaller one
    summary_s: float  # a trial, in a summary
    ledger_b: float  # a trial


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of the model."""

    trials: float
    tasks: float
    machines: int
    cores: int
    latency_s: float
    in_flight: int
    work_s: float
    answer_usd: float
    core_hour_usd: float


# --- measured --------------------------------------------------------------------------------------


def measured() -> Inputs:
    """Measure every input, each in a process of its own."""
    with serving() as url:
        local = _each(_SIZES, "run", "local", url)
        processes = _each(_SIZES, "run", "processes", url)
    plan, merge = _each(_PLANS, "cut"), _each(_SIZES, "merge")
    return Inputs(
        local_s=_slope(local, _SIZES, "own_s"),
        coordinator_s=_slope(processes, _SIZES, "own_s"),
        worker_s=_slope(processes, _SIZES, "workers_s"),
        cut_s=_slope(plan, _PLANS, "cpu_s"),
        merge_s=_slope(merge, _SIZES, "cpu_s"),
        merge_mb=merge[-1]["peak_mb"],
        merge_growth_mb=merge[-1]["peak_mb"] - merge[0]["peak_mb"],
        summary_s=_slope(merge, _SIZES, "summary_s"),
        ledger_b=_slope(merge, _SIZES, "ledger_b"),
    )


def _each(sizes: tuple[int, ...], part: str, *words: str) -> list[dict[str, float]]:
    return [child("scaling", part, size, *words) for size in sizes]


def _slope(readings: list[dict[str, float]], sizes: tuple[int, ...], key: str) -> float:
    """Return what each further one costs."""
    return (readings[-1][key] - readings[0][key]) / (sizes[-1] - sizes[0])


def run(count: int, executor: str, url: str) -> dict[str, float]:
    """Run *count* trials, and return the CPU of this process and of its workers."""
    import bakeoff as product

    books = Books(every=count)
    workers: dict[str, Any] = {} if executor == "local" else {"workers": 2}
    with tempfile.TemporaryDirectory() as folder:
        product.run(
            write_suite(Path(folder), _TESTS),
            models=[MODEL],
            base_url=url,
            rollouts=count // _TESTS,
            parallel=PARALLEL,
            output=folder,
            listener=books,
            executor=executor,
            **workers,
        )
    assert books.ended == count
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "own_s": books.cpu[count] - books.cpu[0],
        "workers_s": ended.ru_utime + ended.ru_stime,
    }


def cut(tasks: int) -> dict[str, float]:
    """Read a suite of *tasks* and cut one shard of a hundred."""
    import bakeoff.app

    with tempfile.TemporaryDirectory() as folder:
        suite = write_suite(Path(folder), tasks)
        before_s = cpu_s()
        prepared = bakeoff.app.plan(suite, models=["scripted/echo"], shard="0/100")
        assert prepared.shard is not None
        assert prepared.shard.tasks == tasks
        return {"cpu_s": cpu_s() - before_s}


def merge(count: int) -> dict[str, float]:
    """Run *count* trials in shards; merge them in a process of its own, which is measured."""
    import bakeoff as product

    with tempfile.TemporaryDirectory() as folder:
        suite = write_suite(Path(folder), _TESTS)
        shards = [
            product.run(
                suite,
                models=["scripted/echo"],
                shard=f"{number}/{_SHARDS}",
                rollouts=count // _TESTS,
                parallel=PARALLEL,
                output=Path(folder) / "shards",
            ).folder
            for number in range(_SHARDS)
        ]
        return child("scaling", "merged", count, f"{folder}/whole", *shards)


def merged(count: int, output: str, *shards: str) -> dict[str, float]:
    """Merge, and summarize the whole run once more."""
    from bakeoff.app.merging import merge as merge_runs

    before_s = cpu_s()
    whole = merge_runs(shards, output=output)
    merge_cpu_s, peak_mb = cpu_s() - before_s, peak_rss_mb()
    assert whole.manifest.planned == count
    before_s = cpu_s()
    whole.summary_of(whole.plan)
    return {
        "cpu_s": merge_cpu_s,
        "peak_mb": peak_mb,
        "summary_s": cpu_s() - before_s,
        "ledger_b": float((whole.folder / "ledger.sqlite").stat().st_size),
    }


# --- measured: speed-up ----------------------------------------------------------------------------

_BUSY_TRIALS, _ROUNDS = 1000, 2
_SCORER = {"scorer": "edit-similarity"}
_LETTERS, _TARGETS = 2000, 2  # of texts that the scorer compares: some milliseconds of CPU


def speed_up() -> str:
    """Return what trials whose scorer computes cost in one process, with two workers, as two shards.

    The busiest process decides how many go through where each has a core of its own: so what else
    the machine does at the time changes little.
    """
    ways = {
        "one process": [("local", "-")],
        "two workers": [("processes", "-")],
        "two shards": [("local", "0/2"), ("local", "1/2")],
    }
    best = {name: min(_costs(runs) for _ in range(_ROUNDS)) for name, runs in ways.items()}
    floor, _ = best["one process"]
    rows = [
        (
            f"{name}: {in_all * 1e3:.2f} ms of CPU a trial, {busiest * 1e3:.2f} in the busiest process",
            f"{1 / busiest:,.0f} trials per second, {floor / busiest:.2f} ×",
        )
        for name, (busiest, in_all) in best.items()
    ]
    return _table(("scorer `edit-similarity` on texts of 2,000 letters", "a core for each"), rows)


def _costs(runs: list[tuple[str, str]]) -> tuple[float, float]:
    """Return the CPU of the busiest process and of all of them, for each trial."""
    ended = [child("scaling", "busy", _BUSY_TRIALS, *words) for words in runs]
    in_all = sum(one["own_s"] + one["workers_s"] for one in ended)
    busiest = max(max(one["own_s"], one["workers_s"] / 2) for one in ended)
    return busiest / _BUSY_TRIALS, in_all / _BUSY_TRIALS


def busy(count: int, executor: str, shard: str) -> dict[str, float]:
    """Run *count* trials, or a shard of them, whose scorer computes."""
    import bakeoff as product

    books = Books(every=1)
    workers: dict[str, Any] = {} if executor == "local" else {"workers": 2}
    with tempfile.TemporaryDirectory() as folder:
        product.run(
            _long_suite(Path(folder)),
            models=["scripted/echo"],
            shard=None if shard == "-" else shard,
            rollouts=count // _TESTS,
            parallel=PARALLEL,
            output=folder,
            executor=executor,
            listener=books,
            **workers,
        )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "own_s": max(books.cpu.values()) - books.cpu[0],
        "workers_s": ended.ru_utime + ended.ru_stime,
    }


def _long_suite(folder: Path) -> Path:
    """Write a suite of long texts that are compared with others."""
    chance = random.Random(1)
    texts = ["".join(chance.choices("abcdefgh ", k=_LETTERS)) for _ in range(_TARGETS + 1)]
    tests = [
        {"id": str(n), "prompt": f"{n} {texts[0]}", "expected": texts[1:], "scorers": [_SCORER]}
        for n in range(_TESTS)
    ]
    path = folder / "suite.json"
    path.write_text(json.dumps({"tests": tests}))
    return path


# --- computed --------------------------------------------------------------------------------------


def inputs_table(inputs: Inputs) -> str:
    """Return what was measured."""
    rows = [
        ("a trial in one process", _us(inputs.local_s)),
        ("a trial with worker processes: the coordinator", _us(inputs.coordinator_s)),
        ("a trial with worker processes: its worker", _us(inputs.worker_s)),
        ("a task of the suite, read, planned and cut into shards", _us(inputs.cut_s)),
        ("a trial, merged from shards, with checks and summary", _us(inputs.merge_s)),
        ("a trial in a summary", _us(inputs.summary_s)),
        ("a trial in the ledger", f"{inputs.ledger_b:,.0f} B"),
        (
            "memory of a merge",
            f"{inputs.merge_mb:,.0f} MB; {inputs.merge_growth_mb:+,.1f} MB from {_SIZES[0]:,} to "
            f"{_SIZES[-1]:,} trials",
        ),
    ]
    return _table(("each further ...", "costs"), rows)


def shards_table(inputs: Inputs, asked: Question) -> str:
    """Return what the run costs as shards, one on each machine."""
    share = asked.trials / asked.machines
    in_process = share * (inputs.local_s + asked.work_s)
    in_all = share * (inputs.coordinator_s + inputs.worker_s + asked.work_s)
    on_cores = max(in_all / asked.cores, share * inputs.coordinator_s)
    waiting = share * asked.latency_s / asked.in_flight
    reading = asked.tasks * inputs.cut_s
    merging = asked.trials * inputs.merge_s
    cores_h = (asked.machines * (in_process + reading) + merging) / 3600
    rows = [
        ("trials of one shard", f"{share:,.0f}"),
        ("reading and cutting the plan, on every machine", _time(reading)),
        ("a shard in one process: CPU", _time(in_process)),
        (f"a shard with worker processes on {asked.cores} cores: at least", _time(on_cores)),
        (f"a shard, waiting for the endpoint ({asked.in_flight:,} in flight)", _time(waiting)),
        ("merge: one core of one machine", _time(merging)),
        ("merged ledger", _bytes(asked.trials * inputs.ledger_b)),
        ("CPU in all", f"{cores_h:,.0f} core hours, ${cores_h * asked.core_hour_usd:,.2f}"),
        ("answers", f"${asked.trials * asked.answer_usd:,.0f}"),
    ]
    return _table((f"{asked.trials:,.0f} trials as {asked.machines:,} shards", ""), rows)


def coordinator_table(inputs: Inputs, asked: Question) -> str:
    """Return what the run costs with one coordinator for all machines, and where that is the limit."""
    most = 1 / inputs.coordinator_s
    wanted = asked.machines * asked.in_flight / asked.latency_s
    computed = asked.machines * asked.cores / (inputs.worker_s + asked.work_s)
    rate, why = min((most, "the coordinator"), (wanted, "the endpoint"), (computed, "the cores"))
    each = min(asked.in_flight / asked.latency_s, asked.cores / (inputs.local_s + asked.work_s))
    setting = f"{asked.in_flight:,} in flight on each machine, {asked.latency_s:g} s an answer"
    rows = [
        ("one coordinator hands out, per second at most", f"{most:,.0f}"),
        (f"{asked.machines:,} machines with {setting}, take per second", f"{wanted:,.0f}"),
        ("their cores compute, per second at most", f"{computed:,.0f}"),
        ("what is the limit", why),
        (f"{asked.trials:,.0f} trials take", _time(asked.trials / rate)),
        ("as shards, all cores of each machine", _time(asked.trials / asked.machines / each)),
    ]
    return _table(("one coordinator for all machines", ""), rows)


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [head, ("---", "---"), *rows]
    return "\n".join(f"| {left} | {right} |" for left, right in lines)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs of CPU"


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.0f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


_PARTS = {"busy": busy, "cut": cut, "merge": merge, "merged": merged, "run": run}


def main() -> None:
    """Measure, or read what was measured, and print the tables."""
    if len(sys.argv) > 1 and sys.argv[1] in _PARTS:
        part, count, *words = sys.argv[1:]
        print(json.dumps(_PARTS[part](int(count), *words)))  # type: ignore[operator]
        return
    parser = argparse.ArgumentParser(prog="python -m perf.scaling", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--trials", type=float, default=1e8)
    parser.add_argument("--tasks", type=float, default=1e5, help="different tasks among them")
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--cores", type=int, default=8, help="of each machine")
    parser.add_argument("--latency-s", type=float, default=2.0, help="of an answer")
    parser.add_argument("--in-flight", type=int, default=64, help="requests, on each machine")
    parser.add_argument("--work-s", type=float, default=0.0, help="CPU of a trial's own: scorers, boxes")  # fmt: skip
    parser.add_argument("--answer-usd", type=float, default=0.0005)
    parser.add_argument("--core-hour-usd", type=float, default=0.04)
    parser.add_argument("--speed-up", action="store_true")
    parser.add_argument("--inputs", type=Path, metavar="FILE", help="measured before, by --json")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured here")  # fmt: skip
    given = parser.parse_args()
    if given.speed_up:
        print(speed_up())
        return
    inputs = Inputs(**json.loads(given.inputs.read_text())) if given.inputs else measured()
    if given.json:
        given.json.write_text(json.dumps(asdict(inputs), indent=2) + "\n")
    asked = {k: v for k, v in vars(given).items() if k not in {"inputs", "json", "speed_up"}}
    question = Question(**asked)
    for table in (
        inputs_table(inputs),
        shards_table(inputs, question),
        coordinator_table(inputs, question),
    ):
        print(table, end="\n\n")


if __name__ == "__main__":
    main()
