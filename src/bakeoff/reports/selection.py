"""Selects the most informative tasks for a page.

All tasks are in the figures. Grid rows and trials shown in full cost a browser far more
than figures, so both are limited by number, whatever the size of the run.
"""

from collections.abc import Collection
from dataclasses import dataclass

from bakeoff.core.task import Task
from bakeoff.reports.wording.findings import Findings
from bakeoff.stats.by_task import TaskSummary

MOST_ROWS = 1_000
MOST_CELLS = 20_000
MOST_TRIALS = 1_000
MOST_TRIALS_OF_A_TASK = 200


def informativeness(cells: Collection[TaskSummary]) -> tuple[float, ...]:
    """Return the sort key of a task from its results; the most informative task has the smallest."""
    means = [cell.mean for cell in cells if cell.mean is not None]
    return (
        not any(cell.recorded for cell in cells),
        -_spread(means),
        -sum(cell.faulted for cell in cells),
        min(means, default=1.0),
    )


def _spread(means: Collection[float]) -> float:
    """Return the difference between the best and the worst mean."""
    return max(means) - min(means) if means else 0.0


@dataclass(frozen=True, kw_only=True)
class ReportSelection:
    """The tasks of the grid, those shown in full, and how many rollouts of each."""

    rows: tuple[Task, ...]
    detailed: tuple[Task, ...]
    rollouts: int


def select(findings: Findings) -> ReportSelection:
    """Return what to show of *findings*, in the order of the plan."""
    candidates = max(len(findings.candidates), 1)
    planned = max(findings.plan.rollouts, 1)
    rollouts = min(planned, max(MOST_TRIALS_OF_A_TASK // candidates, 1))
    rows = max(min(MOST_ROWS, MOST_CELLS // candidates), 1)
    return ReportSelection(
        rows=_most_informative(findings, rows),
        detailed=_most_informative(findings, max(MOST_TRIALS // (candidates * rollouts), 1)),
        rollouts=rollouts,
    )


def _most_informative(findings: Findings, most: int) -> tuple[Task, ...]:
    if len(findings.tasks) <= most:
        return findings.tasks
    by_worth = sorted(
        findings.tasks, key=lambda task: informativeness(findings.cells.get(task.id, {}).values())
    )
    chosen = {task.id for task in by_worth[:most]}
    return tuple(task for task in findings.tasks if task.id in chosen)
