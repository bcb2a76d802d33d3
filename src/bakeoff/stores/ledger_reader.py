"""The ledger, read: while the run goes on, or long after."""

import json
import sqlite3
import zlib
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from bakeoff._lib.digest import digest_bytes
from bakeoff.core.budget import Bill
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import LazyTasks
from bakeoff.core.plan import Block, Plan, trial_name
from bakeoff.core.record import Attempt, Status, TrialFilter, TrialLine, TrialRecord, TrialRow
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.stores.carve import log_is_whole
from bakeoff.stores.damage import (
    MANIFEST_COPY,
    NO_DAMAGE,
    Damage,
    damaged_blob,
    examined,
    kept_manifest,
)
from bakeoff.stores.ledger_writer import BLOBS, LEDGER
from bakeoff.stores.schema import VERSION, unpack
from bakeoff.stores.writing import being_written

T = TypeVar("T")
_RecordRow = tuple[str, str | None, str, int, str | None, bytes | None]

# Of all that is recorded, what the plan of today asks for; an earlier plan may have asked for more.
# `planned` holds the rollouts of a plan that is everything with everything, and is empty for others.
_PLANNED_ATTEMPTS = """
FROM attempt a
JOIN task t ON t.row = a.task
JOIN candidate c ON c.row = a.candidate
WHERE length(t.body) > 0 AND length(c.body) > 0
AND CASE (SELECT count(*) FROM planned) WHEN 1 THEN a.rollout < (SELECT rollouts FROM planned)
ELSE EXISTS (
  SELECT 1 FROM block b
  JOIN planned_task bt ON bt.block = b.block AND bt.task = a.task
  JOIN planned_candidate bc ON bc.block = b.block AND bc.candidate = a.candidate
  WHERE a.rollout < b.rollouts) END
"""
# whether the one block of a plan has every task and every candidate of the ledger
_EVERYTHING_IS_PLANNED = """
SELECT rollouts FROM block
WHERE (SELECT count(*) FROM block) = 1
AND NOT EXISTS (SELECT 1 FROM block_task WHERE task <> position + 1)
AND NOT EXISTS (SELECT 1 FROM block_candidate WHERE candidate <> position + 1)
AND (SELECT count(*) FROM block_task) = (SELECT count(*) FROM task)
AND (SELECT count(*) FROM block_candidate) = (SELECT count(*) FROM candidate)
"""
_ROW = (
    "SELECT t.id, t.category, c.id, a.rollout, a.status, a.score, a.passed, a.fault_boundary,"
    " a.fault_transient, a.number, a.elapsed_s, a.model_s, a.first_token_s, a.requests,"
    f" a.input_tokens, a.output_tokens, a.cost_usd, a.load_s, a.flags, a.blob"
    f" {_PLANNED_ATTEMPTS} AND NOT a.superseded"
    " ORDER BY a.rollout, a.task, a.candidate"
)
# every attempt ever made here, whatever counts today: what was billed stays billed
_BILLED = (
    "SELECT sum(billed_usd), coalesce(sum(billed_tokens), 0), coalesce(sum(unsure_usd), 0.0),"
    " coalesce(sum(unsure_tokens), 0), coalesce(sum(unpriced), 0) FROM attempt"
)
_RECORD = f"SELECT t.id, t.category, c.id, a.rollout, a.blob, a.body {_PLANNED_ATTEMPTS}"
_IN_BLOBS = (
    f"SELECT t.id, c.id, a.rollout, a.blob {_PLANNED_ATTEMPTS}"
    " AND NOT a.superseded AND a.blob IS NOT NULL AND a.status IN (?, ?)"
)
_BLOCK_TASKS = """
SELECT m.block, m.task FROM block_task m JOIN task t ON t.row = m.task
WHERE length(t.body) > 0 ORDER BY m.block, m.position
"""
_BLOCK_CANDIDATES = """
SELECT m.block, t.body FROM block_candidate m JOIN candidate t ON t.row = m.candidate
WHERE length(t.body) > 0 ORDER BY m.block, m.position
"""
_TASKS = "SELECT t.{} FROM json_each(?) j JOIN task t ON t.row = j.value ORDER BY j.key"
_MOST_HELD = 10_000  # tasks that a plan keeps in memory; those of a larger one are read as needed

