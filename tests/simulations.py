"""Simulate what the statistics promise: coverage of intervals, false verdicts.

python tests/simulations.py              print the tables
python tests/simulations.py --write      and put them into docs/background/statistics.md

Every cell has a seed of its own, so a table is the same wherever it is made. The default tests make
some of its cells with fewer repetitions, `make soak` all of them.
"""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bakeoff.stats.estimate import TaskScores, estimate
from bakeoff.stats.paired import TaskMeans, compare
from bakeoff.stats.stopping_rule import LAST, StoppingRule

PAGE = Path(__file__).parents[1] / "docs" / "background" / "statistics.md"
MEANS = (0.5, 0.8, 0.9, 0.95, 0.98)
TASKS = (10, 30, 100, 200, 500)
ROLLOUTS = (1, 3, 5, 10)
ICCS = (0.2, 0.5)
KINDS = ("0/1", "graded")


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

    def scores(self, repetitions: int) -> NDArray[np.float64]:
        """Return task means by repetition and task; they are drawn with the seed of this cell."""
        numbers = (KINDS.index(self.kind), int(self.mean * 100), self.tasks, self.rollouts)
        rng = np.random.default_rng([*numbers, int(self.icc * 10), self.group_size])
        size = 1 / self.icc - 1
        alpha, beta = self.mean * size, (1 - self.mean) * size
        hard = rng.beta(alpha, beta, (repetitions, self.tasks))
        if self.group_size > 1:  # half of the tasks of a group are as hard as each other
            of_groups = rng.beta(alpha, beta, (repetitions, -(-self.tasks // self.group_size)))
            shared = np.repeat(of_groups, self.group_size, axis=1)[:, : self.tasks]
            hard = np.where(rng.random(hard.shape) < 0.5, shared, hard)
        if self.kind == "0/1":
            passed = rng.binomial(self.rollouts, hard)
            return np.asarray(passed / self.rollouts)
        # what a rollout scores lies about the mean of its task as tasks lie about the mean of all
        inside = np.clip(hard, 1e-9, 1 - 1e-9)[..., None]
        each = rng.beta(inside * 4, (1 - inside) * 4, (*hard.shape, self.rollouts))
        return np.asarray(each.mean(axis=2))


def coverage(cell: Cell, repetitions: int) -> float:
    """Return the share of simulated suites whose interval holds the true mean."""
    held = 0
    groups = [str(number // cell.group_size) for number in range(cell.tasks)]
    binary = cell.kind == "0/1"
    for row in cell.scores(repetitions).tolist():
        if cell.group_size > 1:
            tasks = [
                _task(mean, cell.rollouts, binary, group)
                for mean, group in zip(row, groups, strict=True)
            ]
        else:
            tasks = [_task(mean, cell.rollouts, binary) for mean in row]
        interval = estimate(tasks).interval
        held += interval is None or interval.low <= cell.mean <= interval.high
    return held / repetitions


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
        if rollouts * tasks <= 2_000 or kind == "0/1"  # graded rollouts are drawn one by one
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
            if (kind, rollouts, tasks, MEANS[0]) in measured
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


def adaptive_table(repetitions: int) -> Iterator[str]:
    """Yield what an adaptive run of two candidates decides, and after how many of 500 tasks."""
    rows = []
    for gap in (0.0, 0.05, 0.1, 0.2, 0.3):
        rng = np.random.default_rng([7, int(gap * 100)])
        runs = [_adaptive_run(rng, gap) for _ in range(repetitions)]
        shares = (sum(run[place] for run in runs) / repetitions for place in (0, 1))
        tasks = sum(run[2] for run in runs) / repetitions
        rows.append([f"{gap:g}", *(f"{100 * share:.1f}" for share in shares), f"{tasks:.0f}"])
    yield f"A suite of 500 tasks, one rollout of each, {repetitions:,} runs for each row:\n"
    yield _table(["gap", "adaptive decides, %", "all tested once decides, %", "tasks used"], rows)


def _adaptive_run(rng: np.random.Generator, gap: float) -> tuple[bool, bool, int]:
    """Whether the adaptive run decides, whether the whole suite would, and the tasks it took."""
    hard = rng.random(500) * (1 - gap)
    first, second = ((rng.random(500) < hard + more).astype(float) for more in (gap, 0.0))
    rule, used = StoppingRule(pairs=1), 500
    for number, difference in enumerate((first - second).tolist(), start=1):
        rule.see(difference)
        if rule.settled:
            used = number
            break
    columns = [
        TaskMeans(candidate=name, means=marks.tolist(), binary=True)
        for name, marks in (("a", first), ("b", second))
    ]
    p = compare(*columns).p or 0.0
    return rule.decided or p / LAST < 0.05, p < 0.05, used


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---:"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


TABLES: dict[str, tuple[Callable[[int], Iterator[str]], int]] = {
    "coverage": (coverage_tables, 2_000),
    "groups": (grouped_table, 2_000),
    "adaptive": (adaptive_table, 400),
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
