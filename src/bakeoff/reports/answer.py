"""The answer of a run in words: who is better and how sure that is, or how good the one there is."""

from dataclasses import dataclass

from bakeoff._lib.untrusted import one_line
from bakeoff.reports import decision
from bakeoff.reports.in_words import Told, amount, counted, difference, p_value, score, sentence
from bakeoff.stats.estimate import Interval
from bakeoff.stats.missing import could_turn
from bakeoff.stats.one_task import ROLLOUT
from bakeoff.stats.paired import Pair
from bakeoff.stats.pairwise import BY_SCORE, Pairwise
from bakeoff.stats.summary import Group, Summary

_UNCHECKED = "There are answers, but nothing checks them: add what is expected, or a scorer."


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A sentence, what it rests on, and whether somebody was found to be better."""

    told: str
    why: str
    decided: bool = False


def answer(summary: Summary) -> Answer:
    """Return what *summary* says, as a person would put it first."""
    if summary.pairwise is None:
        return _of_one(summary)
    found = summary.pairwise
    if all(pair.p is None for pair in found.pairs):
        return _of_none(summary, found)
    told, decided = decision.verdict(found), decision.decided(found)
    return Answer(
        told=f"{told}." if decided else sentence(told),  # a name stays as it is written
        why=_of_a_pair(found.pairs[0]) if len(found.pairs) == 1 else _of_many(found),
        decided=decided,
    )


def _of_one(summary: Summary) -> Answer:
    if not summary.candidates:
        return Answer(told="Nothing was planned.", why="")
    (one,) = summary.candidates
    name, mine = one_line(one.candidate), one.total.score
    if mine.mean is None:
        return Answer(told=f"{name} has no score.", why=_without_a_score(one.total))
    told, of = f"{name} scores {score(mine.mean)}", counted(mine.tasks, "task")
    if mine.interval is None:
        return Answer(told=f"{told} on {of}.", why=sentence(mine.reason))
    why = f"On {of}; interval by {mine.interval.method}, for other tasks like these."
    return Answer(told=f"{told}, {_between(mine.interval)}.", why=why)


def _without_a_score(group: Group) -> str:
    if group.buckets.unchecked:
        return _UNCHECKED
    return sentence(group.score.reason)


def _of_none(summary: Summary, found: Pairwise) -> Answer:
    reason = sentence(found.reason or found.pairs[0].reason)
    why = reason if summary.buckets.scored or not summary.buckets.unchecked else _UNCHECKED
    return Answer(told="Nobody can be compared.", why=why)


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
