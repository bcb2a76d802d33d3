"""How large a run must be to see a difference: so many tasks for each number of rollouts.

That depends on why the difference between two candidates varies from task to task:

    between   ω², the variance over tasks of the true difference
    noise     σ²_A + σ²_B, the variance of one rollout of each about the mean of its task

Both are assumed where there is nothing to go by, or measured in a run that was made: a pilot.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from bakeoff.core.plan import Plan
from bakeoff.stats import power
from bakeoff.stats.paired import Pair
from bakeoff.stats.variance import VarianceSplit

ROLLOUTS = (1, 2, 4, 8, 16)
_MOST_ROLLOUTS = 1_000  # nobody repeats a task more often than that
_SMALLEST_PILOT = 6  # tasks: of fewer, a variance is not known within any useful factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Strictness:
    """How sure one wants to be: a chance of `power` to see what is there, of `alpha` to be fooled.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Why the difference between two candidates varies from task to task; None is unknown.

    `observed` is the whole variance as it was measured, with `rollouts` rollouts on `tasks` tasks.
    `clipped` says that `between` came out negative and was set to 0.
    """

    between: float | None
    noise: float | None
    clipped: bool = False
    observed: float | None = None
    rollouts: float | None = None
    tasks: int | None = None

    def variance(self, rollouts: float) -> float | None:
        """Return the variance of a task's difference after *rollouts*, where that is known."""
        if self.between is not None and self.noise is not None:
            return self.between + self.noise / rollouts
        return self.observed if rollouts == self.rollouts else None

    def step(self, rollouts: float) -> float:
        """Return the least step of a task's mean; rollouts that are all alike make none smaller."""
        return 1.0 if self.noise == 0 else 1 / rollouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is taken for granted of two candidates where nothing was measured.

    Scores are 0 or 1, `score` on average. The share `noise` of their variance is chance between
    rollouts, the rest is that tasks are not equally hard. `correlation` is how far the two find
    the same tasks hard. Tasks whose chances are spread evenly from 0 to 1 have two thirds of noise.
    """

    score: float = 0.5
    noise: float = 2 / 3
    correlation: float = 0.5

    def spread(self, variance: float | None = None) -> Spread:
        """Return what follows, of scores with *variance* (default: that of 0 and 1)."""
        whole = self.score * (1 - self.score) if variance is None else variance
        return self.apart(between=whole * (1 - self.noise), within=whole * self.noise)

    def apart(self, *, between: float, within: float) -> Spread:
        """Return what follows for two candidates whose scores both vary so."""
        return Spread(between=2 * between * (1 - self.correlation), noise=2 * within)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A run that is large enough; `trials` are those of all candidates.

    `by_formula` is Miller's number of tasks, without what an exact test takes beyond it.
    `detectable` is the least difference that the tasks at hand show with so many rollouts.
    """

    rollouts: int
    tasks: int
    trials: int
    by_formula: float
    detectable: float | None


def sizes(
    difference: float,
    spread: Spread,
    strictness: Strictness,
    *,
    rollouts: Sequence[int] = ROLLOUTS,
    at_hand: int | None = None,
) -> tuple[Size, ...]:
    """Return how many tasks each number of *rollouts* takes, as far as that is known."""
    found = []
    for k in rollouts:
        tasks, variance = tasks_for(difference, spread, strictness, rollouts=k), spread.variance(k)
        if tasks is None or variance is None:
            continue
        seen = None if at_hand is None else seen_with(at_hand, spread, strictness, rollouts=k)
        formula = power.tasks_needed(
            difference, variance=variance, level=strictness.level, power=strictness.power
        )
        trials = tasks * k * strictness.candidates
        found.append(
            Size(rollouts=k, tasks=tasks, trials=trials, by_formula=formula, detectable=seen)
        )
    return tuple(found)


def tasks_for(
    difference: float, spread: Spread, strictness: Strictness, *, rollouts: float
) -> int | None:
    """Return how many tasks it takes with so many *rollouts*; None where that is unknown."""
    variance = spread.variance(rollouts)
    if variance is None:
        return None
    return power.to_decide(
        difference,
        variance=variance,
        step=spread.step(rollouts),
        level=strictness.level,
        power=strictness.power,
    )


def seen_with(
    tasks: int, spread: Spread, strictness: Strictness, *, rollouts: float
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
    difference: float, spread: Spread, strictness: Strictness, *, tasks: int
) -> int | None:
    """Return how many rollouts make *tasks* enough; None where no number does, or none is known."""
    for rollouts in range(1, _MOST_ROLLOUTS + 1):
        needed = tasks_for(difference, spread, strictness, rollouts=rollouts)
        if needed is not None and needed <= tasks:
            return rollouts
    return None


def measured(pair: Pair, splits: Mapping[str, VarianceSplit]) -> Spread | None:
    """Return why the difference of a pair that was run varies; None where it does not."""
    if pair.se is None:
        return None
    first, second = splits[pair.first], splits[pair.second]
    observed = pair.se**2 * pair.tasks
    alike = first.rollouts is not None and first.rollouts == second.rollouts
    between = noise = None
    if first.within is not None and second.within is not None:
        noise = first.within + second.within
        means = first.within / (first.rollouts or 1) + second.within / (second.rollouts or 1)
        between = observed - means
    return Spread(
        between=None if between is None else max(between, 0.0),
        noise=noise,
        clipped=between is not None and between < 0,
        observed=observed,
        rollouts=first.rollouts if alike else None,
        tasks=pair.tasks,
    )


def known_within(tasks: int | None) -> tuple[float, float] | None:
    """Return the factors between which the true variance lies, as a part of the measured one.

    As of normal differences, in 95 of 100 pilots; None where the pilot is too small to say.
    """
    if tasks is None or tasks < _SMALLEST_PILOT:
        return None
    z = NormalDist().inv_cdf(0.975)
    return 1 / _chi_squared_over_df(z, tasks - 1), 1 / _chi_squared_over_df(-z, tasks - 1)


def _chi_squared_over_df(z: float, df: int) -> float:
    """Return the quantile of chi-squared at the normal quantile *z* (Wilson and Hilferty, 1931)."""
    return (1 - 2 / (9 * df) + z * math.sqrt(2 / (9 * df))) ** 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """The least difference that a plan shows with a chance of 80 %, under what is assumed.

    `detectable` is None where so few tasks show no difference at all.
    """

    detectable: float | None
    tasks: int
    rollouts: int
    candidates: int
    assumed: Assumed


def foreseen(plan: Plan, assumed: Assumed | None = None) -> Foreseen | None:
    """Return what *plan* can tell of two of its candidates.

    None where it has not two of them, or no task that both are given and that has a score.
    """
    assumed = assumed or Assumed()
    given: dict[str, set[str]] = {}
    for block in plan.blocks:
        tasks = {t.digest for t in block.tasks if any(scorer.weight for scorer in t.scorers)}
        for candidate in block.candidates:
            given.setdefault(candidate.digest, set()).update(tasks)
    shared = len(set.intersection(*given.values())) if given else 0
    if len(given) < 2 or not shared:
        return None
    rollouts = min(block.rollouts for block in plan.blocks)
    strictness = Strictness(candidates=len(given))
    return Foreseen(
        detectable=seen_with(shared, assumed.spread(), strictness, rollouts=rollouts),
        tasks=shared,
        rollouts=rollouts,
        candidates=len(given),
        assumed=assumed,
    )
