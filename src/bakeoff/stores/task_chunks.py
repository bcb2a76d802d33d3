"""The tasks of a ledger: many bodies in one compressed chunk, and a row each for people.

A chunk is at most a thirty-second of what was written before it, and 256 tasks: so damage to one takes
little of a small suite, and a large one costs little.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import msgspec

from bakeoff._lib.redact import Redactor
from bakeoff._lib.value_object import positional_value_object
from bakeoff.core.lazy_tasks import TaskOutline, mark_stored
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.workspace import Workspace
from bakeoff.stores.packing import deflated, inflated, plain_json
from bakeoff.stores.schema import refuse_too_many, row_crc

_MOST_TASKS, _SHARE, _MOST_BYTES = 256, 32, 1 << 20
_LEVEL = 3
_DIGEST = 16  # bytes
_LOST = b"null"  # in the place of a body that is not known any more

_CHUNK_OF = "SELECT first, tasks, digests, bodies FROM task_chunk WHERE first <= ? ORDER BY first DESC LIMIT 1"
_DIGESTS_OF = "SELECT first, digests FROM task_chunk WHERE first <= ? ORDER BY first DESC LIMIT 1"
_CHUNKS = "SELECT first, digests FROM task_chunk ORDER BY first"
_INSERT = "INSERT OR REPLACE INTO task_chunk VALUES (?, ?, ?, ?, ?, ?)"

_bodies = msgspec.json.Decoder(list[msgspec.Raw])
_task = msgspec.json.Decoder(Task)


@positional_value_object
class TaskRow:
    """A task as it is kept; `body` is its JSON, None where it is lost."""

    digest: bytes
    id: str
    category: str | None
    body: bytes | None

    @classmethod
    def of(cls, task: Task, redactor: Redactor | None = None) -> "TaskRow":
        """Return *task* as it is kept, without secrets."""
        body = plain_json(task, redactor)
        return cls(bytes.fromhex(task.digest), task.id, task.category, body)


class TaskWriter:
    """Appends tasks to a ledger, within the transaction of the caller."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        (last,) = db.execute(
            "SELECT coalesce(max(first + tasks - 1), 0) FROM task_chunk"
        ).fetchone()
        self._next = int(last) + 1
        self._gathered: list[TaskRow] = []
        self._bytes = 0

    def add(self, task: TaskRow) -> int:
        """Append *task* and return its row; it is there after the next `flush`."""
        self._gathered.append(task)
        self._bytes += len(task.body or b"")
        row = self._next + len(self._gathered) - 1
        if self._bytes >= _MOST_BYTES or len(self._gathered) >= _chunk_size(self._next):
            self.flush()
        return row

    def flush(self) -> None:
        """Write the tasks that have gathered."""
        if not self._gathered:
            return
        put_chunk(self._db, self._next, self._gathered)
        self._next += len(self._gathered)
        refuse_too_many("tasks", self._next - 1)
        self._gathered.clear()
        self._bytes = 0


def put_tasks(db: sqlite3.Connection, tasks: Iterable[tuple[int, TaskRow]]) -> None:
    """Write *tasks* by their rows, in order, into an empty ledger; what is not among them is lost."""
    writer, following = TaskWriter(db), 1
    for row, task in tasks:
        for missing in range(following, row):
            writer.add(TaskRow(bytes(_DIGEST), f"number {missing}", None, None))
        writer.add(task)
        following = row + 1
    writer.flush()


