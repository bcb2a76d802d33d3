"""What a page has room for: of many tasks, those that tell most.

All tasks are in the figures. A row of the grid and a trial told in full cost a browser far more
than a figure, so both are limited by number, whatever the size of the run.
"""

from collections.abc import Collection
from dataclasses import dataclass

from bakeoff.core.task import Task
from bakeoff.reports.wording.findings import Findings
from bakeoff.stats.by_task import TaskSummary


def telling(cells: Collection[TaskSummary]) -> tuple[float, ...]:
    """Return what to sort tasks by, from what the candidates did on one; the least comes first."""
    means = [cell.mean for cell in cells if cell.mean is not None]
    return (
        not any(cell.recorded for cell in cells),
        -_spread(means),
        -sum(cell.faulted for cell in cells),
        min(means, default=1.0),
    )


def _spread(means: Collection[float]) -> float:
    """Return how far the best and the worst mean on a task lie apart."""
    return max(means) - min(means) if means else 0.0


MOST_ROWS = 1_000
MOST_CELLS = 20_000
MOST_TRIALS = 1_000
MOST_TRIALS_OF_A_TASK = 200


@dataclass(frozen=True, kw_only=True)
class ReportSelection:
    """The tasks of the grid, those of them that are told in full, and how many rollouts of these."""

    rows: tuple[Task, ...]
    told: tuple[Task, ...]
    rollouts: int


def select(findings: Findings) -> ReportSelection:
    """Return what to show of *findings*, in the order of the plan."""
    candidates = max(len(findings.candidates), 1)
    planned = max(findings.plan.rollouts, 1)
    rollouts = min(planned, max(MOST_TRIALS_OF_A_TASK // candidates, 1))
    rows = max(min(MOST_ROWS, MOST_CELLS // candidates), 1)
    return ReportSelection(
        rows=_most_telling(findings, rows),
        told=_most_telling(findings, max(MOST_TRIALS // (candidates * rollouts), 1)),
        rollouts=rollouts,
    )


def _most_telling(findings: Findings, most: int) -> tuple[Task, ...]:
    if len(findings.tasks) <= most:
        return findings.tasks
    by_worth = sorted(
        findings.tasks, key=lambda task: telling(findings.cells.get(task.id, {}).values())
    )
    chosen = {task.id for task in by_worth[:most]}
    return tuple(task for task in findings.tasks if task.id in chosen)
