"""The ledger, read: while the run goes on, or long after."""

import json
import math
import sqlite3
import zlib
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.value_object import value_object
from bakeoff.core.budget import Bill
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import LazyTasks, TaskOutline, outline
from bakeoff.core.plan import Block, Plan, trial_name
from bakeoff.core.record import (
    Status,
    TaskTotals,
    TrialFailure,
    TrialFilter,
    TrialLine,
    TrialRecord,
    TrialRow,
)
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.stores import task_chunks, version_1
from bakeoff.stores.attempt_rows import COLUMNS, Rest, attempt_of
from bakeoff.stores.carve import log_is_whole
from bakeoff.stores.damage import (
    NO_DAMAGE,
    Damage,
    damaged_blob,
    examined,
    kept_manifest,
    read_only,
)
from bakeoff.stores.ledger_writer import BLOBS, LEDGER
from bakeoff.stores.packing import unpack
from bakeoff.stores.plan_blocks import Runs, read_blocks, rows_of
from bakeoff.stores.schema import (
    CODES,
    MANIFEST_COPY,
    PLACES,
    PLAN_OPEN,
    STATUS_NAME,
    VERSION,
    key_sql,
    rollout_sql,
)
from bakeoff.stores.writing import being_written

T = TypeVar("T")

# Of all that is recorded, what the plan of today asks for; an earlier plan may have asked for more.
# `planned` holds the rollouts of a plan that is everything with everything, and is empty for others.
# Attempts are the outer loop: they are read in their order, and nothing is sorted.
_PLANNED_ATTEMPTS = """
FROM {attempts} a
CROSS JOIN task t ON t.row = a.task
CROSS JOIN candidate c ON c.row = a.candidate
WHERE length(c.body) > 0 AND NOT EXISTS (SELECT 1 FROM lost_task l WHERE l.row = t.row)
AND CASE (SELECT count(*) FROM planned) WHEN 1 THEN a.rollout < (SELECT rollouts FROM planned)
ELSE EXISTS (
  SELECT 1 FROM block b
  JOIN planned_task bt ON bt.block = b.block AND bt.task = a.task
  JOIN planned_candidate bc ON bc.block = b.block AND bc.candidate = a.candidate
  WHERE a.rollout < b.rollouts) END
"""
COUNTED_ATTEMPTS = _PLANNED_ATTEMPTS.format(attempts="attempt")
_EVER_MADE = _PLANNED_ATTEMPTS.format(
    attempts="(SELECT * FROM made UNION ALL SELECT * FROM made_earlier)"
)
_MADE = f"""
CREATE TEMP VIEW {{name}} AS
SELECT trial, rollout, task, candidate, {COLUMNS.replace("a.", "")}, blob, rest FROM {{table}}
"""  # noqa: S608 -- no user text
# whether the one block of a plan has every task and every candidate of the ledger
_EVERYTHING_IS_PLANNED = """
SELECT rollouts FROM block
WHERE (SELECT count(*) FROM block) = 1
AND NOT EXISTS (SELECT 1 FROM block_task WHERE first <> position + 1)
AND NOT EXISTS (SELECT 1 FROM block_candidate WHERE candidate <> position + 1)
AND (SELECT sum(tasks) FROM block_task) = (SELECT count(*) FROM task)
AND (SELECT count(*) FROM block_candidate) = (SELECT count(*) FROM candidate)
"""
_IN_ORDER = "ORDER BY a.trial"
_IN_ORDER_OF_OLD = "ORDER BY a.rollout, a.task, a.candidate"  # there an index gives this order
_NAMES = "t.id, t.category, c.id, a.rollout"
_ROW = (
    f"SELECT {_NAMES}, {STATUS_NAME}, a.score, a.passed, a.fault_boundary,"
    " a.fault_transient, a.number, a.elapsed_s, a.model_s, a.first_token_s, a.requests,"
    f" a.input_tokens, a.output_tokens, a.cost_usd, a.load_s, a.flags, a.blob {COUNTED_ATTEMPTS}"
)
_TOTALS = f"""
SELECT t.id, t.category, c.id, count(a.score), total(a.score), min(a.score), max(a.score),
  coalesce(min(a.score IN (0, 1)), 1), coalesce(sum(a.passed), 0), sum(a.status = {CODES[Status.FAULTED]}),
  CASE WHEN max(a.requests > 0 AND a.cost_usd IS NULL) = 0 THEN total(a.cost_usd) END
{COUNTED_ATTEMPTS} GROUP BY a.candidate, a.task
"""
# every attempt ever made here, whatever counts today: what was billed stays billed
_OF_A_BILL = "billed_usd, billed_tokens, unsure_usd, unsure_tokens, unpriced"
_BILLED = f"""
SELECT sum(billed_usd), coalesce(sum(billed_tokens), 0), coalesce(sum(unsure_usd), 0.0),
  coalesce(sum(unsure_tokens), 0), coalesce(sum(unpriced), 0)
FROM (SELECT {_OF_A_BILL} FROM attempt UNION ALL SELECT {_OF_A_BILL} FROM earlier_attempt)
"""  # noqa: S608 -- no user text
_RECORD = f"SELECT {_NAMES}, a.blob, a.rest, {COLUMNS}"
_REST = f"SELECT {_NAMES}, a.blob, a.rest"
_FINAL = f"a.status IN ({', '.join(str(code) for status, code in CODES.items() if status.final)})"
_BLOCK_CANDIDATES = """
SELECT m.block, t.body FROM block_candidate m JOIN candidate t ON t.row = m.candidate
WHERE length(t.body) > 0 ORDER BY m.block, m.position
"""
_AT_ONCE = 500  # values that are bound to a query
_ROUNDING = 1e-9
_MOST_HELD = 10_000  # tasks that a plan keeps in memory; those of a larger one are read as needed

