"""The ledgers of shards put together as the ledger of the whole run.

Tasks, candidates and attempts get the rows that they have in one whole run, so keys change and
checksums are computed anew. Everything is read from all ledgers at once, in the order of the plan:
what is held grows with the number of ledgers, not with that of their trials.
"""

import heapq
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import msgspec

from bakeoff._lib.files import make_file
from bakeoff.core.plan import trial_name
from bakeoff.core.run_spec import Manifest
from bakeoff.stores.attempt_rows import INSERT, INSERT_EARLIER
from bakeoff.stores.damage import manifest_copy, read_only
from bakeoff.stores.ledger_writer import LEDGER
from bakeoff.stores.plan_blocks import (
    plan_crc,
    read_blocks,
    read_places,
    rows_of,
    runs_of,
    write_blocks,
)
from bakeoff.stores.schema import (
    ATTEMPT,
    MANIFEST_COPY,
    PAGE,
    PLAN_CRC,
    STATUSES,
    Row,
    Value,
    create,
    key_sql,
    parts_of_key,
    row_crc,
)
from bakeoff.stores.seal import seal
from bakeoff.stores.task_chunks import Chunk, TaskRow, TaskWriter, chunk_of
from bakeoff.stores.writing import writing_to

_CACHE_KB = 512  # for each ledger that is read: there may be hundreds
_STORED = ", ".join(ATTEMPT[:-1])
_ALL_ATTEMPTS = " UNION ALL ".join(
    f"SELECT trial, rollout, task, candidate, {_STORED} FROM {table}"  # noqa: S608 -- no user text
    for table in ("attempt", "earlier_attempt")
)
_RENUMBERED = f"""
SELECT {key_sql("a.rollout", "t.becomes", "c.becomes")}, {", ".join(f"a.{n}" for n in ATTEMPT[:-1])}
FROM {{table}} a CROSS JOIN temp.task_row t ON t.row = a.task
CROSS JOIN temp.candidate_row c ON c.row = a.candidate ORDER BY a.trial, a.number
"""  # noqa: S608 -- no user text
_COUNTED = _RENUMBERED.format(table="attempt")
_EARLIER = _RENUMBERED.format(table="earlier_attempt")
_EVERY = _RENUMBERED.format(table=f"({_ALL_ATTEMPTS})")
_RECORDED = f"SELECT trial, {_STORED} FROM attempt WHERE trial = ?"  # noqa: S608
_NUMBER, _STATUS = 1, 2  # where they are in a row of `attempt`
_SESSION = "started_at, ended_at, host, pid, version, planned"

OnRepeated = Callable[[Path, str, int, int], None]
"""Called with the folder of a run, the name of a trial, and an attempt's number before and after."""

_Planned = tuple[int, int, int, int]  # a block of the whole plan, a place in it, a ledger, its row


def merge_ledgers(shards: Sequence[Sequence[Path]], into: Path, on_repeated: OnRepeated) -> None:
    """Write a new ledger into the folder *into*: the whole of *shards*, each the folders of its runs.

    Of a trial that several runs of a shard recorded, the first attempt that is final counts; the
    others stay as attempts that it followed, for what they cost. *on_repeated* hears of each attempt
    of such a further run, and before that of one in *into* that gets another number.
    """
    path = into / LEDGER
    with writing_to(path), ExitStack() as stack:
        make_file(path)
        db = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
        runs = [
            [_Source(stack.enter_context(closing(read_only(f / LEDGER))), f) for f in folders]
            for folders in shards
        ]
        first, further = [run[0] for run in runs], [source for run in runs for source in run[1:]]
        db.execute(f"PRAGMA page_size = {PAGE}")
        db.execute("PRAGMA journal_mode = OFF")  # until it is whole, nobody wants any of it
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        create(db)
        _put_candidates(db, [*first, *further])
        _put_tasks_and_blocks(db, runs)
        for insert, query in ((INSERT, _COUNTED), (INSERT_EARLIER, _EARLIER)):
            rows = heapq.merge(*(source.attempts(query) for source in first), key=itemgetter(0))
            db.executemany(insert, rows)
        for source in further:
            _put_repeated(db, source, into, on_repeated)
        _put_sessions(db, [*first, *further])
        db.execute("COMMIT")


