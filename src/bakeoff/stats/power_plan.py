"""A power plan for a run: from assumptions, or from a pilot run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.stats.one_task import ROLLOUT
from bakeoff.stats.pace import NO_EFFORT, Effort, Pace
from bakeoff.stats.paired import ONE_SHARED_TASK, Pair
from bakeoff.stats.sizing import (
    ROLLOUTS,
    Assumptions,
    DifferenceVariance,
    ErrorRates,
    RunSize,
    measured,
    rollouts_for,
    sizes,
    tasks_for,
)
from bakeoff.stats.summary import CandidateSummary, Summary


@value_object
class Pilot:
    """The run that was measured.

    `pair` are the two candidates; of a run with one alone, the other is assumed to be like it.
    They are the worst of `pairs`.
    """

    run: str
    pair: tuple[str, ...]
    pairs: int
    tasks: int
    rollouts: float | None


@value_object
class PowerPlan:
    """How large a run must be; `reason` says why not every number of rollouts has a size.

    `fewest_tasks` is what any number of rollouts takes. `tasks` are those at hand, and
    `rollouts_at_hand` the rollouts that make them enough, if any do. `assumed` is what was taken
    for granted, by name; with two candidates in a `pilot` nothing is. `trial` is what one trial takes.
    """

    difference: float
    strictness: ErrorRates
    spread: DifferenceVariance
    sizes: tuple[RunSize, ...]
    fewest_tasks: int | None
    tasks: int | None
    rollouts_at_hand: int | None
    assumed: Mapping[str, float] = field(default_factory=dict)
    pilot: Pilot | None = None
    reason: str | None = None
    trial: Effort = NO_EFFORT

    @property
    def cheapest(self) -> RunSize | None:
        """The size with the fewest trials; None where no size is known."""
        return min(self.sizes, key=lambda size: size.trials, default=None)


@value_object
class PowerRequest:
    """The difference to detect, the error rates, and the rollouts and tasks if they are fixed.

    `trial` is what a trial takes in money and time; what is None is measured in the pilot, if there is one.
    """

    difference: float
    strictness: ErrorRates = field(default_factory=ErrorRates)
    rollouts: int | None = None
    tasks: int | None = None
    trial: Effort = NO_EFFORT


def plan_by_assumption(request: PowerRequest, assumed: Assumptions) -> PowerPlan:
    """Return how large a run must be if *assumed* holds."""
    planned = _planned(request, assumed.spread())
    return replace(_priced(planned, request.trial), assumed=asdict(assumed))


def plan_by_pilot(
    summary: Summary,
    request: PowerRequest,
    *,
    pair: Sequence[str] | None = None,
    assumed: Assumptions,
) -> PowerPlan:
    """Return how large a run must be, by the variances of *summary*.

    Of its pairs, *pair* or the one that takes the most tasks. Only where it has one candidate alone
    anything is *assumed*: how far another one finds the same tasks hard, and how much of the spread
    is noise if no task was repeated.
    """
    if summary.pairwise is None:
        (only,) = summary.candidates
        spread, used = _of_one(only, assumed)
        names: tuple[str, ...] = (only.candidate,)
        tasks, rollouts = only.total.score.tasks, only.variance.rollouts
    else:
        worst, spread = _worst(summary, pair)
        names, used = (worst.first, worst.second), {}
        tasks, rollouts = worst.tasks, spread.rollouts
    planned = _planned(replace(request, tasks=request.tasks or tasks), spread, of_pilot=rollouts)
    pairs = len(summary.pairwise.pairs) if summary.pairwise and pair is None else 1
    pilot = Pilot(run=summary.run, pair=names, pairs=pairs, tasks=tasks, rollouts=rollouts)
    given, seen = request.trial, _trial_of(summary, pair)
    trial = Effort(
        cost_usd=seen.cost_usd if given.cost_usd is None else given.cost_usd,
        seconds=seen.seconds if given.seconds is None else given.seconds,
    )
    return replace(_priced(planned, trial), pilot=pilot, assumed=used)


def _trial_of(summary: Summary, pair: Sequence[str] | None) -> Effort:
    """Return what a trial of the run took, in the mean over its candidates, or the *pair* of them."""
    ran = {c.candidate: (c.total.tokens.cost_usd, c.total.buckets.ran) for c in summary.candidates}
    if summary.pace is None or not all(trials for _, trials in ran.values()):
        return NO_EFFORT
    whole = summary.pace.of(1)
    costs = {name: cost / trials for name, (cost, trials) in ran.items() if cost is not None}
    if pair is None or whole.cost_usd is None or costs.keys() != ran.keys():
        return replace(whole, cost_usd=whole.cost_usd if costs.keys() == ran.keys() else None)
    roles = whole.cost_usd * summary.pace.trials - math.fsum(c or 0.0 for c, _ in ran.values())
    return replace(
        whole, cost_usd=math.fsum(costs[name] for name in pair) / 2 + roles / summary.pace.trials
    )


def _priced(plan: PowerPlan, trial: Effort) -> PowerPlan:
    """Return *plan* with what its sizes take, if a *trial* takes so much."""
    one = Pace(trials=1, cost_usd=trial.cost_usd, seconds=trial.seconds)
    return replace(
        plan,
        trial=trial,
        sizes=tuple(replace(size, effort=one.of(size.trials)) for size in plan.sizes),
    )


def _planned(
    request: PowerRequest, spread: DifferenceVariance, *, of_pilot: float | None = None
) -> PowerPlan:
    difference, strictness = request.difference, request.strictness
    rollout_counts = {*ROLLOUTS, request.rollouts or 1}
    if of_pilot is not None and math.isclose(of_pilot, round(of_pilot)):
        rollout_counts.add(round(of_pilot))
    run_sizes = sizes(
        difference, spread, strictness, rollouts=sorted(rollout_counts), at_hand=request.tasks
    )
    enough = None
    if request.tasks is not None:
        enough = rollouts_for(difference, spread, strictness, tasks=request.tasks)
    return PowerPlan(
        difference=difference,
        strictness=strictness,
        spread=spread,
        sizes=run_sizes,
        fewest_tasks=tasks_for(difference, spread, strictness, rollouts=math.inf),
        tasks=request.tasks,
        rollouts_at_hand=enough,
        reason=_why_not_all(spread) if len(run_sizes) < len(rollout_counts) else None,
    )


def _why_not_all(spread: DifferenceVariance) -> str:
    if spread.rollouts is None:
        return "one of the two was repeated less often: the benefit of its rollouts is unknown"
    return "no task was repeated: the benefit of more rollouts is unknown"


def _worst(summary: Summary, chosen: Sequence[str] | None) -> tuple[Pair, DifferenceVariance]:
    """Return the pair whose difference varies most, or the *chosen* one."""
    pairs = summary.pairwise.pairs if summary.pairwise else ()
    if chosen is not None:
        pairs = (_chosen(summary, chosen),)
    splits = {c.candidate: c.variance for c in summary.candidates}
    known = [(pair, spread) for pair in pairs if (spread := measured(pair, splits)) is not None]
    if not known:
        raise UsageError(
            f"{summary.run} says nothing about the variance of a difference: "
            f"{'; '.join(dict.fromkeys(map(_why_no_spread, pairs)))}; take another run as the pilot"
        )
    return max(known, key=lambda known_pair: known_pair[1].observed or 0.0)


def _why_no_spread(pair: Pair) -> str:
    if pair.unit == ROLLOUT:
        return ONE_SHARED_TASK
    return pair.reason or "it is adaptive, and ended when it was sure"


def _chosen(summary: Summary, names: Sequence[str]) -> Pair:
    there = [c.candidate for c in summary.candidates]
    for name in names:
        if name not in there:
            raise UsageError(
                f"{summary.run} has no candidate {name!r}; {did_you_mean(name, there)}"
            )
    for pair in summary.pairwise.pairs if summary.pairwise else ():
        if {pair.first, pair.second} == set(names):
            return pair
    raise UsageError(f"a pair is two different candidates, not {names[0]!r} twice")


def _of_one(
    only: CandidateSummary, assumed: Assumptions
) -> tuple[DifferenceVariance, dict[str, float]]:
    """Return the variance between *only* and a similar candidate, and the assumptions used."""
    split, score = only.variance, only.total.score
    if score.se is None:
        raise UsageError(
            f"{only.candidate} says nothing about the variance: {score.reason}; take another run "
            "as the pilot"
        )
    used = {"correlation": assumed.correlation}
    if split.between is None or split.within is None:
        spread = assumed.spread(score.se**2 * score.tasks)
        used["noise"] = assumed.noise
    else:
        spread = assumed.apart(between=split.between, within=split.within)
    return replace(spread, clipped=split.clipped), used
