"""Candidates of a run with one task, compared over its rollouts.

Without other tasks there is no variance between tasks to measure. But rollouts of one task are
independent repetitions of it, so a permutation test says whether two candidates differ *on this
task*; of other tasks it says nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from bakeoff._lib.value_object import value_object
from bakeoff.stats.paired import Pair, adjusted, holds, undecided, withheld
from bakeoff.stats.rankings import can_count_deals, least_p, permutation_p

ROLLOUT = "rollout"
_ROUNDING = 1e-12


@value_object
class Rollouts:
    """A candidate with the scores of its rollouts of the task, and how many faulted."""

    candidate: str
    scores: Sequence[float]
    faults: int = 0


def compare_rollouts(
    couples: Sequence[tuple[Rollouts, Rollouts]], *, level: float = 0.95
) -> tuple[Pair, ...]:
    """Compare each couple of candidates, allowing for their number."""
    pairs = adjusted([_compared(*couple) for couple in couples])
    tested = sum(pair.p is not None for pair in pairs)
    return tuple(
        _judged(pair, couple, tested=tested, level=level)
        for pair, couple in zip(pairs, couples, strict=True)
    )


def _compared(first: Rollouts, second: Rollouts) -> Pair:
    shared = bool(first.scores and second.scores)
    pair = Pair(
        first=first.candidate,
        second=second.candidate,
        unit=ROLLOUT,
        tasks=int(shared),
        left_out=int(bool(first.scores) != bool(second.scores)),
        faults=first.faults + second.faults,
    )
    if not shared:
        return replace(pair, reason="no task has a score of both")
    difference = _mean(first.scores) - _mean(second.scores)
    pair = replace(
        pair,
        difference=difference,
        won=int(difference > _ROUNDING),
        lost=int(difference < -_ROUNDING),
    )
    if min(len(first.scores), len(second.scores)) < 2:
        return replace(pair, reason="one rollout of one task: run several rollouts to compare them")
    exact = can_count_deals(len(first.scores), len(second.scores))
    return _in_the_worst_case(
        replace(
            pair,
            test=f"permutation of rollouts, {'exact' if exact else 'sampled'}",
            p=permutation_p(first.scores, second.scores),
            reason="one task: its rollouts say nothing about other tasks",
        ),
        first,
        second,
    )


def _mean(scores: Sequence[float]) -> float:
    return math.fsum(scores) / len(scores)


def _in_the_worst_case(pair: Pair, first: Rollouts, second: Rollouts) -> Pair:
    """Return *pair* with its result if all faults had gone against the leader."""
    if not pair.faults or not pair.difference:
        return pair
    ahead = pair.difference > 0
    first_scores = [*first.scores, *[0.0 if ahead else 1.0] * first.faults]
    other = [*second.scores, *[1.0 if ahead else 0.0] * second.faults]
    difference = _mean(first_scores) - _mean(other)
    p = permutation_p(first_scores, other) if difference * pair.difference > 0 else 1.0
    return replace(pair, worst_difference=difference, worst_p=p)


def _judged(pair: Pair, couple: tuple[Rollouts, Rollouts], *, tested: int, level: float) -> Pair:
    if pair.p_holm is None or pair.difference is None:
        return undecided(pair, pair.reason)
    if pair.p_holm < 1 - level and abs(pair.difference) > _ROUNDING:
        if not holds(pair, level=level):
            return withheld(pair)
        better = pair.first if pair.difference > 0 else pair.second
        return replace(pair, better=better, verdict=f"{better} is better on this task")
    n, m = (len(rollouts.scores) for rollouts in couple)
    if least_p(n, m) * tested < 1 - level:
        why = "the rollouts of this task do not separate them"
    else:
        enough = next(k for k in count(2) if least_p(k, k) * tested < 1 - level)
        why = f"needs at least {enough} rollouts of each"
    return undecided(pair, why)
