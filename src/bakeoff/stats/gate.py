"""Gates: is a candidate surely worse than its baseline, shown not to be worse, or neither?

Read from the interval of after - before, the one that decides a comparison:

    below 0 as a whole, whatever faults hide         surely worse
    above -margin as a whole, whatever faults hide   not worse by more than the margin
    otherwise                                        not shown, with the tasks that would show it
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from bakeoff._lib.value_object import value_object
from bakeoff.stats import power
from bakeoff.stats.between_runs import Contrast
from bakeoff.stats.by_task import TaskSummary
from bakeoff.stats.paired import Pair, two_digits
from bakeoff.stats.summary import CandidateSummary

_ROUNDING = 1e-9


class GateState(StrEnum):
    """What a check of a gate came to."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_SHOWN = "not shown"


@value_object
class GateCheck:
    """One check of one candidate: its state, and what was found in a sentence.

    `tasks_needed` are about as many as would show that it is not worse, where that is not shown.
    """

    candidate: str
    check: str
    state: GateState
    text: str
    tasks_needed: int | None = None


@dataclass(frozen=True, kw_only=True)
class GateBounds:
    """What a candidate has to keep to besides its baseline; None is no bound."""

    min_score: float | None = None
    min_pass_rate: float | None = None
    max_cost_usd: float | None = None
    max_latency_s: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is any."""
        bounds = (self.min_score, self.min_pass_rate, self.max_cost_usd, self.max_latency_s)
        return any(bound is not None for bound in bounds)


def against_baseline(contrast: Contrast, *, margin: float) -> GateCheck:
    """Check that a candidate is not worse than it was by more than *margin*."""
    pair, name = contrast.pair, contrast.after
    low = lowest_difference(pair)
    change = _change(contrast)

    def found(state: GateState, text: str, tasks: int | None = None) -> GateCheck:
        return GateCheck(
            candidate=name, check="baseline", state=state, text=text, tasks_needed=tasks
        )

    if contrast.unequal and pair.better is None:
        return found(GateState.NOT_SHOWN, f"cannot be told: {pair.undecided}")
    if contrast.worse:
        return found(GateState.FAILED, f"surely worse than the baseline: {change}")
    if low is not None and low > -margin:
        return found(
            GateState.PASSED, f"not worse than the baseline by {margin:g} or more: {change}"
        )
    needed = tasks_to_show(pair, margin=margin)
    more = f"; about {needed:,} tasks would show it" if needed is not None else ""
    if pair.withheld:
        more = f"; {pair.undecided}"
    hidden = _hidden(pair, low)
    text = f"not shown to be within {margin:g} of the baseline: {change}{hidden}{more}"
    return found(GateState.NOT_SHOWN, text, needed)


def _hidden(pair: Pair, low: float | None) -> str:
    """Return why the loss may be larger than the interval of the change says; nothing if it is not."""
    if low is None or (pair.interval is not None and low >= pair.interval.low):
        return ""
    if pair.faults:
        many = "the faulted trial" if pair.faults == 1 else f"the {pair.faults:,} faulted trials"
        return f"; {low:+.3f} if {many} went against it"
    return f"; as hardly a task changed, {-low:.3f} may be lost on others like these"


def _change(contrast: Contrast) -> str:
    pair = contrast.pair
    if pair.difference is None or contrast.mean_before is None or contrast.mean_after is None:
        return pair.reason or "nothing can be compared"
    text = f"{contrast.mean_before:.3f} → {contrast.mean_after:.3f}"
    if pair.interval is not None:
        text += f", a change of {pair.interval.low:+.3f} to {pair.interval.high:+.3f}"
    return f"{text} on {'1 task' if pair.tasks == 1 else f'{pair.tasks:,} tasks'}"


def lowest_difference(pair: Pair) -> float | None:
    """Return the least that after - before may be, with every fault counted against after."""
    if pair.difference is None or pair.unit != "task":
        return None
    level = pair.interval.level if pair.interval is not None else 0.95
    # of so many tasks that all stay the same, so large a share may yet be different
    unseen = 1 - ((1 - level) / 2) ** (1 / pair.units) if pair.units else 1.0
    if pair.interval is not None:
        low = min(pair.interval.low, pair.difference - unseen * _share_left(pair))
    elif abs(pair.difference) <= _ROUNDING:
        low = -unseen
    else:
        return None
    return low - pair.faults / pair.tasks


def _share_left(pair: Pair) -> float:
    """Return the share of tasks that did not change: among few changes others may be hidden."""
    return 1 - (pair.won + pair.lost) / pair.tasks


def tasks_to_show(pair: Pair, *, margin: float) -> int | None:
    """Return about how many tasks would show, four times in five, that nothing became worse."""
    if not 0 < margin < 1 or pair.difference is None or pair.unit != "task":
        return None
    if not pair.se and abs(pair.difference) > _ROUNDING:
        return None
    level = pair.interval.level if pair.interval is not None else 0.95
    needed = power.tasks_needed(margin, variance=(pair.se or 0.0) ** 2 * pair.tasks, level=level)
    # so many that did not change, at least, are needed to rule out that so large a share does
    share = max(_share_left(pair), margin)
    unseen = math.log((1 - level) / 2) / math.log1p(-min(margin / share, 1 - _ROUNDING))
    return two_digits(max(math.ceil(needed), math.ceil(unseen), pair.tasks + 1))


def within_bounds(
    candidate: CandidateSummary, tasks: Iterable[TaskSummary], bounds: GateBounds
) -> Iterator[GateCheck]:
    """Check the *bounds* of one candidate; what is not known does not keep to them."""
    total, name = candidate.total, candidate.candidate
    if bounds.min_score is not None:
        yield _least(name, "score", total.score.mean, bounds.min_score)
    if bounds.min_pass_rate is not None:
        yield _pass_rates(name, tasks, bounds.min_pass_rate)
    if bounds.max_cost_usd is not None:
        yield _most(name, "cost", total.tokens.cost_usd, bounds.max_cost_usd, unit="$")
    if bounds.max_latency_s is not None:
        yield _most(name, "latency p95", total.latency.p95_s, bounds.max_latency_s, unit="s")


def _least(name: str, check: str, value: float | None, least: float) -> GateCheck:
    state = GateState.PASSED if value is not None and value >= least else GateState.FAILED
    shown = "unknown" if value is None else f"{value:.3f}"
    return GateCheck(
        candidate=name, check=check, state=state, text=f"{check} {shown}, at least {least:g} wanted"
    )


def _most(name: str, check: str, value: float | None, most: float, *, unit: str) -> GateCheck:
    state = GateState.PASSED if value is not None and value <= most else GateState.FAILED
    shown = "unknown" if value is None else f"{value:.4g} {unit}"
    text = f"{check} {shown}, at most {most:g} {unit} wanted"
    return GateCheck(candidate=name, check=check, state=state, text=text)


_MOST_NAMED = 5


def _pass_rates(name: str, tasks: Iterable[TaskSummary], least: float) -> GateCheck:
    rates: Mapping[str, float | None] = {
        task.task: task.passed / task.scored if task.scored else None
        for task in tasks
        if task.candidate == name
    }
    short = {t: r for t, r in rates.items() if r is None or r < least - _ROUNDING}
    if not short:
        text = f"all {len(rates):,} tasks pass in {least:.0%} of their rollouts or more"
        return GateCheck(candidate=name, check="pass rate", state=GateState.PASSED, text=text)
    named = ", ".join(
        f"{task} {'no score' if rate is None else f'{rate:.0%}'}"
        for task, rate in list(short.items())[:_MOST_NAMED]
    )
    more = f" and {len(short) - _MOST_NAMED:,} more" if len(short) > _MOST_NAMED else ""
    return GateCheck(
        candidate=name,
        check="pass rate",
        state=GateState.FAILED,
        text=f"{len(short):,} of {len(rates):,} tasks pass in less than {least:.0%}: {named}{more}",
    )
