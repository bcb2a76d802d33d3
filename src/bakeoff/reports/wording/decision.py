"""Candidates compared two by two, in words: who is better, as far as it shows, and by what."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bakeoff._lib.sanitize import one_line
from bakeoff.reports.wording.phrases import (
    Told,
    amount,
    counted,
    difference,
    p_value,
    rank_range,
    score,
    sentence,
)
from bakeoff.stats.estimate import Interval
from bakeoff.stats.missing import could_turn
from bakeoff.stats.one_task import ROLLOUT
from bakeoff.stats.paired import NO_DECISION, Pair
from bakeoff.stats.pairwise import BY_SCORE, Pairwise
from bakeoff.stats.summary import Group, Summary

_MOST_RANKS = 10


def worth_showing(found: Pairwise, *, most: int = 10) -> list[Pair]:
    """Return the pairs that are worth a row: all, or of many those next to each other in rank."""
    tested = [pair for pair in found.pairs if pair.p is not None]
    if len(tested) <= most:
        return tested
    rank = {one.candidate: one.rank for one in found.ranks}
    near = [pair for pair in tested if abs(rank[pair.first] - rank[pair.second]) == 1]
    return sorted(near, key=lambda pair: rank[pair.first] + rank[pair.second])[:most]


def remarks(found: Pairwise, shown: Sequence[Pair], *, with_ranks: bool = True) -> Iterator[str]:
    """Yield what a reader of the pairs that are *shown* should know of them, line by line.

    Where the ranks have a column of their own, it is without them.
    """
    tested = [pair for pair in found.pairs if pair.p is not None]
    if len(tested) > len(shown):
        more = counted(len(tested) - len(shown), "more pair")
        yield f"{more} in summary.json; these are the ones next to each other in rank"
    if tested:
        yield methods(tested)
    if any(pair.detectable is not None for pair in tested):
        yield "MDE: the least difference that so many tasks show with a chance of 80 %"
    if any(_only_the_interval_decides(pair) for pair in shown):
        yield "an interval without 0 is not yet a decision: p is that of a stricter test"
    for reason, many in Counter(p.reason for p in found.pairs if p.p is None).items():
        yield f"{counted(many, 'pair')} not compared: {reason}"
    yield from _missing(found)
    if tested and not _one_task(tested) and (found.passed_by_all or found.passed_by_none):
        yield (
            f"of {counted(found.tasks, 'task')}, everybody passes {found.passed_by_all} and "
            f"nobody passes {found.passed_by_none}: they separate no one"
        )
    if with_ranks and tested and len(found.ranks) > 2:
        yield f"ranks that the data leave open: {_ranks(found)}"


def _missing(found: Pairwise) -> Iterator[str]:
    """Yield what faults and missing scores have to do with the verdicts."""
    if any(pair.withheld for pair in found.pairs):
        yield (
            "a verdict has to hold with each faulted trial counted against the one ahead; "
            "resume the run to try those again"
        )
    if most := max((pair.left_out for pair in found.pairs), default=0):
        few = "" if len(found.pairs) == 1 else "up to "
        yield f"left out, because only one of the two has a score: {few}{counted(most, 'task')}"


def _only_the_interval_decides(pair: Pair) -> bool:
    interval = pair.interval
    is_open = pair.better is None and not pair.withheld
    return is_open and interval is not None and not interval.low <= 0 <= interval.high


def methods(tested: Sequence[Pair]) -> str:
    """Return on how many tasks pairs that were *tested* were compared, and by which tests."""
    if _one_task(tested):
        tests = " or ".join(dict.fromkeys(str(pair.test) for pair in tested))
        pairs = counted(len(tested), "pair")
        return f"on one task, over its rollouts, and for this task only; p by {tests}, for {pairs}"
    fewest, most = min(p.tasks for p in tested), max(p.tasks for p in tested)
    tasks = counted(most, "shared task") if fewest == most else f"{fewest} to {most:,} shared tasks"
    tests = " or ".join(dict.fromkeys(str(pair.test) for pair in tested))
    methods = {pair.interval.method: None for pair in tested if pair.interval is not None}
    interval = " or ".join(methods)
    by = (
        f"interval and p by {tests}"
        if interval == tests
        else f"interval by {interval}; p by {tests}"
    )
    return f"on {tasks}; {by if interval else f'p by {tests}'}, for {counted(len(tested), 'pair')}"


def _ranks(found: Pairwise) -> str:
    told = [
        f"{one_line(one.candidate)} {rank_range(one.best, one.worst)}"
        for one in found.ranks[:_MOST_RANKS]
    ]
    more = len(found.ranks) - len(told)
    return ", ".join(told) + (f", and {more} more in summary.json" if more else "")


def in_short(pair: Pair) -> str:
    """Return the verdict on a pair where a table calls them A and B."""
    if pair.better is None:
        return pair.verdict
    return f"{'A' if pair.better == pair.first else 'B'} is better{_where([pair])}"


def _one_task(pairs: Sequence[Pair]) -> bool:
    """Whether *pairs* were compared over the rollouts of a run's only task."""
    return any(pair.unit == ROLLOUT for pair in pairs)


def _where(pairs: Sequence[Pair]) -> str:
    """Return what a verdict on *pairs* is limited to."""
    return " on this task" if _one_task(pairs) else ""


def is_decided(found: Pairwise) -> bool:
    """Whether somebody was found to be better than all others."""
    if len(found.pairs) == 1:
        return found.pairs[0].better is not None
    return found.ranks[0].worst == 1


