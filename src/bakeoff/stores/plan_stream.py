"""The plan of a large data set: its tasks are written into the ledger while they are read.

A run need not wait for the last of a million rows before it asks about the first. Until all are
written, the ledger says that its plan is open: only the source knows the rest.
"""

import sqlite3
from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from bakeoff._lib.redact import Redactor
from bakeoff.core.errors import BakeoffError, UsageError
from bakeoff.core.lazy_tasks import ArrivingTasks
from bakeoff.core.task import Task
from bakeoff.stores.plan_blocks import Run, plan_crc, read_blocks, rows_of
from bakeoff.stores.schema import PLAN_CRC, PLAN_OPEN
from bakeoff.stores.task_chunks import TaskRow, TaskWriter, digests_in, read_tasks
from bakeoff.stores.writing import writing_to

_AT_ONCE = 256  # tasks: a chunk of the ledger, and some milliseconds
_BUSY_S = 60


class PlanStream:
    """Writes *tasks*, the one block of a plan, into the ledger at *path*; *check* sees each before.

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
                raise self._changed(f"task {task.id!r} differs, or stands at another place")
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
