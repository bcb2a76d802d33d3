"""Two candidates of a run that ended when it was sure: compared in the order their tasks were drawn.

Such a run has looked at its numbers after every task, so the tests and intervals for one look do
not hold. What is told here holds at all looks together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bakeoff.stats.paired import Pair, TaskMeans
from bakeoff.stats.rankings import holm
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
    for mine, other in zip(first.means, second.means, strict=True):
        if not math.isnan(mine - other):
            settling.see(mine - other)
    apart = settling.differences
    pair = Pair(
        first=first.candidate,
        second=second.candidate,
        tasks=len(apart),
        left_out=0,  # what is not there was not needed
        won=sum(one > 0 for one in apart),
        lost=sum(one < 0 for one in apart),
        settled=settling.settled,
    )
    if not apart:
        return replace(pair, reason="no task has a score of both")
    interval = settling.interval(level=level)
    return replace(
        pair,
        difference=math.fsum(apart) / len(apart),
        interval=interval,
        test=BETTING,
        p=settling.p,
        reason=None if interval else "the scores refute every difference: did the tasks change?",
    )


def decide_drawn(
    pairs: Sequence[Pair], *, precision: float | None, level: float
) -> tuple[Pair, ...]:
    """Return all *pairs* of a run, each with its verdict, its p adjusted for being one of many."""
    adjusted = iter(holm([pair.p for pair in pairs if pair.p is not None]))
    return tuple(
        _judged(
            replace(pair, p_holm=None if pair.p is None else next(adjusted)),
            precision=precision,
            level=level,
        )
        for pair in pairs
    )


def _judged(pair: Pair, *, precision: float | None, level: float) -> Pair:
    if pair.p_holm is None or pair.difference is None:
        return replace(pair, verdict=f"no decision ({pair.reason})")
    if pair.p_holm < 1 - level and pair.difference:
        better = pair.first if pair.difference > 0 else pair.second
        return replace(pair, better=better, verdict=f"{better} is better")
    why = f"known to within {precision:g}" if pair.settled else "needs more tasks"
    return replace(pair, verdict=f"no decision ({why})")
