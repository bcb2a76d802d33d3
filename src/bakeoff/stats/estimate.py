"""Estimates a candidate's score: the mean of task means with its uncertainty.

The unit is the task. Rollouts of one task are not independent evidence, so the spread is measured
between task means; that spread already contains the noise between rollouts. A number that cannot
be estimated is None with a reason, never a zero.

    scores 0 or 1, one rollout of 30 tasks and more    wilson
    scores 0 or 1, one rollout of fewer tasks          wilson with t's quantile for the normal one
    scores 0 or 1, all task means equal                wilson over tasks
    other scores from 0 to 1                           effective-task wilson, see `effective_tasks`
    tasks in groups                                    clustered t: CR1 error, groups - 1 degrees
    scores beyond 0 and 1                              task-mean t
    one task, or equal means that are not 0 or 1       None, with a reason
"""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from statistics import NormalDist
from typing import Literal, Self, TypeAlias

from bakeoff._lib.value_object import value_object
from bakeoff.core.task import Task
from bakeoff.stats.distributions import beta_quantile, binomial_at_most, student_quantile

IntervalMethod: TypeAlias = Literal["auto", "wilson", "clopper-pearson", "jeffreys", "t"]
"""How the interval of a mean score is computed; `auto` is the method that fits."""

# Sums of the same scores in another order differ by a few ulp: that is no spread between tasks.
_ROUNDING = 1e-12
_ENOUGH_FOR_WILSON = 30  # with fewer tasks it covers less than 93 % near 0 and 1
_AT_ONCE = 65_536  # values
_PRIOR_TASKS = 1.5  # found by simulation: see tests/simulations.py


@value_object
class Interval:
    """A range that covers the true mean in about `level` of all repetitions, and how it was got."""

    low: float
    high: float
    level: float
    method: str


@value_object
class Estimate:
    """The mean of task means with its uncertainty; `reason` says why a part of it is None."""

    mean: float | None
    se: float | None
    interval: Interval | None
    tasks: int
    trials: int
    reason: str | None


