"""Compares several candidates on one task: success, time, prompts and rankings.

The results hold for this one task: the unit is the rollout, and rollouts of one candidate are
independent repetitions of it. One task cannot show whether a candidate is better than another
in general.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from itertools import combinations
from statistics import median

from bakeoff._lib.value_object import value_object
from bakeoff.core.record import Attempt, Status
from bakeoff.stats.censored import LogRank, Observation, TimeToSolve, log_rank, time_to_solve
from bakeoff.stats.distributions import student_quantile
from bakeoff.stats.estimate import Interval, wilson
from bakeoff.stats.rankings import Measurements, Ranking, holm, rank


class RolloutVerdict(StrEnum):
    """The result of a rollout; only a check can decide success or failure."""

    SUCCESS = "success"
    SUCCESS_AT_LIMIT = "success, stopped at limit"
    FAILED = "failed"
    UNCHECKED = "unchecked"
    TIMED_OUT = "timed out"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def solved(self) -> bool | None:
        """Whether the task was solved; None if it is unknown."""
        if self in {RolloutVerdict.UNCHECKED, RolloutVerdict.ERROR, RolloutVerdict.CANCELLED}:
            return None
        return self in {RolloutVerdict.SUCCESS, RolloutVerdict.SUCCESS_AT_LIMIT}

    @property
    def limited(self) -> bool:
        """Whether a limit stopped the agent before it finished."""
        return self in {RolloutVerdict.SUCCESS_AT_LIMIT, RolloutVerdict.TIMED_OUT}


@value_object
class RolloutFigures:
    """The figures of one rollout; None is unknown."""

    rollout: int
    verdict: RolloutVerdict
    seconds: float
    prompts: int
    interventions: int
    files: int | None
    added: int | None
    removed: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    score: float | None = None
    attempts: int = 1

    @property
    def tokens(self) -> int | None:
        """Tokens in and out together."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


@value_object
class Mean:
    """A mean over rollouts with its interval; None where nothing is known, or only one value."""

    value: float | None
    interval: Interval | None
    values: tuple[float, ...] = ()


@value_object
class Means:
    """The mean figures of a candidate over all its completed rollouts."""

    seconds: Mean
    prompts: Mean
    interventions: Mean
    files: Mean
    added: Mean
    removed: Mean
    tokens: Mean
    cost_usd: Mean


@value_object
class Contender:
    """The results of one candidate."""

    candidate: str
    planned: int
    rollouts: tuple[RolloutFigures, ...]
    passed: int
    decided: int
    success: bool | None
    rate: float | None
    rate_interval: Interval | None
    means: Means
    to_solve: TimeToSolve | None

    @property
    def limited(self) -> int:
        """How many of its rollouts a limit ended."""
        return sum(r.verdict.limited for r in self.rollouts)

    @property
    def finished(self) -> bool:
        """Whether it solved the task, and no success was stopped at the limit.

        It is unknown how long a stopped one would have taken.
        """
        at_limit = any(r.verdict is RolloutVerdict.SUCCESS_AT_LIMIT for r in self.rollouts)
        return self.success is True and not at_limit


@value_object
class Overall:
    """Figures over the candidates that solved the task and finished; None where there are none."""

    avg_completion_time: float | None
    median_completion_time: float | None
    min_completion_time: float | None
    max_completion_time: float | None
    avg_prompts: float | None
    avg_interventions: float | None


@value_object
class SolveTimes:
    """The whole times to solve of two candidates compared, their p adjusted for being one of many."""

    first: str
    second: str
    log_rank: LogRank
    p_holm: float | None


