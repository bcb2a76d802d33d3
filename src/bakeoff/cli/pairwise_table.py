"""Candidates compared two by two, on a terminal and in a pipe: who is better, as far as it shows."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bakeoff._lib.untrusted import one_line
from bakeoff.cli.named_table import named_table
from bakeoff.reports.in_words import UNKNOWN, counted, rank_range
from bakeoff.stats.paired import Pair
from bakeoff.stats.pairwise import Pairwise

_MOST_PAIRS = 10
_MOST_RANKS = 10
_SHORTEST_VERDICT = 11


def print_pairwise(found: Pairwise, out: Console) -> None:
    """Print the pairs, what they were compared by, and in a line who is better."""
    shown = _shown(found)
    if shown:
        out.print(_table(shown))
    for line in _remarks(found, shown):
        out.print(Text(line, style="dim"))
    if shown:
        out.print(Text(f"verdict: {_verdict(found)}\n", style="bold"))


def _shown(found: Pairwise) -> list[Pair]:
    """Return the pairs that are worth a row: all, or of many those next to each other in rank."""
    tested = [pair for pair in found.pairs if pair.p is not None]
    if len(tested) <= _MOST_PAIRS:
        return tested
    rank = {one.candidate: one.rank for one in found.ranks}
    near = [pair for pair in tested if abs(rank[pair.first] - rank[pair.second]) == 1]
    return sorted(near, key=lambda pair: rank[pair.first] + rank[pair.second])[:_MOST_PAIRS]


def _table(pairs: Sequence[Pair]) -> Table:
    """Return two lines for each pair, so that names have room on a narrow terminal."""
    heads = ["A - B\n95 % interval", "p (Holm)\nMDE"]
    table = named_table("compared pairwise", ["A\nB"], heads)
    table.add_column("verdict", min_width=_SHORTEST_VERDICT)
    for pair in pairs:
        table.add_row(
            Text(f"{one_line(pair.first)}\n{one_line(pair.second)}"),
            f"{_number(pair.difference, '+.3f')}\n{_interval(pair)}",
            f"{_p(pair.p_holm)}\n{_number(pair.detectable, '.3f')}",
            _in_short(pair),
        )
    return table


def _in_short(pair: Pair) -> str:
    """Return the verdict, with the names as the table has them."""
    if pair.better is None:
        return pair.verdict
    return "A is better" if pair.better == pair.first else "B is better"


def _remarks(found: Pairwise, shown: Sequence[Pair]) -> Iterator[str]:
    tested = [pair for pair in found.pairs if pair.p is not None]
    if len(tested) > len(shown):
        more = counted(len(tested) - len(shown), "more pair")
        yield f"{more} in summary.json; these are the ones next to each other in rank"
    if tested:
        yield _methods(tested)
        yield "MDE: the least difference that so many tasks show with a chance of 80 %"
    if any(_only_the_interval_decides(pair) for pair in shown):
        yield "an interval without 0 is not yet a decision: p is that of a stricter test"
    for reason, many in Counter(p.reason for p in found.pairs if p.p is None).items():
        yield f"{counted(many, 'pair')} not compared: {reason}"
    if most := max((pair.left_out for pair in found.pairs), default=0):
        few = "" if len(found.pairs) == 1 else "up to "
        yield f"left out, because only one of the two has a score: {few}{counted(most, 'task')}"
    if tested and (found.passed_by_all or found.passed_by_none):
        yield (
            f"of {counted(found.tasks, 'task')}, everybody passes {found.passed_by_all} and "
            f"nobody passes {found.passed_by_none}: they separate no one"
        )
    if tested and len(found.ranks) > 2:
        yield f"ranks that the data leave open: {_ranks(found)}"


def _only_the_interval_decides(pair: Pair) -> bool:
    interval = pair.interval
    return pair.better is None and interval is not None and not interval.low <= 0 <= interval.high


def _methods(tested: Sequence[Pair]) -> str:
    """Return on how many tasks, and by which tests."""
    fewest, most = min(p.tasks for p in tested), max(p.tasks for p in tested)
    tasks = counted(most, "shared task") if fewest == most else f"{fewest} to {most:,} shared tasks"
    tests = " or ".join(dict.fromkeys(str(pair.test) for pair in tested))
    return f"on {tasks}; interval by paired t; p by {tests}, for {counted(len(tested), 'pair')}"


def _ranks(found: Pairwise) -> str:
    told = [
        f"{one_line(one.candidate)} {rank_range(one.best, one.worst)}"
        for one in found.ranks[:_MOST_RANKS]
    ]
    more = len(found.ranks) - len(told)
    return ", ".join(told) + (f", and {more} more in summary.json" if more else "")


def _verdict(found: Pairwise) -> str:
    """Return who is better, or that it is open, as a person says it."""
    if len(found.pairs) == 1:
        return _of_two(found.pairs[0])
    first, many = found.ranks[0], len(found.ranks)
    if first.worst == 1:
        return f"{one_line(first.candidate)} is the best of {many}"
    may = [one_line(one.candidate) for one in found.ranks if one.best == 1]
    if len(may) == many or len(may) > _MOST_RANKS:
        return f"no decision: any of {len(may)} may be the best"
    return f"no decision: the best is one of {', '.join(may)}"


def _of_two(pair: Pair) -> str:
    names = one_line(pair.first), one_line(pair.second)
    if pair.better is None:
        why = pair.verdict.removeprefix("no decision")
        return f"no decision between {names[0]} and {names[1]}{why}"
    better, worse = names if pair.better == pair.first else names[::-1]
    return f"{better} is better than {worse}, by {abs(pair.difference or 0.0):.3f}"


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _p(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _interval(pair: Pair) -> str:
    if pair.interval is None:
        return UNKNOWN
    return f"[{pair.interval.low:.3f}, {pair.interval.high:.3f}]"
