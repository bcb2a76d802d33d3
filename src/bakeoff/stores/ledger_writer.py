"""The ledger: one SQLite file per run, written by one process, in groups."""

import asyncio
import os
import socket
import sqlite3
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import msgspec

from bakeoff._lib import files
from bakeoff._lib.clock import now
from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.files import sync_folder, write_atomic
from bakeoff._lib.redact import Redactor
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.errors import LedgerError, UsageError
from bakeoff.core.lazy_tasks import LazyTasks
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, Status
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.stores.carve import PAGE
from bakeoff.stores.damage import (
    MANIFEST_COPY,
    NO_DAMAGE,
    PLAN_CRC,
    SCHEMA_CRC,
    damaged_blob,
    manifest_copy,
    mend,
    plan_crc,
    schema_crc,
)
from bakeoff.stores.schema import (
    ATTEMPT_COLUMNS,
    CHECKED_TABLES,
    DDL,
    VERSION,
    Row,
    attempt_crc,
    break_seal,
    pack,
    real,
    row_crc,
    seal,
    seat,
)
from bakeoff.stores.writing import FolderLock, not_written, writing_to

LEDGER = "ledger.sqlite"
BLOBS = "blobs"
_LARGEST_IN_ROW = 256 * 1024

_INSERT = f"INSERT INTO attempt VALUES ({', '.join('?' * ATTEMPT_COLUMNS)})"  # noqa: S608 -- no user text
_SUPERSEDE = (
    "UPDATE attempt SET superseded = 1"
    " WHERE rollout = ? AND task = ? AND candidate = ? AND NOT superseded"
)
_NEXT = (
    "SELECT number, status, blob FROM attempt"
    " WHERE rollout = ? AND task = ? AND candidate = ? AND NOT superseded"
)
_NEAR = "SELECT 1 FROM attempt WHERE rollout = ? AND task BETWEEN ? AND ? LIMIT 1"
_VERDICTS = """
CREATE TEMP TABLE IF NOT EXISTS verdict (
  rollout, task, candidate, number, status, score, passed, fault_boundary, fault_transient,
  billed_usd, billed_tokens, unsure_usd, unsure_tokens, unpriced,
  blob, body, PRIMARY KEY (rollout, task, candidate)) WITHOUT ROWID
"""
_ASIDE = f"INSERT OR REPLACE INTO temp.verdict VALUES ({', '.join('?' * 16)})"  # noqa: S608
_MOVED = "CREATE TEMP TABLE moved (task INTEGER PRIMARY KEY, row INTEGER NOT NULL)"
# where a task stays what it was, no index changes, and that is most of the work
_ADOPT = """
UPDATE attempt SET {move} status = v.status, score = v.score, passed = v.passed,
  fault_boundary = v.fault_boundary, fault_transient = v.fault_transient,
  billed_usd = v.billed_usd, billed_tokens = v.billed_tokens,
  unsure_usd = v.unsure_usd, unsure_tokens = v.unsure_tokens, unpriced = v.unpriced,
  blob = v.blob, body = v.body,
  crc = row_crc(attempt.rollout, m.row, attempt.candidate, attempt.number, v.status, v.score,
    v.passed, v.fault_boundary, v.fault_transient, elapsed_s, model_s, first_token_s, requests,
    input_tokens, output_tokens, cost_usd, load_s, flags, v.billed_usd, v.billed_tokens,
    v.unsure_usd, v.unsure_tokens, v.unpriced, v.blob, v.body)
FROM temp.verdict v JOIN temp.moved m ON m.task = v.task AND {which}
WHERE v.rollout = attempt.rollout AND v.task = attempt.task AND v.candidate = attempt.candidate
  AND v.number = attempt.number
"""
_ADOPT_IN_PLACE = _ADOPT.format(move="", which="m.row = m.task")
_ADOPT_MOVED = _ADOPT.format(move="task = m.row,", which="m.row <> m.task")
_ASIDE_AT_ONCE = 500


