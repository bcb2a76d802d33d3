"""JSON Lines, one object per line, and JSON files that are a list of objects; read piece by piece."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.formats.data.rows import (
    Row,
    Shape,
    open_text,
    plain_value,
    refuse_nul,
    shapes_of,
)
from bakeoff.formats.text.json import explain_json_error, is_deep

_BLOCK = 1 << 16  # characters read at once; more where an item is longer
_SCANNED = 1 << 20  # bytes
_GAP = re.compile(r"[ \t\r\n]*")
_rows = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_json_lines(path: Path) -> Iterator[Row]:
    """Yield the rows of the JSON Lines file at *path*; blank lines are skipped."""
    number = 0
    with open_text(path, newline="\n") as text:
        for number, line in enumerate(text, start=1):
            if line.isspace():
                continue
            refuse_nul(line, path, number)
            yield _row(path, line, number)
    if not number:
        raise UsageError(f"{path} is empty; it must hold one JSON object per line")


def scan_json_lines(path: Path) -> Sequence[Shape]:
    """Return which columns the rows of the JSON Lines file at *path* have; each must be an object."""
    counts: Counter[tuple[str, ...]] = Counter()
    first: dict[tuple[str, ...], Row] = {}
    line = 1
    try:
        for block in _whole_lines(path):
            rows = _rows.decode_lines(block)
            found = list(map(tuple, rows))
            for names in set(found) - first.keys():
                place = found.index(names)  # the line is off where there are blank ones
                values = {name: _plain(rows[place][name]) for name in names}
                first[names] = Row(line + place, values)
            counts.update(found)
            line += block.count(b"\n")
    except (msgspec.DecodeError, UnicodeError, OSError):  # whoever reads it line by line says why
        return shapes_of(read_json_lines(path))
    return [Shape(first[names], many) for names, many in counts.items()]


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the UTF-8 text at *path* in blocks that end where a line does."""
    with path.open("rb") as file:
        rest = file.read(_BLOCK).removeprefix(codecs.BOM_UTF8)
        while block := file.read(_SCANNED):
            whole, newline, after = block.rpartition(b"\n")
            if not newline:
                rest += block
                continue
            yield rest + whole + newline
            rest = after
        yield rest


def _plain(raw: msgspec.Raw) -> Json:
    return plain_value(msgspec.json.decode(raw))


def read_json_array(path: Path) -> Iterator[Row]:
    """Yield the rows of the JSON file at *path*, which must be a list of objects."""
    with open_text(path, newline="\n") as text:
        for line, item in _Items(path, text):
            refuse_nul(item, path, line)
            yield _row(path, item, line)


def _row(path: Path, text: str, line: int) -> Row:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        data = text.encode("utf-8", "surrogatepass")
        why = explain_json_error(path, data, error, first_line=line)
        if text.strip() in {"{", "["}:
            why += "; a row of JSON Lines is one line; a list of objects is for a file that ends in .json"
        raise UsageError(why) from error
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise UsageError(f'{path}:{line}: a row must be an object, such as {{"question": "..."}}, not {kind}')  # fmt: skip
    keys = text.count('":') + text.count('" :')  # more in nested rows, and where a key is repeated
    if keys != len(value) and _repeats_a_key(text):
        raise UsageError(f"{path}:{line}: a key is repeated in this row; give each its own name")
    if any(isinstance(inner, dict | list) for inner in value.values()) and is_deep(value):
        raise UsageError(f"{path}:{line}: nested too deeply")
    return Row(line, {name: plain_value(inner) for name, inner in value.items()})


def _repeats_a_key(text: str) -> bool:
    repeated = False

    def check(pairs: list[tuple[str, Json]]) -> None:
        nonlocal repeated
        repeated = repeated or len({key for key, _ in pairs}) < len(pairs)

    json.loads(text, object_pairs_hook=check)
    return repeated


class _Items:
    """The items of a JSON list as text, with the line on which each begins.

    Only as much of the file is held as the item at hand needs.
    """

    def __init__(self, path: Path, text: TextIO) -> None:
        self._path = path
        self._text = text
        self._buffer = ""
        self._at = 0  # in the buffer: what is before it was taken
        self._line = 1
        self._ended = False
        self._scan = json.JSONDecoder(parse_int=len, parse_float=len).raw_decode

    def __iter__(self) -> Iterator[tuple[int, str]]:
        self._expect("[", "a list of objects is expected")
        if self._next_mark() == "]":
            self._take(self._at + 1)
        else:
            while True:
                yield self._item()
                if self._next_mark() == "]":
                    self._take(self._at + 1)
                    break
                self._expect(",", "a comma or the end of the list is missing here")
        if self._next_mark():
            raise self._error("something follows the end of the list")

    def _item(self) -> tuple[int, str]:
        self._next_mark()
        while True:
            try:
                end = self._scan(self._buffer, self._at)[1]
            except (json.JSONDecodeError, RecursionError) as error:
                if self._ended:
                    raise self._broken(error) from error
            else:
                if end < len(self._buffer) or self._ended:
                    line = self._line
                    return line, self._take(end)
            self._fill()

    def _broken(self, error: Exception) -> UsageError:
        rest = self._buffer[self._at :].encode("utf-8", "surrogatepass")
        return UsageError(explain_json_error(self._path, rest, error, first_line=self._line))

    def _expect(self, mark: str, why: str) -> None:
        if self._next_mark() != mark:
            raise self._error(why)
        self._take(self._at + 1)

    def _next_mark(self) -> str:
        """Return the next character that is no space, at which the buffer is then."""
        while True:
            gap = _GAP.match(self._buffer, self._at)
            self._take(gap.end() if gap else self._at)
            if self._at < len(self._buffer) or self._ended:
                return self._buffer[self._at : self._at + 1]
            self._fill()

    def _take(self, end: int) -> str:
        taken, self._at = self._buffer[self._at : end], end
        self._line += taken.count("\n")
        return taken

    def _fill(self) -> None:
        rest = self._buffer[self._at :]
        more = self._text.read(max(_BLOCK, len(rest)))  # doubling: a long item stays linear
        self._ended = not more
        self._buffer, self._at = rest + more, 0

    def _error(self, why: str) -> UsageError:
        return UsageError(f"{self._path}:{self._line}: not valid JSON: {why}")
