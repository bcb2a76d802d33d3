"""Compares runs on their shared tasks: one candidate before and after, or any two candidates.

Each difference is that of task means, after - before, and is tested as two candidates of one run are;
p and intervals are adjusted for the number of couples. Which tasks are the same is for the caller to say.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bakeoff._lib.value_object import value_object
from bakeoff.core.record import Status, TaskTotals, TrialRow
from bakeoff.stats.estimate import Ratio, bounds, ratio_of_totals
from bakeoff.stats.fairness import not_alike
from bakeoff.stats.one_task import Rollouts, compare_rollouts
from bakeoff.stats.paired import Pair, TaskMeans, compare, decide

BEFORE, AFTER = "before", "after"
_MOST_SAMPLED = 10_000
_ROUNDING = 1e-12


@dataclass(slots=True)
class _Cell:
    n: int = 0
    total: float = 0.0
    faults: int = 0
    solved: bool = True
    cost_usd: float | None = 0.0
    rollouts: list[float] | None = None

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else math.nan

    def add_cost(self, row: TrialRow) -> None:
        """Add what a trial cost; a trial that asked nobody cost nothing."""
        unknown = row.cost_usd is None and row.requests
        if unknown or self.cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd += row.cost_usd or 0.0


RunScores = Mapping[str, Mapping[str, _Cell]]
"""By candidate and task: how many scores, their sum, how many trials faulted, and what they cost.

