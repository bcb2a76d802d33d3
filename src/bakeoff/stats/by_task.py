"""One task for one candidate: how well, how surely, and in how many rollouts.

Here the unit is the rollout, for the question is about this task only; over tasks, `summarize`
takes the task as the unit.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bakeoff.core.plan import Plan
from bakeoff.core.record import Status, TrialRow
from bakeoff.stats.estimate import Interval, TaskScores, estimate
from bakeoff.stats.passk import pass_at_k, pass_hat_k
from bakeoff.stats.summary import PassRates

_MOST_K = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """What is known of one task for one candidate; a number that cannot be told is None."""

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


@dataclass(slots=True)
class _Cell:
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
        for task in block.tasks:
            for candidate in block.candidates:
                cell = cells.setdefault((task.id, candidate.id), _Cell())
                cell.planned += block.rollouts
    for row in rows:
        cells[row.task_id, row.candidate_id].add(row)
    return tuple(_summary(task, candidate, cell) for (task, candidate), cell in cells.items())


def _summary(task: str, candidate: str, cell: _Cell) -> TaskSummary:
    over_rollouts = estimate(TaskScores.of([score]) for score in cell.scores)
    scored = len(cell.scores)
    return TaskSummary(
        task=task,
        candidate=candidate,
        planned=cell.planned,
        recorded=cell.recorded,
        scored=scored,
        passed=cell.passed,
        faulted=cell.faulted,
        mean=over_rollouts.mean,
        best=max(cell.scores, default=None),
        interval=over_rollouts.interval,
        passes=tuple(
            PassRates(
                k=k,
                pass_at=pass_at_k(scored, cell.passed, k),
                pass_hat=pass_hat_k(scored, cell.passed, k),
            )
            for k in range(1, min(scored, _MOST_K) + 1)
        ),
    )


def weighted_mean(parts: Iterable[tuple[float | None, float]]) -> float | None:
    """Return the mean of (value, weight); a value that is None leaves both sums."""
    known = [(value, weight) for value, weight in parts if value is not None]
    total = math.fsum(weight for _, weight in known)
    if not total:
        return None
    return math.fsum(value * weight for value, weight in known) / total


def metric_means(metrics: Iterable[Mapping[str, object]]) -> dict[str, tuple[float, int]]:
    """Return the mean of each metric that is a number, and over how many it was taken."""
    found: dict[str, list[float]] = {}
    for one in metrics:
        for name, value in one.items():
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(name, []).append(float(value))
    return {name: (math.fsum(v) / len(v), len(v)) for name, v in sorted(found.items())}
