"""The blocks of a plan as the ledger keeps them."""

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import msgspec

from bakeoff.planning.shards import Places
from bakeoff.stores.schema import MOST, PLACES, row_crc

Run = tuple[int, int, int]  # tasks in a row: the place of the first in its block, its row, how many
Runs = list[Run]
Blocks = dict[int, tuple[int, Runs, list[int]]]  # rollouts, tasks and candidates


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
