"""Simulate what the statistics promise: coverage of intervals, false verdicts, power, what is saved.

python tests/simulations.py              print the tables
python tests/simulations.py --write      and put them into docs/background/statistics.md

Every cell has a seed of its own, so a table is the same wherever it is made. The default tests make
some of its cells with fewer repetitions, `make soak` all of them.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from bakeoff.core.run_spec import Adaptive
from bakeoff.stats.censored import Observation, time_to_solve
from bakeoff.stats.change_points import changes
from bakeoff.stats.estimate import TaskScores, estimate, quantile_interval
from bakeoff.stats.gate import GateState
from bakeoff.stats.power import to_decide
from support.simulated_runs import (
    FAULT_RULES,
    adaptive_run,
    drawn_scores,
    gate_share,
    ranking,
    with_faults,
)
from support.simulated_series import series

PAGE = Path(__file__).parents[1] / "docs" / "background" / "statistics.md"
MEANS = (0.5, 0.8, 0.9, 0.95, 0.98)
TASKS = (10, 30, 100, 200, 500)
ROLLOUTS = (1, 3, 5, 10)
ICCS = (0.2, 0.5)
NORMAL = NormalDist()
KINDS = ("0/1", "graded")
_AT_ONCE = 250  # repetitions that are drawn together


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Suites of so many tasks and rollouts, with scores of one kind, mean and intraclass correlation.

    Tasks in groups share `group_size` by group, and half of what makes them hard.
    """

    kind: str
    mean: float
    tasks: int
    rollouts: int
    icc: float
    group_size: int = 1

    def scores(self, repetitions: int) -> Iterator[list[float]]:
        """Yield the task means of each repetition; they are drawn with the seed of this cell."""
        numbers = (KINDS.index(self.kind), int(self.mean * 100), self.tasks, self.rollouts)
        rng = np.random.default_rng([*numbers, int(self.icc * 10), self.group_size])
        for begun in range(0, repetitions, _AT_ONCE):
            yield from self._drawn(rng, min(_AT_ONCE, repetitions - begun)).tolist()

    def _drawn(self, rng: np.random.Generator, repetitions: int) -> NDArray[np.float64]:
        size = 1 / self.icc - 1
        alpha, beta = self.mean * size, (1 - self.mean) * size
        hard = rng.beta(alpha, beta, (repetitions, self.tasks))
        if self.group_size > 1:  # half of the tasks of a group are as hard as each other
            of_groups = rng.beta(alpha, beta, (repetitions, -(-self.tasks // self.group_size)))
            shared = np.repeat(of_groups, self.group_size, axis=1)[:, : self.tasks]
            hard = np.where(rng.random(hard.shape) < 0.5, shared, hard)
        if self.kind == "0/1":
            return np.asarray(rng.binomial(self.rollouts, hard) / self.rollouts)
        # what a rollout scores lies about the mean of its task as tasks lie about the mean of all
        inside = np.clip(hard, 1e-9, 1 - 1e-9)[..., None]
        each = rng.beta(inside * 4, (1 - inside) * 4, (*hard.shape, self.rollouts))
        return np.asarray(each.mean(axis=2))

    @property
    def counted_out(self) -> bool:
        """Whether the scores are independent coins: then nothing has to be simulated."""
        return self.kind == "0/1" and self.rollouts == 1 and self.group_size == 1


def coverage(cell: Cell, repetitions: int) -> float:
    """Return the share of simulated suites whose interval holds the true mean; exact for coins."""
    if cell.counted_out:
        return sum(
            math.comb(cell.tasks, right)
            * cell.mean**right
            * (1 - cell.mean) ** (cell.tasks - right)
            * _holds(
                [_task(1.0, 1, True)] * right + [_task(0.0, 1, True)] * (cell.tasks - right), cell
            )
            for right in range(cell.tasks + 1)
        )
    groups = [str(number // cell.group_size) for number in range(cell.tasks)]
    binary, held = cell.kind == "0/1", 0
    for row in cell.scores(repetitions):
        if cell.group_size > 1:
            tasks = [
                _task(mean, cell.rollouts, binary, group)
                for mean, group in zip(row, groups, strict=True)
            ]
        else:
            tasks = [_task(mean, cell.rollouts, binary) for mean in row]
        held += _holds(tasks, cell)
    return held / repetitions


def _holds(tasks: list[TaskScores], cell: Cell) -> bool:
    interval = estimate(tasks).interval
    return interval is None or interval.low <= cell.mean <= interval.high


@lru_cache(maxsize=4096)
def _task(mean: float, rollouts: int, binary: bool, group: str | None = None) -> TaskScores:
    total = round(mean * rollouts) if binary else mean * rollouts
    low, high = (0.0, 1.0) if binary and 0 < total < rollouts else (mean, mean)
    return TaskScores(n=rollouts, total=total, low=low, high=high, binary=binary, group=group)


def score_cells() -> list[Cell]:
    """Return every cell of the table of score intervals."""
    return [
        Cell(kind=kind, mean=mean, tasks=tasks, rollouts=rollouts, icc=icc)
        for kind in KINDS
        for rollouts in ROLLOUTS
        for icc in ICCS
        for tasks in TASKS
        for mean in MEANS
    ]


def coverage_tables(repetitions: int) -> Iterator[str]:
    """Yield the tables of coverage: the least over both correlations, in per cent."""
    measured: dict[tuple[str, int, int, float], float] = {}
    for cell in score_cells():
        key = cell.kind, cell.rollouts, cell.tasks, cell.mean
        measured[key] = min(measured.get(key, 1.0), coverage(cell, repetitions))
    for kind in KINDS:
        rows = [
            [
                str(rollouts),
                str(tasks),
                *(f"{100 * measured[kind, rollouts, tasks, mean]:.1f}" for mean in MEANS),
            ]
            for rollouts in ROLLOUTS
            for tasks in TASKS
        ]
        yield f"Scores {kind}, {repetitions:,} suites for each cell:\n"
        yield _table(["rollouts", "tasks", *(f"mean {mean}" for mean in MEANS)], rows)


def grouped_table(repetitions: int) -> Iterator[str]:
    """Yield the coverage for tasks in groups of five, with CR1 and as if there were no groups."""
    rows = []
    for tasks in (50, 100, 500):
        for mean in (0.5, 0.8, 0.95):
            cell = Cell(kind="0/1", mean=mean, tasks=tasks, rollouts=3, icc=0.5, group_size=5)
            rows.append([str(tasks), str(mean), f"{100 * coverage(cell, repetitions):.1f}"])
    yield f"Tasks in groups of five, three rollouts of 0 and 1, {repetitions:,} suites for each row:\n"
    yield _table(["tasks", "mean", "covered, %"], rows)


def times_table(repetitions: int) -> Iterator[str]:
    """Yield the coverage of times: the restricted mean of a batch, the quantiles of latencies."""
    rng, rows = np.random.default_rng(31), []
    for rollouts in (3, 5, 10, 30):
        held = 0
        for seconds in rng.exponential(60.0, (repetitions, rollouts)).tolist():
            seen = [Observation(seconds=min(s, 120.0), solved=s <= 120.0) for s in seconds]
            interval = time_to_solve(seen, horizon_s=120.0).interval
            # three that all ran out of time have no spread: then nothing is claimed
            held += interval is None or interval.low <= 60 * (1 - math.exp(-2)) <= interval.high
        rows.append(["mean time to solve, exponential, cut off at twice its mean", str(rollouts), _per_cent(held / repetitions)])  # fmt: skip
    for count, q in ((20, 0.5), (100, 0.5), (100, 0.95), (500, 0.95)):
        held, true = 0, math.exp(NORMAL.inv_cdf(q))
        for seconds in np.sort(rng.lognormal(0.0, 1.0, (repetitions, count)), axis=1).tolist():
            interval = quantile_interval(seconds, q)
            held += interval is None or interval.low <= true <= interval.high
        rows.append([f"latency p{100 * q:g}, lognormal", str(count), _per_cent(held / repetitions)])
    yield f"{repetitions:,} simulations for each row:\n"
    yield _table(["interval of", "trials", "covered, %"], rows)


_LOST = {
    "failures": "30 % of the failures of one",
    "successes": "30 % of the successes of one",
    "everybody's failures": "30 % of all failures",
    "by chance": "30 % of all trials",
}


def errors_table(repetitions: int) -> Iterator[str]:
    """Yield how often candidates that are equal are told apart, and a loss of the margin passes."""
    rng, rows = np.random.default_rng(41), []

    def add(what: str, wrong: Callable[[], bool]) -> None:
        share = sum(wrong() for _ in range(repetitions)) / repetitions
        rows.append([what, _per_cent(share)])

    for candidates, rollouts in ((2, 1), (2, 3), (5, 1), (5, 3)):
        add(
            f"ranking of {candidates} on 100 tasks, {_rollouts(rollouts)}",
            lambda c=candidates, k=rollouts: any(  # type: ignore[misc]
                pair.better
                for pair in ranking(drawn_scores(rng, (0.0,) * c, count=100, rollouts=k))
            ),
        )
    for of_whom in FAULT_RULES:
        add(
            f"ranking of 2 on 100 tasks, {_LOST[of_whom]} lost to faults",
            lambda rule=of_whom: _told_apart(rng, rule),  # type: ignore[misc]
        )
    for of_whom in FAULT_RULES:
        add(
            f"adaptive run of 2 on 80 tasks, {_LOST[of_whom]} lost to faults",
            lambda rule=of_whom: _adaptive_apart(rng, rule),  # type: ignore[misc]
        )
    for what, rule, candidates, rollouts in (
        ("adaptive run of 2", Adaptive(), 2, 1),
        ("adaptive run of 2", Adaptive(), 2, 3),
        ("adaptive run of 2, ten looks", Adaptive(looks=10), 2, 1),
        ("adaptive run of 5", Adaptive(), 5, 1),
        ("adaptive run for the best of 5", Adaptive(goal="best"), 5, 1),
    ):
        add(
            f"{what} on 80 tasks, {_rollouts(rollouts)}",
            lambda r=rule, c=candidates, k=rollouts: any(  # type: ignore[misc]
                pair.better
                for pair in adaptive_run(
                    drawn_scores(rng, (0.0,) * c, count=80, rollouts=k), r
                ).found.pairs
            ),
        )
    yield f"Equal candidates that got a verdict, {repetitions:,} runs for each row:\n"
    yield _table(["run", "false verdicts, %"], rows)
    gates = []
    for loss, wanted, what in (
        (0.0, GateState.FAILED, "nothing was lost, called *surely worse*"),
        (0.05, GateState.PASSED, "the margin of 0.05 was lost, called *not worse*"),
    ):
        for rollouts in (1, 3):
            share = gate_share(
                wanted, loss=loss, margin=0.05, rollouts=rollouts, repetitions=repetitions
            )
            gates.append([f"{what}, {_rollouts(rollouts)}", _per_cent(share)])
        for faults in ("failures", "successes", "by chance"):
            share = gate_share(
                wanted, loss=loss, margin=0.05, rollouts=1, repetitions=repetitions, faults=faults
            )
            gates.append([f"{what}, {_LOST[faults]} lost to faults", _per_cent(share)])
    yield f"Gates over 200 tasks that were wrong, {repetitions:,} for each row:\n"
    yield _table(["gate", "wrong, %"], gates)


def _told_apart(rng: np.random.Generator, of_whom: str) -> bool:
    scores = with_faults(rng, drawn_scores(rng, (0.0, 0.0), count=100), of_whom=of_whom)
    return ranking(scores)[0].better is not None


def _adaptive_apart(rng: np.random.Generator, of_whom: str) -> bool:
    scores = with_faults(rng, drawn_scores(rng, (0.0, 0.0), count=80), of_whom=of_whom)
    return adaptive_run(scores, Adaptive()).found.pairs[0].better is not None


def power_table(repetitions: int) -> Iterator[str]:
    """Yield how often the number of tasks that `bakeoff power` plans shows the difference."""
    rows = []
    for gap in (0.2, 0.1, 0.05):
        for rollouts in (1, 3):
            # tasks are solved with chances from 0 to 1 - gap by one, and with a gap more by the other
            top = 1 - gap
            noise = 2 * (top / 2 - top**2 / 3)
            tasks = to_decide(gap, variance=noise / rollouts, step=1 / rollouts)
            rng, seen = np.random.default_rng([51, int(gap * 100), rollouts]), 0
            for _ in range(repetitions):
                scores = drawn_scores(rng, (gap, 0.0), count=tasks, rollouts=rollouts)
                seen += ranking(scores)[0].better == "a"
            rows.append([f"{gap:g}", str(rollouts), str(tasks), _per_cent(seen / repetitions)])
    yield f"Planned for a chance of 80 %, {repetitions:,} runs for each row:\n"
    yield _table(["gap", "rollouts", "tasks planned", "seen, %"], rows)


def adaptive_table(repetitions: int) -> Iterator[str]:
    """Yield what an adaptive run of two candidates decides, and after how many of 500 tasks."""
    rows = []
    for gap in (0.0, 0.05, 0.1, 0.2, 0.3):
        for rollouts in (1, 3) if gap == 0.1 else (1,):
            count = 500 if rollouts == 1 else 200
            rng = np.random.default_rng([7, int(gap * 100), rollouts])
            drawn = [
                drawn_scores(rng, (gap, 0.0), count=count, rollouts=rollouts)
                for _ in range(repetitions)
            ]
            whole = sum(ranking(scores)[0].better is not None for scores in drawn)
            row = [f"{gap:g}", str(count), str(rollouts), _per_cent(whole / repetitions)]
            for rule in (Adaptive(), Adaptive(looks=10)):
                runs = [adaptive_run(scores, rule) for scores in drawn]
                decided = [pair for run in runs if (pair := run.found.pairs[0]).better is not None]
                tasks = sum(run.trials for run in runs) / (2 * rollouts * repetitions)
                row += [_per_cent(len(decided) / repetitions), f"{tasks:.0f}"]
                if rule.looks is None:
                    sizes = [abs(pair.difference or 0.0) for pair in decided]
                    row.append(f"{math.fsum(sizes) / len(sizes):.3f}" if sizes else "–")
            rows.append(row)
    yield f"Two candidates, {repetitions:,} runs for each row:\n"
    yield _table(
        ["gap", "tasks", "rollouts", "all tested once decides, %", "adaptive decides, %", "tasks used", "gap seen where decided",
         "ten looks decide, %", "tasks used"],
        rows,
    )  # fmt: skip


def best_table(repetitions: int) -> Iterator[str]:
    """Yield what a run for the best of five candidates finds, and with how many of 2,500 trials."""
    rows = []
    for what, gaps in (
        ("all equal", (0.0,) * 5),
        ("one better by 10 points", (0.0, 0.0, 0.1, 0.0, 0.0)),
        ("one better by 20 points", (0.0, 0.0, 0.2, 0.0, 0.0)),
        ("10 points from each to the next", (0.1, 0.0, 0.4, 0.3, 0.2)),
    ):
        rng = np.random.default_rng([8, int(100 * sum(gaps))])
        row = [what]
        for rule in (Adaptive(), Adaptive(goal="best")):
            found = trials = 0
            for _ in range(repetitions):
                ended = adaptive_run(drawn_scores(rng, gaps, count=500), rule)
                first = ended.found.ranks[0]
                found += first.worst == 1
                trials += ended.trials
            row += [_per_cent(found / repetitions), f"{trials / repetitions:,.0f}"]
        rows.append(row)
    yield f"Five candidates, 500 tasks, one rollout: 2,500 trials; {repetitions:,} runs for each row:\n"
    yield _table(
        ["candidates", "every pair: best found, %", "trials", "`best`: best found, %", "trials"],
        rows,
    )


def changes_table(repetitions: int) -> Iterator[str]:
    """Yield how often a series is said to have changed that never does, and how soon a jump is found."""
    runs, jump_at = 60, 20
    rows = []
    for tasks in (10, 30, 100, 300):
        for rollouts in (1, 3):
            draw = partial(series, runs=runs, tasks=tasks, rollouts=rollouts)
            alarms = sum(bool(changes(draw(seed))) for seed in range(repetitions))
            row = [str(tasks), str(rollouts), _per_cent(alarms / repetitions)]
            for jump in (-0.05, -0.1, -0.2):
                many = repetitions // 10
                found = [changes(draw(seed, jumps={jump_at: jump})) for seed in range(many)]
                waits = sorted(each[0].found - jump_at + 1 for each in found if each)
                after = f", after {waits[len(waits) // 2]}" if 2 * len(waits) > many else ""
                row.append(_per_cent(len(waits) / many) + after)
            rows.append(row)
    yield f"Series of {runs} runs; {repetitions:,} without a change, {repetitions // 10:,} for each jump at run {jump_at + 1}:\n"
    yield _table(
        ["tasks", "rollouts", "ever an alarm without a change, %", "jump of 0.05 found, %, after runs (median)", "of 0.1",
         "of 0.2"],
        rows,
    )  # fmt: skip


def _rollouts(count: int) -> str:
    return "one rollout" if count == 1 else f"{count} rollouts"


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---:"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


TABLES: dict[str, tuple[Callable[[int], Iterator[str]], int]] = {
    "coverage": (coverage_tables, 1_000),
    "groups": (grouped_table, 2_000),
    "times": (times_table, 4_000),
    "errors": (errors_table, 1_000),
    "power": (power_table, 1_000),
    "adaptive": (adaptive_table, 400),
    "best": (best_table, 50),
    "changes": (changes_table, 1_000),
}


def put(page: str, name: str, text: str) -> str:
    """Return *page* with *text* between the marks of the table *name*."""
    mark = re.compile(rf"(<!-- simulated: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not mark.search(page):
        raise SystemExit(f"{PAGE.name} has no place for the table {name!r}")
    return mark.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", page)


def main() -> None:
    """Make the tables, print them, and put them into the page."""
    parser = argparse.ArgumentParser(prog="python tests/simulations.py", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(TABLES), default=tuple(TABLES))
    parser.add_argument("--repetitions", type=int, help="fewer or more than each table has")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for name in given.only:
        make, repetitions = TABLES[name]
        text = "\n".join(make(given.repetitions or repetitions)).rstrip("\n") + "\n"
        print(f"## {name}\n\n{text}", flush=True)
        if given.write:
            PAGE.write_text(put(PAGE.read_text(encoding="utf-8"), name, text), encoding="utf-8")


if __name__ == "__main__":
    main()
