"""Damage to a ledger: found by checksums, and what can still be read of the rest.

A ledger is examined when it is opened (see `seal` for the quick way) and whole by `bakeoff check`.
A damaged one is read from a salvaged copy that holds every row whose checksum is right.
"""

import os
import re
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from urllib.parse import quote

import msgspec

from bakeoff._lib.digest import digest_bytes
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import trial_name
from bakeoff.core.record import Attempt
from bakeoff.core.run_spec import Manifest
from bakeoff.stores.carve import PAGE, Carved, carve, log_is_whole
from bakeoff.stores.schema import (
    ATTEMPT_COLUMNS,
    CHECKED_TABLES,
    DDL,
    REAL_COLUMNS,
    VERSION,
    Row,
    attempt_crc,
    has_seal,
    is_sealed,
    pack,
    real,
    row_crc,
    seat,
    unpack,
)

_MOST_NAMED = 20
_DIGEST = re.compile(r"[0-9a-f]{32}")
PLAN_CRC, SCHEMA_CRC, MANIFEST_COPY = "plan_crc", "schema_crc", "manifest"  # keys of `meta`
_Key = tuple[int, int, int, int]  # rollout, task, candidate, number
_LOST = b""  # the body of a task or candidate that is damaged: its row stays, for its trials


@dataclass(frozen=True, kw_only=True)
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
    if log_is_right and not has_seal(path) and _version(path) not in {None, VERSION}:
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


def _version(path: Path) -> int | None:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return None


def is_intact(path: Path) -> bool:
    """Return whether SQLite and every checksum find the ledger at *path* in order."""
    db = None
    try:
        db = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
        if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            return False
        if db.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            return False
        stored = dict(db.execute("SELECT key, value FROM meta"))
        return (
            stored.get(SCHEMA_CRC) in {None, str(schema_crc(db))}
            and _rows_are_right(db)
            and stored.get(PLAN_CRC) in {None, str(plan_crc(db))}
        )
    except (sqlite3.Error, OverflowError, UnicodeDecodeError):
        return False
    finally:
        if db is not None:
            db.close()


def schema_crc(db: sqlite3.Connection) -> int:
    """Return the checksum of the tables and indexes."""
    return row_crc(*chain.from_iterable(db.execute("SELECT * FROM sqlite_master ORDER BY rowid")))


def plan_crc(db: sqlite3.Connection) -> int:
    """Return the checksum of the blocks of the plan."""
    tables = ("block", "block_task", "block_candidate")
    rows = chain.from_iterable(
        db.execute(f"SELECT * FROM {table} ORDER BY 1, 2")  # noqa: S608 -- no user text
        for table in tables
    )
    return row_crc(*chain.from_iterable(rows))


def damaged_blob(folder: Path, name: str) -> str | None:
    """Return what is wrong with the file that keeps a large record; None where nothing is."""
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        return f"{folder / name}: {error.strerror}"
    return None if digest_bytes(data) == name else f"{folder / name} is damaged"


def salvage(path: Path, into: str = "") -> tuple[sqlite3.Connection, Damage]:
    """Write what is right of the ledger at *path* into a new one; return that one and the losses.

    The new one is a file, or temporary where *into* is empty. A task or candidate that is damaged keeps its row, without its body: its trials belong to it.
    """
    found = _Found()
    for row in carve(path):
        found.take(row)
    if not found.tasks and not found.attempts:
        raise UsageError(f"{path} cannot be read: nothing in it is whole; start the run again")
    db = sqlite3.connect(into, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA page_size = {PAGE}")
    db.executescript(f"BEGIN IMMEDIATE; {DDL} PRAGMA user_version = {VERSION};")
    db.executemany("INSERT INTO meta VALUES (?, ?)", found.meta.items())
    db.executemany("INSERT OR IGNORE INTO task VALUES (?, ?, ?, ?, ?, ?)", found.tasks.values())
    _restore_candidates(found)
    candidates = found.candidates.values()
    db.executemany("INSERT OR IGNORE INTO candidate VALUES (?, ?, ?, ?, ?)", candidates)
    db.executemany(
        f"INSERT INTO attempt VALUES ({', '.join('?' * ATTEMPT_COLUMNS)})",  # noqa: S608
        _superseding(found.attempts),
    )
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SCHEMA_CRC, str(schema_crc(db))))
    proven = _put_plan(db, path, found)
    db.execute("COMMIT")
    return db, _losses(db, path, found, proven=proven)


