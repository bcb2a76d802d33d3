"""Markdown for people; whatever a model or a program wrote is shown in it and never obeyed."""

import re
from collections.abc import Iterable, Sequence

from bakeoff._lib.untrusted import for_terminal, one_line

_BACKTICKS = re.compile(r"`{3,}")
_MARKUP = re.compile(r"([\\`*\[\]<>|])")  # an underscore within a word is only itself
_BAR = 20


def cell(text: object, *, width: int = 200) -> str:
    """Return *text* as one cell of a table, every mark of it inert."""
    return _MARKUP.sub(r"\\\1", one_line(str(text), width=width))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table line by line; its cells must be inert already."""
    return [
        f"| {' | '.join(head)} |",
        f"|{'|'.join('---' for _ in head)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def fenced(text: str, language: str = "") -> list[str]:
    """Return *text* in a block that it cannot end by itself."""
    longest = max((len(found) for found in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return [f"{fence}{language}", for_terminal(text).rstrip("\n"), fence]


def bar(share: float | None) -> str:
    """Return a share of one as a bar, with its figure."""
    if share is None:
        return "no score"
    full = round(share * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {share:.1%}"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number that may be unknown."""
    return "–" if value is None else f"{value:.{digits}f}"


def count(value: int | None) -> str:
    """Return a count that may be unknown."""
    return "?" if value is None else f"{value:,}"