# the trials of some tasks, one by one: faster than looking at all where there are many
OF_TASKS = f"""
AND a.trial IN (
  WITH RECURSIVE rollout(n) AS (
    SELECT 0 UNION ALL SELECT n + 1 FROM rollout WHERE n < (SELECT max(rollout) FROM last))
  SELECT {key_sql("n", "k.row", "s.row")} FROM task k, candidate s, rollout
  WHERE k.row IN (SELECT value FROM json_each(:tasks)))
"""  # noqa: S608 -- no user text
_PART = """
AND (:candidate IS NULL OR c.id = :candidate)
AND (:rollouts IS NULL OR a.rollout < :rollouts)
"""
_FILTER = f"""
AND (:candidates IS NULL OR c.id IN (SELECT value FROM json_each(:candidates)))
AND (:categories IS NULL OR t.category IN (SELECT value FROM json_each(:categories)))
AND (NOT :failed AND NOT :faulted OR :failed AND a.passed = 0
     OR :faulted AND a.status = {CODES[Status.FAULTED]})
"""  # noqa: S608
_WHEN = "SELECT started_at, elapsed_s FROM attempt ORDER BY started_at"
_LINE = f"{_REST}, {STATUS_NAME}, a.score, a.elapsed_s {COUNTED_ATTEMPTS} {_FILTER}"
_FAILED = f"""
{_REST}, {STATUS_NAME}, a.fault_boundary {COUNTED_ATTEMPTS}
AND c.id IN (SELECT value FROM json_each(:candidates))
AND (a.status = {CODES[Status.FAULTED]} OR coalesce(a.passed, 0) = 0
     AND (a.score IS NOT NULL OR a.status = {CODES[Status.LIMITED]}))
"""  # noqa: S608 -- no user text
_ANSWERED = f"{_REST} {COUNTED_ATTEMPTS} AND a.candidate = ? AND a.requests > 0"
_ANSWERS_LOOKED_AT = 3  # at each end of a run
_NAMED = """
SELECT row FROM task WHERE id = :name OR instr(:name, id || '@') = 1
"""


@value_object
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


class _ScoreOnly(msgspec.Struct):
    scorer: str
    value: float
    weight: float = 1.0
    explanation: str | None = None
    passed: bool | None = None
    turn: int | None = None


