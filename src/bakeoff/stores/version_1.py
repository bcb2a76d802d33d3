"""Ledgers of format 1: read through views that look like the tables of today, and upgraded whole.

There, an attempt and a task were a row each with everything in it as JSON, also what its columns say.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path

import msgspec

from bakeoff._lib.files import sync_folder
from bakeoff.core.errors import UsageError
from bakeoff.core.record import Attempt, Status
from bakeoff.core.task import Task
from bakeoff.stores.attempt_rows import Rest, put_attempt, rest_of_whole
from bakeoff.stores.packing import inflated, pack_record, unpack
from bakeoff.stores.plan_blocks import Blocks, plan_crc, read_blocks, rows_of, write_blocks
from bakeoff.stores.schema import (
    CODES,
    PAGE,
    PLAN_CRC,
    SCHEMA_CRC,
    Row,
    create,
    key_sql,
    real,
    row_crc,
    trial_key,
)
from bakeoff.stores.seal import break_seal
from bakeoff.stores.task_chunks import TaskRow, known_task, put_tasks

VERSION = 1
COLUMNS = 27  # of an attempt, with its checksum
REALS = (6, 10, 11, 12, 16, 17, 19, 21)
_SUPERSEDED = 4  # the one column that changed, so no checksum covers it
_CODE = " ".join(f"WHEN '{status.value}' THEN {code}" for status, code in CODES.items())
_VIEW = f"""
CREATE TEMP VIEW {{name}} AS
SELECT {key_sql("rollout", "task", "candidate")} AS trial, number, CASE status {_CODE} END AS status,
  score, passed, fault_boundary, fault_transient, NULL AS started_at, elapsed_s, model_s,
  first_token_s, load_s, requests, input_tokens, output_tokens, cost_usd, flags, billed_usd,
  billed_tokens, unsure_usd, unsure_tokens, unpriced, blob, body AS rest, rollout, task, candidate
