"""The shape of the ledger: its tables, the key of a trial, and the checksums of rows."""

import sqlite3
import zlib
from itertools import chain

import msgspec

from bakeoff._lib.digest import digest
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.errors import UsageError
from bakeoff.core.record import Status

VERSION = 2
PAGE = 4096  # bytes
# keys of `meta`; `places` are those of the tasks of a shard in the whole plan
PLAN_CRC, SCHEMA_CRC, MANIFEST_COPY, PLACES = "plan_crc", "schema_crc", "manifest", "places"
PLAN_OPEN = "plan_open"  # while the tasks of the plan are still being read

STATUSES = (Status.COMPLETED, Status.LIMITED, Status.FAULTED, Status.CANCELLED)  # as numbers
CODES = {status: code for code, status in enumerate(STATUSES)}

# A trial is one integer, in the order of the plan: rollout, task and candidate side by side. So the
# rows of a run are appended, and no second index is needed to find one.
_CANDIDATE_BITS, _TASK_BITS, _ROLLOUT_BITS = 15, 26, 22
_TASK_SHIFT, _ROLLOUT_SHIFT = _CANDIDATE_BITS, _CANDIDATE_BITS + _TASK_BITS
_CANDIDATES, _TASKS = (1 << _CANDIDATE_BITS) - 1, (1 << _TASK_BITS) - 1
MOST = {"tasks": _TASKS, "candidates": _CANDIDATES, "rollouts": 1 << _ROLLOUT_BITS}

_ATTEMPT = """
  number INTEGER NOT NULL,
  status INTEGER NOT NULL, score REAL, passed INTEGER,
  fault_boundary TEXT, fault_transient INTEGER,
  started_at REAL, elapsed_s REAL NOT NULL, model_s REAL NOT NULL, first_token_s REAL, load_s REAL,
  requests INTEGER NOT NULL, input_tokens INTEGER, output_tokens INTEGER, cost_usd REAL, flags TEXT,
  -- all parties of the attempt together, with tries that failed
  billed_usd REAL, billed_tokens INTEGER NOT NULL,
  unsure_usd REAL NOT NULL, unsure_tokens INTEGER NOT NULL, unpriced INTEGER NOT NULL,
  blob TEXT, rest BLOB,
  crc INTEGER NOT NULL,  -- of the trial and everything above
"""
_PARTS_OF_KEY = f"""
  rollout INTEGER AS (trial >> {_ROLLOUT_SHIFT}) VIRTUAL,
  task INTEGER AS ((trial >> {_TASK_SHIFT}) & {_TASKS}) VIRTUAL,
  candidate INTEGER AS (trial & {_CANDIDATES}) VIRTUAL
"""
_STATUS_NAMES = " ".join(f"WHEN {code} THEN '{status.value}'" for status, code in CODES.items())
STATUS_NAME = f"CASE a.status {_STATUS_NAMES} END"

DDL = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE task (row INTEGER PRIMARY KEY, id TEXT NOT NULL, category TEXT);
-- tasks in a row, from the one with the row `first` on: their digests, 16 bytes each, and bodies
CREATE TABLE task_chunk (
  first INTEGER PRIMARY KEY, tasks INTEGER NOT NULL, digests BLOB NOT NULL, bodies BLOB NOT NULL,
  names_crc INTEGER NOT NULL,  -- of the rows of `task`
  crc INTEGER NOT NULL);
-- tasks whose bodies were damaged: their trials are left out until the source restores them
CREATE TABLE lost_task (row INTEGER PRIMARY KEY);

-- a candidate under its conditions
CREATE TABLE candidate (
  row INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE,
  id TEXT NOT NULL, body BLOB NOT NULL, crc INTEGER);

-- the plan: in each block, its tasks × its candidates × its rollouts
CREATE TABLE block (block INTEGER PRIMARY KEY, rollouts INTEGER NOT NULL);
CREATE TABLE block_task (  -- tasks in a row, with the position of the first
  block INTEGER NOT NULL, position INTEGER NOT NULL, first INTEGER NOT NULL, tasks INTEGER NOT NULL,
  PRIMARY KEY (block, position)) WITHOUT ROWID;
CREATE TABLE block_candidate (
  block INTEGER NOT NULL, position INTEGER NOT NULL,
  candidate INTEGER NOT NULL REFERENCES candidate,
  PRIMARY KEY (block, position)) WITHOUT ROWID;

-- the attempt that counts of each trial
CREATE TABLE attempt (trial INTEGER PRIMARY KEY, {_ATTEMPT} {_PARTS_OF_KEY});
-- what is counted by it, and names the trials of rows that are damaged
CREATE INDEX attempt_by_status ON attempt (status);
-- attempts that another one followed
CREATE TABLE earlier_attempt (
  row INTEGER PRIMARY KEY, trial INTEGER NOT NULL, {_ATTEMPT} {_PARTS_OF_KEY},
  UNIQUE (trial, number));

