"""The blocks of a plan as the ledger keeps them, written at once or while a data set is read."""

import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Any

import msgspec

from bakeoff._lib.redact import Redactor
from bakeoff.core.errors import BakeoffError, UsageError
from bakeoff.core.lazy_tasks import ArrivingTasks
from bakeoff.core.task import Task
from bakeoff.planning.shards import Places
from bakeoff.stores.schema import MOST, PLACES, PLAN_CRC, PLAN_OPEN, row_crc
from bakeoff.stores.task_chunks import TaskRow, TaskWriter, digests_in, read_tasks
from bakeoff.stores.writing import writing_to

Run = tuple[int, int, int]  # tasks in a row: the place of the first in its block, its row, how many
Runs = list[Run]
Blocks = dict[int, tuple[int, Runs, list[int]]]  # rollouts, tasks and candidates

_AT_ONCE = 256  # tasks: a chunk of the ledger, and some milliseconds
_BUSY_S = 60


def runs_of(rows: Iterable[int]) -> Iterator[Run]:
    """Yield *rows* as runs of following numbers."""
    if isinstance(rows, range) and rows.step == 1:
        if rows:
            yield 0, rows.start, len(rows)
        return
    start = first = count = 0
    for place, row in enumerate(rows):
        if count and row == first + count:
            count += 1
            continue
        if count:
            yield start, first, count
        start, first, count = place, row, 1
    if count:
        yield start, first, count


def _joined(runs: Iterable[tuple[Any, ...]]) -> Iterator[Run]:
    """Yield *runs*, those that follow each other as one; older versions keep each task by itself."""
    last: Run | None = None
    for place, first, count in runs:
        if not (isinstance(first, int) and isinstance(count, int) and 0 < count <= MOST["tasks"]):
            raise ValueError(f"a block of the plan has {count} tasks")
        if last is not None and (place, first) == (last[0] + last[2], last[1] + last[2]):
            last = (last[0], last[1], last[2] + count)
            continue
        if last is not None:
            yield last
        last = (place, first, count)
    if last is not None:
        yield last


def rows_of(runs: Iterable[Run]) -> Iterator[int]:
    """Yield the rows of all *runs*."""
    for _, first, count in runs:
        yield from range(first, first + count)


def read_blocks(db: sqlite3.Connection) -> Blocks:
    """Return the blocks of the plan."""
    blocks: Blocks = {}
    query = "SELECT position, first, tasks FROM block_task WHERE block = ? ORDER BY position"
    for number, rollouts in db.execute("SELECT block, rollouts FROM block ORDER BY block"):
        if not isinstance(rollouts, int):
            raise ValueError(f"a block of the plan has {rollouts} rollouts")  # noqa: TRY004 -- damage
        blocks[number] = rollouts, list(_joined(db.execute(query, (number,)))), []
    query = "SELECT block, candidate FROM block_candidate ORDER BY block, position"
    for number, candidate in db.execute(query):
        blocks[number][2].append(candidate)
    return blocks


def write_blocks(db: sqlite3.Connection, blocks: Blocks) -> None:
    """Make *blocks* the plan."""
    for table in ("block", "block_task", "block_candidate"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 -- no user text
    for number, (rollouts, runs, candidates) in blocks.items():
        db.execute("INSERT INTO block VALUES (?, ?)", (number, rollouts))
        db.executemany(
            "INSERT INTO block_task VALUES (?, ?, ?, ?)", ((number, *run) for run in runs)
        )
        db.executemany(
            "INSERT INTO block_candidate VALUES (?, ?, ?)",
            ((number, place, row) for place, row in enumerate(candidates)),
        )


def block_of(rollouts: int, tasks: Iterable[int], candidates: Sequence[int]) -> Blocks:
    """Return a plan of one block."""
    return {0: (rollouts, list(runs_of(tasks)), list(candidates))}


def plan_crc(db: sqlite3.Connection) -> int:
    """Return the checksum of the blocks of the plan."""
    tables = ("block", "block_task", "block_candidate")
    rows = chain.from_iterable(
        db.execute(f"SELECT * FROM {table} ORDER BY 1, 2")  # noqa: S608 -- no user text
        for table in tables
    )
    return row_crc(*chain.from_iterable(rows))


def write_places(db: sqlite3.Connection, places: Places) -> None:
    """Keep where the tasks of a shard stand in the whole plan: each place as the steps from the last."""
    steps = [
        (block, [after - before for before, after in pairwise((0, *of_block))])
        for block, of_block in places
    ]
    text = msgspec.json.encode(steps).decode()
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (PLACES, text))