FROM main.attempt WHERE {{which}}
"""  # noqa: S608 -- no user text
_VIEWS = (
    _VIEW.format(name="attempt", which="NOT superseded"),
    _VIEW.format(name="earlier_attempt", which="superseded"),
    "CREATE TEMP VIEW lost_task AS SELECT row FROM main.task WHERE length(body) = 0",
    "CREATE TEMP VIEW block_task AS SELECT block, position, task AS first, 1 AS tasks"
    " FROM main.block_task",
)
_TASKS = "SELECT {} FROM json_each(?) j JOIN main.task t ON t.row = j.value ORDER BY j.key"


def show_as_today(db: sqlite3.Connection) -> None:
    """Lay views over the tables of *db* by which they look like those of today."""
    for view in _VIEWS:
        db.execute(view)


def read_tasks(db: sqlite3.Connection, rows: Sequence[int], ledger: str) -> list[Task]:
    """Return the tasks in *rows*."""
    found = db.execute(_TASKS.format("t.row, t.digest, t.body"), (json.dumps(list(rows)),))
    return [known_task(unpack(body, Task), digest, ledger, row) for row, digest, body in found]


def read_digests(db: sqlite3.Connection, rows: Sequence[int]) -> list[str]:
    """Return the digests of the tasks in *rows*."""
    found = db.execute(_TASKS.format("t.digest"), (json.dumps(list(rows)),))
    return [digest for (digest,) in found]


def read_known(db: sqlite3.Connection) -> Iterator[Task]:
    """Yield every task that is whole."""
    for digest, body in db.execute("SELECT digest, body FROM task WHERE length(body) > 0"):
        task = unpack(body, Task)
        task.__dict__["digest"] = digest
        yield task


# --- checksums


def rows_are_right(db: sqlite3.Connection) -> bool:
    """Return whether each row is as it was written, as far as there is a checksum."""
    for table in ("task", "candidate", "attempt"):
        columns = [name for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})")]
        crc = "" if "crc" in columns else ", NULL"  # an older one of this format
        is_right = is_attempt if table == "attempt" else is_named
        rows = db.execute(f"SELECT *{crc} FROM main.{table} NOT INDEXED")  # noqa: S608 -- no user text
        if not all(map(is_right, rows)):
            return False
    return True


def is_named(row: Row) -> bool:
    """Whether a task or a candidate is as it was written, as far as there is a checksum."""
    return row[-1] is None or row[-1] == row_crc(*row[:-1])


def is_attempt(row: Row) -> bool:
    """Whether an attempt is as it was written: by its checksum, or one without by its body."""
    try:
        if row[-1] is not None:
            return row[-1] == row_crc(*row[:_SUPERSEDED], *row[5:26])
        return row[25] is None or bool(unpack(row[25], Attempt))  # type: ignore[arg-type]
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError):
        return False


def with_reals(row: Row) -> Row:
    """Return a row as SQLite reads it; whole numbers are stored as integers."""
    values = list(row)
    for column in REALS:
        if isinstance(value := values[column], int):
            values[column] = real(value)
    return tuple(values)


def plan_crc_of(blocks: Blocks) -> int:
    """Return the checksum of a plan as this format made it."""
    rows = chain(
        ((number, rollouts) for number, (rollouts, _, _) in blocks.items()),
        (
            (n, place, row)
            for n, (_, runs, _) in blocks.items()
            for place, row in enumerate(rows_of(runs))
        ),
        ((n, place, row) for n, (_, _, them) in blocks.items() for place, row in enumerate(them)),
    )
    return row_crc(*chain.from_iterable(rows))


# --- the upgrade


def converted(row: Row) -> Row:
    """Return an attempt of this format, with or without its checksum, as a row of today."""
    (
        rollout, task, candidate, number, _, status, score, passed, boundary, transient,
        elapsed_s, model_s, first_token_s, requests, input_tokens, output_tokens, cost_usd,
        load_s, flags, billed_usd, billed_tokens, unsure_usd, unsure_tokens, unpriced, blob, body,
    ) = row[:26]  # fmt: skip
    started_at, rest = None, None
    if isinstance(body, bytes):
        known = unpack(body, Rest)
        started_at = known.started_at
        rest = pack_record(rest_of_whole(known))
    values: Row = (
        trial_key(int(rollout), int(task), int(candidate)),  # type: ignore[arg-type]
        number, CODES[Status(str(status))], score, passed, boundary, transient,
        started_at, elapsed_s, model_s, first_token_s, load_s,
        requests, input_tokens, output_tokens, cost_usd, flags,
        billed_usd, billed_tokens, unsure_usd, unsure_tokens, unpriced, blob, rest,
    )  # fmt: skip
    return (*values, row_crc(*values))


def upgrade(path: Path) -> None:
    """Put a ledger of today in the place of the one at *path*, if that is of this format.

    The new one is written beside it and takes its place in one step. Only for who holds the lock of
    the folder.
    """
    new = path.with_name(f"{path.name}.upgrading")
    new.unlink(missing_ok=True)  # of an upgrade that was killed
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        if old.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            return
        _close_log(old, path)
        with closing(sqlite3.connect(new, isolation_level=None)) as db:
            db.execute(f"PRAGMA page_size = {PAGE}")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            _copy(old, db)
            db.execute("COMMIT")
    break_seal(path)
    new.replace(path)
    sync_folder(path.parent)


def _close_log(old: sqlite3.Connection, path: Path) -> None:
    """Move what is in the log into the file: the log does not belong to the new one."""
    try:
        (mode,) = old.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError:
        mode = "wal"
    if mode != "delete":
        raise UsageError(
            f"{path} is of an older format, and another process reads it: it is upgraded as soon as "
            "that has ended; then resume the run again"
        )


def _task_rows(old: sqlite3.Connection) -> Iterator[tuple[int, TaskRow]]:
    rows = old.execute("SELECT row, digest, id, category, body FROM task ORDER BY row")
    for row, digest, name, category, body in rows:
        yield row, TaskRow(bytes.fromhex(digest), name, category, inflated(body) if body else None)


def _copy(old: sqlite3.Connection, db: sqlite3.Connection) -> None:
    create(db)
    db.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        old.execute("SELECT key, value FROM meta WHERE key NOT IN (?, ?)", (PLAN_CRC, SCHEMA_CRC)),
    )
    put_tasks(db, _task_rows(old))
    for row in old.execute("SELECT row, digest, id, body FROM candidate"):
        db.execute("INSERT INTO candidate VALUES (?, ?, ?, ?, ?)", (*row, row_crc(*row)))
    for row in old.execute("SELECT * FROM attempt ORDER BY rollout, task, candidate, number"):
        put_attempt(db, converted(row), counts=not row[_SUPERSEDED])
    db.executemany(
        "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", old.execute("SELECT * FROM session")
    )
    show_as_today(old)
    write_blocks(db, read_blocks(old))
    db.execute("INSERT INTO meta VALUES (?, ?)", (PLAN_CRC, str(plan_crc(db))))
