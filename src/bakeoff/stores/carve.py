"""The rows of an SQLite file read page by page, whatever has become of its header and its trees.

See https://www.sqlite.org/fileformat2.html. The rows of a table are in its leaf pages; those of an
index, and of a table without row numbers, in all pages of its tree. What makes no sense is left out;
whether a row is right is for its checksum to say.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bakeoff.stores.schema import Row, Value

PAGE = 4096  # the ledger sets it
_HEADER = 100  # of the file, at the start of its first page
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x0A, 0x02
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_MOST_COLUMNS = 64


@dataclass(frozen=True)
class Carved:
    """A row, and its number where it is one of a table."""

    rowid: int | None
    values: Row


def carve(path: Path) -> Iterator[Carved]:
    """Yield every row that can be made out in the file and in the log beside it."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            pages = _Pages(data, _log_pages(path.with_name(f"{path.name}-wal")))
            for number in range(1, pages.count + 1):
                yield from _rows(pages, number)


class _Pages:
    """Pages by number, from 1; those of the log are newer."""

    def __init__(self, data: mmap.mmap, newer: dict[int, bytes]) -> None:
        self._data = data
        self._newer = newer
        self.count = max(len(data) // PAGE, *newer, 0) if newer else len(data) // PAGE

    def __getitem__(self, number: int) -> bytes:
        if number in self._newer:
            return self._newer[number]
        page = self._data[(number - 1) * PAGE : number * PAGE]
        if number < 1 or len(page) < PAGE:
            raise ValueError(f"no page {number}")
        return page


def _log_pages(path: Path) -> dict[int, bytes]:
    """Return the pages that were committed to the log, by number."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    pages: dict[int, bytes] = {}
    pending: dict[int, bytes] = {}
    salts = data[16:24]
    for at in range(_WAL_HEADER, len(data) - PAGE - _FRAME_HEADER + 1, PAGE + _FRAME_HEADER):
        number, committed = struct.unpack_from(">II", data, at)
        if data[at + 8 : at + 16] != salts:
            break  # left over from an earlier round of the log
        pending[number] = data[at + _FRAME_HEADER : at + _FRAME_HEADER + PAGE]
        if committed:
            pages |= pending
            pending = {}
    return pages


def _rows(pages: _Pages, number: int) -> Iterator[Carved]:
    page = pages[number]
    start = _HEADER if number == 1 else 0
    kind = page[start]
    if kind not in {_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR}:
        return
    pointers, child = (start + 12, 4) if kind == _INDEX_INTERIOR else (start + 8, 0)
    (cells,) = struct.unpack_from(">H", page, start + 3)
    for index in range(min(cells, (PAGE - pointers) // 2)):
        (at,) = struct.unpack_from(">H", page, pointers + 2 * index)
        try:
            yield _cell(pages, page, at + child, table=kind == _TABLE_LEAF)
        except (ValueError, IndexError, struct.error):
            continue  # no row, or not one any more


def _cell(pages: _Pages, page: bytes, at: int, *, table: bool) -> Carved:
    size, at = _varint(page, at)
    rowid = None
    if table:
        rowid, at = _varint(page, at)
    return Carved(rowid, _record(_payload(pages, page, at, size, table=table)))


def _payload(pages: _Pages, page: bytes, at: int, size: int, *, table: bool) -> bytes:
    """Return the bytes of a cell, with those that did not fit into its page."""
    most = PAGE - 35 if table else (PAGE - 12) * 64 // 255 - 23
    if size <= most:
        if at + size > PAGE:
            raise ValueError("a cell ends outside its page")
        return page[at : at + size]
    least = (PAGE - 12) * 32 // 255 - 23
    local = least + (size - least) % (PAGE - 4)
    if local > most:
        local = least
    parts, missing = [page[at : at + local]], size - local
    (following,) = struct.unpack_from(">I", page, at + local)
    while missing > 0:
        overflow = pages[following]
        parts.append(overflow[4 : 4 + min(missing, PAGE - 4)])
        missing -= len(parts[-1])
        (following,) = struct.unpack_from(">I", overflow)
    return b"".join(parts)


def _record(data: bytes) -> Row:
    end, at = _varint(data, 0)
    kinds = []
    while at < end:
        kind, at = _varint(data, at)
        kinds.append(kind)
        if len(kinds) > _MOST_COLUMNS:
            raise ValueError("not a row of ours")
    values = []
    for kind in kinds:
        value, at = _value(data, at, kind)
        values.append(value)
    return tuple(values)


def _value(data: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in {8, 9}:
        return kind - 8, at
    size = _INTEGER_SIZES.get(kind, 8 if kind == 7 else (kind - 12) // 2)
    raw = data[at : at + size]
    if size < 0 or len(raw) < size:
        raise ValueError("a value ends outside its row")
    if kind == 7:
        return struct.unpack(">d", raw)[0], at + size
    if kind in _INTEGER_SIZES:
        return int.from_bytes(raw, "big", signed=True), at + size
    return (raw if kind % 2 == 0 else raw.decode()), at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(8):
        byte = data[at + place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    return value << 8 | data[at + 8], at + 9
