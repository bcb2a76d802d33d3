"""One task, several candidates: what each took, who solved it, and who is ahead in what.

What is said holds for this one task: the unit is the rollout, and rollouts of one candidate are
independent repetitions of it. Whether one candidate is better than another in general, one task
cannot tell.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from bakeoff.core.record import Attempt, Status
from bakeoff.stats import student
from bakeoff.stats.censored import TimeToSolve, Watched, time_to_solve
from bakeoff.stats.estimate import Interval, wilson
from bakeoff.stats.rankings import Measured, Ranking, rank


class Verdict(StrEnum):
    """What came of a rollout, in one word; only a check can say success or failure."""

    SUCCESS = "success"
    SUCCESS_AT_LIMIT = "success, stopped at limit"
    FAILED = "failed"
    UNCHECKED = "unchecked"
    TIMED_OUT = "timed out"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def solved(self) -> bool | None:
        """Whether the task was solved; None where nobody knows."""
        if self in {Verdict.UNCHECKED, Verdict.ERROR, Verdict.CANCELLED}:
            return None
        return self in {Verdict.SUCCESS, Verdict.SUCCESS_AT_LIMIT}

    @property
    def limited(self) -> bool:
        """Whether a limit ended the agent before it was done."""
        return self in {Verdict.SUCCESS_AT_LIMIT, Verdict.TIMED_OUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFigures:
    """What one rollout took; None is unknown."""

    rollout: int
    verdict: Verdict
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean over rollouts with its interval; None where nothing is known, or only one value."""

    value: float | None
    interval: Interval | None
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a candidate took on average, over all its rollouts that ran to an end."""

    seconds: Mean
    prompts: Mean
    interventions: Mean
    files: Mean
    added: Mean
    removed: Mean
    tokens: Mean
    cost_usd: Mean


@dataclass(frozen=True, kw_only=True)
class Contender:
    """What is known of one candidate."""

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
        """Whether it solved the task, and none of its successes was still at work when it ended.

        Of one that was, nobody knows what it would have taken.
        """
        at_limit = any(r.verdict is Verdict.SUCCESS_AT_LIMIT for r in self.rollouts)
        return self.success is True and not at_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """Figures over the candidates that solved the task and finished; None where there are none."""

    avg_completion_time: float | None
    median_completion_time: float | None
    min_completion_time: float | None
    max_completion_time: float | None
    avg_prompts: float | None
    avg_interventions: float | None


@dataclass(frozen=True, kw_only=True)
class HeadToHead:
    """The whole comparison. The first three rankings are among those that solved it and finished.

    `successful`, `failed`, `broken` (never got as far as a result) and `undecided` add up to all.

    `to_solve` ranks everybody by the time to solve with what was cut off taken as censored; it is
    there where more than one rollout, a failure or a limit makes it differ from `fastest`.
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

    @property
    def complete(self) -> bool:
        """Whether every rollout was run."""
        return not any(_not_run(one) for one in self.contenders)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A candidate with what was recorded of it, of so many rollouts that were planned.

    `name` is what notes call it.
    """

    candidate: str
    planned: int
    rollouts: tuple[RolloutFigures, ...] = field(default_factory=tuple)
    name: str | None = None


def figures(rollout: int, attempt: Attempt) -> RolloutFigures:
    """Return what *attempt* took."""
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


def verdict(attempt: Attempt) -> Verdict:
    """Return what came of *attempt*; work that passes is a success even if its agent was stopped."""
    if attempt.status is Status.FAULTED:
        return Verdict.ERROR
    if attempt.status is Status.CANCELLED:
        return Verdict.CANCELLED
    if attempt.passed:
        limited = attempt.status is Status.LIMITED
        return Verdict.SUCCESS_AT_LIMIT if limited else Verdict.SUCCESS
    if attempt.status is Status.LIMITED:
        return Verdict.TIMED_OUT
    return Verdict.UNCHECKED if attempt.passed is None else Verdict.FAILED


def shared_verdict(rollouts: Sequence[RolloutFigures]) -> Verdict | None:
    """Return the verdict that *rollouts* agree on, as far as they have one; None where they do not.

    Some wrong and some out of time: that is failed. A success at the limit qualifies the others.
    """
    told = [r.verdict for r in rollouts]
    verdicts = set([v for v in told if v.solved is not None] or told)
    if verdicts == {Verdict.FAILED, Verdict.TIMED_OUT}:
        return Verdict.FAILED
    if verdicts == {Verdict.SUCCESS, Verdict.SUCCESS_AT_LIMIT}:
        return Verdict.SUCCESS_AT_LIMIT
    return verdicts.pop() if len(verdicts) == 1 else None


def head_to_head(entries: Iterable[Entry], *, limit_s: float | None = None) -> HeadToHead:
    """Compare *entries* on their one task, each rollout of which had *limit_s* seconds."""
    entries = list(entries)
    horizon_s = limit_s or _longest(entries)
    contenders = tuple(contender(entry, horizon_s) for entry in entries)
    finishers = [one for one in contenders if one.finished]
    broken = sum(one.success is False and not one.decided for one in contenders)
    return HeadToHead(
        contenders=contenders,
        fastest=_ranked(finishers, lambda r: r.seconds, most=horizon_s),
        most_efficient=_ranked(finishers, lambda r: r.prompts),
        least_intervention=_ranked(finishers, lambda r: r.interventions),
        to_solve=_ranked_with_failures(contenders, horizon_s),
        overall=_overall(finishers),
        successful=sum(one.success is True for one in contenders),
        failed=sum(one.success is False for one in contenders) - broken,
        undecided=sum(one.success is None for one in contenders),
        broken=broken,
        horizon_s=horizon_s,
        notes=tuple(_notes(contenders, {e.candidate: e.name or e.candidate for e in entries})),
    )


def _longest(entries: Sequence[Entry]) -> float | None:
    return max((r.seconds for entry in entries for r in entry.rollouts), default=0.0) or None


def contender(entry: Entry, horizon_s: float | None) -> Contender:
    """Return what is known of one candidate by itself."""
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


_UNFINISHED = frozenset({Verdict.ERROR, Verdict.CANCELLED})


def _success(rollouts: Sequence[RolloutFigures], known: Sequence[bool]) -> bool | None:
    """Whether the task was solved in more than half of the rollouts; None where nothing tells."""
    if known:
        return 2 * sum(known) > len(known)
    return False if any(r.verdict is Verdict.ERROR for r in rollouts) else None


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
    half = student.quantile(0.5 + level / 2, n - 1) * spread / math.sqrt(n * (n - 1))
    interval = Interval(low=max(mean - half, 0.0), high=mean + half, level=level, method="t")
    return Mean(value=mean, interval=interval, values=known)


def _to_solve(rollouts: Sequence[RolloutFigures], horizon_s: float | None) -> TimeToSolve | None:
    if horizon_s is None or any(r.verdict is Verdict.UNCHECKED for r in rollouts):
        return None
    watched = [_watched(r, horizon_s) for r in rollouts if r.verdict is not Verdict.CANCELLED]
    return time_to_solve(watched, horizon_s=horizon_s) if watched else None


def _watched(one: RolloutFigures, horizon_s: float) -> Watched:
    seconds = min(one.seconds, horizon_s)  # the limit and the clock may differ by a hair
    if one.verdict is Verdict.SUCCESS:
        return Watched(seconds=seconds, solved=True)
    # a success at the limit was never seen to finish: censored there, as what is out of time
    return Watched(seconds=seconds if one.verdict is Verdict.ERROR else horizon_s, solved=False)


def _ranked(
    finishers: Sequence[Contender],
    value: Callable[[RolloutFigures], float],
    *,
    most: float | None = None,
) -> Ranking:
    """Rank by *value* over successes; a rollout that broke could have had *most* of it."""
    return rank(
        Measured(
            candidate=one.candidate,
            values=tuple(float(value(r)) for r in _successes(one)),
            tie_break=(math.fsum(r.seconds for r in _successes(one)) / len(_successes(one)),),
            faults=_how_many(one, Verdict.ERROR),
            most=most,
        )
        for one in finishers
    )


def _successes(one: Contender) -> list[RolloutFigures]:
    return [r for r in one.rollouts if r.verdict is Verdict.SUCCESS]


def _ranked_with_failures(
    contenders: Sequence[Contender], horizon_s: float | None
) -> Ranking | None:
    """Rank by restricted time, where that says more than the time of the successes alone."""
    differs = any(
        len(one.rollouts) > 1 or one.success is False or one.limited for one in contenders
    )
    if not differs or horizon_s is None or not any(_successes(one) for one in contenders):
        return None
    measured = []
    for one in contenders:
        decided = [r for r in one.rollouts if r.verdict.solved is not None]
        seconds = tuple(_watched(r, horizon_s).seconds for r in decided)
        if seconds:
            took = math.fsum(r.seconds for r in decided)
            measured.append(
                Measured(
                    candidate=one.candidate,
                    values=seconds,
                    tie_break=(-one.passed, took),  # who solved it goes before who did not
                    faults=_how_many(one, Verdict.ERROR),
                    most=horizon_s,
                )
            )
    return rank(measured)


def _overall(finishers: Sequence[Contender]) -> Overall:
    def mean_of(value: Callable[[RolloutFigures], float]) -> list[float]:
        return [
            math.fsum(value(r) for r in _successes(one)) / len(_successes(one)) for one in finishers
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
    rollouts = [r for one in contenders for r in one.rollouts]
    if rollouts and all(one.planned == 1 for one in contenders):
        yield (
            "One rollout per model: every result and every rank is a single "
            "observation. Run with --rollouts 5 or more to learn how much of it is chance."
        )
    if unchecked := sum(r.verdict is Verdict.UNCHECKED for r in rollouts):
        yield (
            f"{unchecked} of {len(rollouts)} results are unchecked: nothing says whether the work is "
            "right. Give the task hidden tests, or a judge."
        )
    if stopped := _counted(contenders, names, lambda o: _how_many(o, Verdict.SUCCESS_AT_LIMIT)):
        yield (
            f"Stopped at the limit, with work that passes: {stopped}. How long finishing would "
            "have taken is unknown, so it is not ranked among those that finished."
        )
    if broken := _counted(contenders, names, lambda one: _how_many(one, Verdict.ERROR)):
        yield (f"Broken, which says nothing about the model: {broken}. Resume the batch to retry.")
    if missing := _counted(contenders, names, _not_run):
        yield f"Not run yet: {missing}. Resume the batch to run the rest."


def _how_many(one: Contender, kind: Verdict) -> int:
    return sum(r.verdict is kind for r in one.rollouts)


def _not_run(one: Contender) -> int:
    return one.planned - len(one.rollouts) + _how_many(one, Verdict.CANCELLED)


def _counted(
    contenders: Sequence[Contender], names: Mapping[str, str], count: Callable[[Contender], int]
) -> str:
    """Return who has how many of them, by name; of a single rollout the name is enough."""
    found = [(one, number) for one in contenders if (number := count(one))]
    return ", ".join(
        names[one.candidate]
        if one.planned == 1
        else f"{names[one.candidate]} ({number} of {one.planned} rollouts)"
        for one, number in found
    )
