"""Bounds for faulted trials: how much they could change a result.

A fault need not strike by chance: an endpoint that breaks on hard questions hides failures. So a
verdict is given only where it also holds in the worst case: each faulted trial of the candidate
that is ahead counted as 0, each one of the other counted as 1. What was not run at all is no such
case: which trials these are does not depend on how they would have ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bakeoff.core.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingBounds:
    """The mean of one task if each of its `faults` had scored 0 (`low`), or 1 (`high`)."""

    low: float
    high: float
    faults: int


NO_BOUNDS: Mapping[int, MissingBounds] = {}


def bounds(*, scored: int, total: float, faults: int) -> MissingBounds:
    """Return the bounds of a task with *scored* scores that sum to *total*, and some *faults*."""
    trials = scored + faults
    return MissingBounds(low=total / trials, high=(total + faults) / trials, faults=faults)


def is_checked(task: Task) -> bool:
    """Whether an answer to *task* would have a score."""
    return task.trouble is not None or any(scorer.weight for scorer in task.scorers)


def could_turn(faults: int) -> str:
    """Return why a verdict is withheld because of *faults* faulted trials."""
    if not faults:
        return "faulted trials of the other candidates could reverse it"
    single = faults == 1
    return f"the {'' if single else f'{faults:,} '}faulted {'trial' if single else 'trials'} could reverse it"
