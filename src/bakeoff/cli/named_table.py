"""A table of names and figures that fits a narrow terminal."""

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

_SHORTEST_NAME = 8


def named_table(title: str, names: Iterable[str], figures: Iterable[str]) -> Table:
    """Return a table that fits 60 columns: names may fold, but never away; figures do not."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold", min_width=_SHORTEST_NAME)
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    return table