@value_object
class TaskScores:
    """What an estimate needs to know of one task's scored trials: at least one, all finite.

    Every field is an aggregate a store can compute: count, sum, min, max, and whether each score
    is 0 or 1. A task with no scored trial has no mean and is left out by the caller. Tasks of one
    `group` are not independent of each other; one without is a group of its own.
    """

    n: int
    total: float
    low: float
    high: float
    binary: bool
    group: str | None = None

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError("a task without a scored trial has no mean; leave it out")
        if not (math.isfinite(self.total) and math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(
                f"scores must be finite, got sum {self.total!r}, min {self.low!r}, "
                f"max {self.high!r}; record the trial as faulted instead"
            )

    @classmethod
    def of(cls, scores: Iterable[float]) -> Self:
        """Summarize the scores of one task."""
        values = list(scores)
        return cls(
            n=len(values),
            total=math.fsum(values),
            low=min(values, default=0.0),
            high=max(values, default=0.0),
            binary=all(value in (0, 1) for value in values),
        )

    def plus(self, score: float) -> "TaskScores":
        """Return these scores and one more."""
        return TaskScores(
            n=self.n + 1,
            total=self.total + score,
            low=min(self.low, score),
            high=max(self.high, score),
            binary=self.binary and score in (0, 1),
            group=self.group,
        )

    @property
    def mean(self) -> float:
        """The task's mean score."""
        return self.total / self.n


def estimate(
    tasks: Iterable[TaskScores], *, level: float = 0.95, method: IntervalMethod = "auto"
) -> Estimate:
    """Estimate a candidate's mean score over tasks, every task weighing the same."""
    _check_level(level)
    seen = list(tasks)
    if not seen:
        return Estimate(
            mean=None, se=None, interval=None, tasks=0, trials=0, reason="no task has a score"
        )
    different = {id(task): task for task in seen}  # a million tasks may share a few objects
    mean_of = {key: task.mean for key, task in different.items()}
    means = array("d", map(mean_of.__getitem__, map(id, seen)))
    mean = math.fsum(means) / len(means)
    kinds = list(different.values())
    scale = max(max(-t.low, t.high) for t in kinds)
    groups = [task.group for task in seen] if any(task.group for task in kinds) else None
    spread = spread_of(means, mean, groups=groups, scale=scale)
    return Estimate(
        mean=mean,
        se=spread.se,
        interval=_interval(kinds, len(seen), mean, spread, level=level, method=method),
        tasks=len(seen),
        trials=sum(map(attrgetter("n"), seen)),
        reason=_reason(len(seen), spread),
    )


@value_object
class Spread:
    """The standard error of a mean over *units* that are independent: tasks, or groups of them.

    `se` is None where all values are equal, or there is one unit only.
    """

    se: float | None
    units: int
    grouped: bool = False

    @property
    def df(self) -> int:
        """The degrees of freedom of the error."""
        return self.units - 1


def spread_of(
    values: Sequence[float],
    mean: float,
    *,
    groups: Sequence[str | None] | None = None,
    scale: float = 1.0,
) -> Spread:
    """Return the standard error of *mean* over *values*, by `groups` where some share one (CR1)."""
    totals = by_group([value - mean for value in values], groups) if groups else None
    if totals is None:
        return Spread(se=standard_error(values, mean, scale=scale), units=len(values))
    n, units = len(values), len(totals)
    if units == 1:
        return Spread(se=None, units=1, grouped=True)
    se = math.hypot(*totals) / n * math.sqrt(units / (units - 1))
    return Spread(se=se if se > _ROUNDING * scale else None, units=units, grouped=True)


def by_group(values: Sequence[float], groups: Sequence[str | None]) -> list[float] | None:
    """Return the sum of *values* in each group; None where no two of them share one."""
    totals: dict[str, list[float]] = {}
    alone: list[float] = []
    for value, group in zip(values, groups, strict=True):
        if group is None:
            alone.append(value)
        else:
            totals.setdefault(group, []).append(value)
    if all(len(members) == 1 for members in totals.values()):
        return None
    return sorted([*alone, *(math.fsum(members) for members in totals.values())])


def wilson(successes: int, n: int, *, level: float = 0.95) -> Interval:
    """Give the Wilson score interval of `successes` out of `n` independent binary trials."""
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"need 0 <= successes <= n and n >= 1, got {successes!r} of {n!r}")
    return _wilson(successes / n, n, level=level, method="wilson")


def fault_bounds(total: float, *, scored: int, faulted: int) -> tuple[float, float] | None:
    """Bound the mean as if every faulted trial had scored 0, then 1; None without any trial.

    `total` is the sum of the scored trials' scores, each in [0, 1]. Where every task was planned
    with the same number of rollouts, the mean of task means lies within these bounds.
    """
    if scored < 0 or faulted < 0 or not 0 <= total <= scored:
        raise ValueError(
            f"need scores in [0, 1] and counts >= 0, got a sum of {total!r} "
            f"over {scored!r} scored and {faulted!r} faulted trials"
        )
    trials = scored + faulted
    return (total / trials, (total + faulted) / trials) if trials else None


def clopper_pearson(successes: float, n: float, *, level: float = 0.95) -> Interval:
    """Give the exact interval of `successes` out of `n`, which covers at least its level."""
    return _beta_interval(successes, n, level=level, more=1.0, method="clopper-pearson")


def jeffreys(successes: float, n: float, *, level: float = 0.95) -> Interval:
    """Give the interval of `successes` out of `n` by Jeffreys' prior, which covers its level on average."""
    return _beta_interval(successes, n, level=level, more=0.5, method="jeffreys")


