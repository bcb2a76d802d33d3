"""Sample sizes: the tasks required to detect a difference, for each number of rollouts.

That depends on why the difference between two candidates varies from task to task:

    between   ω², the variance over tasks of the true difference
    noise     σ²_A + σ²_B, the variance of one rollout of each about the mean of its task

Both are assumed where there is nothing to go by, or measured in a run that was made: a pilot.
"""

import math
from collections.abc import Mapping, Sequence

from bakeoff._lib.value_object import value_object
from bakeoff.core.plan import Plan
from bakeoff.stats import power
from bakeoff.stats.pace import NO_EFFORT, Effort
from bakeoff.stats.paired import Pair
from bakeoff.stats.variance import VariancePart, VarianceSplit, bounds

ROLLOUTS = (1, 2, 4, 8, 16)
_MOST_ROLLOUTS = 1_000  # an upper limit for the search


@value_object
class ErrorRates:
    """The power and the significance level `alpha` of a comparison.

    Of more than two candidates each pair is held to `alpha` / pairs, the strictest step of Holm's.
    """

    alpha: float = 0.05
    power: float = 0.8
    candidates: int = 2

    @property
    def pairs(self) -> int:
        """How many pairs are compared."""
        return math.comb(self.candidates, 2)

    @property
    def level(self) -> float:
        """The level that each pair is held to."""
        return 1 - self.alpha / self.pairs


@value_object
class DifferenceVariance:
    """The variance components of the difference between two candidates; None is unknown.

    `observed` is the whole variance as it was measured, with `rollouts` rollouts on `tasks` tasks
    (where the two have unequal numbers: as many as make the same noise), `noise_df` how much the
    noise was measured by. `clipped` says that `between` came out negative and was set to 0.
    """

    between: float | None
    noise: float | None
    clipped: bool = False
    observed: float | None = None
    rollouts: float | None = None
    tasks: int | None = None
    noise_df: float | None = None

    def variance(self, rollouts: float) -> float | None:
        """Return the variance of a task's difference after *rollouts*, where that is known."""
        if self.between is not None and self.noise is not None:
            return self.between + self.noise / rollouts
        return self.observed if rollouts == self.rollouts else None

    def bounds(self, rollouts: float) -> tuple[float, float] | None:
        """Return where that variance lies, in 95 of 100 runs like the one it was measured in."""
        if self.observed is None or self.rollouts is None or self.tasks is None:
            return None
        parts = [VariancePart(value=self.observed, df=self.tasks - 1)]
        if self.noise and self.noise_df is not None:
            less_or_more = self.noise * (1 / rollouts - 1 / self.rollouts)
            parts.append(VariancePart(value=less_or_more, df=self.noise_df))
        return bounds(parts)

    def step(self, rollouts: float) -> float:
        """Return the least step of a task's mean; rollouts that are all alike make none smaller."""
        return 1.0 if self.noise == 0 else 1 / rollouts


@value_object
class Assumptions:
    """Assumptions about two candidates when nothing was measured.

    Scores are 0 or 1, `score` on average. The share `noise` of their variance is chance between
    rollouts, the rest is that tasks are not equally hard. `correlation` is how far the two find
    the same tasks hard. Tasks whose chances are spread evenly from 0 to 1 have two thirds of noise.
    """

    score: float = 0.5
    noise: float = 2 / 3
    correlation: float = 0.5

    def spread(self, variance: float | None = None) -> DifferenceVariance:
        """Return what follows, of scores with *variance* (default: that of 0 and 1)."""
        whole = self.score * (1 - self.score) if variance is None else variance
        return self.apart(between=whole * (1 - self.noise), within=whole * self.noise)

    def apart(self, *, between: float, within: float) -> DifferenceVariance:
        """Return what follows for two candidates whose scores both vary so."""
        return DifferenceVariance(between=2 * between * (1 - self.correlation), noise=2 * within)


@value_object
class RunSize:
    """A run that is large enough; `trials` are those of all candidates.

    `by_formula` is Miller's number of tasks, without what an exact test takes beyond it. `likely`
    is where the number lies in 95 of 100 pilots; None where there was none, or a tiny one.
    `detectable` is the least difference that the tasks at hand show with so many rollouts, `effort`
    what the trials take where that is known.
    """

    rollouts: int
    tasks: int
    trials: int
    by_formula: float
    likely: tuple[int, int] | None
    detectable: float | None
    effort: Effort = NO_EFFORT


def sizes(
    difference: float,
    spread: DifferenceVariance,
    strictness: ErrorRates,
    *,
    rollouts: Sequence[int] = ROLLOUTS,
    at_hand: int | None = None,
) -> tuple[RunSize, ...]:
    """Return how many tasks each number of *rollouts* takes, as far as that is known."""
    return tuple(
        RunSize(
            rollouts=k,
            tasks=tasks,
            trials=tasks * k * strictness.candidates,
            by_formula=power.tasks_needed(
                difference,
                variance=spread.variance(k) or 0.0,
                level=strictness.level,
                power=strictness.power,
            ),
            likely=_likely(difference, spread, strictness, rollouts=k),
            detectable=at_hand and seen_with(at_hand, spread, strictness, rollouts=k),
        )
        for k in rollouts
        if (tasks := tasks_for(difference, spread, strictness, rollouts=k)) is not None
    )


