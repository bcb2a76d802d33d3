"""The ledger: one SQLite file per run, written by one process, in groups."""

import asyncio
import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
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
from bakeoff.core.lazy_tasks import LazyTasks, StreamedTasks, stored_row
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.planning.shards import Places
from bakeoff.stores.attempt_rows import INSERT, KEEP_EARLIER, rest_of, row_of
from bakeoff.stores.damage import NO_DAMAGE, damaged_blob, manifest_copy, mend
from bakeoff.stores.packing import pack, pack_record
from bakeoff.stores.plan_blocks import (
    Blocks,
    Runs,
    plan_crc,
    read_blocks,
    runs_of,
    write_blocks,
    write_places,
)
from bakeoff.stores.schema import (
    ATTEMPT,
    MANIFEST_COPY,
    PAGE,
    PLAN_CRC,
    PLAN_OPEN,
    STATUSES,
    VERSION,
    Row,
    create,
    moved_key,
    refuse_too_many,
    row_crc,
    seat,
    task_sql,
    trial_key,
)
from bakeoff.stores.seal import break_seal, seal
from bakeoff.stores.task_chunks import (
    TaskRow,
    TaskWriter,
    read_digests,
    read_known,
    rewrite,
)
from bakeoff.stores.version_1 import upgrade
from bakeoff.stores.writing import FolderLock, not_written, writing_to

LEDGER = "ledger.sqlite"
BLOBS = "blobs"
_LARGEST_IN_ROW = 256 * 1024

_MAKE_ROOM = "DELETE FROM attempt WHERE trial = ? AND number < ?"
_NEXT = "SELECT number, status, blob FROM attempt WHERE trial = ?"
_NEAR = "SELECT 1 FROM attempt WHERE trial BETWEEN ? AND ? LIMIT 1"

_OF_A_VERDICT = (
    "number", "status", "score", "passed", "fault_boundary", "fault_transient",
    "billed_usd", "billed_tokens", "unsure_usd", "unsure_tokens", "unpriced", "blob", "rest",
)  # fmt: skip
_VERDICTS = (
    "CREATE TEMP TABLE IF NOT EXISTS verdict"
    f" (trial INTEGER PRIMARY KEY, {', '.join(_OF_A_VERDICT)})"
)
_ASIDE = f"INSERT OR REPLACE INTO temp.verdict VALUES ({', '.join('?' * (1 + len(_OF_A_VERDICT)))})"  # noqa: S608
_PLACES = (0, *(1 + ATTEMPT.index(name) for name in _OF_A_VERDICT))
_MOVED = "CREATE TEMP TABLE moved (task INTEGER PRIMARY KEY, row INTEGER NOT NULL)"
_ADOPT = """
UPDATE attempt SET {move} {new}, crc = row_crc({key}, {values})
FROM temp.verdict v JOIN temp.moved m ON m.task = {task} AND {which}
WHERE v.trial = attempt.trial AND v.number = attempt.number
"""


def _adoption(*, moved: bool) -> str:
    """Return the SQL that puts the verdicts on tasks that moved, or on those that did not.

    Where a task stays what it was, no key changes, and that is most of the work.
    """
    key = moved_key("attempt.trial", "m.row")
    values = [f"{'v' if name in _OF_A_VERDICT else 'attempt'}.{name}" for name in ATTEMPT[:-1]]
    return _ADOPT.format(
        move=f"trial = {key}," if moved else "",
        new=", ".join(f"{name} = v.{name}" for name in _OF_A_VERDICT if name != "number"),
        key=key,
        values=", ".join(values),
        task=task_sql("v.trial"),
        which="m.row <> m.task" if moved else "m.row = m.task",
    )