def _chunk_size(first: int) -> int:
    return min(max(first // _SHARE, 1), _MOST_TASKS)


def put_chunk(db: sqlite3.Connection, first: int, tasks: Sequence[TaskRow]) -> None:
    """Write *tasks*, of which the first has the row *first*."""
    names = [(first + place, task.id, task.category) for place, task in enumerate(tasks)]
    db.executemany("INSERT OR REPLACE INTO task VALUES (?, ?, ?)", names)
    digests = b"".join(task.digest for task in tasks)
    bodies = b"[%b]" % b",".join(task.body or _LOST for task in tasks)
    values = (first, len(tasks), digests, deflated(bodies, _LEVEL), names_crc(names))
    db.execute(_INSERT, (*values, row_crc(*values)))
    lost = [(first + place,) for place, task in enumerate(tasks) if task.body is None]
    db.executemany("INSERT OR IGNORE INTO lost_task VALUES (?)", lost)


def names_crc(names: Iterable[tuple[int, str, str | None]]) -> int:
    """Return the checksum of rows of `task`."""
    return row_crc(*chain.from_iterable(names))


def names_in(
    db: sqlite3.Connection, first: int, tasks: int
) -> Iterator[tuple[int, str, str | None]]:
    """Yield the rows of `task` of a chunk."""
    query = "SELECT row, id, category FROM task WHERE row BETWEEN ? AND ? ORDER BY row"
    return iter(db.execute(query, (first, first + tasks - 1)))


@positional_value_object
class Chunk:
    """A chunk that was read."""

    first: int
    digests: bytes
    bodies: Sequence[bytes]

    def __contains__(self, row: int) -> bool:
        return self.first <= row < self.first + len(self.bodies)

    def digest(self, row: int) -> bytes:
        """Return the digest of the task in *row*."""
        return digest_at(self.digests, row - self.first)

    def body(self, row: int) -> bytes | None:
        """Return the JSON of the task in *row*; None where it is lost."""
        body = bytes(self.bodies[row - self.first])
        return None if body == _LOST else body


def chunk_of(db: sqlite3.Connection, row: int) -> Chunk:
    """Return the chunk that holds the task in *row*."""
    first, digests, bodies = _packed_chunk(db, row)
    return Chunk(first, digests, split_bodies(bodies))


def _packed_chunk(db: sqlite3.Connection, row: int) -> tuple[int, bytes, bytes]:
    """Return its first row, its digests and its bodies as they are stored."""
    found = db.execute(_CHUNK_OF, (row,)).fetchone()
    if found is None or row >= found[0] + found[1]:
        raise ValueError(f"there is no task {row}")
    first, _, digests, bodies = found
    return first, digests, bodies


def split_bodies(packed: bytes) -> Sequence[bytes]:
    """Return the JSON of each task of a chunk."""
    return [bytes(raw) for raw in _bodies.decode(inflated(packed))]


def digest_at(digests: bytes, place: int) -> bytes:
    """Return one of *digests*."""
    return digests[place * _DIGEST : (place + 1) * _DIGEST]


def chunks_of(db: sqlite3.Connection, rows: Iterable[int]) -> Iterator[tuple[int, Chunk]]:
    """Yield each of *rows* with the chunk that holds it; those in a row share it."""
    chunk = Chunk(0, b"", ())
    for row in rows:
        if row not in chunk:
            chunk = chunk_of(db, row)
        yield row, chunk


def read_tasks(db: sqlite3.Connection, rows: Iterable[int], ledger: str) -> list[Task]:
    """Return the tasks in *rows* of *ledger*."""
    return [
        known_task(
            _task.decode(chunk.bodies[row - chunk.first]), chunk.digest(row).hex(), ledger, row
        )
        for row, chunk in chunks_of(db, rows)
    ]


class _Scorer(msgspec.Struct):
    name: str
    settings: msgspec.Raw = msgspec.Raw(b"{}")
    weight: float = 1.0


class _Outline(msgspec.Struct):
    """What is read of a task's JSON for its outline: the rest is skipped."""

    id: str
    category: str | None = None
    group: str | None = None
    scorers: list[_Scorer] = []
    pass_threshold: float = 1.0
    trouble: str | None = None
    workspace: msgspec.Raw = msgspec.Raw(b"null")


_outlines = msgspec.json.Decoder(list[_Outline | None])
_Scorers: TypeAlias = tuple[tuple[str, bytes, float], ...]


@lru_cache(maxsize=1024)
def _sample(scorers: _Scorers, pass_threshold: float, trouble: str | None, box: bytes) -> Task:
    """Return one task for all that are scored like this."""
    return Task(
        id="",
        messages=(),
        scorers=tuple(
            ScorerSpec(name=name, settings=msgspec.json.decode(settings), weight=weight)
            for name, settings, weight in scorers
        ),
        pass_threshold=pass_threshold,
        trouble=trouble,
        workspace=msgspec.json.decode(box, type=Workspace | None),
    )


def read_outlines(db: sqlite3.Connection, rows: Iterable[int]) -> list[TaskOutline]:
    """Return the outlines of the tasks in *rows*."""
    first, stored, found = 0, list[_Outline | None](), []
    for row in rows:
        if not 0 <= row - first < len(stored):
            first, _, bodies = _packed_chunk(db, row)
            stored = _outlines.decode(inflated(bodies))
        task = stored[row - first]
        if task is None:
            raise ValueError(f"task {row} is lost")
        scorers = tuple([(s.name, bytes(s.settings), s.weight) for s in task.scorers])
        sample = _sample(scorers, task.pass_threshold, task.trouble, bytes(task.workspace))
        found.append(TaskOutline(task.id, task.category, task.group, sample))
    return found


def digests_in(db: sqlite3.Connection, rows: Iterable[int]) -> list[str]:
    """Return the digests of the tasks in *rows*; no body is read."""
    first, digests, found = 0, b"", []
    for row in rows:
        place = row - first
        if not 0 <= place < len(digests) // _DIGEST:
            first, digests = db.execute(_DIGESTS_OF, (row,)).fetchone()
            place = row - first
        found.append(digest_at(digests, place).hex())
    return found


def read_known(db: sqlite3.Connection, rows: Iterable[int]) -> Iterator[Task | None]:
    """Yield the tasks in *rows*, None for those that are lost."""
    for row, chunk in chunks_of(db, rows):
        body = chunk.body(row)
        yield None if body is None else _task.decode(body)


def known_task(task: Task, digest: str, ledger: str, row: int) -> Task:
    """Return *task* with its digest and its row of *ledger*, which need not be made again."""
    task.__dict__["digest"] = digest  # where the cached property keeps it
    return mark_stored(task, ledger, row)


def read_digests(db: sqlite3.Connection) -> Iterator[tuple[int, bytes]]:
    """Yield the row and the digest of each task."""
    for first, digests in db.execute(_CHUNKS):
        for place in range(len(digests) // _DIGEST):
            yield first + place, digest_at(digests, place)


def rewrite(db: sqlite3.Connection, changed: Mapping[int, TaskRow]) -> None:
    """Put *changed* tasks, by row, in the place of those that have their digests."""
    for first in sorted({chunk.first for _, chunk in chunks_of(db, sorted(changed))}):
        chunk = chunk_of(db, first)
        rows = range(first, first + len(chunk.bodies))
        names = {row: (name, category) for row, name, category in names_in(db, first, len(rows))}
        tasks = [
            changed.get(row) or TaskRow(chunk.digest(row), *names[row], chunk.body(row))
            for row in rows
        ]
        put_chunk(db, first, tasks)
    db.executemany("DELETE FROM lost_task WHERE row = ?", ((row,) for row in changed))
