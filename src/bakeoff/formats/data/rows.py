"""The rows of a data set, whatever file they stand in: where each begins, and its values.

One rule makes the values of every format equal: a scalar is the text that JSON writes for it
(`3`, `0.5`, `true`), and what is missing is an empty text. Lists and objects keep their shape.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import NamedTuple

from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Source
from bakeoff.core.values import Json

_ENCODINGS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_BEGINNING = 1_000  # bytes
_UTF_32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")


class Row(NamedTuple):
    """One row: the line of the file on which it begins, and the value of each column."""

    line: int
    values: Mapping[str, Json]


class Shape(NamedTuple):
    """Rows that have the same columns: the first of them, and how many there are."""

    first: Row
    rows: int


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file of rows: its name in messages, what to remember of it, and how to read it anew.

    Paths in its cells start at `folder`, and do not lead out of it; without one there are none.
    `scan` looks through a large file, faster than reading it, and raises where a row is broken.
    """

    name: str
    source: Source
    rows: Callable[[], Iterator[Row]]
    scan: Callable[[], Sequence[Shape]]
    size: int
    notices: tuple[str, ...] = ()
    folder: Path | None = None


def local_file(
    path: Path,
    read: Callable[[Path], Iterator[Row]],
    scan: Callable[[Path], Sequence[Shape]] | None = None,
) -> DataFile:
    """Return the file at *path*, whose rows *read* yields; without a *scan*, they are counted so too."""
    try:
        with path.open("rb") as file:
            content = file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
            size = file.tell()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    source = Source(path=str(path.resolve()), digest=content)
    return DataFile(
        name=str(path),
        source=source,
        rows=partial(read, path),
        scan=partial(scan, path) if scan else lambda: shapes_of(read(path)),
        size=size,
        folder=path.parent,
    )


def shapes_of(rows: Iterable[Row]) -> Sequence[Shape]:
    """Return which columns *rows* have: those of the first one first."""
    shapes: dict[tuple[str, ...], Shape] = {}
    for row in rows:
        names = tuple(row.values)
        first, many = shapes.get(names, (row, 0))
        shapes[names] = Shape(first, many + 1)
    return list(shapes.values())


def together(shapes: Iterable[Shape]) -> Sequence[Shape]:
    """Return the shapes of several files as those of one."""
    merged: dict[tuple[str, ...], Shape] = {}
    for first, many in shapes:
        names = tuple(first.values)
        before, count = merged.get(names, (first, 0))
        merged[names] = Shape(before, count + many)
    return list(merged.values())


def plain_value(value: Json) -> Json:
    """Return *value* as every format gives it: a scalar as text, anything else as it is."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return value


@contextmanager
def open_text(path: Path, *, newline: str) -> Iterator[io.TextIOWrapper]:
    """Open *path* as text: UTF-8, or UTF-16 with a byte order mark; a wrong byte is named."""
    try:
        with path.open("rb") as file:
            encoding = _encoding(file.read(4), path)
            file.seek(0)
            with io.TextIOWrapper(file, encoding=encoding, newline=newline) as text:
                yield text
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(_wrong_byte(path, error)) from error


def _encoding(beginning: bytes, path: Path) -> str:
    if beginning.startswith(_UTF_32):
        raise UsageError(f"{path}:1: this is UTF-32 text; save it as UTF-8")
    marks = (name for mark, name in _ENCODINGS.items() if beginning.startswith(mark))
    return next(marks, "utf-8")


def _wrong_byte(path: Path, error: UnicodeDecodeError) -> str:
    """Say where the text breaks: the decoder knows its own buffer only."""
    if error.encoding.startswith("utf-16"):
        return f"{path}: not valid UTF-16 text ({error.reason}); save it as UTF-8"
    before = 0
    with path.open("rb") as file:
        if b"\0" in file.read(_BEGINNING):
            return f"{path}: this is UTF-16 text without a byte order mark, or no text; save it as UTF-8"
        file.seek(0)
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as bad:
                byte = f"byte {before + bad.start} is 0x{line[bad.start]:02x}"
                return (
                    f"{path}:{number}: not UTF-8 text ({byte}); save the file as UTF-8, in Excel as "
                    '"CSV UTF-8"'
                )
            before += len(line)
    return f"{path}: not UTF-8 text; save the file as UTF-8"


def refuse_nul(text: str, path: Path, line: int) -> None:
    """Raise where *text*, which begins on this *line*, holds a NUL character."""
    if "\0" in text:
        number = line + text.count("\n", 0, text.index("\0"))
        raise UsageError(
            f"{path}:{number}: there is a NUL character in it; if the file is UTF-16 without a byte "
            "order mark, save it as UTF-8, else remove the character"
        )