class _Source:
    """The ledger of a shard, open for reading, with tables of what its rows become."""

    def __init__(self, db: sqlite3.Connection, folder: Path) -> None:
        self.db = db
        self.folder = folder
        db.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        for table in ("task_row", "candidate_row"):
            db.execute(f"CREATE TEMP TABLE {table} (row INTEGER PRIMARY KEY, becomes INTEGER)")
        self._blocks = read_blocks(db)
        self._places = read_places(db)
        self._chunk = Chunk(0, b"", ())

    def blocks(self) -> Iterator[tuple[int, int, Sequence[int]]]:
        """Yield each block: its number in the whole plan, its rollouts and its candidates."""
        blocks = zip(self._places, self._blocks.values(), strict=True)
        return ((number, rollouts, rows) for (number, _), (rollouts, _, rows) in blocks)

    def planned(self, ledger: int = 0) -> Iterator[_Planned]:
        """Yield the tasks of each block; *ledger* is the number of this one."""
        blocks = zip(self._places, self._blocks.values(), strict=True)
        for (number, places), (_, runs, _) in blocks:
            for place, row in zip(places, rows_of(runs), strict=True):
                yield number, place, ledger, row

    def unplanned(self) -> list[int]:
        """Return the tasks that were planned once; their attempts were paid for."""
        query = "SELECT row FROM task WHERE row NOT IN (SELECT row FROM temp.task_row) ORDER BY row"
        return [row for (row,) in self.db.execute(query)]

    def task(self, row: int) -> TaskRow:
        """Return the task in *row* as it is kept."""
        if row not in self._chunk:
            self._chunk = chunk_of(self.db, row)
        query = "SELECT id, category FROM task WHERE row = ?"
        name, category = self.db.execute(query, (row,)).fetchone()
        return TaskRow(self._chunk.digest(row), name, category, self._chunk.body(row))

    def new_task_row(self, row: int) -> int | None:
        """Return what becomes of the task in *row*; None where that is not known yet."""
        query = "SELECT becomes FROM temp.task_row WHERE row = ?"
        found = self.db.execute(query, (row,)).fetchone()
        return None if found is None else int(found[0])

    def put_task_row(self, row: int, becomes: int | None) -> None:
        """Keep what becomes of the task in *row*."""
        self.db.execute("INSERT OR IGNORE INTO temp.task_row VALUES (?, ?)", (row, becomes))

    def put_candidate_rows(self, rows: Iterable[tuple[int, int]]) -> None:
        """Keep what becomes of candidates."""
        self.db.executemany("INSERT INTO temp.candidate_row VALUES (?, ?)", rows)

    def candidates(self) -> dict[int, tuple[str, str, bytes]]:
        """Return the digest, the id and the body of each candidate, by its row."""
        found = self.db.execute("SELECT row, digest, id, body FROM candidate ORDER BY row")
        return {row: (digest, name, body) for row, digest, name, body in found}

    def planned_candidates(self) -> Iterator[tuple[int, int, str, str, bytes]]:
        """Yield the candidates of each block: its number, the place there, and what they are."""
        known = self.candidates()
        for number, _, rows in self.blocks():
            for place, row in enumerate(rows):
                yield (number, place, *known[row])

    def attempts(self, query: str) -> Iterator[Row]:
        """Yield attempts under their new keys."""
        return map(_with_crc, self.db.execute(query))


def _with_crc(values: Sequence[Value]) -> Row:
    return (*values, row_crc(*values))


def _put_candidates(db: sqlite3.Connection, sources: Sequence[_Source]) -> None:
    """Write each candidate once: those of the plan in its order, then those of earlier plans."""
    known = [source.candidates() for source in sources]
    in_plan = heapq.merge(*(source.planned_candidates() for source in sources))
    bodies: dict[str, tuple[str, bytes]] = {}
    for _, _, digest, name, body in in_plan:
        bodies.setdefault(digest, (name, body))
    for digest, name, body in (one for of_source in known for one in of_source.values()):
        bodies.setdefault(digest, (name, body))
    rows = {digest: row for row, digest in enumerate(bodies, 1)}
    for digest, (name, body) in bodies.items():
        values = _with_crc((rows[digest], digest, name, body))
        db.execute("INSERT INTO candidate VALUES (?, ?, ?, ?, ?)", values)
    for source, there in zip(sources, known, strict=True):
        source.put_candidate_rows((row, rows[digest]) for row, (digest, _, _) in there.items())