def _beta_interval(
    successes: float, n: float, *, level: float, more: float, method: str
) -> Interval:
    _check_level(level)
    if not 0 <= successes <= n or n <= 0:
        raise ValueError(f"need 0 <= successes <= n and n > 0, got {successes!r} of {n!r}")
    failures, tail = n - successes, (1 - level) / 2
    low = beta_quantile(tail, successes + 1 - more, failures + more) if successes else 0.0
    high = beta_quantile(1 - tail, successes + more, failures + 1 - more) if failures else 1.0
    return Interval(low=low, high=high, level=level, method=method)


def effective_tasks(mean: float, se: float | None, tasks: int) -> float:
    """Return how many tasks with a score of 0 or 1 would leave the *se* of this *mean*.

    The share φ = n se² / (p (1 - p)) of the greatest variance is taken towards 1 where hardly a task
    tells anything about it: as φ^(f / (f + 1.5)) with f = 4 n p (1 - p). Of a hundred tasks that are
    all solved but two, the two that were tried say little of how far others would vary.
    """
    most = mean * (1 - mean)
    if se is None or most <= _ROUNDING:
        return tasks
    telling = 4 * tasks * most
    share = min(tasks * se * se / most, 1.0)
    return tasks / math.pow(share, telling / (telling + _PRIOR_TASKS))


def _interval(
    kinds: Sequence[TaskScores],
    tasks: int,
    mean: float,
    spread: Spread,
    *,
    level: float,
    method: IntervalMethod,
) -> Interval | None:
    if spread.units == 1:
        return None
    binary = all(task.binary for task in kinds)
    if spread.se is None and not binary:
        return None
    if not all(task.low >= 0 and task.high <= 1 for task in kinds):
        return student_interval(mean, spread, level=level) if spread.se is not None else None
    once = binary and all(task.n == 1 for task in kinds) and not spread.grouped
    if method == "auto" and once:
        return _of_single_rollouts(mean, tasks, level=level)
    if method == "auto" and spread.grouped and spread.se is not None:
        return _clustered(mean, spread, tasks=tasks, level=level)
    return _bounded(mean, spread, tasks=tasks, level=level, method=method)


def _of_single_rollouts(mean: float, tasks: int, *, level: float) -> Interval:
    if tasks >= _ENOUGH_FOR_WILSON or mean in (0, 1):
        return _wilson(mean, tasks, level=level, method="wilson")
    quantile = student_quantile(0.5 + level / 2, tasks - 1)
    return _score_interval(mean, tasks, quantile, level=level, method="wilson with t")


def _bounded(
    mean: float, spread: Spread, *, tasks: int, level: float, method: IntervalMethod
) -> Interval:
    """Return the interval of a mean score from 0 to 1, from as many tasks as it is worth."""
    if method == "t" and spread.se is not None:
        return student_interval(mean, spread, level=level, unit=True)
    if spread.se is None and method in ("auto", "t"):
        return _wilson(mean, spread.units, level=level, method="wilson over tasks")
    quantile = student_quantile(0.5 + level / 2, spread.df)
    worth = _worth(mean, spread, tasks)
    if method in ("auto", "t"):
        return _score_interval(mean, worth, quantile, level=level, method="effective-task wilson")
    if method == "wilson":
        return _wilson(mean, worth, level=level, method="wilson")
    # the same allowance for an error that is estimated, where no quantile can be put in
    sure = worth * (NormalDist().inv_cdf(0.5 + level / 2) / quantile) ** 2
    sure = tasks if worth == tasks and not spread.grouped else sure
    by = clopper_pearson if method == "clopper-pearson" else jeffreys
    return by(mean * sure, sure, level=level)


def _worth(mean: float, spread: Spread, tasks: int) -> float:
    """Return the effective number of tasks; of tasks in groups, as their errors have it."""
    if not spread.grouped:
        return effective_tasks(mean, spread.se, tasks)
    most = mean * (1 - mean)
    return most / spread.se**2 if spread.se is not None and most else spread.units


