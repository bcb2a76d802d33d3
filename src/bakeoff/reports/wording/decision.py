"""Pairwise comparisons of candidates in words: which one is better, by how much and how surely."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import value_object
from bakeoff.reports.wording.phrases import (
    Formatter,
    amount,
    counted,
    difference,
    dollars,
    in_order,
    in_runs,
    in_words,
    rank_range,
    score,
    sentence,
    shared_tail,
)
from bakeoff.stats.estimate import Interval, could_turn
from bakeoff.stats.one_task import ROLLOUT
from bakeoff.stats.paired import NO_DECISION, Pair
from bakeoff.stats.pairwise import BY_SCORE, Pairwise
from bakeoff.stats.summary import Group, Summary

_MOST_RANKS = 10
_SAME_PRICE = 0.02
_MANY = 10  # times the cost: more are not known to a tenth
_HARDLY = 1e-6  # what 0 is left out by in an interval is not shown
_UNCHECKED = "There are answers, but nothing checks them: add expected answers or a scorer."


def worth_showing(pairwise: Pairwise, *, most: int = 10) -> list[Pair]:
    """Return the pairs to show: all of them or, when there are many, those adjacent in rank."""
    tested = [pair for pair in pairwise.pairs if pair.p is not None]
    if len(tested) <= most:
        return tested
    rank = {ranked.candidate: ranked.rank for ranked in pairwise.ranks}
    near = [pair for pair in tested if abs(rank[pair.first] - rank[pair.second]) == 1]
    return sorted(near, key=lambda pair: rank[pair.first] + rank[pair.second])[:most]


def remarks(pairwise: Pairwise, shown: Sequence[Pair], *, with_ranks: bool = True) -> Iterator[str]:
    """Yield the remarks that belong below a table of the *shown* pairs.

    The ranges of ranks are left out when the table has a column for them.
    """
    tested = [pair for pair in pairwise.pairs if pair.p is not None]
    if len(tested) > len(shown):
        more = counted(len(tested) - len(shown), "more pair")
        yield f"{more} in summary.json; these are the ones next to each other in rank"
    if tested:
        yield methods(tested)
    if tested:
        yield chance_in_words(tested)
    for reason, many in Counter(p.reason for p in pairwise.pairs if p.p is None).items():
        yield f"{counted(many, 'pair')} not compared: {reason}"
    yield from _missing(pairwise)
    if tested and not _one_task(tested) and (pairwise.passed_by_all or pairwise.passed_by_none):
        yield (
            f"of {counted(pairwise.tasks, 'task')}, {pairwise.passed_by_all} are passed by all candidates "
            f"and {pairwise.passed_by_none} by none: they separate none"
        )
    if with_ranks and tested and len(pairwise.ranks) > 2:
        yield f"ranks consistent with the data: {_ranks(pairwise)}"


def _missing(pairwise: Pairwise) -> Iterator[str]:
    """Yield how faults and missing scores affect the verdicts."""
    if any(pair.early for pair in pairwise.pairs):
        yield (
            "ended early, where the numbers looked good: the differences seen are too large on average; "
            "their intervals hold"
        )
    if any(pair.withheld for pair in pairwise.pairs):
        yield (
            "a verdict must hold with every faulted trial counted against the leader; "
            "resume the run to retry them"
        )
    if most := max((pair.left_out for pair in pairwise.pairs), default=0):
        few = "" if len(pairwise.pairs) == 1 else "up to "
        yield f"excluded, because only one of the two has a score: {few}{counted(most, 'task')}"


def chance_in_words(tested: Sequence[Pair]) -> str:
    """Return what the columns of a table of pairs say."""
    pairs, text = (
        len(tested),
        "by chance: how often two equals differ this much; under 0.05 decides",
    )
    if pairs > 1:
        text += f". It allows for all {pairs} pairs, and so do the intervals"
    if any(pair.detectable is not None for pair in tested):
        text += ". Smallest gap: what so many tasks show four times in five"
    return text


def methods(tested: Sequence[Pair]) -> str:
    """Return the number of tasks, the tests and the intervals behind the *tested* pairs."""
    if _one_task(tested):
        tests = " or ".join(dict.fromkeys(str(pair.test) for pair in tested))
        pairs = counted(len(tested), "pair")
        return f"on one task, over its rollouts, and for this task only; chance by {tests}, for {pairs}"
    fewest, most = min(p.tasks for p in tested), max(p.tasks for p in tested)
    tasks = counted(most, "shared task") if fewest == most else f"{fewest} to {most:,} shared tasks"
    tests = " or ".join(dict.fromkeys(str(pair.test) for pair in tested))
    methods = {pair.interval.method: None for pair in tested if pair.interval is not None}
    interval = " or ".join(methods)
    by = (
        f"interval and chance by {tests}"
        if interval == tests
        else f"interval by {interval}; chance by {tests}"
    )
    return f"on {tasks}; {by if interval else f'chance by {tests}'}, for {counted(len(tested), 'pair')}"


def _ranks(pairwise: Pairwise) -> str:
    shown = [
        f"{one_line(ranked.candidate)} {rank_range(ranked.best, ranked.worst)}"
        for ranked in pairwise.ranks[:_MOST_RANKS]
    ]
    more = len(pairwise.ranks) - len(shown)
    return ", ".join(shown) + (f", and {more} more in summary.json" if more else "")


def effects_in_words(summary: Summary) -> Iterator[str]:
    """Yield what each prompt changes across all models, and each model across all prompts."""
    for effect in summary.main_effects:
        across = f"across {counted(effect.across, effect.other)}"
        for pair in worth_showing(effect.comparison):
            first, second = f"'{one_line(pair.first)}'", f"'{one_line(pair.second)}'"
            sign = -1 if pair.better == pair.second else 1
            if sign < 0:
                first, second = second, first
            apart = difference(None if pair.difference is None else sign * pair.difference)
            chance = f"equals would differ as much {in_runs(pair.p_holm)}, by chance"
            figures = f"{apart}{_apart_interval(pair, sign)}; {chance}"
            if pair.better is not None:
                yield f"{effect.factor} {first} is better than {second} {across}: {figures}"
                continue
            verdict, why = (
                (pair.verdict, "") if pair.equivalent else (NO_DECISION, f"; {pair.undecided}")
            )
            yield (
                f"{verdict} between {effect.factor} {first} and {second} {across}: {figures}{why}"
            )


def prompts_in_short(summary: Summary) -> str | None:
    """Return which prompt is better across all models, in a line; None where none were compared."""
    for effect in summary.main_effects:
        pairs = effect.comparison.pairs
        if effect.factor != "prompt" or not pairs:
            continue
        across = f"across {counted(effect.across, effect.other)}"
        names = {name for pair in pairs for name in (pair.first, pair.second)}
        won = Counter(pair.better for pair in pairs if pair.better is not None)
        best, wins = won.most_common(1)[0] if won else ("", 0)
        if wins < len(names) - 1:
            return f"prompts: no decision which is the best {across}"
        others = f"'{one_line((names - {best}).pop())}'" if len(names) == 2 else "all others"
        return f"prompts: '{one_line(best)}' is better than {others} {across}"
    return None


def _apart_interval(pair: Pair, sign: int) -> str:
    if pair.interval is None:
        return ""
    low, high = sorted((sign * pair.interval.low, sign * pair.interval.high))
    return f" [{difference(low)}, {difference(high)}]"


def in_short(pair: Pair) -> str:
    """Return the verdict on a pair whose columns are called A and B."""
    if pair.better is None:
        if pair.withheld:
            return f"{NO_DECISION} ({could_turn(pair.faults)})"
        return pair.verdict if pair.equivalent else NO_DECISION
    less = f", by less than {pair.margin:g}" if pair.equivalent else ""
    return f"{'A' if pair.better == pair.first else 'B'} is better{_scope([pair])}{less}"


def _one_task(pairs: Sequence[Pair]) -> bool:
    """Whether *pairs* were compared over the rollouts of a run's only task."""
    return any(pair.unit == ROLLOUT for pair in pairs)