def _put_tasks_and_blocks(db: sqlite3.Connection, runs: Sequence[Sequence[_Source]]) -> None:
    """Write the whole plan: the tasks of all shards in their order, and the blocks with them."""
    first, writer = [run[0] for run in runs], TaskWriter(db)
    blocks = {}
    for source in first:
        becomes = dict(source.db.execute("SELECT row, becomes FROM temp.candidate_row"))
        for number, rollouts, rows in source.blocks():
            blocks[number] = rollouts, [becomes[row] for row in rows]
    planned = heapq.merge(*(source.planned(ledger) for ledger, source in enumerate(first)))
    whole = {}
    for number, tasks in groupby(planned, key=itemgetter(0)):
        rollouts, candidates = blocks[number]
        whole[number] = rollouts, list(runs_of(_put_tasks(first, tasks, writer))), candidates
    write_blocks(db, whole)
    for run in runs:
        for source in run[1:]:
            for (*_, row), (*_, same) in zip(run[0].planned(), source.planned(), strict=True):
                source.put_task_row(same, run[0].new_task_row(row))
    for source in (source for run in runs for source in run):
        for row in source.unplanned():
            source.put_task_row(row, writer.add(source.task(row)))
    writer.flush()
    db.execute("INSERT INTO meta VALUES (?, ?)", (PLAN_CRC, str(plan_crc(db))))


def _put_tasks(
    sources: Sequence[_Source], tasks: Iterable[_Planned], writer: TaskWriter
) -> Iterator[int]:
    """Write the tasks of a block that are not there yet, and yield the row of each."""
    for _, _, ledger, row in tasks:
        source = sources[ledger]
        becomes = source.new_task_row(row)
        if becomes is None:
            becomes = writer.add(source.task(row))
            source.put_task_row(row, becomes)
        yield becomes


def _put_repeated(
    db: sqlite3.Connection, source: _Source, into: Path, on_repeated: OnRepeated
) -> None:
    """Write the attempts of a further run of a shard behind those that are there."""
    for key, group in groupby(source.db.execute(_EVERY), key=itemgetter(0)):
        further, name = list(group), _name_of(db, key)
        there = db.execute(_RECORDED, (key,)).fetchone()
        stays = there is not None and STATUSES[there[_STATUS]].final
        before = 0 if there is None else there[_NUMBER] - stays
        attempts = [(source.folder, row, before + row[_NUMBER]) for row in further]
        if there is not None:
            last = there[_NUMBER] + (further[-1][_NUMBER] if stays else 0)
            attempts.insert(len(attempts) if stays else 0, (into, there, last))
        for folder, row, number in reversed(attempts):
            on_repeated(folder, name, row[_NUMBER], number)
        *earlier, counted = (_with_crc((key, n, *row[_STATUS:])) for _, row, n in attempts)
        db.execute("DELETE FROM attempt WHERE trial = ?", (key,))
        db.execute(INSERT, counted)
        db.executemany(INSERT_EARLIER, earlier)


def _name_of(db: sqlite3.Connection, key: int) -> str:
    rollout, task, candidate = parts_of_key(key)
    (task_id,) = db.execute("SELECT id FROM task WHERE row = ?", (task,)).fetchone()
    (who,) = db.execute("SELECT id FROM candidate WHERE row = ?", (candidate,)).fetchone()
    return trial_name(task_id, who, rollout)


def _put_sessions(db: sqlite3.Connection, sources: Sequence[_Source]) -> None:
    """Write the sessions of all runs, the oldest first."""
    query = f"SELECT {_SESSION} FROM session"  # noqa: S608 -- no user text
    sessions = [row for source in sources for row in source.db.execute(query)]
    insert = f"INSERT INTO session ({_SESSION}) VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
    db.executemany(insert, sorted(sessions, key=itemgetter(0)))


def finish_merged(into: Path, manifest: Manifest) -> None:
    """Put *manifest* into the merged ledger in the folder *into*, and close it as a run does."""
    path = into / LEDGER
    with writing_to(path), closing(sqlite3.connect(path)) as db, db:
        copy = manifest_copy(msgspec.json.encode(manifest))
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (MANIFEST_COPY, copy))
    seal(path)
