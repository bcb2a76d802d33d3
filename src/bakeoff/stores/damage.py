"""Damage to a ledger: found by checksums, and what can still be read of the rest.

A ledger is examined when it is opened (see `seal` for the quick way) and whole by `bakeoff check`.
A damaged one is read from a salvaged copy that holds every row whose checksum is right.
"""

import os
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from urllib.parse import quote

import msgspec

from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import trial_name
from bakeoff.core.run_spec import Manifest
from bakeoff.stores import version_1
from bakeoff.stores.attempt_rows import put_attempt
from bakeoff.stores.carve import Carved, carve, log_is_whole
from bakeoff.stores.packing import inflated, pack
from bakeoff.stores.plan_blocks import (
    Blocks,
    block_of,
    plan_crc,
    read_blocks,
    runs_of,
    write_blocks,
)
from bakeoff.stores.schema import (
    ATTEMPT,
    MANIFEST_COPY,
    PAGE,
    PLAN_CRC,
    REALS,
    SCHEMA_CRC,
    STATUSES,
    VERSION,
    Row,
    create,
    parts_of_key,
    real,
    row_crc,
    schema_crc,
    seat,
    trial_key,
)
from bakeoff.stores.seal import has_seal, is_sealed
from bakeoff.stores.task_chunks import (
    TaskRow,
    digest_at,
    names_crc,
    names_in,
    put_tasks,
    split_bodies,
)

_MOST_NAMED = 20
_DIGEST = re.compile(r"[0-9a-f]{32}")
_KNOWN_VERSIONS = frozenset({version_1.VERSION, VERSION})
_Key = tuple[int, int]  # a trial and the number of an attempt
_LOST = b""  # the body of a candidate that is damaged: its row stays, for its trials
_COLUMNS = 1 + len(ATTEMPT)  # of an attempt
_REALS = tuple(1 + ATTEMPT.index(name) for name in REALS)
_DIGEST_BYTES = 16


@value_object
class Damage:
    """What is wrong with a ledger: nothing where there are no `lines`.

    `trials` names those whose records cannot be used. Where the plan is not `whole`, it cannot be
    resumed without its source.
    """

    lines: tuple[str, ...] = ()
    trials: tuple[str, ...] = ()
    whole: bool = True


NO_DAMAGE = Damage()


def examined(path: Path) -> tuple[sqlite3.Connection, Damage] | None:
    """Return a salvaged copy of the ledger at *path* with the losses; None where it is in order.

    One that is empty, or in another format, is not damaged: whoever opens it says what it is.
    """
    return None if _is_in_order(path) else salvage(path)


def _is_in_order(path: Path) -> bool:
    if is_sealed(path):
        return True
    log_is_right = log_is_whole(path)
    if log_is_right and not has_seal(path) and _version(path) not in {None, *_KNOWN_VERSIONS}:
        return True
    return log_is_right and is_intact(path)


def mend(path: Path) -> Damage:
    """Put a salvaged ledger in the place of a damaged one, which is kept beside it.

    Only for who holds the lock of the folder.
    """
    rebuilt = path.with_name(f"{path.name}.rebuilt")
    rebuilt.unlink(missing_ok=True)
    if _is_in_order(path):
        return NO_DAMAGE
    db, damage = salvage(path, str(rebuilt))
    db.close()
    aside = next(
        name
        for number in count(1)
        if not (name := path.with_name(f"{path.name}.damaged-{number}")).exists()
    )
    log = path.with_name(f"{path.name}-wal")
    os.link(path, aside)
    if log.exists():  # it belongs to the damaged one
        log.replace(aside.with_name(f"{aside.name}-wal"))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    rebuilt.replace(path)
    return replace(damage, lines=(*damage.lines, f"the damaged file is kept as {aside}"))


def kept_manifest(text: str | None) -> Manifest | None:
    """Return the manifest from the copy that the ledger keeps; None where it is not whole."""
    crc, _, data = (text or "").partition(" ")
    if not data or crc != str(zlib.crc32(data.encode())):
        return None
    return msgspec.json.decode(data, type=Manifest)