def _scope(pairs: Sequence[Pair]) -> str:
    """Return what a verdict on *pairs* is limited to."""
    return " on this task" if _one_task(pairs) else ""


def is_decided(pairwise: Pairwise) -> bool:
    """Whether one candidate is better than all others."""
    if len(pairwise.pairs) == 1:
        return pairwise.pairs[0].better is not None or bool(pairwise.pairs[0].equivalent)
    return pairwise.ranks[0].worst == 1


def verdict(pairwise: Pairwise) -> str:
    """Return which candidate is better, or that there is no decision."""
    if len(pairwise.pairs) == 1:
        return pair_verdict(pairwise.pairs[0])
    first, many = pairwise.ranks[0], len(pairwise.ranks)
    if is_decided(pairwise):
        text = f"{one_line(first.candidate)} is the best of {many}{_scope(pairwise.pairs)}"
        return text + _ahead_of_next(pairwise)
    names = [one_line(ranked.candidate) for ranked in pairwise.ranks if ranked.best == 1]
    if len(names) == many or len(names) > _MOST_RANKS:
        return f"{NO_DECISION}: any of {len(names)} may be the best{_scope(pairwise.pairs)}"
    return f"{NO_DECISION}: the best{_scope(pairwise.pairs)} is one of {', '.join(names)}"