def _likely(
    difference: float, spread: DifferenceVariance, strictness: ErrorRates, *, rollouts: int
) -> tuple[int, int] | None:
    bounds_of_variance, middle = spread.bounds(rollouts), spread.variance(rollouts)
    if bounds_of_variance is None or middle is None:
        return None
    # a clipped value may lie outside its bounds
    ends = min(bounds_of_variance[0], middle), max(bounds_of_variance[1], middle)
    low, high = (_enough(difference, end, spread.step(rollouts), strictness) for end in ends)
    return low, high


def tasks_for(
    difference: float, spread: DifferenceVariance, strictness: ErrorRates, *, rollouts: float
) -> int | None:
    """Return how many tasks it takes with so many *rollouts*; None where that is unknown."""
    variance = spread.variance(rollouts)
    if variance is None:
        return None
    return _enough(difference, variance, spread.step(rollouts), strictness)


def _enough(difference: float, variance: float, step: float, strictness: ErrorRates) -> int:
    level, chance = strictness.level, strictness.power
    return power.to_decide(difference, variance=variance, step=step, level=level, power=chance)


def seen_with(
    tasks: int, spread: DifferenceVariance, strictness: ErrorRates, *, rollouts: float
) -> float | None:
    """Return the least difference that *tasks* show; None where it is unknown or there is none."""
    variance = spread.variance(rollouts)
    if variance is None:
        return None
    least = power.decided_with(
        tasks,
        variance=variance,
        step=spread.step(rollouts),
        level=strictness.level,
        power=strictness.power,
    )
    return least if least is not None and least <= 1 else None


def rollouts_for(
    difference: float, spread: DifferenceVariance, strictness: ErrorRates, *, tasks: int
) -> int | None:
    """Return how many rollouts make *tasks* enough; None where no number does, or none is known."""
    for rollouts in range(1, _MOST_ROLLOUTS + 1):
        needed = tasks_for(difference, spread, strictness, rollouts=rollouts)
        if needed is not None and needed <= tasks:
            return rollouts
    return None


def measured(pair: Pair, splits: Mapping[str, VarianceSplit]) -> DifferenceVariance | None:
    """Return why the difference of a pair that was run varies; None where it does not."""
    if pair.se is None:
        return None
    first, second = splits[pair.first], splits[pair.second]
    observed = pair.se**2 * pair.tasks
    rollouts = first.rollouts if first.rollouts == second.rollouts else None
    if first.within is None or second.within is None:
        return DifferenceVariance(
            between=None, noise=None, observed=observed, rollouts=rollouts, tasks=pair.tasks
        )
    noise = first.within + second.within
    of_means = first.within / (first.rollouts or 1) + second.within / (second.rollouts or 1)
    return DifferenceVariance(
        between=max(observed - of_means, 0.0),
        noise=noise,
        clipped=observed < of_means,
        observed=observed,
        rollouts=rollouts or (noise / of_means if of_means else first.rollouts),
        tasks=pair.tasks,
        noise_df=_df(first, second),
    )


def _df(first: VarianceSplit, second: VarianceSplit) -> float | None:
    """Return the degrees of freedom of the noise of both together (Satterthwaite)."""
    parts = [
        ((split.within or 0.0), split.tasks * ((split.rollouts or 1) - 1))
        for split in (first, second)
    ]
    unsure = math.fsum(value**2 / df for value, df in parts if value)
    return math.fsum(value for value, _ in parts) ** 2 / unsure if unsure else None


@value_object
class DetectableDifference:
    """The smallest difference that a plan detects with 80 % power, under assumptions.

    `detectable` is None where so few tasks show no difference at all.
    """

    detectable: float | None
    tasks: int
    rollouts: int
    candidates: int
    assumed: Assumptions


def detectable_difference(
    plan: Plan, assumed: Assumptions | None = None
) -> DetectableDifference | None:
    """Return the smallest difference between two candidates that *plan* can detect.

    None where it has not two of them, or no task that both are given and that has a score.
    """
    assumed = assumed or Assumptions()
    given: dict[str, set[str]] = {}
    for block in plan.blocks:
        tasks = {t.digest for t in block.tasks if any(scorer.weight for scorer in t.scorers)}
        for candidate in block.candidates:
            given.setdefault(candidate.digest, set()).update(tasks)
    shared = len(set.intersection(*given.values())) if given else 0
    if len(given) < 2 or not shared:
        return None
    rollouts = min(block.rollouts for block in plan.blocks)
    strictness = ErrorRates(candidates=len(given))
    return DetectableDifference(
        detectable=seen_with(shared, assumed.spread(), strictness, rollouts=rollouts),
        tasks=shared,
        rollouts=rollouts,
        candidates=len(given),
        assumed=assumed,
    )