CREATE TABLE session (
  row INTEGER PRIMARY KEY, started_at TEXT NOT NULL, ended_at TEXT, host TEXT, pid INTEGER,
  version TEXT, planned INTEGER NOT NULL);

-- for people: the attempt that counts of each trial, with names instead of numbers
CREATE VIEW trial AS
SELECT t.id || '@' || c.id || '#' || a.rollout AS trial, t.id AS task, t.category,
  c.id AS candidate, a.rollout, a.number AS attempts, {STATUS_NAME} AS status, a.score, a.passed,
  a.fault_boundary, a.fault_transient, datetime(a.started_at, 'unixepoch') AS started_at,
  a.elapsed_s, a.model_s, a.first_token_s, a.load_s, a.requests, a.input_tokens, a.output_tokens,
  a.cost_usd, a.flags, a.billed_usd, a.billed_tokens
FROM attempt a JOIN task t ON t.row = a.task JOIN candidate c ON c.row = a.candidate;
"""  # noqa: S608 -- no user text

# what is stored of an attempt, in this order: after `trial`, or after `row` and `trial`
ATTEMPT = (
    "number", "status", "score", "passed", "fault_boundary", "fault_transient",
    "started_at", "elapsed_s", "model_s", "first_token_s", "load_s",
    "requests", "input_tokens", "output_tokens", "cost_usd", "flags",
    "billed_usd", "billed_tokens", "unsure_usd", "unsure_tokens", "unpriced",
    "blob", "rest", "crc",
)  # fmt: skip
REALS = frozenset({
    "score", "started_at", "elapsed_s", "model_s", "first_token_s", "load_s", "cost_usd",
    "billed_usd", "unsure_usd",
})  # fmt: skip

Value = str | int | float | bytes | None
Row = tuple[Value, ...]

_row_encoder = msgspec.msgpack.Encoder()


def trial_key(rollout: int, task: int, candidate: int) -> int:
    """Return the trial as one integer, from its rollout and the rows of its task and candidate."""
    return rollout << _ROLLOUT_SHIFT | task << _TASK_SHIFT | candidate


def key_sql(rollout: str, task: str, candidate: str) -> str:
    """Return SQL for a trial as one integer."""
    return f"(({rollout} << {_ROLLOUT_SHIFT}) | ({task} << {_TASK_SHIFT}) | {candidate})"


def rollout_sql(trial: str) -> str:
    """Return SQL for the rollout of a trial."""
    return f"({trial} >> {_ROLLOUT_SHIFT})"


def parts_of_key(trial: int) -> tuple[int, int, int]:
    """Return the rollout of a trial, and the rows of its task and candidate."""
    return trial >> _ROLLOUT_SHIFT, trial >> _TASK_SHIFT & _TASKS, trial & _CANDIDATES


def task_sql(trial: str) -> str:
    """Return SQL for the row of the task of a trial."""
    return f"(({trial} >> {_TASK_SHIFT}) & {_TASKS})"


def moved_key(trial: str, task: str) -> str:
    """Return SQL for the trial with another task."""
    return f"(({trial} & ~{_TASKS << _TASK_SHIFT}) | ({task} << {_TASK_SHIFT}))"


def refuse_too_many(what: str, count: int) -> None:
    """Raise where a ledger cannot hold so many *what*: tasks, candidates or rollouts."""
    if count > MOST[what]:
        raise UsageError(
            f"a run holds {MOST[what]:,} {what} at most, and these are {count:,}: make several runs"
        )


def seat(candidate: Candidate, conditions: Conditions) -> str:
    """Return the identity of a candidate under its conditions."""
    return digest([candidate.digest, conditions.digest])


def row_crc(*values: Value) -> int:
    """Return the checksum of a row, from its values as SQLite returns them."""
    return zlib.crc32(_row_encoder.encode(values))


def real(value: float | None) -> float | None:
    """Return *value* as a REAL column gives it back."""
    return None if value is None or value != value else float(value)  # noqa: PLR0124 -- NaN is NULL


def schema_crc(db: sqlite3.Connection) -> int:
    """Return the checksum of the tables and indexes."""
    return row_crc(*chain.from_iterable(db.execute("SELECT * FROM sqlite_master ORDER BY rowid")))


def create(db: sqlite3.Connection) -> None:
    """Make the tables of a ledger, within the transaction of the caller."""
    for statement in filter(str.strip, DDL.split(";")):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("INSERT INTO meta VALUES (?, ?)", (SCHEMA_CRC, str(schema_crc(db))))