def _ahead_of_next(pairwise: Pairwise) -> str:
    """Return by how much the best is better than the next, and at what price; nothing if unknown."""
    pair = _foremost(pairwise)
    best = pairwise.ranks[0].candidate
    if pair is None or pair.better != best or pair.unit == ROLLOUT:
        return ""
    sign = 1 if pair.first == best else -1
    worse = f"{one_line(pair.second if sign > 0 else pair.first)}, the next"
    return f": it {by_how_much(pair, sign, than=worse)}{price(pair, sign)}"


def pair_verdict(pair: Pair) -> str:
    """Return which of two candidates is better, by how much and at what price, or that it is open."""
    names = one_line(pair.first), one_line(pair.second)
    if pair.equivalent and pair.better is None:
        return f"{names[0]} and {names[1]} are equivalent within {pair.margin:g}{price(pair)}"
    if pair.better is None:
        return f"{NO_DECISION} between {names[0]} and {names[1]} ({pair.undecided})"
    sign = 1 if pair.better == pair.first else -1
    better, worse = names[::sign]
    if pair.unit == ROLLOUT:
        return (
            f"{better} is better than {worse}{_scope([pair])}, by {amount(pair.difference or 0.0)}"
        )
    less = f", which is less than {pair.margin:g}" if pair.equivalent else ""
    return f"{better} {by_how_much(pair, sign, than=worse)}{less}{price(pair, sign)}"


def by_how_much(pair: Pair, sign: int, *, than: str = "", fewer: bool = False) -> str:
    """Return how much more or *fewer* one of the two solves *than* the other, with the interval.

    The difference is first - second where *sign* is 1, and second - first where it is -1.
    """
    low, high = (0.0, 0.0)
    if pair.interval is not None:
        low, high = sorted((sign * pair.interval.low, sign * pair.interval.high))
    number = _of_100 if pair.solved else amount
    bounds = f"{number(low)} to {number(high)}" if pair.interval else ""
    early = pair.early and bounds  # what it saw when it ended is too large on average
    by = bounds if early else number(pair.difference or 0.0)
    more = ("fewer" if pair.solved else "less") if fewer else "more"
    text = f"solves {by} of 100 tasks {more}" if pair.solved else f"scores {by} {more}"
    text += f" than {than}" if than else ""
    return f"{text} ({bounds})" if bounds and not early else text