def _rows_are_right(db: sqlite3.Connection) -> bool:
    for table in CHECKED_TABLES:
        columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        crc = "" if "crc" in columns else ", NULL"  # an older version wrote it
        is_right = _is_attempt if table == "attempt" else _is_named
        rows = db.execute(f"SELECT *{crc} FROM {table} NOT INDEXED")  # noqa: S608 -- no user text
        if not all(map(is_right, rows)):
            return False
    return True


def _is_named(row: Row) -> bool:
    """Whether a task or a candidate is as it was written, as far as there is a checksum."""
    return row[-1] is None or row[-1] == row_crc(*row[:-1])


class _Found:
    """The rows of a damaged ledger, sorted: those that are right, and what is known of the others."""

    def __init__(self) -> None:
        self.meta: dict[str, str] = {}
        self.tasks: dict[int, Row] = {}
        self.candidates: dict[int, Row] = {}
        self.blocks: dict[int, int] = {}
        self.attempts: dict[_Key, Row] = {}
        self.rowids: set[int] = set()  # of those
        self.keys: dict[int, _Key] = {}  # of every attempt that an index or a row names

    def take(self, carved: Carved) -> None:
        """Keep one row, if it is one of ours."""
        number, row = carved.rowid, carved.values
        if number is None:
            self._take_entry(row)
        elif len(row) in {ATTEMPT_COLUMNS - 1, ATTEMPT_COLUMNS}:
            self._take_attempt(number, row)
        elif len(row) >= 4 and row[0] is None and isinstance(row[1], str):
            self._take_named(number, row)
        elif len(row) == 2 and row[0] is None and isinstance(row[1], int):
            self.blocks[number] = row[1]

    def _take_entry(self, row: Row) -> None:
        if len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], str):
            self.meta[row[0]] = row[1]
        elif len(row) == 5 and all(isinstance(value, int) for value in row):
            rollout, task, candidate, number, rowid = row
            self.keys[rowid] = (rollout, task, candidate, number)  # type: ignore[index,assignment]

    def _take_attempt(self, rowid: int, row: Row) -> None:
        values = list(row)
        for column in REAL_COLUMNS:  # SQLite keeps a whole number in them as an integer
            if isinstance(value := values[column], int):
                values[column] = real(value)
        crc = values[26] if len(values) == ATTEMPT_COLUMNS else None
        whole = (*values[:26], crc)
        rollout, task, candidate, number = whole[:4]
        if not all(isinstance(value, int) for value in whole[:4]):
            return
        key: _Key = (rollout, task, candidate, number)  # type: ignore[assignment]
        if _is_attempt(whole):
            self.attempts[key] = whole
            self.rowids.add(rowid)
        self.keys.setdefault(rowid, key)

    def _take_named(self, number: int, row: Row) -> None:
        """Keep a task or a candidate; one that is damaged without its body."""
        is_candidate = isinstance(row[3], bytes)
        width = 5 if is_candidate else 6
        whole = (number, *row[1:], None)[:width]
        if len(whole) < width or not isinstance(whole[width - 2], bytes):
            return
        if not _is_named(whole):
            if not _DIGEST.fullmatch(str(whole[1])):
                return
            whole = (*whole[: width - 2], _LOST, None)
        (self.candidates if is_candidate else self.tasks)[number] = whole


def _is_attempt(row: Row) -> bool:
    """Whether a row is as it was written: by its checksum, or one without by its body."""
    try:
        if row[-1] is not None:
            return row[-1] == attempt_crc(row)
        return row[25] is None or bool(unpack(row[25], Attempt))  # type: ignore[arg-type]
    except (msgspec.MsgspecError, zlib.error, TypeError, ValueError, OverflowError):
        return False


def _superseding(attempts: Mapping[_Key, Row]) -> Iterator[Row]:
    """Yield each attempt; of each trial only the last one counts."""
    last: dict[tuple[int, int, int], int] = {}
    for key in attempts:
        last[key[:3]] = max(key[3], last.get(key[:3], 0))
    for key, row in attempts.items():
        yield (*key, int(key[3] < last[key[:3]]), *row[5:])