@value_object
class HeadToHead:
    """The whole comparison. The first three rankings are among those that solved it and finished.

        `successful`, `failed`, `broken` (never got as far as a result) and `undecided` add up to all.

    `to_solve` ranks all candidates by the censored time to solve; it is
    present if several rollouts, a failure or a limit make it differ from `fastest`.
    """

    contenders: tuple[Contender, ...]
    fastest: Ranking
    most_efficient: Ranking
    least_intervention: Ranking
    to_solve: Ranking | None
    overall: Overall
    successful: int
    failed: int
    undecided: int
    broken: int
    horizon_s: float | None
    notes: tuple[str, ...]
    solve_times: tuple[SolveTimes, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every rollout was run."""
        return not any(_not_run(contender) for contender in self.contenders)


@value_object
class Entry:
    """A candidate with its recorded rollouts and the number of planned ones.

    `name` is what notes call it.
    """

    candidate: str
    planned: int
    rollouts: tuple[RolloutFigures, ...] = field(default_factory=tuple)
    name: str | None = None


def figures(rollout: int, attempt: Attempt) -> RolloutFigures:
    """Return the figures of *attempt*."""
    change = attempt.outcome.change if attempt.outcome else None
    usage = attempt.spent.usage
    return RolloutFigures(
        rollout=rollout,
        verdict=verdict(attempt),
        seconds=attempt.phases.get("agent", attempt.elapsed_s),
        prompts=attempt.spent.sent,
        interventions=attempt.outcome.interventions if attempt.outcome else 0,
        files=change.files if change else None,
        added=change.added if change else None,
        removed=change.removed if change else None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
        score=attempt.score,
        attempts=attempt.number,
    )


def verdict(attempt: Attempt) -> RolloutVerdict:
    """Return the verdict on *attempt*; work that passes is a success even if its agent was stopped."""
    if attempt.status is Status.FAULTED:
        return RolloutVerdict.ERROR
    if attempt.status is Status.CANCELLED:
        return RolloutVerdict.CANCELLED
    if attempt.passed:
        limited = attempt.status is Status.LIMITED
        return RolloutVerdict.SUCCESS_AT_LIMIT if limited else RolloutVerdict.SUCCESS
    if attempt.status is Status.LIMITED:
        return RolloutVerdict.TIMED_OUT
    return RolloutVerdict.UNCHECKED if attempt.passed is None else RolloutVerdict.FAILED


def shared_verdict(rollouts: Sequence[RolloutFigures]) -> RolloutVerdict | None:
    """Return the verdict that *rollouts* agree on; None if they do not.

    Some wrong and some out of time: that is failed. A success at the limit qualifies the others.
    """
    all_verdicts = [r.verdict for r in rollouts]
    verdicts = set([v for v in all_verdicts if v.solved is not None] or all_verdicts)
    if verdicts == {RolloutVerdict.FAILED, RolloutVerdict.TIMED_OUT}:
        return RolloutVerdict.FAILED
    if verdicts == {RolloutVerdict.SUCCESS, RolloutVerdict.SUCCESS_AT_LIMIT}:
        return RolloutVerdict.SUCCESS_AT_LIMIT
    return verdicts.pop() if len(verdicts) == 1 else None


def head_to_head(entries: Iterable[Entry], *, limit_s: float | None = None) -> HeadToHead:
    """Compare *entries* on their one task, each rollout of which had *limit_s* seconds."""
    entries = list(entries)
    horizon_s = limit_s or _longest(entries)
    contenders = tuple(contender(entry, horizon_s) for entry in entries)
    finishers = [competitor for competitor in contenders if competitor.finished]
    broken = sum(
        competitor.success is False and not competitor.decided for competitor in contenders
    )
    return HeadToHead(
        contenders=contenders,
        fastest=_ranked(finishers, lambda r: r.seconds, most=horizon_s),
        most_efficient=_ranked(finishers, lambda r: r.prompts),
        least_intervention=_ranked(finishers, lambda r: r.interventions),
        to_solve=_ranked_with_failures(contenders, horizon_s),
        overall=_overall(finishers),
        successful=sum(competitor.success is True for competitor in contenders),
        failed=sum(competitor.success is False for competitor in contenders) - broken,
        undecided=sum(competitor.success is None for competitor in contenders),
        broken=broken,
        horizon_s=horizon_s,
        notes=tuple(_notes(contenders, {e.candidate: e.name or e.candidate for e in entries})),
        solve_times=_solve_times(contenders, horizon_s),
    )


def _longest(entries: Sequence[Entry]) -> float | None:
    return max((r.seconds for entry in entries for r in entry.rollouts), default=0.0) or None


def contender(entry: Entry, horizon_s: float | None) -> Contender:
    """Return the results of one candidate."""
    known = [r.verdict.solved for r in entry.rollouts if r.verdict.solved is not None]
    passed = sum(known)
    return Contender(
        candidate=entry.candidate,
        planned=entry.planned,
        rollouts=entry.rollouts,
        passed=passed,
        decided=len(known),
        success=_success(entry.rollouts, known),
        rate=passed / len(known) if known else None,
        rate_interval=wilson(passed, len(known)) if known else None,
        means=_means([r for r in entry.rollouts if r.verdict not in _UNFINISHED]),
        to_solve=_to_solve(entry.rollouts, horizon_s),
    )


_UNFINISHED = frozenset({RolloutVerdict.ERROR, RolloutVerdict.CANCELLED})


def _success(rollouts: Sequence[RolloutFigures], known: Sequence[bool]) -> bool | None:
    """Whether more than half of the rollouts solved the task; None if it is unknown."""
    if known:
        return 2 * sum(known) > len(known)
    return False if any(r.verdict is RolloutVerdict.ERROR for r in rollouts) else None


def _means(rollouts: Sequence[RolloutFigures]) -> Means:
    def over(value: Callable[[RolloutFigures], float | None]) -> Mean:
        return _mean([value(r) for r in rollouts])

    return Means(
        seconds=over(lambda r: r.seconds),
        prompts=over(lambda r: r.prompts),
        interventions=over(lambda r: r.interventions),
        files=over(lambda r: r.files),
        added=over(lambda r: r.added),
        removed=over(lambda r: r.removed),
        tokens=over(lambda r: r.tokens),
        cost_usd=over(lambda r: r.cost_usd),
    )


def _mean(values: Sequence[float | None], *, level: float = 0.95) -> Mean:
    known = tuple(float(v) for v in values if v is not None)
    if not known or len(known) < len(values):
        return Mean(value=None, interval=None, values=known)  # a mean of some would mislead
    mean = math.fsum(known) / len(known)
    spread = math.hypot(*(v - mean for v in known))
    if len(known) == 1 or not spread:
        return Mean(value=mean, interval=None, values=known)
    n = len(known)
    half = student_quantile(0.5 + level / 2, n - 1) * spread / math.sqrt(n * (n - 1))
    interval = Interval(low=max(mean - half, 0.0), high=mean + half, level=level, method="t")
    return Mean(value=mean, interval=interval, values=known)


def _to_solve(rollouts: Sequence[RolloutFigures], horizon_s: float | None) -> TimeToSolve | None:
    if horizon_s is None or any(r.verdict is RolloutVerdict.UNCHECKED for r in rollouts):
        return None
    watched = [
        _watched(r, horizon_s) for r in rollouts if r.verdict is not RolloutVerdict.CANCELLED
    ]
    return time_to_solve(watched, horizon_s=horizon_s) if watched else None


def _solve_times(
    contenders: Sequence[Contender], horizon_s: float | None
) -> tuple[SolveTimes, ...]:
    """Compare the times to solve of every two that were run more than once."""
    if horizon_s is None:
        return ()
    curves = {
        contender.candidate: [
            _watched(r, horizon_s)
            for r in contender.rollouts
            if r.verdict is not RolloutVerdict.CANCELLED
        ]
        for contender in contenders
        if contender.to_solve is not None and contender.to_solve.rollouts > 1
    }
    couples = list(combinations(curves, 2))
    tests = [log_rank(curves[first], curves[second]) for first, second in couples]
    adjusted = iter(holm([test.p for test in tests if test.p is not None]))
    return tuple(
        SolveTimes(
            first=first,
            second=second,
            log_rank=test,
            p_holm=None if test.p is None else next(adjusted),
        )
        for (first, second), test in zip(couples, tests, strict=True)
    )


def _watched(rollout: RolloutFigures, horizon_s: float) -> Observation:
    seconds = min(rollout.seconds, horizon_s)  # the limit and the clock may differ by a hair
    if rollout.verdict is RolloutVerdict.SUCCESS:
        return Observation(seconds=seconds, solved=True)
    # a success at the limit was never seen to finish: censored there, as what is out of time
    return Observation(
        seconds=seconds if rollout.verdict is RolloutVerdict.ERROR else horizon_s, solved=False
    )


def _ranked(
    finishers: Sequence[Contender],
    value: Callable[[RolloutFigures], float],
    *,
    most: float | None = None,
) -> Ranking:
    """Rank by *value* over successes; a faulted rollout could have had any value up to *most*."""
    return rank(
        Measurements(
            candidate=contender.candidate,
            values=tuple(float(value(r)) for r in _successes(contender)),
            tie_break=(
                math.fsum(r.seconds for r in _successes(contender)) / len(_successes(contender)),
            ),
            faults=_how_many(contender, RolloutVerdict.ERROR),
            most=most,
        )
        for contender in finishers
    )


def _successes(contender: Contender) -> list[RolloutFigures]:
    return [r for r in contender.rollouts if r.verdict is RolloutVerdict.SUCCESS]


def _ranked_with_failures(
    contenders: Sequence[Contender], horizon_s: float | None
) -> Ranking | None:
    """Rank by restricted time, where that says more than the time of the successes alone."""
    differs = any(
        len(contender.rollouts) > 1 or contender.success is False or contender.limited
        for contender in contenders
    )
    if (
        not differs
        or horizon_s is None
        or not any(_successes(contender) for contender in contenders)
    ):
        return None
    measured = []
    for contender in contenders:
        decided = [r for r in contender.rollouts if r.verdict.solved is not None]
        seconds = tuple(_watched(r, horizon_s).seconds for r in decided)
        if seconds:
            took = math.fsum(r.seconds for r in decided)
            measured.append(
                Measurements(
                    candidate=contender.candidate,
                    values=seconds,
                    tie_break=(-contender.passed, took),  # who solved it goes before who did not
                    faults=_how_many(contender, RolloutVerdict.ERROR),
                    most=horizon_s,
                )
            )
    return rank(measured)


def _overall(finishers: Sequence[Contender]) -> Overall:
    def mean_of(value: Callable[[RolloutFigures], float]) -> list[float]:
        return [
            math.fsum(value(r) for r in _successes(contender)) / len(_successes(contender))
            for contender in finishers
        ]

    times = mean_of(lambda r: r.seconds)
    return Overall(
        avg_completion_time=_average(times),
        median_completion_time=median(times) if times else None,
        min_completion_time=min(times, default=None),
        max_completion_time=max(times, default=None),
        avg_prompts=_average(mean_of(lambda r: r.prompts)),
        avg_interventions=_average(mean_of(lambda r: r.interventions)),
    )


def _average(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _notes(contenders: Sequence[Contender], names: Mapping[str, str]) -> Iterator[str]:
    rollouts = [r for contender in contenders for r in contender.rollouts]
    if rollouts and all(contender.planned == 1 for contender in contenders):
        yield (
            "One rollout per model: every result and every rank is a single "
            "observation. Run with --rollouts 5 or more to learn how much of it is chance."
        )
    if unchecked := sum(r.verdict is RolloutVerdict.UNCHECKED for r in rollouts):
        yield (
            f"{unchecked} of {len(rollouts)} results are unchecked: nothing says whether the work is "
            "right. Give the task hidden tests, or a judge."
        )
    if stopped := _counted(
        contenders, names, lambda o: _how_many(o, RolloutVerdict.SUCCESS_AT_LIMIT)
    ):
        yield (
            f"Stopped at the limit, with work that passes: {stopped}. How long finishing would "
            "have taken is unknown, so it is not ranked among those that finished."
        )
    if broken := _counted(
        contenders, names, lambda contender: _how_many(contender, RolloutVerdict.ERROR)
    ):
        yield (f"Broken, which says nothing about the model: {broken}. Resume the batch to retry.")
    if missing := _counted(contenders, names, _not_run):
        yield f"Not run yet: {missing}. Resume the batch to run the rest."


def _how_many(contender: Contender, kind: RolloutVerdict) -> int:
    return sum(r.verdict is kind for r in contender.rollouts)


def _not_run(contender: Contender) -> int:
    return (
        contender.planned - len(contender.rollouts) + _how_many(contender, RolloutVerdict.CANCELLED)
    )


def _counted(
    contenders: Sequence[Contender], names: Mapping[str, str], count: Callable[[Contender], int]
) -> str:
    """Return the names and counts of the contenders with a non-zero count."""
    counts = [(contender, number) for contender in contenders if (number := count(contender))]
    return ", ".join(
        names[contender.candidate]
        if contender.planned == 1
        else f"{names[contender.candidate]} ({number} of {contender.planned} rollouts)"
        for contender, number in counts
    )