class SqliteStore:
    """Writes one run folder. An attempt is on the disk when `append` returns."""

    def __init__(
        self, folder: Path, *, redactor: Redactor | None = None, version: str = ""
    ) -> None:
        self._folder = folder
        self._path = folder / LEDGER
        self._redactor = redactor or Redactor()
        self._version = version
        with writing_to(self._path):
            files.make_folder(folder, durable=True)
            self._lock = FolderLock(folder)
            try:
                self.damage = mend(self._path) if self._path.exists() else NO_DAMAGE
                self._db = _open(self._path)
            except BaseException:
                self._lock.release()
                raise
        self._seats: dict[str, int] = {}  # of the frozen plan, by the candidate's digest
        self._pending: list[tuple[Row, asyncio.Future[None]]] = []
        self._aside: list[Row] = []
        self._flusher: asyncio.Task[None] | None = None
        self._session: int | None = None

    @cached_property
    def _task_rows(self) -> dict[str, int]:
        """The row of each task, by digest; a run of which nothing is missing does not need it."""
        return dict(self._db.execute("SELECT digest, row FROM task"))

    def freeze(self, plan: Plan) -> None:
        """Make *plan* the plan of this run; what is already recorded of it stays."""
        with writing_to(self._path), _writing(self._db) as db:
            self._freeze(db, plan)
            self._session = db.execute(
                "INSERT INTO session (started_at, host, pid, version, planned)"
                " VALUES (?, ?, ?, ?, ?)",
                (now().isoformat(), socket.gethostname(), os.getpid(), self._version, len(plan)),
            ).lastrowid

    def keep_manifest(self, manifest: Manifest) -> None:
        """Keep a copy of *manifest*, for when its file is damaged."""
        data = self._redactor.data(msgspec.json.encode(manifest))
        with writing_to(self._path), _writing(self._db) as db:
            self._put_meta(db, MANIFEST_COPY, manifest_copy(data))

    def next_attempts(self, trials: Sequence[Trial]) -> Sequence[int | None]:
        """Return for each trial the number of its next attempt, None where it is finished."""
        keys = [self._key(trial) for trial in trials]
        if not self._any_known(keys):
            return [1] * len(keys)  # a run that is new, mostly: one question instead of hundreds
        return [self._next_attempt(key) for key in keys]

    async def append(self, trial: Trial, attempt: Attempt) -> None:
        """Keep *attempt*; return when it cannot be lost any more."""
        with writing_to(self._path):
            row = self._row(trial, attempt)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((row, done))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush())
        await done

    def rescore(self, trial: Trial, attempt: Attempt) -> None:
        """Put the new verdict on the attempt that counts aside; `adopt` makes it the verdict."""
        row = self._row(trial, attempt)
        self._aside.append((*row[0:4], *row[5:10], *row[19:26]))
        if len(self._aside) >= _ASIDE_AT_ONCE:
            self._put_aside()

    def _put_aside(self) -> None:
        """Write the new verdicts that have gathered into a temporary table, in one transaction."""
        with writing_to(self._path), _writing(self._db, "BEGIN") as db:
            db.execute(_VERDICTS)
            db.executemany(_ASIDE, self._aside)
        self._aside.clear()

    def adopt(self, plan: Plan) -> None:
        """Make *plan* and every verdict put aside what counts: all of it, or nothing.

        Tasks of *plan* have the ids of those that were planned, and may be scored differently.
        """
        self._put_aside()
        with writing_to(self._path), _writing(self._db) as db:
            self._freeze(db, plan)
            newest = dict(db.execute("SELECT id, row FROM task ORDER BY row"))
            newest |= {task.id: self._task_rows[task.digest] for task in plan.tasks}
            tasks = db.execute("SELECT row, id FROM task").fetchall()
            db.execute(_MOVED)
            db.executemany(
                "INSERT INTO temp.moved VALUES (?, ?)", ((row, newest[name]) for row, name in tasks)
            )
            db.execute(_ADOPT_IN_PLACE)
            db.execute(_ADOPT_MOVED)
            db.execute("DROP TABLE temp.moved")
            db.execute("DELETE FROM temp.verdict")

    async def close(self) -> None:
        """Write what is pending, close the session and let others write."""
        if self._flusher is not None:
            await self._flusher
        try:
            # a disk that is full has been complained about; the end of a session is not worth it
            with suppress(sqlite3.Error), _writing(self._db) as db:
                db.execute(
                    "UPDATE session SET ended_at = ? WHERE row = ?",
                    (now().isoformat(), self._session),
                )
        finally:
            # one plain file, readable also where nothing can be written
            with suppress(sqlite3.Error):  # a reader may be at it: then the log stays beside it
                self._db.execute("PRAGMA busy_timeout = 0")
                self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.close()
            with suppress(OSError):  # without its seal, a ledger is checked row by row
                seal(self._path)
            self._lock.release()

    async def _flush(self) -> None:
        """Commit whatever has gathered, and again while more has gathered meanwhile."""
        try:
            while self._pending:
                await asyncio.sleep(0)  # let those who end in this very tick come along
                group, self._pending = self._pending, []
                error = await self._commit([row for row, _ in group])
                for _, done in group:
                    if not done.done():
                        done.set_exception(error) if error else done.set_result(None)
        finally:
            self._flusher = None

    async def _commit(self, rows: list[Row]) -> LedgerError | None:
        # The inserts run here: a thread would fight for the interpreter at each row.
        # Only the wait for the disk, one long call, is worth a thread.
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for row in rows:
                if row[3] != 1:
                    self._db.execute(_SUPERSEDE, row[0:3])
            self._db.executemany(_INSERT, rows)
            await asyncio.to_thread(self._db.execute, "COMMIT")
        except Exception as error:  # noqa: BLE001 -- whatever it is, those who wait must hear it
            _roll_back(self._db)
            return not_written(self._path, error)
        return None

    def _freeze(self, db: sqlite3.Connection, plan: Plan) -> None:
        if not self._is_stored(plan):
            for task in plan.tasks:
                self._put_task(db, task)
        for candidate in plan.candidates:
            self._put_candidate(db, candidate, plan.conditions)
        if not self._is_stored(plan) or not _has_blocks(db, plan):
            self._put_blocks(db, plan)

    def _is_stored(self, plan: Plan) -> bool:
        """Whether the tasks of *plan* were read from this ledger: then there is nothing to write."""
        here = self._path.resolve()
        return all(
            isinstance(block.tasks, LazyTasks) and block.tasks.ledger == here
            for block in plan.blocks
        )

    def _any_known(self, keys: Sequence[tuple[int, int, int]]) -> bool:
        """Whether anything is recorded in the neighbourhood of *keys*."""
        tasks = [task for _, task, _ in keys]
        return any(
            self._db.execute(_NEAR, (rollout, min(tasks), max(tasks))).fetchone()
            for rollout in {rollout for rollout, _, _ in keys}
        )

    def _next_attempt(self, key: tuple[int, int, int]) -> int | None:
        found = self._db.execute(_NEXT, key).fetchone()
        if found is None:
            return 1
        number, status, blob = found
        lost = blob is not None and damaged_blob(self._folder / BLOBS, blob)
        return None if Status(status).final and not lost else int(number) + 1

    def _key(self, trial: Trial) -> tuple[int, int, int]:
        return (
            trial.rollout,
            self._task_rows[trial.task.digest],
            self._seats[trial.candidate.digest],
        )

    def _row(self, trial: Trial, attempt: Attempt) -> Row:
        body: bytes | None = pack(attempt, self._redactor)
        blob = None
        if body and len(body) > _LARGEST_IN_ROW:
            blob, body = self._write_blob(body), None
        spent, fault, bill = attempt.spent, attempt.fault, attempt.bill
        row: Row = (
            *self._key(trial),
            attempt.number,
            0,
            attempt.status.value,
            real(attempt.score),
            None if attempt.passed is None else int(attempt.passed),
            fault.boundary if fault else None,
            int(fault.transient) if fault else None,
            real(attempt.elapsed_s),
            real(spent.model_s),
            real(spent.first_token_s),
            spent.requests,
            spent.usage.input_tokens,
            spent.usage.output_tokens,
            real(spent.usage.cost_usd),
            real(spent.load_s),
            ",".join(spent.flags) or None,
            real(bill.cost_usd),
            bill.tokens,
            real(bill.unsure_usd),
            bill.unsure_tokens,
            bill.unpriced,
            blob,
            body,
        )
        return (*row, attempt_crc(row))

    def _write_blob(self, data: bytes) -> str:
        """Write *data* as a file named by its content, before any row names it."""
        name = digest_bytes(data)
        folder = self._folder / BLOBS
        files.make_folder(folder)
        if not (folder / name).exists():
            write_atomic(folder / name, data)
            sync_folder(self._folder)
        return name

    def _put_task(self, db: sqlite3.Connection, task: Task) -> None:
        # the labels of a known task may have changed; its content cannot have
        row = self._task_rows.get(task.digest) or self._last_task(db) + 1
        values = (row, task.digest, task.id, task.category, pack(task, self._redactor))
        db.execute(
            "INSERT INTO task VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (digest) DO UPDATE SET id = excluded.id, category = excluded.category,"
            " body = excluded.body, crc = excluded.crc",
            (*values, row_crc(*values)),
        )
        self._task_rows[task.digest] = row

    def _last_task(self, db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT coalesce(max(row), 0) FROM task").fetchone()[0])

    def _put_candidate(
        self, db: sqlite3.Connection, candidate: Candidate, conditions: Conditions
    ) -> None:
        name = seat(candidate, conditions)
        found = db.execute("SELECT row FROM candidate WHERE digest = ?", (name,)).fetchone()
        (row,) = found or db.execute("SELECT coalesce(max(row), 0) + 1 FROM candidate").fetchone()
        body = pack({"candidate": candidate, "conditions": conditions}, self._redactor)
        values = (row, name, candidate.id, body)
        db.execute(
            "INSERT INTO candidate VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (digest) DO UPDATE SET id = excluded.id, body = excluded.body,"
            " crc = excluded.crc",
            (*values, row_crc(*values)),
        )
        self._seats[candidate.digest] = row

    def _put_blocks(self, db: sqlite3.Connection, plan: Plan) -> None:
        for table in ("block", "block_task", "block_candidate"):
            db.execute(f"DELETE FROM {table}")  # noqa: S608 -- no user text
        for number, block in enumerate(plan.blocks):
            db.execute("INSERT INTO block VALUES (?, ?)", (number, block.rollouts))
            db.executemany(
                "INSERT INTO block_task VALUES (?, ?, ?)",
                ((number, i, self._task_rows[t.digest]) for i, t in enumerate(block.tasks)),
            )
            db.executemany(
                "INSERT INTO block_candidate VALUES (?, ?, ?)",
                ((number, i, self._seats[c.digest]) for i, c in enumerate(block.candidates)),
            )
        self._put_meta(db, PLAN_CRC, str(plan_crc(db)))

    def _put_meta(self, db: sqlite3.Connection, key: str, value: str) -> None:
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def _has_blocks(db: sqlite3.Connection, plan: Plan) -> bool:
    """Whether the ledger has the blocks of *plan*, whose tasks were read from it."""
    rollouts = [number for (number,) in db.execute("SELECT rollouts FROM block ORDER BY block")]
    if rollouts != [block.rollouts for block in plan.blocks]:
        return False
    query = "SELECT task FROM block_task WHERE block = ? ORDER BY position"
    return all(
        isinstance(block.tasks, LazyTasks)
        and array("q", (row for (row,) in db.execute(query, (number,)))) == block.tasks.rows
        for number, block in enumerate(plan.blocks)
    )


class _writing:  # noqa: N801 -- reads as a word at its place: `with _writing(db)`
    """A transaction: all of the block or nothing of it."""

    def __init__(self, db: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> None:
        self._db = db
        self._begin = begin

    def __enter__(self) -> sqlite3.Connection:
        self._db.execute(self._begin)
        return self._db

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            _roll_back(self._db)


def _roll_back(db: sqlite3.Connection) -> None:
    """Leave the transaction that failed; SQLite itself may have done so already."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def _open(path: Path) -> sqlite3.Connection:
    break_seal(path)
    files.make_file(path)  # what SQLite makes beside it has the rights of this one
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute(f"PRAGMA page_size = {PAGE}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")  # durable also when the power fails
    db.execute("PRAGMA secure_delete = ON")  # nothing old can be mistaken for a record
    db.create_function("row_crc", -1, row_crc, deterministic=True)
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found == 0:
        db.executescript(f"BEGIN IMMEDIATE; {DDL} PRAGMA user_version = {VERSION}; COMMIT;")
    elif found != VERSION:
        db.close()
        raise UsageError(
            f"{path} was written in ledger format {found}; this version of bakeoff writes "
            f"{VERSION}: use the version that wrote it, or start a new run"
        )
    for table in CHECKED_TABLES:  # a ledger of an older version has no checksums
        if "crc" not in [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]:
            db.execute(f"ALTER TABLE {table} ADD COLUMN crc INTEGER")
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SCHEMA_CRC, str(schema_crc(db))))
    return db
