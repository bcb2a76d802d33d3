"""Time to solve with censored attempts, by Kaplan-Meier instead of the mean over successes.

The mean time of successes alone favours a candidate that gives up on what takes long. Here a
rollout that was not solved is known to take at least as long as it was watched:

    solved                        observed at its time
    wrong, or out of time         not solved within the horizon: censored there
lost to a fault               unknown: censored at the moment it was lost

`restricted_mean` is the mean time to solve, counted up to the horizon (the time limit): the area
under the survival curve. Its standard error is Greenwood's. PAR2 counts each unsolved rollout as
twice the horizon, as solver competitions do.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from bakeoff._lib.value_object import value_object
from bakeoff.stats.distributions import chi_squared_above, student_quantile
from bakeoff.stats.estimate import Interval


@value_object
class Observation:
    """One rollout: how long it was observed, and whether it ended solved."""

    seconds: float
    solved: bool


@value_object
class SurvivalStep:
    """A time at which something was solved, and the share that is unsolved after it."""

    seconds: float
    at_risk: int
    solved: int
    unsolved: float


@value_object
class TimeToSolve:
    """The estimated time to solve; `reason` says why a part of it is None."""

    rollouts: int
    solved: int
    horizon_s: float
    median_s: float | None
    restricted_mean_s: float | None
    se_s: float | None
    interval: Interval | None
    par2_s: float | None
    reason: str | None


def time_to_solve(
    watched: Iterable[Observation], *, horizon_s: float, level: float = 0.95
) -> TimeToSolve:
    """Estimate the time to solve within *horizon_s*, with what was cut off taken as censored."""
    _check_horizon(horizon_s)
    seen = [_within(observation, horizon_s) for observation in watched]
    if not seen:
        return TimeToSolve(
            rollouts=0, solved=0, horizon_s=horizon_s, median_s=None, restricted_mean_s=None,
            se_s=None, interval=None, par2_s=None, reason="nothing was run",
        )  # fmt: skip
    curve = kaplan_meier(seen)
    mean = _area(curve, 0.0, horizon_s)
    se = _greenwood(curve, horizon_s) if len(seen) > 1 else None
    se = se or None  # no spread was seen: that is not certainty
    return TimeToSolve(
        rollouts=len(seen),
        solved=sum(observation.solved for observation in seen),
        horizon_s=horizon_s,
        median_s=next((step.seconds for step in curve if step.unsolved <= 0.5), None),
        restricted_mean_s=mean,
        se_s=se,
        interval=None if se is None else _interval(mean, se, len(seen), horizon_s, level=level),
        par2_s=_par2(seen, horizon_s),
        reason=_reason(len(seen), se),
    )


def kaplan_meier(watched: Sequence[Observation]) -> tuple[SurvivalStep, ...]:
    """Return the survival curve: a step wherever something was solved, in order of time."""
    steps: list[SurvivalStep] = []
    unsolved = Fraction(1)  # exact: the median is where it is no more than one half
    for moment in sorted({observation.seconds for observation in watched if observation.solved}):
        at_risk, solved = _at_risk(watched, moment), _solved_at(watched, moment)
        unsolved *= Fraction(at_risk - solved, at_risk)
        steps.append(
            SurvivalStep(seconds=moment, at_risk=at_risk, solved=solved, unsolved=float(unsolved))
        )
    return tuple(steps)


@value_object
class LogRank:
    """The log-rank test of two survival curves; `p` is None where nothing was solved by either."""

    chi_squared: float | None
    p: float | None


def log_rank(first: Sequence[Observation], second: Sequence[Observation]) -> LogRank:
    """Compare the whole times to solve of two candidates, with what was cut off as censored."""
    both = [*first, *second]
    surplus = variance = 0.0
    for moment in sorted({observation.seconds for observation in both if observation.solved}):
        n, n_first = _at_risk(both, moment), _at_risk(first, moment)
        solved, solved_first = _solved_at(both, moment), _solved_at(first, moment)
        surplus += solved_first - solved * n_first / n
        if n > 1:
            chance = n_first / n
            variance += solved * chance * (1 - chance) * (n - solved) / (n - 1)
    if not variance:
        return LogRank(chi_squared=None, p=None)
    chi_squared = surplus**2 / variance
    return LogRank(chi_squared=chi_squared, p=chi_squared_above(chi_squared))


def _at_risk(watched: Sequence[Observation], moment: float) -> int:
    return sum(observation.seconds >= moment for observation in watched)


def _solved_at(watched: Sequence[Observation], moment: float) -> int:
    return sum(observation.solved and observation.seconds == moment for observation in watched)


def _within(observation: Observation, horizon_s: float) -> Observation:
    if not (math.isfinite(observation.seconds) and observation.seconds >= 0):
        raise ValueError(f"a time is finite and not negative, got {observation.seconds!r}")
    if observation.seconds <= horizon_s:
        return observation
    return Observation(
        seconds=horizon_s, solved=False
    )  # what comes after the horizon does not count


def _area(curve: Sequence[SurvivalStep], start: float, end: float) -> float:
    """Return the area under the curve between two times."""
    total, level, since = 0.0, 1.0, 0.0
    for step in curve:
        total += level * max(min(step.seconds, end) - max(since, start), 0.0)
        level, since = step.unsolved, step.seconds
    return total + level * max(end - max(since, start), 0.0)


def _greenwood(curve: Sequence[SurvivalStep], horizon_s: float) -> float:
    variance = 0.0
    for step in curve:
        left = step.at_risk - step.solved
        if left:  # at the last one nothing is left, and no area either
            area = _area(curve, step.seconds, horizon_s)
            variance += area * area * step.solved / (step.at_risk * left)
    return math.sqrt(variance)


def _interval(mean: float, se: float, rollouts: int, horizon_s: float, *, level: float) -> Interval:
    # Greenwood divides by the number of rollouts, as if their mean were known
    unbiased = se * math.sqrt(rollouts / (rollouts - 1))
    half = student_quantile(0.5 + level / 2, rollouts - 1) * unbiased
    return Interval(
        low=max(mean - half, 0.0),
        high=min(mean + half, horizon_s),
        level=level,
        method="Kaplan-Meier, Greenwood, t",
    )


def _par2(seen: Sequence[Observation], horizon_s: float) -> float | None:
    """Return the mean time with unsolved rollouts counted as twice the horizon, without lost ones."""
    decided = [
        observation
        for observation in seen
        if observation.solved or observation.seconds >= horizon_s
    ]
    if not decided:
        return None
    return math.fsum(
        observation.seconds if observation.solved else 2 * horizon_s for observation in decided
    ) / len(decided)


def _reason(rollouts: int, se: float | None) -> str | None:
    if rollouts == 1:
        return "one rollout: a single observation"
    if se is None:
        return f"all {rollouts} rollouts took equally long: no variance to estimate a standard error from"
    return None


def _check_horizon(horizon_s: float) -> None:
    if not (math.isfinite(horizon_s) and horizon_s > 0):
        raise ValueError(f"the horizon is a time limit in seconds, got {horizon_s!r}")
