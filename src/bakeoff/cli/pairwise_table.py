"""Candidates compared two by two, on a terminal and in a pipe: who is better, as far as it shows."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bakeoff._lib.untrusted import one_line
from bakeoff.cli.named_table import named_table, print_table
from bakeoff.reports.decision import in_short, remarks, worth_showing
from bakeoff.reports.in_words import UNKNOWN, p_value
from bakeoff.stats.paired import Pair
from bakeoff.stats.pairwise import Pairwise

_SHORTEST_VERDICT = 11


def print_pairwise(found: Pairwise, out: Console) -> None:
    """Print the pairs, and what they were compared by."""
    shown = worth_showing(found)
    if shown:
        print_table(_table(shown), out)
    lines = list(remarks(found, shown))
    for line in lines:
        out.print(Text(line, style="dim"))
    if lines:
        out.print()


def _table(pairs: Sequence[Pair]) -> Table:
    """Return two lines for each pair, so that names have room on a narrow terminal."""
    planned = any(pair.detectable is not None for pair in pairs)
    heads = ["A - B\n95 % interval", "p (Holm)\nMDE" if planned else "p (Holm)"]
    table = named_table("compared pairwise", ["A\nB"], heads)
    table.add_column("verdict", min_width=_SHORTEST_VERDICT)
    for pair in pairs:
        table.add_row(
            Text(f"{one_line(pair.first)}\n{one_line(pair.second)}"),
            *figures(pair, planned=planned),
            in_short(pair),
        )
    return table


def figures(pair: Pair, *, planned: bool) -> tuple[str, str]:
    """Return how far apart the two are, and how surely; with what could be seen, if *planned*."""
    seen = f"\n{_number(pair.detectable, '.3f')}" if planned else ""
    apart = f"{_number(pair.difference, '+.3f')}\n{_interval(pair)}"
    return apart, p_value(pair.p_holm) + seen


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _interval(pair: Pair) -> str:
    if pair.interval is None:
        return UNKNOWN
    return f"[{pair.interval.low:.3f}, {pair.interval.high:.3f}]"
