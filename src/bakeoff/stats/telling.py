"""Which tasks tell most: first those that separate candidates, then those that broke or failed."""

from collections.abc import Collection

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
