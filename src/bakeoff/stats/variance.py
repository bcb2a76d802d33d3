"""Splits the variance of a score into parts between tasks and between rollouts.

A score is taken as its task's own mean plus noise (one-way random effects). With n tasks of K
rollouts,

    within    s²_w: how far rollouts lie from the mean of their task, squared, pooled over tasks
    between   s²_b = variance of the task means - s²_w / K

and the variance of the mean score is (s²_b + s²_w / K) / n. More rollouts shrink its second part,
more tasks all of it. Where tasks have unequal numbers of rollouts, 1 / K is the mean of theirs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Protocol

from bakeoff._lib.value_object import value_object

# Sums of the same scores in another order differ by a few ulp: that is no spread.
_ROUNDING = 1e-12
_LEAST_DF = 5  # with less, a variance is not known within any useful factor


class RepeatedTask(Protocol):
    """The scores of one task, at least one: how many, their sum, and the sum of their squares."""

    n: int
    total: float
    squares: float


@value_object
class VarianceSplit:
    """The variance components of one candidate's scores; `reason` says why a part is None.

    `rollouts` is the harmonic mean over tasks, `icc` the share of `between` in the variance of one
    rollout. `clipped` says that `between` came out negative and was set to 0. The standard errors
    are those of the mean score: with twice the rollouts, with any number of them, with twice the
    tasks.
    """

    tasks: int
    rollouts: float | None = None
    between: float | None = None
    within: float | None = None
    icc: float | None = None
    clipped: bool = False
    se_twice_rollouts: float | None = None
    se_any_rollouts: float | None = None
    se_twice_tasks: float | None = None
    reason: str | None = None

    def se(self, *, tasks: int, rollouts: float) -> float | None:
        """Return the standard error that so many *tasks* of so many *rollouts* would leave.

        None where it is not known, and where nothing is left: that is not certainty.
        """
        if self.between is None or self.within is None:
            return None
        return math.sqrt((self.between + self.within / rollouts) / tasks) or None


def split_variance(tasks: Iterable[RepeatedTask]) -> VarianceSplit:
    """Split the variance of one candidate's scores into components, over all its scored tasks."""
    seen = list(tasks)
    if not seen:
        return VarianceSplit(tasks=0, reason="no task has a score")
    rollouts = len(seen) / math.fsum(1 / task.n for task in seen)
    repeats = sum(task.n - 1 for task in seen)
    if not repeats:
        why = "one rollout of each task: noise and differences between tasks cannot be separated"
        return VarianceSplit(tasks=len(seen), rollouts=rollouts, reason=why)
    # less than this is rounding
    least = _ROUNDING * max(task.squares / task.n for task in seen)
    apart = math.fsum(max(task.squares - task.total**2 / task.n, 0.0) for task in seen) / repeats
    within = apart if apart > least else 0.0
    known = VarianceSplit(tasks=len(seen), rollouts=rollouts, within=within)
    if len(seen) == 1:
        return replace(known, reason="one task: no variance between tasks to measure")
    of_means = _variance([task.total / task.n for task in seen])
    between = of_means - within / rollouts
    if max(within, abs(between)) <= least:
        return replace(known, between=0.0, reason="all scores are equal: no variance to split")
    return _foreseen(
        replace(known, between=between if between > least else 0.0, clipped=between < -least),
        of_means=of_means,
        rollouts=rollouts,
    )


def _foreseen(known: VarianceSplit, *, of_means: float, rollouts: float) -> VarianceSplit:
    """Return *known* with what more rollouts, and more tasks, would leave of the standard error."""
    between, within = known.between or 0.0, known.within or 0.0
    return replace(
        known,
        icc=between / (between + within),
        se_twice_rollouts=known.se(tasks=known.tasks, rollouts=2 * rollouts),
        se_any_rollouts=known.se(tasks=known.tasks, rollouts=math.inf),
        se_twice_tasks=math.sqrt(of_means / (2 * known.tasks)) or None,
        reason=None if between else "tasks differ no more than their rollouts do",
    )


def _variance(means: Sequence[float]) -> float:
    mean = math.fsum(means) / len(means)
    return math.hypot(*(value - mean for value in means)) ** 2 / (len(means) - 1)


@value_object
class VariancePart:
    """A variance that was measured, with its degrees of freedom; negative where it is taken away."""

    value: float
    df: float


def bounds(parts: Sequence[VariancePart], *, level: float = 0.95) -> tuple[float, float] | None:
    """Return where the sum of *parts* lies; None where one is known too badly to say."""
    if any(part.df < _LEAST_DF for part in parts):
        return None
    z = NormalDist().inv_cdf(0.5 + level / 2)
    middle = math.fsum(part.value for part in parts)
    down, up = [], []
    for part in parts:
        less = part.value * (1 - 1 / chi_squared_over_df(z, part.df))
        more = part.value * (1 / chi_squared_over_df(-z, part.df) - 1)
        down.append(less if part.value > 0 else more)
        up.append(more if part.value > 0 else less)
    return max(middle - math.hypot(*down), 0.0), max(middle + math.hypot(*up), 0.0)


def chi_squared_over_df(z: float, df: float) -> float:
    """Return the quantile of chi-squared at the normal quantile *z* (Wilson and Hilferty, 1931)."""
    return (1 - 2 / (9 * df) + z * math.sqrt(2 / (9 * df))) ** 3
