"""How long solving takes where some attempts were cut off: Kaplan-Meier, not a mean of the lucky.

The mean time of successes alone favours a candidate that gives up on what takes long. Here a
rollout that was not solved is known to take at least as long as it was watched:

    solved                        observed at its time
    wrong, or out of time         not solved within the horizon: censored there
    lost to a fault               nobody knows: censored at the moment it was lost

`restricted_mean` is the mean time to solve, counted up to the horizon (the time limit): the area
under the survival curve. Its standard error is Greenwood's. PAR2 counts each unsolved rollout as
twice the horizon, as solver competitions do.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

from bakeoff.stats.estimate import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One rollout: for how long it was watched, and whether it was solved then."""

    seconds: float
    solved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A time at which something was solved, and the share that is unsolved after it."""

    seconds: float
    at_risk: int
    solved: int
    unsolved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToSolve:
    """What is known of the time to solve; `reason` says why a part of it is None."""

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
    watched: Iterable[Watched], *, horizon_s: float, level: float = 0.95
) -> TimeToSolve:
    """Estimate the time to solve within *horizon_s*, with what was cut off taken as censored."""
    _check_horizon(horizon_s)
    seen = [_within(one, horizon_s) for one in watched]
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
        solved=sum(one.solved for one in seen),
        horizon_s=horizon_s,
        median_s=next((step.seconds for step in curve if step.unsolved <= 0.5), None),
        restricted_mean_s=mean,
        se_s=se,
        interval=None if se is None else _interval(mean, se, horizon_s, level),
        par2_s=_par2(seen, horizon_s),
        reason=_reason(len(seen), se),
    )


def kaplan_meier(watched: Sequence[Watched]) -> tuple[Step, ...]:
    """Return the survival curve: a step wherever something was solved, in order of time."""
    steps: list[Step] = []
    unsolved = Fraction(1)  # exact: the median is where it is no more than one half
    for moment in sorted({one.seconds for one in watched if one.solved}):
        at_risk = sum(one.seconds >= moment for one in watched)
        solved = sum(one.solved and one.seconds == moment for one in watched)
        unsolved *= Fraction(at_risk - solved, at_risk)
        steps.append(Step(seconds=moment, at_risk=at_risk, solved=solved, unsolved=float(unsolved)))
    return tuple(steps)


def _within(one: Watched, horizon_s: float) -> Watched:
    if not (math.isfinite(one.seconds) and one.seconds >= 0):
        raise ValueError(f"a time is finite and not negative, got {one.seconds!r}")
    if one.seconds <= horizon_s:
        return one
    return Watched(seconds=horizon_s, solved=False)  # what comes after the horizon does not count


def _area(curve: Sequence[Step], start: float, end: float) -> float:
    """Return the area under the curve between two times."""
    total, level, since = 0.0, 1.0, 0.0
    for step in curve:
        total += level * max(min(step.seconds, end) - max(since, start), 0.0)
        level, since = step.unsolved, step.seconds
    return total + level * max(end - max(since, start), 0.0)


def _greenwood(curve: Sequence[Step], horizon_s: float) -> float:
    variance = 0.0
    for step in curve:
        left = step.at_risk - step.solved
        if left:  # at the last one nothing is left, and no area either
            area = _area(curve, step.seconds, horizon_s)
            variance += area * area * step.solved / (step.at_risk * left)
    return math.sqrt(variance)


def _interval(mean: float, se: float, horizon_s: float, level: float) -> Interval:
    half = NormalDist().inv_cdf(0.5 + level / 2) * se
    return Interval(
        low=max(mean - half, 0.0),
        high=min(mean + half, horizon_s),
        level=level,
        method="Kaplan-Meier, Greenwood",
    )


def _par2(seen: Sequence[Watched], horizon_s: float) -> float | None:
    """Return the mean with twice the horizon for what was not solved; a lost one has no place."""
    decided = [one for one in seen if one.solved or one.seconds >= horizon_s]
    if not decided:
        return None
    return math.fsum(one.seconds if one.solved else 2 * horizon_s for one in decided) / len(decided)


def _reason(rollouts: int, se: float | None) -> str | None:
    if rollouts == 1:
        return "one rollout: a single observation"
    if se is None:
        return f"all {rollouts} rollouts took equally long: no variance to estimate a standard error from"
    return None


def _check_horizon(horizon_s: float) -> None:
    if not (math.isfinite(horizon_s) and horizon_s > 0):
        raise ValueError(f"the horizon is a time limit in seconds, got {horizon_s!r}")