_ADOPT_IN_PLACE, _ADOPT_MOVED = _adoption(moved=False), _adoption(moved=True)
_ASIDE_AT_ONCE = 500
_KNOWN_AT_ONCE = 500


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
                self.damage = NO_DAMAGE
                if self._path.exists():
                    self.damage = mend(self._path)
                    upgrade(self._path)
                self._db = _open(self._path)
            except BaseException:
                self._lock.release()
                raise
        self._resolved = self._path.resolve()
        self._ledger = str(self._resolved)
        self._seats: dict[str, int] = {}  # of the frozen plan, by the candidate's digest
        self._pending: list[tuple[Row, asyncio.Future[None]]] = []
        self._aside: list[Row] = []
        self._flusher: asyncio.Task[None] | None = None
        self._session: int | None = None

    @cached_property
    def _task_rows(self) -> dict[str, int]:
        """The row of each task by its digest: for those that were not read from here."""
        return {digest.hex(): row for row, digest in read_digests(self._db)}

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

    def keep_places(self, places: Places) -> None:
        """Keep where the tasks of a shard stand in the whole plan, for when shards are merged."""
        with writing_to(self._path), _writing(self._db) as db:
            write_places(db, places)

    def next_attempts(self, trials: Sequence[Trial]) -> Sequence[int | None]:
        """Return for each trial the number of its next attempt, None where it is finished."""
        keys = [self._key(trial) for trial in trials]
        if keys and not self._db.execute(_NEAR, (min(keys), max(keys))).fetchone():
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
        self._aside.append(tuple(row[place] for place in _PLACES))
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
            newest |= {task.id: self._task_row(task) for task in plan.tasks}
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
                if row[1] != 1:
                    self._db.execute(KEEP_EARLIER, row[0:2])
                    self._db.execute(_MAKE_ROOM, row[0:2])
            self._db.executemany(INSERT, rows)
            await asyncio.to_thread(self._db.execute, "COMMIT")
        except Exception as error:  # noqa: BLE001 -- whatever it is, those who wait must hear it
            _roll_back(self._db)
            return not_written(self._path, error)
        return None

    def _freeze(self, db: sqlite3.Connection, plan: Plan) -> None:
        refuse_too_many("rollouts", plan.rollouts)
        for candidate in plan.candidates:
            self._put_candidate(db, candidate, plan.conditions)
        self._put_blocks(db, plan, self._put_tasks(db, plan))

    def _put_tasks(self, db: sqlite3.Connection, plan: Plan) -> list[Runs]:
        """Write the tasks that are not there yet; return the rows of those of each block."""
        blocks, writer = [], None
        for block in plan.blocks:
            if isinstance(block.tasks, StreamedTasks):
                blocks.append(self._earlier_runs(db))  # a PlanStream writes the rest
                continue
            if isinstance(block.tasks, LazyTasks) and block.tasks.ledger == self._resolved:
                blocks.append(list(runs_of(block.tasks.rows)))  # they were read from here
                continue
            if writer is None:
                writer = _PlannedTasks(db, self._ledger, self._task_rows, self._redactor)
            blocks.append(list(runs_of(writer.put(block.tasks))))
        if writer is not None:
            writer.finish()
        return blocks

    def _earlier_runs(self, db: sqlite3.Connection) -> Runs:
        """Return the rows of the tasks of a plan that was begun here."""
        earlier = read_blocks(db)
        if len(earlier) > 1:
            raise UsageError(
                f"{self._folder.name} pairs its tasks in another way than this data set would: start "
                "a new run"
            )
        for _, runs, _ in earlier.values():
            return runs
        self._put_meta(db, PLAN_OPEN, "1")
        return []

    def _next_attempt(self, key: int) -> int | None:
        found = self._db.execute(_NEXT, (key,)).fetchone()
        if found is None:
            return 1
        number, status, blob = found
        lost = blob is not None and damaged_blob(self._folder / BLOBS, blob)
        return None if STATUSES[status].final and not lost else int(number) + 1

    def _key(self, trial: Trial) -> int:
        return trial_key(
            trial.rollout, self._task_row(trial.task), self._seats[trial.candidate.digest]
        )

    def _task_row(self, task: Task) -> int:
        row = stored_row(task, self._ledger)
        return self._task_rows[task.digest] if row is None else row

    def _row(self, trial: Trial, attempt: Attempt) -> Row:
        rest: bytes | None = pack_record(rest_of(attempt), self._redactor)
        blob = None
        if rest and len(rest) > _LARGEST_IN_ROW:
            blob, rest = self._write_blob(rest), None
        return row_of(self._key(trial), attempt, blob=blob, rest=rest)

    def _write_blob(self, data: bytes) -> str:
        """Write *data* as a file named by its content, before any row names it."""
        name = digest_bytes(data)
        folder = self._folder / BLOBS
        files.make_folder(folder)
        if damaged_blob(folder, name) is not None:  # mostly, as it is not there
            write_atomic(folder / name, data)
            sync_folder(self._folder)
        return name

    def _put_candidate(
        self, db: sqlite3.Connection, candidate: Candidate, conditions: Conditions
    ) -> None:
        name = seat(candidate, conditions)
        found = db.execute("SELECT row FROM candidate WHERE digest = ?", (name,)).fetchone()
        (row,) = found or db.execute("SELECT coalesce(max(row), 0) + 1 FROM candidate").fetchone()
        refuse_too_many("candidates", row)
        body = pack({"candidate": candidate, "conditions": conditions}, self._redactor)
        values = (row, name, candidate.id, body)
        db.execute(
            "INSERT INTO candidate VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (digest) DO UPDATE SET id = excluded.id, body = excluded.body,"
            " crc = excluded.crc",
            (*values, row_crc(*values)),
        )
        self._seats[candidate.digest] = row

    def _put_blocks(self, db: sqlite3.Connection, plan: Plan, tasks: Sequence[Runs]) -> None:
        blocks: Blocks = {
            number: (block.rollouts, runs, [self._seats[c.digest] for c in block.candidates])
            for number, (block, runs) in enumerate(zip(plan.blocks, tasks, strict=True))
        }
        if read_blocks(db) != blocks:
            write_blocks(db, blocks)
        self._put_meta(db, PLAN_CRC, str(plan_crc(db)))

    def _put_meta(self, db: sqlite3.Connection, key: str, value: str) -> None:
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


