"""One task for one candidate: how well, how surely, and in how many rollouts.

Here the unit is the rollout, for the question is about this task only; over tasks, `summarize`
takes the task as the unit.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from bakeoff._lib.value_object import value_object
from bakeoff.core.lazy_tasks import outlines_of
from bakeoff.core.plan import Plan
from bakeoff.core.record import Status, TrialRow
from bakeoff.stats.estimate import Interval, TaskScores, estimate, spread_of
from bakeoff.stats.summary import PassRates

PassMeasure: TypeAlias = Callable[[int, int, int], float | None]
"""`pass_at_k` or `pass_hat_k`."""

_MOST_K = 10


@value_object
class PassEstimate:
    """One measure averaged over tasks, with its error; `reason` says why `value` is None."""

    k: int
    value: float | None
    tasks: int
    reason: str | None
    se: float | None = None


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Estimate the chance that at least one of k rollouts passes; None where k > n."""
    _check(n, c, k)
    if k > n:
        return None
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Estimate the chance that all of k rollouts pass (pass^k); None where k > n."""
    _check(n, c, k)
    if k > n:
        return None
    return math.comb(c, k) / math.comb(n, k)


def mean_pass(
    tasks: Iterable[tuple[int, int]],
    k: int,
    *,
    measure: PassMeasure,
    groups: Sequence[str | None] | None = None,
) -> PassEstimate:
    """Average `measure` over tasks given as (n, c); None with a reason unless all have n >= k.

    A mean over only the tasks with enough scored rollouts would be a mean over another set of
    tasks for each k: faults would choose the tasks, and pass@k could fall as k grows.
    """
    # Many tasks share few (n, c) pairs: each pair is computed once.
    seen = list(tasks) if groups is not None else []
    pairs = Counter(tasks if groups is None else seen)
    count = pairs.total()
    if not count:
        return PassEstimate(k=k, value=None, tasks=0, reason="no task has a score")
    values = {pair: measure(*pair, k) for pair in pairs}
    known = [pairs[pair] * value for pair, value in values.items() if value is not None]
    short = sum(pairs[pair] for pair, value in values.items() if value is None)
    if short:
        reason = f"{short} of {count} tasks have fewer than {k} scored rollouts"
        return PassEstimate(k=k, value=None, tasks=count, reason=reason)
    mean = math.fsum(known) / count
    if groups is not None and any(group is not None for group in groups):
        se = spread_of([values[pair] or 0.0 for pair in seen], mean, groups=groups).se
    else:
        squares = math.fsum(n * ((values[pair] or 0.0) - mean) ** 2 for pair, n in pairs.items())
        se = math.sqrt(squares / (count * (count - 1))) or None if count > 1 else None
    return PassEstimate(k=k, value=mean, tasks=count, reason=None, se=se)


def _check(n: int, c: int, k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k!r}")
    if not 0 <= c <= n:
        raise ValueError(f"passes must lie between 0 and n = {n!r}, got {c!r}")


@value_object
class TaskSummary:
    """The results of one task for one candidate; a figure that cannot be computed is None."""

    task: str
    candidate: str
    planned: int
    recorded: int
    scored: int
    passed: int
    faulted: int
    mean: float | None
    best: float | None
    interval: Interval | None
    passes: tuple[PassRates, ...]
    group: str | None = None


@dataclass(slots=True)
class _Cell:
    group: str | None = None
    planned: int = 0
    recorded: int = 0
    passed: int = 0
    faulted: int = 0
    scores: list[float] = field(default_factory=list)

    def add(self, row: TrialRow) -> None:
        self.recorded += 1
        self.faulted += row.status == Status.FAULTED
        if row.score is not None:
            self.scores.append(row.score)
            self.passed += bool(row.passed)


def by_task(plan: Plan, rows: Iterable[TrialRow]) -> tuple[TaskSummary, ...]:
    """Return a summary for every task and candidate that *plan* pairs, in its order."""
    cells: dict[tuple[str, str], _Cell] = {}
    for block in plan.blocks:
        for task in outlines_of(block.tasks):
            for candidate in block.candidates:
                cell = cells.setdefault((task.id, candidate.id), _Cell(group=task.group))
                cell.planned += block.rollouts
    for row in rows:
        cells[row.task_id, row.candidate_id].add(row)
    return tuple(_summary(task, candidate, cell) for (task, candidate), cell in cells.items())


def _summary(task: str, candidate: str, cell: _Cell) -> TaskSummary:
    measured = _measured(tuple(cell.scores), cell.passed)
    return TaskSummary(
        task=task,
        candidate=candidate,
        planned=cell.planned,
        recorded=cell.recorded,
        scored=len(cell.scores),
        passed=cell.passed,
        faulted=cell.faulted,
        mean=measured.mean,
        best=max(cell.scores, default=None),
        interval=measured.interval,
        passes=measured.passes,
        group=cell.group,
    )


class _Measured(NamedTuple):
    mean: float | None
    interval: Interval | None
    passes: tuple[PassRates, ...]


@lru_cache(maxsize=1024)
def _measured(scores: tuple[float, ...], passed: int) -> _Measured:
    """Return the figures of a task with these *scores*; many tasks of a large run have equal ones."""
    over_rollouts = estimate(TaskScores.of([score]) for score in scores)
    scored = len(scores)
    passes = tuple(
        PassRates(k=k, pass_at=pass_at_k(scored, passed, k), pass_hat=pass_hat_k(scored, passed, k))
        for k in range(1, min(scored, _MOST_K) + 1)
    )
    return _Measured(over_rollouts.mean, over_rollouts.interval, passes)


def weighted_mean(parts: Iterable[tuple[float | None, float]]) -> float | None:
    """Return the mean of (value, weight); a value that is None leaves both sums."""
    known = [(value, weight) for value, weight in parts if value is not None]
    total = math.fsum(weight for _, weight in known)
    if not total:
        return None
    return math.fsum(value * weight for value, weight in known) / total


def metric_means(metrics: Iterable[Mapping[str, object]]) -> dict[str, tuple[float, int]]:
    """Return the mean of each metric that is a number, and over how many it was taken."""
    values: dict[str, list[float]] = {}
    for metric in metrics:
        for name, value in metric.items():
            if isinstance(value, int | float) and math.isfinite(value):
                values.setdefault(name, []).append(float(value))
    return {name: (math.fsum(v) / len(v), len(v)) for name, v in sorted(values.items())}