def read_places(db: sqlite3.Connection) -> Places:
    """Return where the tasks of a shard stand in the whole plan; nothing where that is not known."""
    found = db.execute("SELECT value FROM meta WHERE key = ?", (PLACES,)).fetchone()
    steps = msgspec.json.decode(found[0], type=list[tuple[int, list[int]]]) if found else []
    return [(block, array("q", accumulate(of_block))) for block, of_block in steps]


# --- a plan that is written while its source is read ----------------------------------------------


class PlanStream:
    """Writes *tasks*, the one block of a plan, into the ledger at *path*; *check* sees each before.

    It is for the plan of a large data set, whose tasks are written while they are read: a run need
    not wait for the last of a million rows before it asks about the first. Until all are written,
    the ledger says that its plan is open: only the source knows the rest.

    What an earlier session wrote must be the same. It writes through a connection of its own that
    does not wait for the disk: an attempt that is durable makes all tasks before it durable.
    """

    def __init__(
        self,
        path: Path,
        tasks: Sequence[Task],
        *,
        redactor: Redactor,
        check: Callable[[Task], None],
    ) -> None:
        self._path = path
        self._redactor = redactor
        self._check = check
        self._source = iter(tasks)
        with writing_to(path):
            self._db = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_S)
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA secure_delete = ON")
            self._writer = TaskWriter(self._db)
            blocks = read_blocks(self._db)
        ((self._block, (_, runs, _)),) = blocks.items()
        self._last: Run = runs[-1] if runs else (0, 1, 0)
        self._earlier = array("q", rows_of(runs))
        self._rows: array[int] = array("q")
        self._ledger = str(path.resolve())
        self.whole = False
        self.error: BakeoffError | None = None
        self.tasks = ArrivingTasks(
            self._rows,
            ledger=path.resolve(),
            read=lambda rows: read_tasks(self._db, rows, self._ledger),
            read_digests=lambda rows: digests_in(self._db, rows),
            advance=self.advance,
            expected=len(tasks),
        )
        self.repeated = 0

    def advance(self) -> bool:
        """Read and write some more tasks; return whether there may be others after them.

        What is wrong with one of them is the `error`, and ends the plan there.
        """
        if self.whole or self.error is not None:
            return False
        try:
            tasks = list(islice(self._source, _AT_ONCE))
            for task in tasks:
                self._check(task)
            self._write(tasks)
        except BakeoffError as error:
            self.error = error
            return False
        return not self.whole

    def close(self) -> None:
        """Write no more."""
        self._db.close()

    def _write(self, tasks: Sequence[Task]) -> None:
        known = self._known(tasks)
        whole = len(tasks) < _AT_ONCE
        if whole and len(self._rows) + len(tasks) < len(self._earlier):
            raise self._changed("it has fewer rows now")
        with writing_to(self._path), self._db as db:
            db.execute("BEGIN IMMEDIATE")
            new = [self._writer.add(TaskRow.of(t, self._redactor)) for t in tasks[len(known) :]]
            self._writer.flush()
            if new:
                self._extend_block(db, new)
            if whole:
                db.execute("DELETE FROM meta WHERE key = ?", (PLAN_OPEN,))
        self._rows.extend([*known, *new])
        if whole:
            self.whole = True
            self.repeated = len(self.tasks) - len(self._rows)
            self.tasks.expected = len(self._rows)

    def _known(self, tasks: Sequence[Task]) -> Sequence[int]:
        """Return the rows of those of *tasks* that an earlier session wrote."""
        done = len(self._rows)
        rows = self._earlier[done : done + len(tasks)]
        for task, stored in zip(tasks, digests_in(self._db, rows), strict=False):
            if task.digest != stored:
                raise self._changed(f"task {task.id!r} differs, or is at another position")
        return rows

    def _extend_block(self, db: sqlite3.Connection, rows: Sequence[int]) -> None:
        """Put *rows*, which follow each other, at the end of the block."""
        place, first, count = self._last
        if not count or rows[0] == first + count:
            first, count = first if count else rows[0], count + len(rows)
        else:
            place, first, count = place + count, rows[0], len(rows)
        self._last = place, first, count
        run = (self._block, *self._last)
        db.execute("INSERT OR REPLACE INTO block_task VALUES (?, ?, ?, ?)", run)
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, '1')", (PLAN_OPEN,))
        values = (PLAN_CRC, str(plan_crc(db)))
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)

    def _changed(self, why: str) -> UsageError:
        return UsageError(
            f"{self._path.parent.name} was planned with other rows: {why}; a run of so many rows is "
            "resumed with the same ones, and with more after them: start a new run"
        )