_PART = """
AND (:tasks IS NULL OR t.id IN (SELECT value FROM json_each(:tasks)))
AND (:candidate IS NULL OR c.id = :candidate)
AND (:rollouts IS NULL OR a.rollout < :rollouts)
"""
_FILTER = """
AND (:candidates IS NULL OR c.id IN (SELECT value FROM json_each(:candidates)))
AND (:categories IS NULL OR t.category IN (SELECT value FROM json_each(:categories)))
AND (NOT :failed AND NOT :faulted OR :failed AND a.passed = 0
     OR :faulted AND a.status = 'faulted')
"""
_LINE = (
    "SELECT t.id, t.category, c.id, a.rollout, a.blob, a.body, a.status, a.score, a.elapsed_s"
    f" {_PLANNED_ATTEMPTS} AND NOT a.superseded {_FILTER} ORDER BY a.rollout, a.task, a.candidate"
)


@dataclass(frozen=True, kw_only=True)
class StoredCandidate:
    """A candidate under its conditions, as the ledger keeps it."""

    candidate: Candidate
    conditions: Conditions


class _AnswerOnly(msgspec.Struct):
    answer: str = ""


class _MessageOnly(msgspec.Struct):
    message: str = ""


class _TextOnly(msgspec.Struct):
    """What an attempt has to say in a line; its transcript is not decoded."""

    outcome: _AnswerOnly | None = None
    fault: _MessageOnly | None = None

    @property
    def text(self) -> str:
        if self.fault is not None:
            return self.fault.message
        return self.outcome.answer if self.outcome else ""


class _OutcomeMark(msgspec.Struct):
    unfinished: bool = False


class _AttemptMark(msgspec.Struct):
    """What tells whether an attempt could be scored again; the rest of it is not decoded."""

    outcome: _OutcomeMark | None = None