class _PlannedTasks:
    """Writes the tasks of a plan: those that are not there yet, and those whose labels changed."""

    def __init__(
        self, db: sqlite3.Connection, ledger: str, rows: dict[str, int], redactor: Redactor
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._rows = rows
        self._redactor = redactor
        self._writer = TaskWriter(db)
        self._known: list[tuple[int, Task]] = []
        (self._last,) = db.execute("SELECT coalesce(max(row), 0) FROM task").fetchone()

    def put(self, tasks: Iterable[Task]) -> Iterator[int]:
        """Write *tasks*, and yield the row of each."""
        for task in tasks:
            row = self._rows.get(task.digest)
            if row is None:
                row = self._writer.add(TaskRow.of(task, self._redactor))
                self._rows[task.digest] = row
            else:
                self._put_known(row, task)
            yield row

    def _put_known(self, row: int, task: Task) -> None:
        # the labels of a known task may have changed; its content cannot have
        if row <= self._last and stored_row(task, self._ledger) != row:
            self._known.append((row, task))
            if len(self._known) >= _KNOWN_AT_ONCE:
                self._rewrite_changed()

    def _rewrite_changed(self) -> None:
        rows = dict(self._known)
        self._known.clear()
        stored = read_known(self._db, rows)
        rewrite(
            self._db,
            {
                row: TaskRow.of(task, self._redactor)
                for (row, task), before in zip(rows.items(), stored, strict=True)
                if before != task
            },
        )

    def finish(self) -> None:
        """Write what has gathered."""
        self._rewrite_changed()
        self._writer.flush()


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
        with _writing(db):
            create(db)
    elif found != VERSION:
        db.close()
        raise UsageError(
            f"{path} was written in ledger format {found}; this version of bakeoff writes "
            f"{VERSION}: use the version that wrote it, or start a new run"
        )
    return db
