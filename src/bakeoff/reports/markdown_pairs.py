"""Candidates compared two by two, in Markdown: the section of a page."""

from collections.abc import Iterator

from bakeoff.reports import decision, in_words
from bakeoff.reports.markdown_text import cell, table
from bakeoff.stats.paired import Pair
from bakeoff.stats.pairwise import Pairwise

_MOST_PAIRS = 20
_WIDE = 500


def pairs_section(found: Pairwise) -> Iterator[str]:
    """Yield who differs from whom, by how much and how surely, line by line."""
    shown = decision.worth_showing(found, most=_MOST_PAIRS)
    if shown:
        yield "## Differences"
        yield ""
        yield from table(
            ("A", "B", "A − B", "95 %", "p (Holm)", "MDE", "verdict"), map(_pair, shown)
        )
        yield ""
    yield from (f"- {cell(line, width=_WIDE)}" for line in decision.remarks(found, shown))
    yield ""


def _pair(pair: Pair) -> list[str]:
    return [
        cell(pair.first),
        cell(pair.second),
        in_words.difference(pair.difference),
        in_words.interval(pair.interval, in_words.difference),
        cell(in_words.p_value(pair.p_holm)),
        in_words.score(pair.detectable),
        cell(decision.in_short(pair)),
    ]