def _restore_candidates(found: _Found) -> None:
    """Take candidates that are damaged from the copy of the manifest: by digest, or the only one."""
    manifest = kept_manifest(found.meta.get(MANIFEST_COPY))
    if manifest is None:
        return
    right = {row[1] for row in found.candidates.values() if row[3] != _LOST}
    seats = {seat(one, manifest.conditions): one for one in manifest.candidates}
    missing = {digest: one for digest, one in seats.items() if digest not in right}
    used = {candidate for _, _, candidate, _ in found.attempts} | set(found.candidates)
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
    for blocks in (_read_blocks(path), _one_block(found)):
        _write_blocks(db, blocks)
        if blocks and (stored is None or str(plan_crc(db)) == stored):
            return True
    _write_blocks(db, _recorded_blocks(found))
    return False


_Blocks = dict[int, tuple[int, list[int], list[int]]]


def _read_blocks(path: Path) -> _Blocks:
    """Return the blocks as SQLite reads them: rollouts, tasks and candidates."""
    blocks: _Blocks = {}
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as db:
            for number, rollouts in db.execute("SELECT block, rollouts FROM block"):
                blocks[number] = (rollouts, [], [])
            for place, table in ((1, "task"), (2, "candidate")):
                query = f"SELECT block, {table} FROM block_{table} ORDER BY block, position"  # noqa: S608
                for number, member in db.execute(query):
                    blocks[number][place].append(member)  # type: ignore[union-attr]
    except (sqlite3.Error, OverflowError, KeyError, UnicodeDecodeError):
        return {}
    return blocks


def _one_block(found: _Found) -> _Blocks:
    """Return everything with everything: what most plans are."""
    rollouts = found.blocks.get(0, 1)
    return {0: (rollouts, sorted(found.tasks), sorted(found.candidates))}


def _recorded_blocks(found: _Found) -> _Blocks:
    """Return just what is recorded, candidate by candidate."""
    tasks: dict[int, set[int]] = {}
    rollouts: dict[int, int] = {}
    for rollout, task, candidate, _ in found.attempts:
        if task in found.tasks and candidate in found.candidates:
            tasks.setdefault(candidate, set()).add(task)
            rollouts[candidate] = max(rollout + 1, rollouts.get(candidate, 0))
    return {one: (rollouts[one], sorted(members), [one]) for one, members in tasks.items()}


def _write_blocks(db: sqlite3.Connection, blocks: _Blocks) -> None:
    for table in ("block", "block_task", "block_candidate"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 -- no user text
    for number, (rollouts, tasks, candidates) in blocks.items():
        db.execute("INSERT INTO block VALUES (?, ?)", (number, rollouts))
        for table, members in (("block_task", tasks), ("block_candidate", candidates)):
            db.executemany(
                f"INSERT INTO {table} VALUES (?, ?, ?)",  # noqa: S608 -- no user text
                ((number, position, member) for position, member in enumerate(members)),
            )


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
    """Return the trials whose last attempt is not among those that are right."""
    right: dict[tuple[int, int, int], int] = {}
    for key in found.attempts:
        right[key[:3]] = max(key[3], right.get(key[:3], 0))
    lost = {
        key[:3]
        for rowid, key in found.keys.items()
        if rowid not in found.rowids and key[3] > right.get(key[:3], 0)
    }
    tasks = dict(db.execute("SELECT row, id FROM task"))
    candidates = dict(db.execute("SELECT row, id FROM candidate"))
    return [
        trial_name(
            tasks.get(task, f"task {task}"), candidates.get(who, f"candidate {who}"), rollout
        )
        for rollout, task, who in sorted(lost)
    ]


def _lost_members(db: sqlite3.Connection) -> list[str]:
    """Return the tasks and candidates of the plan whose content is not known any more."""
    lost = []
    for kind in ("task", "candidate"):
        query = (
            f"SELECT DISTINCT coalesce(t.id, 'number ' || b.{kind}) FROM block_{kind} b"  # noqa: S608
            f" LEFT JOIN {kind} t ON t.row = b.{kind} WHERE t.row IS NULL OR t.body = X''"
        )
        lost += [f"{kind} {name!r}" for (name,) in db.execute(query)]
    return lost
