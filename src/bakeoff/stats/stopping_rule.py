"""The stopping rule of adaptive runs: two candidates, task by task in a fixed order.

Of many pairs each is held to a stricter level, such that all decisions of a run are right together.
A fifth of its error is for ending early, at any task: a mixture of bets that no look can mislead.
What is left is for one exact test of the whole suite, where it was run to its end.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from bakeoff.stats.estimate import Interval
from bakeoff.stats.paired import (
    Pair,
    TaskMeans,
    adjusted,
    compare,
    holds,
    shared_faults,
    undecided,
    withheld,
    worst_means,
)
from bakeoff.stats.paired_interval import as_tested
from bakeoff.stats.sequential import DifferenceMixture, anytime_difference

ADAPTIVE_TEST = "mixture of bets after every task, exact at the end"
EARLY, LAST = 0.2, 0.8  # how the error is shared between all looks on the way and the last one
_SHARE = 20  # from here on, precision is looked at after every twentieth of the tasks seen


class StoppingRule:
    """One pair of *pairs*; `differences` are those of its task means, from -1 to 1.

    It is decided only if faults could not reverse it: for "the first is better" each
    faulted trial counts against the first, for the opposite against the second.
    """

    def __init__(self, *, pairs: int, precision: float | None = None, level: float = 0.95) -> None:
        self._alpha = (1 - level) / pairs
        self._precision = precision
        self._seen = DifferenceMixture()
        self._lowest = self._highest = self._seen  # one and the same until a fault
        self.differences = array("d")
        self.decided = False
        self.precise = False

    def see(self, difference: float) -> None:
        """Add the difference on the next task."""
        self.see_between(difference, difference, seen=difference)

    def see_between(self, low: float, high: float, *, seen: float | None) -> None:
        """Add the bounds of the difference on the next task given its faults, and the *seen* one."""
        if self._lowest is self._seen and not low == high == seen:
            self._lowest, self._highest = deepcopy(self._seen), deepcopy(self._seen)
        if self._lowest is not self._seen:
            self._lowest.see(low)
            self._highest.see(high)
        if seen is not None:
            self._seen.see(seen)
        self.decided = self.decided or self.worst_p < self._alpha
        if seen is None:
            return
        self.differences.append(seen)
        if self._precision is not None and not self.precise and self._is_look():
            interval = self.interval(level=1 - self._alpha)
            self.precise = interval is None or interval.high - interval.low <= 2 * self._precision

    @property
    def settled(self) -> bool:
        """Whether the pair is decided, or its difference is known precisely enough."""
        return self.decided or self.precise

    @property
    def p(self) -> float:
        """The anytime-valid p-value of "there is no difference"."""
        return min(1.0, self._seen.p / EARLY)

    @property
    def worst_p(self) -> float:
        """The same p-value with every fault counted against the leader."""
        return min(1.0, min(self._lowest.p_above, self._highest.p_below) / EARLY)

    def interval(self, *, level: float) -> Interval | None:
        """Return where the difference is; None where no task was seen, or nothing fits."""
        return anytime_difference(self.differences, level=level) if self.differences else None

    def _is_look(self) -> bool:
        seen = len(self.differences)
        return seen % max(seen // _SHARE, 1) == 0


@dataclass(frozen=True, kw_only=True)
class TaskOrder:
    """The ids of the tasks in the order drawn, and the requested precision.

    `complete` are the candidates of which every planned trial has ended: they have their last look.
    """

    order: Sequence[str]
    precision: float | None = None
    complete: frozenset[str] = frozenset()


def compare_drawn(
    first: TaskMeans, second: TaskMeans, *, pairs: int, drawn: TaskOrder, level: float
) -> Pair:
    """Compare two of *pairs* pairs; their means are in the order of the tasks."""
    rule = StoppingRule(pairs=pairs, precision=drawn.precision, level=level)
    for difference, low, high in _differences(first, second):
        if not math.isnan(low):
            seen = None if math.isnan(difference) else difference
            rule.see_between(low, high, seen=seen)
    differences = rule.differences
    pair = Pair(
        first=first.candidate,
        second=second.candidate,
        tasks=len(differences),
        left_out=0,  # what is not there was not needed
        won=sum(d > 0 for d in differences),
        lost=sum(d < 0 for d in differences),
        settled=rule.settled,
        units=len(differences),
        solved=first.solved and second.solved,
        faults=shared_faults(first, second),
    )
    if not differences:
        return replace(pair, reason="no task has a score of both")
    mean = math.fsum(differences) / len(differences)
    interval = rule.interval(level=level)
    pair = replace(
        _at_worst(pair, first, second, mean=mean),
        difference=mean,
        interval=interval,
        test=ADAPTIVE_TEST,
        p=rule.p,
        worst_p=rule.worst_p if pair.faults else None,
        early=rule.decided,
        reason=None if interval else "the scores refute every difference: did the tasks change?",
    )
    if rule.decided or not {first.candidate, second.candidate} <= drawn.complete:
        return pair
    return _with_last_look(pair, compare(first, second))


def _with_last_look(pair: Pair, whole: Pair) -> Pair:
    """Return *pair* of a suite that is over, with what is left of the error spent on the *whole*."""
    if whole.p is None:
        return pair
    worst = max(whole.p, whole.worst_p or 0.0) / LAST
    return replace(
        pair,
        se=whole.se,
        p=min(pair.p or 1.0, whole.p / LAST),
        worst_p=None if pair.worst_p is None else min(pair.worst_p, worst, 1.0),
        tipping=whole.tipping,
    )


def _differences(first: TaskMeans, second: TaskMeans) -> Iterator[tuple[float, float, float]]:
    """Yield for each task the difference that was seen, and the least and the most it could be."""
    seen = zip(first.means, second.means, strict=True)
    low = worst_means(first, second, first_leads=True)
    high = worst_means(first, second, first_leads=False)
    for each in zip(seen, low, high, strict=True):
        difference, least, most = (a - b for a, b in each)
        yield difference, least, most


def _at_worst(pair: Pair, first: TaskMeans, second: TaskMeans, *, mean: float) -> Pair:
    """Return *pair* with the difference that all faults against the one ahead would leave."""
    if not pair.faults or not mean:
        return pair
    both = worst_means(first, second, first_leads=mean > 0)
    known = [a - b for a, b in both if not math.isnan(a - b)]
    return replace(pair, worst_difference=math.fsum(known) / len(known))


def decide_drawn(
    pairs: Sequence[Pair], *, precision: float | None, level: float
) -> tuple[Pair, ...]:
    """Return all *pairs* of a run, each with its verdict, its p adjusted for being one of many."""
    return tuple(
        _agreeing(_judged(pair, precision=precision, level=level), level=level)
        for pair in adjusted(pairs)
    )


def _agreeing(pair: Pair, *, level: float) -> Pair:
    """Return *pair* with 0 in its interval exactly where p does not refute it."""
    if pair.interval is None or pair.difference is None or pair.p_holm is None:
        return pair
    refuted = pair.p_holm < 1 - level
    return replace(pair, interval=as_tested(pair.interval, pair.difference, refuted=refuted))


def _judged(pair: Pair, *, precision: float | None, level: float) -> Pair:
    if pair.p_holm is None or pair.difference is None:
        return undecided(pair, pair.reason)
    if pair.p_holm < 1 - level and pair.difference:
        if not holds(pair, level=level):
            return withheld(pair)
        better = pair.first if pair.difference > 0 else pair.second
        return replace(pair, better=better, verdict=f"{better} is better")
    why = f"known to within {precision:g}" if pair.settled else "needs more tasks"
    return undecided(pair, why)
