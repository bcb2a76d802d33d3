"""The rows of an SQLite file read page by page, whatever has become of its header and its trees.

See https://www.sqlite.org/fileformat2.html. The rows of a table are in its leaf pages; those of an
index, and of a table without row numbers, in all pages of its tree. What makes no sense is left out;
whether a row is right is for its checksum to say.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from bakeoff._lib.value_object import positional_value_object
from bakeoff.stores.schema import PAGE, Row, Value

_HEADER = 100  # of the file, at the start of its first page
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x0A, 0x02
_WITH_ROWS = (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR)
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INTEGER_SIZES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_MOST_COLUMNS = 64


@positional_value_object
class Carved:
    """A row, and its number where it is one of a table."""

    rowid: int | None
    values: Row


def carve(path: Path) -> Iterator[Carved]:
    """Yield every row that can be made out in the file and then in the log beside it, the newer last."""
    frames = [frame for frame in _frames(_log_of(path)) if frame.ours]
    with path.open("rb") as file:
        data = file.read(PAGE) and mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            pages = _Pages(data, {frame.number: frame.page for frame in frames})
            for number in range(1, -(-len(data) // PAGE) + 1):
                page = data[(number - 1) * PAGE : number * PAGE].ljust(PAGE, b"\0")
                yield from _rows(pages, page, start=_HEADER if number == 1 else 0)
            for frame in frames:
                yield from _rows(pages, frame.page, start=_HEADER if frame.number == 1 else 0)
        finally:
            if isinstance(data, mmap.mmap):
                data.close()


def log_is_whole(path: Path) -> bool:
    """Return whether SQLite accepts every page that was committed to the log beside *path*.

    It leaves out, without a word, whatever follows a page that is damaged.
    """
    log = _log_of(path)
    if len(log) < _WAL_HEADER + _FRAME_HEADER + PAGE:
        return True
    endian = ">" if log[3] & 1 else "<"
    sums = _checksum(log[:24], endian, (0, 0))
    accepted = sums == struct.unpack_from(">II", log, 24)
    for frame in _frames(log):
        if accepted and frame.salted:
            sums = _checksum(frame.head[:8] + frame.page, endian, sums)
            accepted = sums == struct.unpack_from(">II", frame.head, 16)
        else:
            accepted = False
        if frame.ours and not accepted:
            return False
    return True


@positional_value_object
class _Frame:
    """A page in the log. `salted`: of this round of the log; `ours`: so, but for some damage."""

    head: bytes
    page: bytes
    salted: bool
    ours: bool

    @property
    def number(self) -> int:
        return int.from_bytes(self.head[:4], "big")


def _log_of(path: Path) -> bytes:
    log = path.with_name(f"{path.name}-wal")
    return log.read_bytes() if log.is_file() else b""


def _frames(log: bytes) -> Iterator[_Frame]:
    """Yield the pages of the log; those of an earlier round, which may follow, are not `ours`."""
    first = log[_WAL_HEADER + 8 : _WAL_HEADER + 16]
    for at in range(_WAL_HEADER, len(log) - PAGE - _FRAME_HEADER + 1, PAGE + _FRAME_HEADER):
        head = log[at : at + _FRAME_HEADER]
        salts = head[8:16]
        yield _Frame(
            head=head,
            page=log[at + _FRAME_HEADER : at + _FRAME_HEADER + PAGE],
            salted=salts == log[16:24],
            ours=salts[:4] in {first[:4], log[16:20]} or salts[4:] in {first[4:], log[20:24]},
        )


def _checksum(data: bytes, endian: str, sums: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's checksum of *data*, going on from *sums*."""
    first, second = sums
    words = iter(struct.unpack(f"{endian}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


class _Pages:
    """Pages by number, from 1; those of the log are newer."""

    def __init__(self, data: mmap.mmap | bytes, newer: dict[int, bytes]) -> None:
        self._data = data
        self._newer = newer

    def __getitem__(self, number: int) -> bytes:
        if number in self._newer:
            return self._newer[number]
        page = self._data[(number - 1) * PAGE : number * PAGE]
        if number < 1 or len(page) < PAGE:
            raise ValueError(f"no page {number}")
        return page


def _rows(pages: _Pages, page: bytes, *, start: int) -> Iterator[Carved]:
    for kind in _kinds(page[start]):
        if rows := list(_rows_as(kind, pages, page, start=start)):
            yield from rows
            return


def _kinds(written: int) -> Iterator[int]:
    """Yield what a page may be that says it is *written*: that, or what one bit makes of it."""
    if written in _WITH_ROWS:
        yield written
    if written:  # an overflow page begins with 0
        yield from (kind for kind in _WITH_ROWS if (kind ^ written).bit_count() == 1)


def _rows_as(kind: int, pages: _Pages, page: bytes, *, start: int) -> Iterator[Carved]:
    pointers, child = (start + 12, 4) if kind == _INDEX_INTERIOR else (start + 8, 0)
    (cells,) = struct.unpack_from(">H", page, start + 3)
    for index in range((PAGE - pointers) // 2):
        (at,) = struct.unpack_from(">H", page, pointers + 2 * index)
        if index >= cells and not pointers + 2 * index < at < PAGE:
            return  # neither the header nor the pointers know of another one
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