class _StopOnly(msgspec.Struct):
    stop_reason: str | None = None


class _WhyOnly(msgspec.Struct):
    """Why an attempt did not pass."""

    scores: list[_ScoreOnly] = []
    fault: _MessageOnly | None = None
    outcome: _StopOnly | None = None


class _NameOnly(msgspec.Struct):
    model: str | None = None


class _ModelOnly(msgspec.Struct):
    """Which model an attempt was answered by."""

    outcome: _NameOnly | None = None


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
        self._resolved = self._path.resolve()
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

    @property
    def plan_is_open(self) -> bool:
        """Whether the run was stopped, or goes on, while the rows of its data set were being read."""
        with self._reading() as db:
            query = "SELECT 1 FROM meta WHERE key = ?"
            return db.execute(query, (PLAN_OPEN,)).fetchone() is not None

    def damage(self) -> Damage:
        """Return what is damaged, as far as it was read; `bakeoff check` reads everything."""
        with self._reading():
            found = self._damage or NO_DAMAGE
        lines = [
            f"the record of {trial} cannot be read, and a resume runs it again: {why}"
            for trial, why in self._lost.items()
        ]
        return replace(found, lines=(*found.lines, *lines), trials=(*found.trials, *self._lost))

    def worked_s(self) -> float | None:
        """Return for how many seconds any trial ran, each second counted once; None where unknown."""
        worked, until = 0.0, -math.inf
        with self._reading() as db, self._decoding():
            for begun, elapsed_s in db.execute(_WHEN):
                if begun is None:
                    return None
                if (end := begun + elapsed_s) > until:
                    worked += end - max(begun, until)
                    until = end
        return worked or None

    def planned(self) -> Plan:
        """Return the plan of the run, whole; the tasks of a large one are read as they are needed."""
        with self._reading() as db, self._decoding():
            seats: dict[int, list[StoredCandidate]] = {}
            for block, body in db.execute(_BLOCK_CANDIDATES):
                seats.setdefault(block, []).append(unpack(body, StoredCandidate))
            stored = read_blocks(db)
            lost = {row for (row,) in db.execute("SELECT row FROM lost_task")}
            rows = {number: _rows(runs, lost) for number, (_, runs, _) in stored.items()}
            blocks = []
            conditions = Conditions()
            tasks_of = self._tasks_of(rows)
            for number, (rollouts, _, _) in stored.items():
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

    def _tasks_of(self, rows: Mapping[int, Sequence[int]]) -> Callable[[int], Sequence[Task]]:
        """Return what gives the tasks of a block: in memory, or as they are needed where they are many."""
        if sum(map(len, rows.values())) > self._most_held:
            return lambda block: LazyTasks(
                rows[block],
                ledger=self._resolved,
                read=self._read_tasks,
                read_digests=self._read_digests,
                read_outlines=self._read_outlines,
            )
        different = list(dict.fromkeys(chain.from_iterable(rows.values())))
        tasks = dict(zip(different, self._read_tasks(different), strict=True))
        return lambda block: tuple(tasks[row] for row in rows[block])

    def task(self, task_id: str) -> Task | None:
        """Return the newest task with this id; None where there is none, or it is damaged."""
        with self._reading() as db, self._decoding():
            lost = {row for (row,) in db.execute("SELECT row FROM lost_task")}
            rows = [row for row in rows_named(db, [task_id]) if row not in lost]
        return self._read_tasks([max(rows)])[0] if rows else None

    def _read_tasks(self, rows: Sequence[int]) -> list[Task]:
        with self._reading() as db, self._decoding():
            read = version_1.read_tasks if _is_old(db) else task_chunks.read_tasks
            return read(db, rows, str(self._resolved))

    def _read_digests(self, rows: Sequence[int]) -> list[str]:
        with self._reading() as db:
            read = version_1.read_digests if _is_old(db) else task_chunks.digests_in
            return read(db, rows)

    def _read_outlines(self, rows: Sequence[int]) -> list[TaskOutline]:
        with self._reading() as db, self._decoding():
            if _is_old(db):
                return list(map(outline, version_1.read_tasks(db, rows, str(self._resolved))))
            return task_chunks.read_outlines(db, rows)

    def task_digests(self) -> dict[str, str]:
        """Return the digest of each task by its id; the tasks themselves are not read."""
        with self._reading() as db:
            query = (
                "SELECT row, id FROM task WHERE row NOT IN (SELECT row FROM lost_task) ORDER BY row"
            )
            rows = db.execute(query).fetchall()
        return dict(
            zip(
                (name for _, name in rows),
                self._read_digests([row for row, _ in rows]),
                strict=True,
            )
        )

    def manifest_copy(self) -> Manifest | None:
        """Return the manifest as the ledger keeps it; None in one of an older version."""
        with self._reading() as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", (MANIFEST_COPY,)).fetchone()
            return kept_manifest(row[0]) if row else None

    def knows_places(self) -> bool:
        """Whether it is known where the tasks of this shard stand in the whole plan."""
        with self._reading() as db:
            query = "SELECT 1 FROM meta WHERE key = ?"
            return db.execute(query, (PLACES,)).fetchone() is not None

    def started_at(self) -> str | None:
        """Return when the first session of the run began."""
        with self._reading() as db:
            row = db.execute("SELECT started_at FROM session ORDER BY row LIMIT 1").fetchone()
            return str(row[0]) if row else None

    def known(self) -> tuple[dict[str, Task], dict[str, StoredCandidate]]:
        """Return every task and every candidate ever planned here, the newest of each id."""
        with self._reading() as db, self._decoding():
            query = "SELECT row FROM task WHERE row NOT IN (SELECT row FROM lost_task) ORDER BY row"
            tasks = self._read_tasks([row for (row,) in db.execute(query)])
            candidates = db.execute(
                "SELECT body FROM candidate WHERE length(body) > 0 ORDER BY row"
            )
            seats = (unpack(body, StoredCandidate) for (body,) in candidates)
            return {t.id: t for t in tasks}, {s.candidate.id: s for s in seats}

    def finished(self, *, with_whole_blobs: bool = False) -> int:
        """Return how many trials of the plan a resume would leave alone.

        Records in files of their own are looked for; with *with_whole_blobs* they are read as well.
        """
        with self._reading_attempts() as db:
            (count,) = db.execute(f"SELECT count(*) {COUNTED_ATTEMPTS} AND {_FINAL}").fetchone()
            in_files = f"SELECT t.id, c.id, a.rollout, a.blob {COUNTED_ATTEMPTS} AND {_FINAL}"
            lost = sum(
                not self._has_blob(blob, trial_name(task, candidate, rollout))
                or (with_whole_blobs and damaged_blob(self._folder / BLOBS, blob) is not None)
                for task, candidate, rollout, blob in db.execute(
                    f"{in_files} AND a.blob IS NOT NULL"
                )
            )
            return int(count) - lost

    def faulted(self) -> int:
        """Return how many trials of the plan faulted, and are tried again by a resume."""
        with self._reading_attempts() as db:
            query = f"SELECT count(*) {COUNTED_ATTEMPTS} AND a.status = ?"
            return int(db.execute(query, (CODES[Status.FAULTED],)).fetchone()[0])

    def mean_scores(self) -> dict[str, float]:
        """Return the mean of task means of each candidate that has scores."""
        query = (
            f"SELECT c.id, a.task, avg(a.score) {COUNTED_ATTEMPTS}"
            " AND a.score IS NOT NULL GROUP BY c.row, a.task"
        )
        means: dict[str, list[float]] = {}
        with self._reading_attempts() as db:
            for candidate, _, mean in db.execute(query):
                means.setdefault(candidate, []).append(mean)
        return {candidate: fmean(values) for candidate, values in means.items()}

    def totals(self) -> Iterator[TaskTotals]:
        """Yield the trials of each candidate and task, added up."""
        with self._reading_attempts() as db:
            for task, category, candidate, n, total, low, high, binary, *counts in db.execute(
                _TOTALS
            ):
                yield TaskTotals(
                    task, category, candidate, n, total, low, high, bool(binary), *counts
                )

    def failures(self, candidates: Collection[str]) -> Iterator[TrialFailure]:
        """Yield each trial of *candidates* that did not pass, with why; no transcript is decoded."""
        with self._reading_attempts() as db:
            chosen = {"candidates": json.dumps(list(candidates))}
            for *row, status, boundary in db.execute(f"{_FAILED} {_order(db)}", chosen):
                found = self._decoded(row, _WhyOnly)
                if found is not None:
                    yield _failure(row, status, boundary, found)

    def answering_models(self) -> dict[str, list[str]]:
        """Return by candidate which models its first and last answers say that they are from."""
        names: dict[str, dict[str, None]] = {}
        with self._reading_attempts() as db:
            rows = db.execute("SELECT row FROM candidate WHERE length(body) > 0").fetchall()
            for (candidate,) in rows:
                for order in ("", "DESC"):
                    query = f"{_ANSWERED} ORDER BY a.trial {order} LIMIT ?"
                    for row in db.execute(query, (candidate, _ANSWERS_LOOKED_AT)):
                        found = self._decoded(row, _ModelOnly)
                        if found is not None and found.outcome is not None:
                            names.setdefault(row[2], {})[found.outcome.model or ""] = None
        return {name: sorted(filter(None, models)) for name, models in names.items()}

    def answered(self) -> int:
        """Return how many recorded trials have an outcome that could be scored again."""
        with self._reading_attempts() as db:
            records = db.execute(f"{_REST} {COUNTED_ATTEMPTS}")
            marks = (self._decoded(row, _AttemptMark) for row in records)
            return sum(
                mark is not None and mark.outcome is not None and not mark.outcome.unfinished
                for mark in marks
            )

    def rows(self) -> Iterator[TrialRow]:
        """Yield each recorded trial without its body."""
        with self._reading_attempts() as db:
            for *row, blob in db.execute(f"{_ROW} {_order(db)}"):
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
        part: dict[str, str | int | None] = {"candidate": candidate, "rollouts": rollouts}
        which = _PART
        with self._reading_attempts() as db:
            if tasks is not None:
                part["tasks"] = json.dumps(list(rows_named(db, list(tasks))))
                which += OF_TASKS
            order = _order(db) if tasks is None else "ORDER BY a.task, a.candidate, a.rollout"
            for row in db.execute(f"{_RECORD} {COUNTED_ATTEMPTS} {which} {order}", part):
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
            for *row, status, score, elapsed_s in db.execute(f"{_LINE} {_order(db)}", chosen):
                found = self._decoded(row, _TextOnly)
                if found is not None:
                    name = trial_name(row[0], row[2], row[3])
                    yield TrialLine(row[0], name, status, score, elapsed_s, found.text)

    def attempts(self, name: str) -> Sequence[TrialRecord]:
        """Return all attempts of the trials called *name*: in full, or only by task id."""
        with self._reading_attempts() as db:
            tasks = [row for (row,) in db.execute(_NAMED, {"name": name})]
            found = db.execute(
                f"{_RECORD} {_EVER_MADE} {OF_TASKS} AND (t.id = :name"
                " OR t.id || '@' || c.id || '#' || a.rollout = :name"
                " OR t.id || '@' || c.id = :name) ORDER BY a.rollout, a.candidate, a.number",
                {"name": name, "tasks": json.dumps(tasks)},
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

    def _record(self, row: Sequence[Any]) -> TrialRecord | None:
        """Return a record; None, and remember which, where it is damaged."""
        rest = self._decoded(row[:6], Rest)
        if rest is None:
            return None
        task_id, category, candidate_id, rollout, _, _, *columns = row
        return TrialRecord(
            task_id=task_id,
            category=category,
            candidate_id=candidate_id,
            rollout=rollout,
            attempt=attempt_of(columns, rest),
        )

    def _decoded(self, row: Sequence[Any], kind: type[T]) -> T | None:
        task_id, _, candidate_id, rollout, blob, rest = row
        try:
            return unpack(self._blob(str(blob)) if rest is None else rest, kind)
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
            if not db.execute("SELECT 1 FROM temp.sqlite_master WHERE name = 'planned'").fetchone():
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
            db = read_only(self._path)
            found = db.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise UsageError(f"{self._path} cannot be read: {error}") from error
        if found == 0:
            db.close()
            raise UsageError(
                f"{self._path} is empty: the run was cut off before it had begun; start it again"
            )
        if found not in {version_1.VERSION, VERSION}:
            db.close()
            raise UsageError(
                f"{self._path} is in ledger format {found}; this version of bakeoff reads 1 to {VERSION}"
            )
        return db


def _failure(
    names: Sequence[Any], status: str, boundary: str | None, why: _WhyOnly
) -> TrialFailure:
    unmet = [
        (s.scorer if s.turn is None else f"turn {s.turn}: {s.scorer}", s.explanation)
        for s in why.scores
        if s.weight > 0 and not (s.value >= 1 - _ROUNDING if s.passed is None else s.passed)
    ]
    return TrialFailure(
        task_id=names[0],
        candidate_id=names[2],
        rollout=names[3],
        status=status,
        boundary=boundary,
        message=why.fault.message if why.fault else None,
        stopped_by=why.outcome.stop_reason if why.outcome else None,
        unmet=tuple(unmet),
    )


def _look_up_the_plan(db: sqlite3.Connection) -> None:
    """Index the plan by task and by candidate, so that it can be looked up at each attempt.

    A plan of everything with everything, as most are, needs no index.
    """
    whole = db.execute(_EVERYTHING_IS_PLANNED).fetchone()
    db.execute("CREATE TEMP TABLE planned (rollouts INTEGER NOT NULL)")
    db.executemany("INSERT INTO temp.planned VALUES (?)", [whole] if whole else [])
    tasks = f"""
        SELECT m.block, t.row AS task FROM block_task m
        JOIN task t ON t.row BETWEEN m.first AND m.first + m.tasks - 1 WHERE {not whole}
    """  # noqa: S608 -- no user text
    candidates = f"SELECT block, candidate FROM block_candidate WHERE {not whole}"  # noqa: S608
    for kind, members in (("task", tasks), ("candidate", candidates)):
        db.execute(f"CREATE TEMP TABLE planned_{kind} AS {members}")
        db.execute(f"CREATE UNIQUE INDEX temp.by_{kind} ON planned_{kind} ({kind}, block)")
    last = rollout_sql(
        "max(trial)"
    )  # which is at the end of the table, without looking at the others
    db.execute(f"CREATE TEMP VIEW last AS SELECT {last} AS rollout FROM attempt")  # noqa: S608
    for name, table in (("made", "attempt"), ("made_earlier", "earlier_attempt")):
        db.execute(_MADE.format(name=name, table=table))


def rows_named(db: sqlite3.Connection, names: Sequence[str]) -> Iterator[int]:
    """Yield the rows of the tasks with these ids."""
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        marks = ", ".join("?" * len(some))
        query = f"SELECT row FROM task WHERE id IN ({marks})"  # noqa: S608 -- values are bound
        yield from (row for (row,) in db.execute(query, some))


def _rows(runs: Runs, lost: Collection[int]) -> Sequence[int]:
    """Return the rows of the tasks of a block, without those that are lost."""
    if len(runs) == 1 and not lost:
        ((_, first, count),) = runs
        return range(first, first + count)
    return array("q", (row for row in rows_of(runs) if row not in lost))


def _is_old(db: sqlite3.Connection) -> bool:
    """Whether the ledger is in format 1."""
    return bool(db.execute("PRAGMA user_version").fetchone()[0] == version_1.VERSION)


def _order(db: sqlite3.Connection) -> str:
    return _IN_ORDER_OF_OLD if _is_old(db) else _IN_ORDER
