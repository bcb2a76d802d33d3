"""A table of names and figures; where the terminal is too narrow for it, a list of its rows."""

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

_SHORTEST_NAME = 16
_BETWEEN, _EDGES = 3, 2  # columns of the terminal that a table spends on space


def named_table(title: str, names: Iterable[str], figures: Iterable[str]) -> Table:
    """Return a table: names may fold, figures do not."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold", min_width=8)
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    return table


def print_table(table: Table, out: Console) -> None:
    """Print *table*, or its rows one below the other where names would have no room beside figures."""
    if _needed(table.columns) <= out.width:
        out.print(table)
        return
    out.print(Text(f"{table.title}\n"))
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        for line in _in_lines(table.columns, [_text(cell) for cell in cells], out.width):
            out.print(line)
    out.print()


def _needed(columns: Sequence[Column]) -> int:
    """Return how wide a terminal must be for a table of *columns* with readable names."""
    widths = [_width(column) for column in columns]
    return sum(widths) + _BETWEEN * (len(widths) - 1) + _EDGES


def _width(column: Column) -> int:
    longest = max(
        len(line) for cell in (column.header, *column.cells) for line in _text(cell).split("\n")
    )
    return longest if column.no_wrap else min(longest, _SHORTEST_NAME)


def _text(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _in_lines(columns: Sequence[Column], cells: Sequence[str], width: int) -> Iterator[Padding]:
    """Yield a row of a table as lines: its names, then each figure after its head."""
    names, figures = [], []
    for column, cell in zip(columns, cells, strict=True):
        pairs = list(_with_heads(_text(column.header), cell))
        if column.overflow != "fold":
            figures += [f"{head} {value}" for head, value in pairs]
        elif len(pairs) == 1:
            names.append(cell)
        else:
            names += [f"{head} {value}" for head, value in pairs]
    for parts, indent, style in ((names, 1, "bold"), (figures, 3, "")):
        for line in _filled(parts, width - indent):
            yield Padding(Text(line, style=style, overflow="fold"), (0, 0, 0, indent), expand=False)


def _filled(parts: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of *parts* with commas between them, as many on a line as fit."""
    line = ""
    for part in parts:
        if line and len(line) + len(part) + 2 > width:
            yield line
            line = ""
        line += f"{', ' if line else ''}{part}"
    if line:
        yield line


def _with_heads(head: str, cell: str) -> Iterator[tuple[str, str]]:
    """Yield each line of *cell* with its head; a head of several lines may belong to one."""
    heads, values = head.split("\n"), cell.split("\n")
    if len(heads) == len(values):
        yield from zip(heads, values, strict=True)
    else:
        yield " ".join(heads), " ".join(values)
