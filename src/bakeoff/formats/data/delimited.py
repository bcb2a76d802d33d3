"""CSV and TSV: a header with the names of the columns, then one row per record."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.formats.data.rows import Row, open_text, refuse_nul

_LARGEST_CELL = 1 << 30  # characters; the csv module stops at 131 072 otherwise
_OTHER_SEPARATORS = (";", "\t")  # of a .csv file: what some spreadsheets write


def read_delimited(path: Path) -> Iterator[Row]:
    """Yield the rows of the CSV or TSV file at *path*; each must have a cell for every column."""
    csv.field_size_limit(_LARGEST_CELL)
    with open_text(path, newline="") as text:
        first = text.readline()
        separator = _separator(path, first)
        records = _Records(path, _chained(first, text), separator)
        header = next(iter(records), None)
        if header is None:
            raise UsageError(f"{path} is empty; its first line must name the columns")
        columns = _columns(path, header[0], header[1])
        for line, cells in records:
            if len(cells) != len(columns):
                raise _ragged(path, line, cells, columns, separator)
            yield Row(line, {name: cell for name, cell in zip(columns, cells, strict=True) if name})


def _chained(first: str, rest: Iterable[str]) -> Iterator[str]:
    yield first
    yield from rest


def _separator(path: Path, header: str) -> str:
    if path.suffix.lower() in {".tsv", ".tab"}:
        return "\t"
    if "," in header:
        return ","
    return next((mark for mark in _OTHER_SEPARATORS if mark in header), ",")


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
    mark = {"\t": "tab", ",": "comma"}.get(separator, "semicolon")
    many = f"{len(cells)} cell" + ("" if len(cells) == 1 else "s")
    return UsageError(
        f"{path}:{line}: {many}, and the header names {len(columns)} columns; put a cell with a {mark} "
        "or a line break into double quotes"
    )
