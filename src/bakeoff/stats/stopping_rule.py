"""The stopping rule of adaptive runs: two candidates, task by task in a fixed order.

Of many pairs each is held to a stricter level, such that all decisions of a run are right together.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bakeoff.stats.estimate import Interval
from bakeoff.stats.paired import (
    Pair,
    TaskMeans,
    adjusted,
    holds,
    shared_faults,
    undecided,
    withheld,
    worst_means,
)
from bakeoff.stats.sequential import BETTING, WealthProcess, anytime_difference, to_unit

_SHARE = 20  # from here on, precision is looked at after every twentieth of the tasks seen


class StoppingRule:
    """One pair of *pairs*; `differences` are those of its task means, from -1 to 1.

    It is decided only if faults could not reverse it: for "the first is better" each
    faulted trial counts against the first, for the opposite against the second.
    """

    def __init__(self, *, pairs: int, precision: float | None = None, level: float = 0.95) -> None:
        self._alpha = (1 - level) / pairs
        self._precision = precision
        self._seen, self._lowest, self._highest = (
            WealthProcess(to_unit(0.0), level=1 - self._alpha) for _ in range(3)
        )
        self.differences = array("d")
        self.decided = False
        self.precise = False

    def see(self, difference: float) -> None:
        """Add the difference on the next task."""
        self.see_between(difference, difference, seen=difference)

    def see_between(self, low: float, high: float, *, seen: float | None) -> None:
        """Add the bounds of the difference on the next task given its faults, and the *seen* one."""
        self._lowest.see(to_unit(low))
        self._highest.see(to_unit(high))
        self.decided = self.decided or self.worst_p < self._alpha
        if seen is None:
            return
        self.differences.append(seen)
        self._seen.see(to_unit(seen))
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
        return self._seen.p

    @property
    def worst_p(self) -> float:
        """The same p-value with every fault counted against the leader."""
        return min(self._lowest.p_above, self._highest.p_below)

    def interval(self, *, level: float) -> Interval | None:
        """Return where the difference is; None where no task was seen, or nothing fits."""
        return anytime_difference(self.differences, level=level) if self.differences else None

    def _is_look(self) -> bool:
        seen = len(self.differences)
        return seen % max(seen // _SHARE, 1) == 0


@dataclass(frozen=True, kw_only=True)
class TaskOrder:
    """The ids of the tasks in the order drawn, and the requested precision."""

    order: Sequence[str]
    precision: float | None = None


def compare_drawn(
    first: TaskMeans, second: TaskMeans, *, pairs: int, precision: float | None, level: float
) -> Pair:
    """Compare two of *pairs* pairs; their means are in the order of the tasks."""
    rule = StoppingRule(pairs=pairs, precision=precision, level=level)
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
        faults=shared_faults(first, second),
    )
    if not differences:
        return replace(pair, reason="no task has a score of both")
    interval = rule.interval(level=level)
    return replace(
        _at_worst(pair, first, second, mean=math.fsum(differences) / len(differences)),
        difference=math.fsum(differences) / len(differences),
        interval=interval,
        test=BETTING,
        p=rule.p,
        worst_p=rule.worst_p if pair.faults else None,
        reason=None if interval else "the scores refute every difference: did the tasks change?",
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
    return tuple(_judged(pair, precision=precision, level=level) for pair in adjusted(pairs))


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
