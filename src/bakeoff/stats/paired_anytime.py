"""Two candidates of a run that ended when it was sure: compared in the order their tasks were drawn.

Such a run has looked at its numbers after every task, so the tests and intervals for one look do
not hold. What is told here holds at all looks together.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
from bakeoff.stats.sequential import BETTING
from bakeoff.stats.settling import Settling


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The tasks of a run by id, as they were drawn, and how well a difference was to be known."""

    order: Sequence[str]
    precision: float | None = None


def compare_drawn(
    first: TaskMeans, second: TaskMeans, *, pairs: int, precision: float | None, level: float
) -> Pair:
    """Compare two of *pairs* pairs; their means are in the order of the tasks."""
    settling = Settling(pairs=pairs, precision=precision, level=level)
    for difference, low, high in _differences(first, second):
        if not math.isnan(low):
            seen = None if math.isnan(difference) else difference
            settling.see_between(low, high, seen=seen)
    apart = settling.differences
    pair = Pair(
        first=first.candidate,
        second=second.candidate,
        tasks=len(apart),
        left_out=0,  # what is not there was not needed
        won=sum(one > 0 for one in apart),
        lost=sum(one < 0 for one in apart),
        settled=settling.settled,
        faults=shared_faults(first, second),
    )
    if not apart:
        return replace(pair, reason="no task has a score of both")
    interval = settling.interval(level=level)
    return replace(
        _at_worst(pair, first, second, mean=math.fsum(apart) / len(apart)),
        difference=math.fsum(apart) / len(apart),
        interval=interval,
        test=BETTING,
        p=settling.p,
        worst_p=settling.worst_p if pair.faults else None,
        reason=None if interval else "the scores refute every difference: did the tasks change?",
    )


def _differences(first: TaskMeans, second: TaskMeans) -> Iterator[tuple[float, float, float]]:
    """Yield for each task the difference that was seen, and the least and the most it could be."""
    seen = zip(first.means, second.means, strict=True)
    low = worst_means(first, second, first_leads=True)
    high = worst_means(first, second, first_leads=False)
    for each in zip(seen, low, high, strict=True):
        one, least, most = (a - b for a, b in each)
        yield one, least, most


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
