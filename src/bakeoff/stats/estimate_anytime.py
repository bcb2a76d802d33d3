"""How well a candidate did in a run that ended when it was sure: an interval that allows for that."""

from collections.abc import Iterable
from dataclasses import replace

from bakeoff.stats.estimate import Estimate, TaskScores, estimate
from bakeoff.stats.sequential import anytime_interval, mixture_interval


def estimate_drawn(tasks: Iterable[TaskScores], *, level: float = 0.95) -> Estimate:
    """Estimate a candidate's mean score over *tasks*, given in the order they were drawn."""
    seen = list(tasks)
    found = estimate(seen, level=level)
    if not seen:
        return found
    if all(task.binary and task.n == 1 for task in seen):
        passed = round(sum(task.total for task in seen))
        return replace(found, interval=mixture_interval(passed, len(seen), level=level))
    return replace(found, interval=anytime_interval([task.mean for task in seen], level=level))