def _clustered(mean: float, spread: Spread, *, tasks: int, level: float) -> Interval:
    """Return the t interval over groups, wider near 0 and 1, where t says too little."""
    t = student_interval(mean, spread, level=level, unit=True)
    near_the_end = _bounded(mean, spread, tasks=tasks, level=level, method="auto")
    return Interval(
        low=min(t.low, near_the_end.low),
        high=max(t.high, near_the_end.high),
        level=level,
        method="clustered t (CR1)",
    )


def _wilson(proportion: float, n: float, *, level: float, method: str) -> Interval:
    """Give the Wilson interval around a proportion of `n` independent units."""
    _check_level(level)
    z = NormalDist().inv_cdf(0.5 + level / 2)
    return _score_interval(proportion, n, z, level=level, method=method)


def _score_interval(
    proportion: float, n: float, quantile: float, *, level: float, method: str
) -> Interval:
    """Give all proportions that lie within *quantile* of their own standard errors."""
    shrink = 1 + quantile * quantile / n
    centre = (proportion + quantile * quantile / (2 * n)) / shrink
    variance = proportion * (1 - proportion) / n + quantile * quantile / (4 * n * n)
    half = quantile * math.sqrt(variance) / shrink
    return Interval(
        # At an end of the range the bound is that end exactly; rounding would miss it by an ulp.
        low=0.0 if proportion == 0 else max(0.0, centre - half),
        high=1.0 if proportion == 1 else min(1.0, centre + half),
        level=level,
        method=method,
    )


def student_interval(
    mean: float, spread: Spread, *, level: float = 0.95, unit: bool = False
) -> Interval:
    """Give the t interval of *mean*, cut to [0, 1] where it is the mean of *unit* scores."""
    half = student_quantile(0.5 + level / 2, spread.df) * (spread.se or 0.0)
    low, high = mean - half, mean + half
    if unit:
        low, high = max(0.0, low), min(1.0, high)
    method = "clustered t (CR1)" if spread.grouped else "task-mean t"
    return Interval(low=low, high=high, level=level, method=method)


def standard_error(means: Sequence[float], mean: float, *, scale: float) -> float | None:
    """Give the standard error of *mean* over the *means* of tasks, or None where they are equal.

    *scale* is the size of the greatest score: less than its rounding is no spread.
    """
    n = len(means)
    if n == 1:
        return None
    # hypot neither overflows nor underflows where a sum of squares would, but takes all at once
    parts = [
        math.hypot(*(value - mean for value in means[start : start + _AT_ONCE]))
        for start in range(0, n, _AT_ONCE)
    ]
    se = math.hypot(*parts) / math.sqrt(n * (n - 1))
    return se if se > _ROUNDING * scale else None


def _reason(tasks: int, spread: Spread) -> str | None:
    if tasks == 1:
        return "one task: no variance between tasks to measure"
    if spread.units == 1:
        return f"all {tasks} tasks are of one group: no variance between groups to measure"
    if spread.se is None:
        return f"all {tasks} task means are equal: no variance to estimate a standard error from"
    return None


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}; 0.95 is usual")