def _of_100(share: float) -> str:
    written = f"{100 * abs(share):.1f}".removesuffix(".0")
    return f"{100 * abs(share):.1g}" if written == "0" and abs(share) > _HARDLY else written


def price(pair: Pair, sign: int = 1) -> str:
    """Return at how many times the cost, of the first where *sign* is 1; nothing where it is unknown."""
    ratio = pair.cost_ratio
    if ratio is None or not ratio.value:
        return ""
    times = ratio.value if sign > 0 else 1 / ratio.value
    if abs(times - 1) < _SAME_PRICE:
        return ", at the same cost"
    return (
        f", at {times:,.0f} times the cost"
        if times >= _MANY
        else f", at {times:.2g} times the cost"
    )


def per_success(summary: Summary) -> str:
    """Return what a trial that passed cost, by candidate in the order of rank; nothing if unknown."""
    known = [
        f"{one_line(candidate.candidate)} {dollars(ratio.value)}{_dollar_range(ratio.interval)}"
        for candidate in in_order(summary)
        if (ratio := candidate.total.cost_per_success) is not None and ratio.value is not None
    ]
    return f"Cost per solved task: {', '.join(known[:_MOST_RANKS])}." if known else ""


def _dollar_range(bounds: Interval | None) -> str:
    return "" if bounds is None else f" ({dollars(bounds.low)} to {dollars(bounds.high)})"


def what_more_takes(summary: Summary) -> str:
    """Return what the tasks take that would show a smaller difference; nothing if it is unknown."""
    pair = None if summary.pairwise is None else _foremost(summary.pairwise)
    if pair is None or pair.to_show is None or summary.pace is None:
        return ""
    more = pair.to_show.tasks - pair.tasks
    took = in_words(summary.pace.of(more * summary.rollouts * len(summary.candidates)))
    if more <= 0 or not took:
        return ""
    return f"{counted(more, 'more task')}, to show {pair.to_show.difference:g}, would take about {took}."


def _foremost(pairwise: Pairwise) -> Pair | None:
    """Return the pair of the first two candidates; None where there are none."""
    first = {ranked.candidate for ranked in pairwise.ranks[:2]}
    return next((pair for pair in pairwise.pairs if {pair.first, pair.second} == first), None)


@value_object
class Headline:
    """The result in one sentence, its evidence, and whether there is a decision."""

    text: str
    why: str
    decided: bool = False


def short_answer(summary: Summary) -> Headline:
    """Return the headline of *summary* for a page; what the names of all candidates end with is said once."""
    found = answer(summary)
    tail = one_line(shared_tail(c.candidate for c in summary.candidates)).strip()
    if not tail:
        return found
    with_what = f"All with {tail.removeprefix('· ')}."
    text, why = (part.replace(f" {tail}", "") for part in (found.text, found.why))
    return Headline(text=text, why=f"{why} {with_what}".strip(), decided=found.decided)


def answer(summary: Summary) -> Headline:
    """Return the headline of *summary*."""
    if summary.pairwise is None:
        return _single_candidate_headline(summary)
    pairwise = summary.pairwise
    if all(pair.p is None for pair in pairwise.pairs):
        return _no_comparison_headline(summary, pairwise)
    text, decided = verdict(pairwise), is_decided(pairwise)
    return Headline(
        text=f"{text}." if decided else sentence(text),  # a name stays as it is written
        why=" ".join(
            part
            for part in (
                _pair_evidence(pairwise.pairs[0])
                if len(pairwise.pairs) == 1
                else _many_evidence(pairwise),
                what_more_takes(summary),
                # of more than two, the table of costs says it
                per_success(summary) if len(summary.candidates) == 2 else "",
            )
            if part
        ),
        decided=decided,
    )