def manifest_copy(data: bytes) -> str:
    """Return an encoded manifest as the ledger keeps it."""
    return f"{zlib.crc32(data)} {data.decode()}"


def read_only(path: Path) -> sqlite3.Connection:
    """Open the ledger at *path* for reading, in whatever format it is."""
    db = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
    try:
        if db.execute("PRAGMA user_version").fetchone()[0] == version_1.VERSION:
            version_1.show_as_today(db)
    except BaseException:
        db.close()
        raise
    return db


def _version(path: Path) -> int | None:
    try:
        with closing(read_only(path)) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return None


def is_intact(path: Path) -> bool:
    """Return whether SQLite and every checksum find the ledger at *path* in order."""
    try:
        with closing(read_only(path)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in _KNOWN_VERSIONS:
                return False
            if db.execute("PRAGMA main.integrity_check(1)").fetchone() != ("ok",):
                return False
            stored = dict(db.execute("SELECT key, value FROM meta"))
            if stored.get(SCHEMA_CRC) not in {None, str(schema_crc(db))}:
                return False
            is_old = version == version_1.VERSION
            if not (version_1.rows_are_right(db) if is_old else _rows_are_right(db)):
                return False
            crc = version_1.plan_crc_of(read_blocks(db)) if is_old else plan_crc(db)
            return stored.get(PLAN_CRC) in {None, str(crc)}
    except (sqlite3.Error, OverflowError, KeyError, TypeError, ValueError):
        return False


def damaged_blob(folder: Path, name: str) -> str | None:
    """Return what is wrong with the file that keeps a large record; None where nothing is."""
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        return f"{folder / name}: {error.strerror}"
    return None if digest_bytes(data) == name else f"{folder / name} is damaged"


def salvage(path: Path, into: str = "") -> tuple[sqlite3.Connection, Damage]:
    """Write what is right of the ledger at *path* into a new one; return that one and the losses.

    The new one is a file, or temporary where *into* is empty. A task or candidate that is damaged
    keeps its row, without its body: its trials belong to it.
    """
    found = _Found()
    for carved in carve(path):
        found.take(carved)
    if not found.task_names and not found.tasks and not found.attempts:
        raise UsageError(f"{path} cannot be read: nothing in it is whole; start the run again")
    db = sqlite3.connect(into, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA page_size = {PAGE}")
    db.execute("BEGIN IMMEDIATE")
    create(db)
    meta = {key: value for key, value in found.meta.items() if key not in {SCHEMA_CRC, PLAN_CRC}}
    db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    put_tasks(db, found.all_tasks())
    _restore_candidates(found)
    candidates = found.candidates.values()
    db.executemany("INSERT OR IGNORE INTO candidate VALUES (?, ?, ?, ?, ?)", candidates)
    last = dict(sorted(found.attempts))  # of each trial, the number of its last attempt
    for (trial, number), row in found.attempts.items():
        put_attempt(db, row, counts=number == last[trial])
    proven = _put_plan(db, path, found)
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (PLAN_CRC, str(plan_crc(db))))
    db.execute("COMMIT")
    return db, _losses(db, path, found, proven=proven)


def _rows_are_right(db: sqlite3.Connection) -> bool:
    stored = ", ".join(ATTEMPT)
    for query in (
        f"SELECT trial, {stored} FROM attempt NOT INDEXED",  # noqa: S608 -- no user text
        f"SELECT trial, {stored} FROM earlier_attempt NOT INDEXED",  # noqa: S608
        "SELECT * FROM candidate NOT INDEXED",
        "SELECT * FROM task_chunk",
    ):
        if not all(map(_is_right, db.execute(query))):
            return False
    chunks = db.execute("SELECT first, tasks, names_crc FROM task_chunk ORDER BY first")
    return all(crc == names_crc(names_in(db, first, tasks)) for first, tasks, crc in chunks)


def _is_right(row: Row) -> bool:
    """Whether *row*, which ends with its checksum, is as it was written."""
    return row[-1] == row_crc(*row[:-1])


class _Name(msgspec.Struct):
    """What the table `task` keeps of a task."""

    id: str
    category: str | None = None


@dataclass
class _Chunk:
    """Tasks that were found together; the bodies only where they are right."""

    digests: bytes
    bodies: list[bytes] | None
    names_crc: int


class _Found:
    """The rows of a damaged ledger, sorted: those that are right, and what is known of the others."""

    def __init__(self) -> None:
        self.is_old = False  # of format 1
        self.meta: dict[str, str] = {}
        self.tasks: dict[int, TaskRow] = {}  # of a ledger of format 1
        self.task_names: dict[int, tuple[str, str | None]] = {}
        self.chunks: dict[int, _Chunk] = {}
        self.candidates: dict[int, Row] = {}
        self.blocks: dict[int, int] = {}
        self.attempts: dict[_Key, Row] = {}
        self.counted: set[int] = set()  # trials whose attempt that counts is right
        self.named: set[int] = set()  # trials that a row or an index names
        self.rowids: set[int] = set()  # of attempts that are right, in a ledger of format 1
        self.keys: dict[int, _Key] = {}  # of every attempt that an index or a row names, there

    def take(self, carved: Carved) -> None:
        """Keep one row, if it is one of ours."""
        number, row = carved.rowid, carved.values
        if number is None:
            self._take_entry(row)
        elif len(row) >= version_1.COLUMNS - 1 and isinstance(row[0], int):
            self._take_old_attempt(number, row)
        elif len(row) == _COLUMNS and row[0] is None and isinstance(row[1], int):
            self._take_attempt(number, (number, *row[1:]))
        elif len(row) == _COLUMNS + 1 and row[0] is None and isinstance(row[1], int):
            self._take_attempt(None, row[1:])
        elif len(row) == 6 and isinstance(row[1], int) and isinstance(row[2], bytes):
            self._take_chunk(number, row)
        elif len(row) == 3 and row[0] is None and isinstance(row[1], str):
            self.task_names[number] = (row[1], row[2] if isinstance(row[2], str) else None)
        elif len(row) >= 4 and row[0] is None and isinstance(row[1], str):
            self._take_named(number, row)
        elif len(row) == 2 and row[0] is None and isinstance(row[1], int):
            self.blocks[number] = row[1]

    def _take_entry(self, row: Row) -> None:
        if len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], str):
            self.meta[row[0]] = row[1]
        elif len(row) == 2 and row[0] in range(len(STATUSES)) and isinstance(row[1], int):
            self.named.add(row[1])
        elif len(row) == 5 and all(isinstance(value, int) for value in row):
            self.keys[row[4]] = _old_key(row)  # type: ignore[index]

    def _take_attempt(self, trial: int | None, row: Row) -> None:
        """Keep an attempt; one that counts has its *trial* for a row number."""
        values = list(row)
        for column in _REALS:  # SQLite keeps a whole number in them as an integer
            if isinstance(value := values[column], int):
                values[column] = real(value)
        if _is_right(tuple(values)):
            self.attempts[values[0], values[1]] = tuple(values)  # type: ignore[index]
            if trial is not None:
                self.counted.add(trial)
        if trial is not None:
            self.named.add(trial)

    def _take_old_attempt(self, rowid: int, row: Row) -> None:
        self.is_old = True
        whole = version_1.with_reals((*row, None)[: version_1.COLUMNS])
        if not all(isinstance(value, int) for value in whole[:4]):
            return
        key = _old_key(whole)
        if version_1.is_attempt(whole):
            self.attempts[key] = version_1.converted(whole)
            self.rowids.add(rowid)
        self.keys.setdefault(rowid, key)

    def _take_chunk(self, first: int, row: Row) -> None:
        _, tasks, digests, packed, names, _ = row
        whole = isinstance(packed, bytes) and _is_right((first, *row[1:]))
        if whole or (isinstance(digests, bytes) and len(digests) == tasks * _DIGEST_BYTES):  # type: ignore[operator]
            bodies = split_bodies(packed) if whole else None  # type: ignore[arg-type]
            self.chunks[first] = _Chunk(digests, bodies, names)  # type: ignore[arg-type]

    def _take_named(self, number: int, row: Row) -> None:
        """Keep a candidate, or a task of format 1; one that is damaged without its body."""
        is_candidate = isinstance(row[3], bytes)
        width = 5 if is_candidate else 6
        whole = (number, *row[1:], None)[:width]
        if len(whole) < width or not isinstance(whole[width - 2], bytes):
            return
        if not version_1.is_named(whole):
            if not _DIGEST.fullmatch(str(whole[1])):
                return
            whole = (*whole[: width - 2], _LOST, None)
        if is_candidate:
            self.candidates[number] = whole
            return
        self.is_old = True
        digest, name, category, body = whole[1:5]
        json = inflated(body) if body else None  # type: ignore[arg-type]
        self.tasks[number] = TaskRow(bytes.fromhex(str(digest)), str(name), category, json)  # type: ignore[arg-type]

    def all_tasks(self) -> Iterator[tuple[int, TaskRow]]:
        """Yield each task by its row; one that is damaged without its body."""
        tasks = dict(self.tasks)
        for row, (name, category) in self.task_names.items():
            tasks[row] = TaskRow(bytes(_DIGEST_BYTES), name, category, None)
        for first, chunk in self.chunks.items():
            tasks.update(self._tasks_of(first, chunk))
        yield from sorted(tasks.items())

    def _tasks_of(self, first: int, chunk: _Chunk) -> Iterator[tuple[int, TaskRow]]:
        rows = range(first, first + len(chunk.digests) // _DIGEST_BYTES)
        names = [(row, *self.task_names.get(row, (f"number {row}", None))) for row in rows]
        right = names_crc(names) == chunk.names_crc
        for place, (row, name, category) in enumerate(names):
            body = None if chunk.bodies is None else chunk.bodies[place]
            if body is not None and not right:
                known = msgspec.json.decode(body, type=_Name)
                name, category = known.id, known.category  # noqa: PLW2901
            yield row, TaskRow(digest_at(chunk.digests, place), name, category, body)

    def lost_trials(self) -> set[int]:
        """Return the trials whose last attempt is not among those that are right."""
        last = dict(sorted(self.attempts))
        of_old = {
            trial
            for rowid, (trial, number) in self.keys.items()
            if rowid not in self.rowids and number > last.get(trial, 0)
        }
        return of_old | (self.named - self.counted)


def _old_key(row: Row) -> _Key:
    rollout, task, candidate, number = row[:4]
    return trial_key(rollout, task, candidate), number  # type: ignore[arg-type,return-value]


def _restore_candidates(found: _Found) -> None:
    """Take candidates that are damaged from the copy of the manifest: by digest, or the only one."""
    manifest = kept_manifest(found.meta.get(MANIFEST_COPY))
    if manifest is None:
        return
    right = {row[1] for row in found.candidates.values() if row[3] != _LOST}
    seats = {seat(one, manifest.conditions): one for one in manifest.candidates}
    missing = {digest: one for digest, one in seats.items() if digest not in right}
    used = {parts_of_key(trial)[2] for trial, _ in found.attempts} | set(found.candidates)
    rows = [n for n in used if n not in found.candidates or found.candidates[n][3] == _LOST]
    for number in rows:
        digest = str(found.candidates[number][1]) if number in found.candidates else ""
        if digest not in missing:
            if len(missing) != 1 or len(rows) != 1:
                continue
            (digest,) = missing
        candidate = missing[digest]
        body = pack({"candidate": candidate, "conditions": manifest.conditions})
        row = (number, digest, candidate.id, body)
        found.candidates[number] = (*row, row_crc(*row))


def _put_plan(db: sqlite3.Connection, path: Path, found: _Found) -> bool:
    """Write the blocks of the plan; return whether they are surely those that were planned."""
    stored = found.meta.get(PLAN_CRC)
    for blocks in (_blocks_at(path), _one_block(db, found)):
        try:
            write_blocks(db, blocks)
        except sqlite3.Error:
            continue  # what was read makes no plan
        crc = version_1.plan_crc_of(blocks) if found.is_old else plan_crc(db)
        if blocks and stored in {None, str(crc)}:
            return True
    write_blocks(db, _recorded_blocks(db, found))
    return False


def _blocks_at(path: Path) -> Blocks:
    """Return the blocks as SQLite reads them."""
    try:
        with closing(read_only(path)) as db:
            return read_blocks(db)
    except (sqlite3.Error, OverflowError, KeyError, TypeError, ValueError):
        return {}


def _one_block(db: sqlite3.Connection, found: _Found) -> Blocks:
    """Return everything with everything: what most plans are."""
    tasks = (row for (row,) in db.execute("SELECT row FROM task ORDER BY row"))
    return block_of(found.blocks.get(0, 1), tasks, sorted(found.candidates))


def _recorded_blocks(db: sqlite3.Connection, found: _Found) -> Blocks:
    """Return just what is recorded, candidate by candidate."""
    known = {row for (row,) in db.execute("SELECT row FROM task")}
    tasks: dict[int, set[int]] = {}
    rollouts: dict[int, int] = {}
    for trial, _ in found.attempts:
        rollout, task, candidate = parts_of_key(trial)
        if task in known and candidate in found.candidates:
            tasks.setdefault(candidate, set()).add(task)
            rollouts[candidate] = max(rollout + 1, rollouts.get(candidate, 0))
    return {
        one: (rollouts[one], list(runs_of(sorted(members))), [one])
        for one, members in tasks.items()
    }


def _losses(db: sqlite3.Connection, path: Path, found: _Found, *, proven: bool) -> Damage:
    """Return what is not in the salvaged *db* and was in the ledger."""
    lines = [f"{path} is damaged{_torn(path)}: {len(found.attempts)} of its records are right"]
    trials = _lost_trials(db, found)
    if trials:
        named = ", ".join(trials[:_MOST_NAMED])
        more = f" and {len(trials) - _MOST_NAMED} more" if len(trials) > _MOST_NAMED else ""
        lines.append(
            f"records are lost of {len(trials):,} trial{'s' * (len(trials) > 1)}, which a resume runs "
            f"again: {named}{more}"
        )
    gone = _lost_members(db)
    lines += [f"{what} is damaged, and its trials are left out" for what in gone]
    if not proven:
        lines.append("the plan is damaged: only what is recorded is shown")
    whole = proven and not gone
    if not whole:
        lines.append(
            "a resume needs the source again, which restores this: bakeoff run SOURCE --resume RUN"
        )
    return Damage(lines=tuple(lines), trials=tuple(trials), whole=whole)


def _torn(path: Path) -> str:
    """Return how much of the end of the file is missing, in words."""
    size = path.stat().st_size
    with path.open("rb") as file:
        pages = int.from_bytes(file.read(32)[28:32], "big")
    missing = pages * PAGE - size
    return f" (its last {missing:,} bytes are missing)" if 0 < missing < 1 << 40 else ""


def _lost_trials(db: sqlite3.Connection, found: _Found) -> list[str]:
    """Return the names of the trials whose last attempt is not among those that are right."""
    tasks = dict(db.execute("SELECT row, id FROM task"))
    candidates = dict(db.execute("SELECT row, id FROM candidate"))
    return [
        trial_name(
            tasks.get(task, f"task {task}"), candidates.get(who, f"candidate {who}"), rollout
        )
        for rollout, task, who in map(parts_of_key, sorted(found.lost_trials()))
    ]


def _lost_members(db: sqlite3.Connection) -> list[str]:
    """Return the tasks and candidates of the plan whose content is not known any more."""
    tasks = db.execute(
        "SELECT id FROM task WHERE row IN (SELECT row FROM lost_task) AND EXISTS"
        " (SELECT 1 FROM block_task WHERE row BETWEEN first AND first + tasks - 1)"
    )
    candidates = db.execute(
        "SELECT DISTINCT coalesce(c.id, 'number ' || b.candidate) FROM block_candidate b"
        " LEFT JOIN candidate c ON c.row = b.candidate WHERE c.row IS NULL OR c.body = X''"
    )
    lost = [f"task {name!r}" for (name,) in tasks]
    return [*lost, *(f"candidate {name!r}" for (name,) in candidates)]