def quantile(sorted_values: Sequence[float], q: float) -> float | None:
    """Give the q-quantile of ascending values by linear interpolation; None where there are none.

    The same convention as numpy's default: the quantiles 0 and 1 are the least and greatest value.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q must lie between 0 and 1, got {q!r}")
    if not sorted_values:
        return None
    position = (len(sorted_values) - 1) * q
    below = sorted_values[math.floor(position)]
    above = sorted_values[math.ceil(position)]
    return below + (above - below) * (position - math.floor(position))


def quantile_interval(
    sorted_values: Sequence[float], q: float, *, level: float = 0.95
) -> Interval | None:
    """Return the values between which the true q-quantile lies; None where there are too few.

    They are two of the values, by the binomial chance that so many of them are below the quantile.
    """
    ranks = quantile_ranks(len(sorted_values), q, level=level)
    if ranks is None:
        return None
    low, high = (sorted_values[rank - 1] for rank in ranks)
    return Interval(low=low, high=high, level=level, method="order statistics")


@lru_cache(maxsize=1024)
def quantile_ranks(n: int, q: float, *, level: float = 0.95) -> tuple[int, int] | None:
    """Return the ranks, from 1, of the two of *n* values that hold the q-quantile; None if none do."""
    _check_level(level)
    tail = (1 - level) / 2
    low = _first_rank(n, lambda rank: binomial_at_most(rank, n, q) > tail)
    high = _first_rank(n, lambda rank: 1 - binomial_at_most(rank - 1, n, q) <= tail)
    return (low, high) if low >= 1 and high <= n else None


def _first_rank(n: int, holds: Callable[[int], bool]) -> int:
    """Return the first rank for which what *holds* from some rank on does; n + 1 where none does."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


# --- averages of several estimates ----------------------------------------------------------------


def weighted_average(
    parts: Sequence[tuple[Estimate, float]], *, level: float = 0.95
) -> Estimate | None:
    """Return the mean of the means of independent *parts* with their weights; None without means.

    Its interval is put together from theirs (MOVER; Zou and Donner, 2008), so that a part that is
    solved in whole, which has no standard error, still adds what is not known of it.
    """
    known = [(part, weight) for part, weight in parts if part.mean is not None]
    whole = math.fsum(weight for _, weight in known)
    if not known or not whole:
        return None
    shares = [(part, weight / whole) for part, weight in known]
    mean = math.fsum(share * (part.mean or 0.0) for part, share in shares)
    errors = [share * part.se for part, share in shares if part.se is not None]
    ranges = [
        (share * (part.mean - part.interval.low), share * (part.interval.high - part.mean))
        for part, share in shares
        if part.interval is not None and part.mean is not None
    ]
    complete = len(ranges) == len(shares)
    below, above = (math.hypot(*(each[side] for each in ranges)) for side in (0, 1))
    return Estimate(
        mean=mean,
        se=math.hypot(*errors) if len(errors) == len(shares) else None,
        interval=Interval(low=mean - below, high=mean + above, level=level, method="MOVER")
        if complete
        else None,
        tasks=sum(part.tasks for part, _ in shares),
        trials=sum(part.trials for part, _ in shares),
        reason=None if complete else "a category has too few tasks for an interval of its own",
    )


@value_object
class Ratio:
    """A ratio of two totals with its uncertainty over tasks; `reason` says why a part is None."""

    value: float | None
    se: float | None = None
    interval: Interval | None = None
    reason: str | None = None


def ratio_of_totals(
    pairs: Sequence[tuple[float, float]],
    *,
    groups: Sequence[str | None] | None = None,
    level: float = 0.95,
) -> Ratio:
    """Return the total of the first numbers / that of the second, each pair that of one task.

    The standard error is that of the delta method; the interval is taken on the scale of logarithms.
    """
    above, below = (math.fsum(pair[side] for pair in pairs) for side in (0, 1))
    if not below:
        return Ratio(value=None, reason="nothing was solved")
    value = above / below
    residuals = [a - value * b for a, b in pairs]
    spread = spread_of(residuals, 0.0, groups=groups, scale=max(abs(above), 1e-300) / len(pairs))
    if spread.se is None or not value:
        return Ratio(value=value, reason="no variance between tasks to measure")
    se = spread.se * len(pairs) / below
    factor = math.exp(student_quantile(0.5 + level / 2, spread.df) * se / value)
    interval = Interval(
        low=value / factor, high=value * factor, level=level, method="delta method, log"
    )
    return Ratio(value=value, se=se, interval=interval)


# --- missing scores -------------------------------------------------------------------------------


@value_object
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