def verdict(found: Pairwise) -> str:
    """Return who is better, or that it is open, as a person says it."""
    if len(found.pairs) == 1:
        return _of_two(found.pairs[0])
    first, many = found.ranks[0], len(found.ranks)
    if is_decided(found):
        return f"{one_line(first.candidate)} is the best of {many}{_where(found.pairs)}"
    may = [one_line(one.candidate) for one in found.ranks if one.best == 1]
    if len(may) == many or len(may) > _MOST_RANKS:
        return f"{NO_DECISION}: any of {len(may)} may be the best{_where(found.pairs)}"
    return f"{NO_DECISION}: the best{_where(found.pairs)} is one of {', '.join(may)}"


def _of_two(pair: Pair) -> str:
    names = one_line(pair.first), one_line(pair.second)
    if pair.better is None:
        return f"{NO_DECISION} between {names[0]} and {names[1]} ({pair.undecided})"
    better, worse = names if pair.better == pair.first else names[::-1]
    return f"{better} is better than {worse}{_where([pair])}, by {amount(pair.difference or 0.0)}"


_UNCHECKED = "There are answers, but nothing checks them: add what is expected, or a scorer."


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A sentence, what it rests on, and whether somebody was found to be better."""

    told: str
    why: str
    decided: bool = False


def answer(summary: Summary) -> Headline:
    """Return what *summary* says, as a person would put it first."""
    if summary.pairwise is None:
        return _of_one(summary)
    found = summary.pairwise
    if all(pair.p is None for pair in found.pairs):
        return _of_none(summary, found)
    told, decided = verdict(found), is_decided(found)
    return Headline(
        told=f"{told}." if decided else sentence(told),  # a name stays as it is written
        why=_of_a_pair(found.pairs[0]) if len(found.pairs) == 1 else _of_many(found),
        decided=decided,
    )


def _of_one(summary: Summary) -> Headline:
    if not summary.candidates:
        return Headline(told="Nothing was planned.", why="")
    (one,) = summary.candidates
    name, mine = one_line(one.candidate), one.total.score
    if mine.mean is None:
        return Headline(told=f"{name} has no score.", why=_without_a_score(one.total))
    told, of = f"{name} scores {score(mine.mean)}", counted(mine.tasks, "task")
    if mine.interval is None:
        return Headline(told=f"{told} on {of}.", why=sentence(mine.reason))
    why = f"On {of}; interval by {mine.interval.method}, for other tasks like these."
    return Headline(told=f"{told}, {_between(mine.interval)}.", why=why)


def _without_a_score(group: Group) -> str:
    if group.buckets.unchecked:
        return _UNCHECKED
    return sentence(group.score.reason)


def _of_none(summary: Summary, found: Pairwise) -> Headline:
    reason = sentence(found.reason or found.pairs[0].reason)
    why = reason if summary.buckets.scored or not summary.buckets.unchecked else _UNCHECKED
    return Headline(told="Nobody can be compared.", why=why)


def _of_a_pair(pair: Pair) -> str:
    one_task = pair.unit == ROLLOUT
    where = (
        "Over the rollouts of this one task"
        if one_task
        else f"On {counted(pair.tasks, 'shared task')}"
    )
    by = difference(pair.difference)
    text = f"{where} {one_line(pair.first)} − {one_line(pair.second)} is {by}"
    if pair.interval is not None:
        text += f", {_between(pair.interval, difference)}"
    text += f"; p {p_value(pair.p_holm, alone=False)} by {pair.test}."
    if pair.withheld and pair.worst_difference is not None:
        ahead = pair.first if (pair.difference or 0.0) > 0 else pair.second
        worst = difference(pair.worst_difference)
        text += f" With these counted against {one_line(ahead)} it would be {worst}."
    return f"{text} It says nothing of other tasks." if one_task else text


def _of_many(found: Pairwise) -> str:
    decided = sum(pair.better is not None for pair in found.pairs)
    apart = (
        f"{decided} of {counted(len(found.pairs), 'pair')} told apart, adjusted for their number"
    )
    return f"{_of_the_first_two(found)}{apart}."


def _of_the_first_two(found: Pairwise) -> str:
    """Return how the first and the next differ on the tasks they share, where that was tested."""
    if len(found.ranks) < 2:
        return ""
    first, second = (one.candidate for one in found.ranks[:2])
    pair = next((p for p in found.pairs if {p.first, p.second} == {first, second}), None)
    if pair is None or pair.p_holm is None:
        return ""
    by = (pair.difference or 0.0) * (1 if pair.first == first else -1)
    names, p = (one_line(first), one_line(second)), p_value(pair.p_holm, alone=False)
    p += f", but {could_turn(pair.faults)}" if pair.withheld else ""
    if by > 0:
        return f"{names[0]} is ahead of {names[1]}, the next, by {amount(by)}, p {p}. "
    shared = f"on the {counted(pair.tasks, 'task')} they share"
    if not by:
        return f"{names[0]} and {names[1]}, the next, have the same score {shared}. "
    behind = f"{shared}, {names[1]} is ahead of {names[0]} by {amount(by)}, p {p}"
    return f"{sentence(behind).removesuffix('.')}; it stands behind {names[0]} because {_order(found)}. "


def _order(found: Pairwise) -> str:
    """Return why one may stand behind another that it is ahead of on the tasks they share."""
    if found.ordered_by == BY_SCORE:
        return "not all did the same tasks, and the order is that of the whole score"
    return "faulted trials count as 0 in the order"


def _between(found: Interval, told: Told = score) -> str:
    level = f"{found.level:.0%}".replace("%", " %")
    return f"between {told(found.low)} and {told(found.high)} at {level}"