def _single_candidate_headline(summary: Summary) -> Headline:
    if not summary.candidates:
        return Headline(text="Nothing was planned.", why="")
    (candidate,) = summary.candidates
    name, estimate = one_line(candidate.candidate), candidate.total.score
    if estimate.mean is None:
        return Headline(text=f"{name} has no score.", why=_without_a_score(candidate.total))
    text, tasks = f"{name} scores {score(estimate.mean)}", counted(estimate.tasks, "task")
    if estimate.interval is None:
        return Headline(text=f"{text} on {tasks}.", why=sentence(estimate.reason))
    why = f"On {tasks}; interval by {estimate.interval.method}, for other tasks like these."
    why = " ".join(part for part in (why, per_success(summary)) if part)
    return Headline(text=f"{text}, {_between(estimate.interval)}.", why=why)


def _without_a_score(group: Group) -> str:
    if group.buckets.unchecked:
        return _UNCHECKED
    return sentence(group.score.reason)


def _no_comparison_headline(summary: Summary, pairwise: Pairwise) -> Headline:
    reason = sentence(pairwise.reason or pairwise.pairs[0].reason)
    why = reason if summary.buckets.scored or not summary.buckets.unchecked else _UNCHECKED
    return Headline(text="No candidates can be compared.", why=why)


def _pair_evidence(pair: Pair) -> str:
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
    text += f"; equals would differ as much {in_runs(pair.p_holm)}, by chance ({pair.test})."
    if pair.withheld and pair.worst_difference is not None:
        ahead = pair.first if (pair.difference or 0.0) > 0 else pair.second
        worst = difference(pair.worst_difference)
        text += f" With these counted against {one_line(ahead)} it would be {worst}."
    return f"{text} It says nothing about other tasks." if one_task else text


def _many_evidence(pairwise: Pairwise) -> str:
    decided = sum(pair.better is not None for pair in pairwise.pairs)
    pairs = counted(len(pairwise.pairs), "pair")
    surely = " At 95 % all of that is right together." if decided > 1 else ""
    return f"{_lead_over_next(pairwise)}{decided} of {pairs} are told apart.{surely}"


def _lead_over_next(pairwise: Pairwise) -> str:
    """Return how the first two candidates differ on their shared tasks, if that was tested."""
    if len(pairwise.ranks) < 2:
        return ""
    first, second = (ranked.candidate for ranked in pairwise.ranks[:2])
    pair = next((p for p in pairwise.pairs if {p.first, p.second} == {first, second}), None)
    if pair is None or pair.p_holm is None:
        return ""
    by = (pair.difference or 0.0) * (1 if pair.first == first else -1)
    names = one_line(first), one_line(second)
    chance = f"equals would differ as much {in_runs(pair.p_holm)}, by chance"
    chance += f", but {could_turn(pair.faults)}" if pair.withheld else ""
    if by > 0:
        return f"{names[0]} is ahead of {names[1]}, the next, by {amount(by)}; {chance}. "
    shared = f"on the {counted(pair.tasks, 'task')} they share"
    if not by:
        return f"{names[0]} and {names[1]}, the next, have the same score {shared}. "
    behind = f"{shared}, {names[1]} is ahead of {names[0]} by {amount(by)}; {chance}"
    return f"{sentence(behind).removesuffix('.')}; it ranks below {names[0]} because {_ranking_reason(pairwise)}. "


def _ranking_reason(pairwise: Pairwise) -> str:
    """Return why a candidate can rank below one that it beats on the shared tasks."""
    if pairwise.ordered_by == BY_SCORE:
        return "not all candidates ran the same tasks, and the ranking uses the overall score"
    return "faulted trials count as 0 in the ranking"


def _between(interval: Interval, formatter: Formatter = score) -> str:
    level = f"{interval.level:.0%}".replace("%", " %")
    return f"between {formatter(interval.low)} and {formatter(interval.high)} at {level}"