class SqliteLedger:
    """Reads one run folder; several may read while one writes.

    What is damaged is left out, and said by `damage`. A *trusting* one reads without a check.
    """

    def __init__(
        self, folder: Path, *, trusting: bool = False, most_held: int = _MOST_HELD
    ) -> None:
        self._folder = folder
        self._most_held = most_held
        self._path = folder / LEDGER
        self._held: sqlite3.Connection | None = None
        self._trusting = trusting
        self._salvaged: sqlite3.Connection | None = None
        self._damage: Damage | None = None
        self._lost: dict[str, str] = {}  # trials whose record cannot be read, and why
        if not self._path.is_file():
            raise UsageError(f"{folder} holds no {LEDGER}: it is not the folder of a run")

    @property
    def begun(self) -> bool:
        """Whether anything was ever planned here: a run may be killed before that."""
        try:
            with closing(sqlite3.connect(self._uri(), uri=True)) as db:
                if db.execute("PRAGMA user_version").fetchone()[0]:
                    return True
        except sqlite3.Error:
            return True  # damaged, which is not empty
        return not log_is_whole(self._path)

    def damage(self) -> Damage:
        """Return what is damaged, as far as it was read; `bakeoff check` reads everything."""
        with self._reading():
            found = self._damage or NO_DAMAGE
        lines = [
            f"the record of {trial} cannot be read, and a resume runs it again: {why}"
            for trial, why in self._lost.items()
        ]
        return replace(found, lines=(*found.lines, *lines), trials=(*found.trials, *self._lost))

    def planned(self) -> Plan:
        """Return the plan of the run, whole; the tasks of a large one are read as they are needed."""
        with self._reading() as db, self._decoding():
            rows: dict[int, array[int]] = {}
            for block, row in db.execute(_BLOCK_TASKS):
                rows.setdefault(block, array("q")).append(row)
            seats: dict[int, list[StoredCandidate]] = {}
            for block, body in db.execute(_BLOCK_CANDIDATES):
                seats.setdefault(block, []).append(unpack(body, StoredCandidate))
            blocks = []
            conditions = Conditions()
            tasks_of = self._tasks_of(rows)
            for number, rollouts in db.execute("SELECT block, rollouts FROM block ORDER BY block"):
                members = seats.get(number, [])
                if members:
                    conditions = members[0].conditions
                blocks.append(
                    Block(
                        tasks=tasks_of(number),
                        candidates=tuple(s.candidate for s in members),
                        rollouts=rollouts,
                    )
                )
        return Plan(blocks=tuple(blocks), conditions=conditions)

    def _tasks_of(self, rows: Mapping[int, "array[int]"]) -> Callable[[int], Sequence[Task]]:
        """Return what gives the tasks of a block: in memory, or as they are needed where they are many."""
        if sum(map(len, rows.values())) > self._most_held:
            none = array("q")
            return lambda block: LazyTasks(
                rows.get(block, none),
                ledger=self._path.resolve(),
                read=self._read_tasks,
                read_digests=self._read_digests,
            )
        different = list(dict.fromkeys(chain.from_iterable(rows.values())))
        tasks = dict(zip(different, self._read_tasks(different), strict=True))
        return lambda block: tuple(tasks[row] for row in rows.get(block, ()))

    def _read_tasks(self, rows: Sequence[int]) -> list[Task]:
        with self._reading() as db, self._decoding():
            found = db.execute(_TASKS.format("digest, t.body"), (json.dumps(list(rows)),))
            return [_task(digest, body) for digest, body in found]

    def _read_digests(self, rows: Sequence[int]) -> list[str]:
        with self._reading() as db:
            return [
                digest
                for (digest,) in db.execute(_TASKS.format("digest"), (json.dumps(list(rows)),))
            ]

    def manifest_copy(self) -> Manifest | None:
        """Return the manifest as the ledger keeps it; None in one of an older version."""
        with self._reading() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (MANIFEST_COPY,)).fetchone()
            return kept_manifest(row[0]) if row else None

    def started_at(self) -> str | None:
        """Return when the first session of the run began."""
        with self._reading() as db:
            row = db.execute("SELECT started_at FROM session ORDER BY row LIMIT 1").fetchone()
            return str(row[0]) if row else None

    def known(self) -> tuple[dict[str, Task], dict[str, StoredCandidate]]:
        """Return every task and every candidate ever planned here, the newest of each id."""
        query = "SELECT {} body FROM {} WHERE length(body) > 0 ORDER BY row"
        with self._reading() as db, self._decoding():
            tasks = (_task(*found) for found in db.execute(query.format("digest,", "task")))
            candidates = db.execute(query.format("", "candidate"))
            seats = (unpack(body, StoredCandidate) for (body,) in candidates)
            return {t.id: t for t in tasks}, {s.candidate.id: s for s in seats}

    def finished(self, *, with_whole_blobs: bool = False) -> int:
        """Return how many trials of the plan a resume would leave alone.

        Records in files of their own are looked for; with *with_whole_blobs* they are read as well.
        """
        final = tuple(status.value for status in Status if status.final)
        with self._reading_attempts() as db:
            query = (
                f"SELECT count(*) {_PLANNED_ATTEMPTS} AND NOT a.superseded AND a.status IN (?, ?)"
            )
            (count,) = db.execute(query, final).fetchone()
            lost = sum(
                not self._has_blob(blob, trial_name(task, candidate, rollout))
                or (with_whole_blobs and damaged_blob(self._folder / BLOBS, blob) is not None)
                for task, candidate, rollout, blob in db.execute(_IN_BLOBS, final)
            )
            return int(count) - lost

    def faulted(self) -> int:
        """Return how many trials of the plan faulted, and are tried again by a resume."""
        with self._reading_attempts() as db:
            query = f"SELECT count(*) {_PLANNED_ATTEMPTS} AND NOT a.superseded AND a.status = ?"
            return int(db.execute(query, (Status.FAULTED.value,)).fetchone()[0])

    def mean_scores(self) -> dict[str, float]:
        """Return the mean of task means of each candidate that has scores."""
        query = (
            f"SELECT c.id, a.task, avg(a.score) {_PLANNED_ATTEMPTS} AND NOT a.superseded"
            " AND a.score IS NOT NULL GROUP BY c.row, a.task"
        )
        means: dict[str, list[float]] = {}
        with self._reading_attempts() as db:
            for candidate, _, mean in db.execute(query):
                means.setdefault(candidate, []).append(mean)
        return {candidate: fmean(values) for candidate, values in means.items()}

    def answered(self) -> int:
        """Return how many recorded trials have an outcome that could be scored again."""
        with self._reading_attempts() as db:
            records = db.execute(f"{_RECORD} AND NOT a.superseded")
            marks = (self._decoded(row, _AttemptMark) for row in records)
            return sum(
                mark is not None and mark.outcome is not None and not mark.outcome.unfinished
                for mark in marks
            )

    def rows(self) -> Iterator[TrialRow]:
        """Yield each recorded trial without its body."""
        with self._reading_attempts() as db:
            for *row, blob in db.execute(_ROW):
                if blob is None or self._has_blob(blob, trial_name(row[0], row[2], row[3])):
                    yield TrialRow(*row)

    def records(
        self,
        *,
        tasks: Collection[str] | None = None,
        candidate: str | None = None,
        rollouts: int | None = None,
    ) -> Iterator[TrialRecord]:
        """Yield each recorded trial with the attempt that counts, or just those of a part.

        Those of chosen *tasks* come task by task, all others rollout by rollout.
        """
        part = {
            "tasks": None if tasks is None else json.dumps(list(tasks)),
            "candidate": candidate,
            "rollouts": rollouts,
        }
        order = (
            "a.rollout, a.task, a.candidate" if tasks is None else "a.task, a.candidate, a.rollout"
        )
        with self._reading_attempts() as db:
            for row in db.execute(f"{_RECORD} AND NOT a.superseded {_PART} ORDER BY {order}", part):
                if (record := self._record(row)) is not None:
                    yield record

    def lines(self, which: TrialFilter) -> Iterator[TrialLine]:
        """Yield each recorded trial of those that *which* asks for, in one line."""
        chosen = {
            "failed": which.failed,
            "faulted": which.faulted,
            "candidates": json.dumps(list(which.candidates)) if which.candidates else None,
            "categories": json.dumps(list(which.categories)) if which.categories else None,
        }
        with self._reading_attempts() as db:
            for *row, status, score, elapsed_s in db.execute(_LINE, chosen):
                found = self._decoded(row, _TextOnly)
                if found is not None:
                    name = trial_name(row[0], row[2], row[3])
                    yield TrialLine(row[0], name, status, score, elapsed_s, found.text)

    def attempts(self, name: str) -> Sequence[TrialRecord]:
        """Return all attempts of the trials called *name*: in full, or only by task id."""
        with self._reading_attempts() as db:
            found = db.execute(
                f"{_RECORD} AND (t.id = :name OR t.id || '@' || c.id || '#' || a.rollout = :name"
                " OR t.id || '@' || c.id = :name) ORDER BY a.rollout, a.candidate, a.number",
                {"name": name},
            )
            records = [self._record(row) for row in found]
        return [record for record in records if record is not None]

    def billed(self) -> Bill:
        """Return what the run was billed in all: every attempt, with its roles."""
        with self._reading() as db:
            cost, tokens, unsure_usd, unsure_tokens, unpriced = db.execute(_BILLED).fetchone()
        return Bill(
            cost_usd=cost,
            tokens=tokens,
            unsure_usd=unsure_usd,
            unsure_tokens=unsure_tokens,
            unpriced=unpriced,
        )

    def _record(self, row: _RecordRow) -> TrialRecord | None:
        """Return a record; None, and remember which, where it is damaged."""
        attempt = self._decoded(row, Attempt)
        if attempt is None:
            return None
        task_id, category, candidate_id, rollout, _, _ = row
        return TrialRecord(
            task_id=task_id,
            category=category,
            candidate_id=candidate_id,
            rollout=rollout,
            attempt=attempt,
        )

    def _decoded(self, row: Sequence[Any], kind: type[T]) -> T | None:
        task_id, _, candidate_id, rollout, blob, body = row
        try:
            return unpack(self._blob(str(blob)) if body is None else body, kind)
        except (OSError, ValueError, zlib.error, msgspec.MsgspecError) as error:
            self._lost[trial_name(task_id, candidate_id, rollout)] = str(error)
            return None

    def _blob(self, name: str) -> bytes:
        path = self._folder / BLOBS / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise OSError(f"{path}: {error.strerror}") from error
        if digest_bytes(data) != name:
            raise ValueError(f"{path} is damaged")
        return data

    def _has_blob(self, name: str, trial: str) -> bool:
        path = self._folder / BLOBS / name
        if path.is_file():
            return True
        self._lost[trial] = f"{path} is not there"
        return False

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Say which file it is where a task or candidate of the plan cannot be read."""
        try:
            yield
        except (ValueError, zlib.error, msgspec.MsgspecError) as error:
            raise UsageError(
                f"{self._path} is damaged: a part of the plan cannot be read"
            ) from error

    @contextmanager
    def at_one_moment(self) -> Iterator[None]:
        """Read the ledger as it is now until the end of the block, whatever is written meanwhile."""
        self._examine()
        if self._salvaged is not None:
            yield
            return
        with closing(self._open()) as db:
            db.execute("BEGIN")
            db.execute("SELECT 1 FROM meta LIMIT 1").fetchone()
            self._held = db
            try:
                yield
            finally:
                self._held = None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._examine()
        if held := self._held or self._salvaged:
            yield held
            return
        try:
            with closing(self._open()) as db:
                yield db
        except sqlite3.DatabaseError as error:
            raise UsageError(f"{self._path} is damaged: {error}; see: bakeoff check") from error

    @contextmanager
    def _reading_attempts(self) -> Iterator[sqlite3.Connection]:
        """Read attempts, of which only those count that the plan asks for."""
        with self._reading() as db:
            if not db.execute("SELECT 1 FROM temp.sqlite_master LIMIT 1").fetchone():
                _look_up_the_plan(db)
            yield db

    def _examine(self) -> None:
        """Check the ledger, once; read a salvaged copy from then on where it is damaged."""
        if self._damage is not None:
            return
        self._damage = NO_DAMAGE
        if self._trusting or being_written(self._folder):
            return
        if (salvaged := examined(self._path)) is not None:
            self._salvaged, self._damage = salvaged

    def _uri(self) -> str:
        return f"file:{quote(str(self._path.resolve()))}?mode=ro"

    def _open(self) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(self._uri(), uri=True)
            found = db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise UsageError(f"{self._path} cannot be read: {error}") from error
        if found == 0:
            db.close()
            raise UsageError(
                f"{self._path} is empty: the run was cut off before it had begun; start it again"
            )
        if found != VERSION:
            db.close()
            raise UsageError(
                f"{self._path} is in ledger format {found}; this version of bakeoff reads {VERSION}"
            )
        return db


def _look_up_the_plan(db: sqlite3.Connection) -> None:
    """Index the plan by task and by candidate, so that it can be looked up at each attempt.

    A plan of everything with everything, as most are, needs no index.
    """
    whole = db.execute(_EVERYTHING_IS_PLANNED).fetchone()
    db.execute("CREATE TEMP TABLE planned (rollouts INTEGER NOT NULL)")
    db.executemany("INSERT INTO temp.planned VALUES (?)", [whole] if whole else [])
    for kind in ("task", "candidate"):
        members = (
            f"SELECT m.block, m.{kind} FROM main.block_{kind} m"  # noqa: S608 -- no user text
            f" JOIN main.{kind} t ON t.row = m.{kind} AND length(t.body) > 0 WHERE {not whole}"
        )
        db.execute(f"CREATE TEMP TABLE planned_{kind} AS {members}")
        db.execute(f"CREATE UNIQUE INDEX temp.by_{kind} ON planned_{kind} ({kind}, block)")


def _task(digest: str, body: bytes) -> Task:
    """Return a stored task; its digest is known, and need not be made again."""
    task = unpack(body, Task)
    task.__dict__["digest"] = digest  # where the cached property keeps it
    return task