`solved` says that every score is 0 or 1; a cost is None where that of a trial is unknown.
"""


def run_scores(
    rows: Iterable[TrialRow], *, unchecked: Collection[str] = (), rollouts_of: str | None = None
) -> RunScores:
    """Return the scores and faults of a run; faults on *unchecked* tasks are ignored.

    Of the task *rollouts_of*, the only one that two runs share, every score is kept.
    """
    scores: dict[str, dict[str, _Cell]] = {}
    for row in rows:
        cell = scores.setdefault(row.candidate_id, {}).setdefault(row.task_id, _Cell())
        cell.faults += row.status == Status.FAULTED and row.task_id not in unchecked
        cell.add_cost(row)
        if row.task_id == rollouts_of:
            cell.rollouts = cell.rollouts or []
            cell.rollouts += [] if row.score is None else [row.score]
        if row.score is not None:
            cell.n += 1
            cell.total += row.score
            cell.solved = cell.solved and row.score in (0, 1)
    return {
        candidate: {task: cell for task, cell in cells.items() if cell.n or cell.faults}
        for candidate, cells in scores.items()
    }


def scores_of_totals(totals: Iterable[TaskTotals], *, unchecked: Collection[str] = ()) -> RunScores:
    """Return the same from trials that were added up by task."""
    scores: dict[str, dict[str, _Cell]] = {}
    for task in totals:
        faults = 0 if task.task_id in unchecked else task.faults
        if task.n or faults:
            cell = _Cell(
                n=task.n,
                total=task.total,
                faults=faults,
                solved=task.binary,
                cost_usd=task.cost_usd,
            )
            scores.setdefault(task.candidate_id, {})[task.task_id] = cell
    return scores


@value_object
class ScoredSide:
    """A candidate of a run with its scores by task, under names that all runs share."""

    run: str
    candidate: str
    scores: Mapping[str, _Cell]


@value_object
class ChangedTask:
    """A task whose mean score changed."""

    task: str
    before: float
    after: float

    @property
    def is_worse(self) -> bool:
        """Whether the score was better before."""
        return self.after < self.before


@value_object
class Contrast:
    """A candidate of the earlier run compared with one of the later run, usually the same.

    The means are those over the tasks that both have a score on. The first of `pair` is the one
    after. `moved` are the tasks that changed, the worst losses first. `unequal` is what was not the same
    for the two, and stands in the way of a verdict.
    """

    before: str
    after: str
    mean_before: float | None
    mean_after: float | None
    pair: Pair
    moved: tuple[ChangedTask, ...]
    run_before: str = ""
    run_after: str = ""
    unequal: tuple[str, ...] = ()

    @property
    def in_one_run(self) -> bool:
        """Whether it is two candidates of one run."""
        return self.run_before == self.run_after != ""

    @property
    def worse(self) -> bool:
        """Whether it was significantly better before."""
        return self.pair.better == BEFORE


def contrasts(
    before: RunScores,
    after: RunScores,
    couples: Sequence[tuple[str, str]],
    *,
    groups: Mapping[str, str] | None = None,
    level: float = 0.95,
) -> tuple[Contrast, ...]:
    """Compare each couple of candidates before and after, adjusted for multiple comparisons.

    *groups* are those of the tasks that have one: tasks of a group are not independent of each other.
    """
    nothing: Mapping[str, _Cell] = {}
    sides = [
        (
            ScoredSide(run="", candidate=old, scores=before.get(old, nothing)),
            ScoredSide(run="", candidate=new, scores=after.get(new, nothing)),
        )
        for old, new in couples
    ]
    return compare_sides(sides, groups=groups, level=level)


def compare_sides(
    couples: Sequence[tuple[ScoredSide, ScoredSide]],
    *,
    groups: Mapping[str, str] | None = None,
    level: float = 0.95,
) -> tuple[Contrast, ...]:
    """Compare each couple, before and after, adjusted for multiple comparisons."""
    columns = [(old.scores, new.scores) for old, new in couples]
    alone = [_rollouts(*both) for both in columns]
    pairs = (
        compare_rollouts([both for both in alone if both is not None], level=level)
        if alone and None not in alone
        else _over_tasks(columns, groups or {}, level=level)
    )
    return tuple(
        _contrast(*couple, replace(pair, cost_ratio=_cost_ratio(*both, groups or {})))
        for couple, both, pair in zip(couples, columns, pairs, strict=True)
    )


def _cost_ratio(
    old: Mapping[str, _Cell], new: Mapping[str, _Cell], groups: Mapping[str, str]
) -> Ratio | None:
    """Return how many times the cost a scored trial has after; None where a cost is unknown."""
    shared = sorted(task for task in old.keys() & new.keys() if old[task].n and new[task].n)
    costs = []
    for task in shared:
        before, after = old[task], new[task]
        if before.cost_usd is None or after.cost_usd is None:
            return None
        costs.append((after.cost_usd / after.n, before.cost_usd / before.n))
    if not costs or not all(sum(side) for side in zip(*costs, strict=True)):
        return None
    return ratio_of_totals(costs, groups=[groups.get(t) for t in shared] if groups else None)


def unless_unequal(contrast: Contrast, unequal: Sequence[str], *, force: bool) -> Contrast:
    """Return *contrast* with what was *unequal* for the two; without a verdict, unless that is forced."""
    if not unequal:
        return contrast
    pair = contrast.pair if force else not_alike(contrast.pair, unequal)
    return replace(contrast, unequal=tuple(unequal), pair=pair)


def _over_tasks(
    columns: Sequence[tuple[Mapping[str, _Cell], Mapping[str, _Cell]]],
    groups: Mapping[str, str],
    *,
    level: float,
) -> tuple[Pair, ...]:
    pairs = [_compared(*both, groups, many=len(columns), level=level) for both in columns]
    return decide(pairs, level=level)


def _rollouts(
    old: Mapping[str, _Cell], new: Mapping[str, _Cell]
) -> tuple[Rollouts, Rollouts] | None:
    """Return the rollouts of the only shared task, after and before; None if there are several."""
    kept = [
        Rollouts(candidate=name, scores=sorted(cell.rollouts), faults=cell.faults)
        for name, cells in ((AFTER, new), (BEFORE, old))
        for cell in cells.values()
        if cell.rollouts is not None
    ]
    return (kept[0], kept[1]) if len(kept) == 2 else None


def _contrast(before: ScoredSide, after: ScoredSide, pair: Pair) -> Contrast:
    old, new = before.scores, after.scores
    shared = sorted(task for task in old.keys() & new.keys() if old[task].n and new[task].n)
    return Contrast(
        before=before.candidate,
        after=after.candidate,
        mean_before=_mean([old[task].mean for task in shared]),
        mean_after=_mean([new[task].mean for task in shared]),
        pair=pair,
        moved=_moved(old, new, shared),
        run_before=before.run,
        run_after=after.run,
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _compared(
    old: Mapping[str, _Cell],
    new: Mapping[str, _Cell],
    groups: Mapping[str, str],
    *,
    many: int,
    level: float,
) -> Pair:
    tasks = sorted({*old, *new})
    return compare(
        _means(AFTER, new, tasks, groups),
        _means(BEFORE, old, tasks, groups),
        most_sampled=_MOST_SAMPLED // many,
        alpha=(1 - level) / many,
    )


def _means(
    name: str, cells: Mapping[str, _Cell], tasks: Sequence[str], groups: Mapping[str, str]
) -> TaskMeans:
    return TaskMeans(
        candidate=name,
        means=[cells[task].mean if task in cells else math.nan for task in tasks],
        binary=all(cell.n == 1 and cell.total in {0, 1} for cell in cells.values() if cell.n),
        bounds={
            number: bounds(scored=cell.n, total=cell.total, faults=cell.faults)
            for number, task in enumerate(tasks)
            if (cell := cells.get(task)) is not None and cell.faults
        },
        groups=[groups.get(task) for task in tasks] if groups else (),
        solved=all(cell.solved for cell in cells.values() if cell.n),
    )


def _moved(
    old: Mapping[str, _Cell], new: Mapping[str, _Cell], shared: Sequence[str]
) -> tuple[ChangedTask, ...]:
    changed = [
        ChangedTask(task=task, before=old[task].mean, after=new[task].mean)
        for task in shared
        if abs(new[task].mean - old[task].mean) > _ROUNDING
    ]
    return tuple(
        sorted(
            changed,
            key=lambda task_change: (task_change.after - task_change.before, task_change.task),
        )
    )
