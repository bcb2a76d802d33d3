"""CSV and TSV: a header with the names of the columns, then one row per record."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TextIO

from bakeoff.core.errors import UsageError
from bakeoff.formats.data.rows import Row, Shape, open_text, refuse_nul, shapes_of

_LARGEST_CELL = 1 << 30  # characters; the csv module stops at 131 072 otherwise
_SEPARATORS = (",", ";", "\t", "|")  # of a .csv file: what spreadsheets and databases write
_QUOTED = re.compile(r'"[^"]*"')
_SEPARATOR_LINE = re.compile(r"sep=(.)[\r\n]*")  # before the header: for Excel


def read_delimited(path: Path) -> Iterator[Row]:
    """Yield the rows of the CSV or TSV file at *path*; each must have a cell for every column."""
    csv.field_size_limit(_LARGEST_CELL)
    with open_text(path, newline="") as text:
        separator, lines = _beginning(path, text)
        records = _Records(path, lines, separator)
        header = next(iter(records), None)
        if header is None:
            raise UsageError(f"{path} is empty; its first line must name the columns")
        columns = _columns(path, header[0], header[1])
        for line, cells in records:
            if not any(cells):  # spreadsheets leave them below a table
                continue
            if len(cells) != len(columns):
                raise _ragged(path, line, cells, columns, separator)
            yield Row(line, {name: cell for name, cell in zip(columns, cells, strict=True) if name})


def scan_delimited(path: Path) -> Sequence[Shape]:
    """Return the first row of the CSV or TSV file at *path*, and how many there are."""
    rows = read_delimited(path)
    first = next(rows, None)
    if first is None:
        return []
    many = 0
    with open_text(path, newline="") as text:
        separator, lines = _beginning(path, text)
        reader = csv.reader(lines, delimiter=separator, strict=True)
        try:
            columns = len(next(filter(None, reader)))
            for many, cells in enumerate(filter(any, reader), start=1):  # noqa: B007 -- the last
                if len(cells) != columns:
                    break
            else:
                return [Shape(first, many)]
        except csv.Error:
            pass
    return shapes_of(read_delimited(path))  # which says what is wrong, and where


def _beginning(path: Path, text: TextIO) -> tuple[str, Iterator[str]]:
    """Return what separates the cells of *text*, and its lines."""
    first = text.readline()
    if named := _SEPARATOR_LINE.fullmatch(first):
        return named[1], chain(["\n"], text)
    lines = chain([first], text)
    if path.suffix.lower() in {".tsv", ".tab"}:
        return "\t", lines
    return max(_SEPARATORS, key=_QUOTED.sub("", first).count), lines


class _Records:
    """The records of a file with the line on which each begins; blank lines are none."""

    def __init__(self, path: Path, lines: Iterable[str], separator: str) -> None:
        self._path = path
        self._reader = csv.reader(self._checked(lines), delimiter=separator, strict=True)
        self._line = 0

    def _checked(self, lines: Iterable[str]) -> Iterator[str]:
        for number, line in enumerate(lines, start=1):
            refuse_nul(line, self._path, number)
            yield line

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        while True:
            begins = self._reader.line_num + 1
            try:
                cells = next(self._reader, None)
            except csv.Error as error:
                raise UsageError(_explain(self._path, begins, str(error))) from error
            if cells is None:
                return
            if cells:
                yield begins, cells


def _explain(path: Path, line: int, message: str) -> str:
    if message == "unexpected end of data":
        return f"{path}:{line}: a quote that is opened in this row is never closed"
    return (
        f"{path}:{line}: not valid CSV: {message}; in a quoted cell, write a quote twice "
        '("say ""hi""")'
    )


def _columns(path: Path, line: int, header: Sequence[str]) -> list[str]:
    """Return the names of the columns; a column without one is left out, as an index is."""
    columns = [name.strip() for name in header]
    if not any(columns):
        raise UsageError(f"{path}:{line}: the header names no column")
    for number, name in enumerate(columns):
        if name and name in columns[:number]:
            first = columns.index(name) + 1
            raise UsageError(
                f"{path}:{line}: columns {first} and {number + 1} are both named {name!r}; give each a "
                "name of its own"
            )
    return columns


def _ragged(
    path: Path, line: int, cells: Sequence[str], columns: Sequence[str], separator: str
) -> UsageError:
    mark = {"\t": "tab", ",": "comma", "|": "bar"}.get(separator, "semicolon")
    many = f"{len(cells)} cell" + ("" if len(cells) == 1 else "s")
    hint = f"put a cell with a {mark} or a line break into double quotes"
    if len(cells) < len(columns):
        hint = f"write {separator!r} for each cell that is missing, or {hint}"
    return UsageError(f"{path}:{line}: {many}, and the header names {len(columns)} columns; {hint}")
