"""The tasks of a large plan: read when they are needed, from its ledger or its source, and not kept."""

from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, overload

from bakeoff._lib.value_object import value_object
from bakeoff.core.task import Task

_CHUNK = 512  # tasks read at once: few queries, and memory that does not grow
_STORED = "stored"  # beside the fields of a task


class _Stored(NamedTuple):
    ledger: str  # a path, as text: compared for each trial
    row: int


def mark_stored(task: Task, ledger: str, row: int) -> Task:
    """Note on *task* in which row of *ledger* it is, and return it."""
    task.__dict__[_STORED] = _Stored(ledger, row)
    return task


def stored_row(task: Task, ledger: str) -> int | None:
    """Return the row of *task* in *ledger*, where that is known."""
    stored: _Stored | None = task.__dict__.get(_STORED)
    return stored.row if stored is not None and stored.ledger == ledger else None


class TaskOutline(NamedTuple):
    """What statistics need of a task; `sample` is a task that is scored as it is, and works in a box as it does."""

    id: str
    category: str | None
    group: str | None
    sample: Task


def outline(task: Task) -> TaskOutline:
    """Return the outline of *task*, which is its own sample."""
    return TaskOutline(task.id, task.category, task.group, task)


class LazyTasks(Sequence[Task]):
    """A sequence of tasks that keeps eight bytes of each at most; whoever iterates reads them again.

    *read* returns the tasks in the given rows of *ledger*, *read_digests* and *read_outlines* less of them.
    Without a ledger they are not as they are stored. Rows that follow each other are a range.
    """

    def __init__(
        self,
        rows: Sequence[int],
        *,
        ledger: Path | None,
        read: Callable[[Sequence[int]], Sequence[Task]],
        read_digests: Callable[[Sequence[int]], Sequence[str]],
        read_outlines: Callable[[Sequence[int]], Sequence[TaskOutline]] | None = None,
    ) -> None:
        self.rows = rows
        self.ledger = ledger
        self._read = read
        self._read_digests = read_digests
        self._read_outlines = read_outlines

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Task]:
        for start in range(0, len(self.rows), _CHUNK):
            yield from self._read(self.rows[start : start + _CHUNK])

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "LazyTasks": ...
    def __getitem__(self, index: int | slice) -> "Task | LazyTasks":
        if isinstance(index, slice):
            rows = self.rows[index]
            return LazyTasks(
                rows,
                ledger=self.ledger,
                read=self._read,
                read_digests=self._read_digests,
                read_outlines=self._read_outlines,
            )
        return self._read([self.rows[index]])[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LazyTasks | tuple):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(self.digests()))

    @property
    def are_distinct(self) -> bool:
        """Whether no task is there twice."""
        return isinstance(self.rows, range) or len(set(self.rows)) == len(self.rows)

    def changed(
        self, change: Callable[[Task], Task], *, keeps_outline: bool = False
    ) -> "LazyTasks":
        """Return these tasks, each changed when it is read."""

        def read(rows: Sequence[int]) -> Sequence[Task]:
            return [change(task) for task in self._read(rows)]

        return LazyTasks(
            self.rows,
            ledger=None,
            read=read,
            read_digests=self._read_digests,
            read_outlines=self._read_outlines if keeps_outline else None,
        )

    def digests(self) -> Iterator[str]:
        """Yield the digest of each task, without reading the tasks."""
        for start in range(0, len(self.rows), _CHUNK):
            yield from self._read_digests(self.rows[start : start + _CHUNK])

    def outlines(self) -> Iterator[TaskOutline]:
        """Yield the outline of each task; the tasks are not read, where that can be helped."""
        if self._read_outlines is None:
            yield from map(outline, self)
            return
        for start in range(0, len(self.rows), _CHUNK):
            yield from self._read_outlines(self.rows[start : start + _CHUNK])


def outlines_of(tasks: Sequence[Task]) -> Iterator[TaskOutline]:
    """Yield the outline of each of *tasks*."""
    return tasks.outlines() if isinstance(tasks, LazyTasks) else map(outline, tasks)


def digests_of(tasks: Sequence[Task]) -> Iterator[str]:
    """Yield the digest of each of *tasks*."""
    if isinstance(tasks, LazyTasks):
        return tasks.digests()
    return (task.digest for task in tasks)


def mapped(
    change: Callable[[Task], Task], tasks: Sequence[Task], *, keeps_outline: bool = False
) -> Sequence[Task]:
    """Return *tasks* changed one by one; those that are read as needed are changed as they are read.

    With *keeps_outline*, their outlines are read as they were: the change does not concern them.
    """
    if isinstance(tasks, LazyTasks):
        return tasks.changed(change, keeps_outline=keeps_outline)
    if isinstance(tasks, StreamedTasks):
        return tasks.changed(change)
    return tuple(map(change, tasks))


# --- tasks that are read while they run -------------------------------------------------------------

MOST_HELD = 5_000  # tasks that are kept in memory; more are read as they are needed
_FIRST = 1_000  # tasks of a stream that are tried out before anything is asked


@value_object
class StreamedTasks(Sequence[Task]):
    """The tasks of a large data set: whoever iterates reads them anew, and nobody keeps them.

    There are `length` of them at most: rows that repeat an earlier one are left out as they are read.
    The `first` ones are at hand. `shapes` are tasks that differ in the variables they have, each with
    how many are like it.
    """

    read: Callable[[], Iterator[Task]]
    length: int
    first: tuple[Task, ...]
    shapes: tuple[tuple[Task, int], ...]

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Task]:
        return self.read()

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        return tuple(self)[index]

    def changed(self, change: Callable[[Task], Task]) -> "StreamedTasks":
        """Return these tasks, each changed when it is read."""
        return StreamedTasks(
            read=lambda: map(change, self.read()),
            length=self.length,
            first=tuple(map(change, self.first)),
            shapes=tuple((change(task), many) for task, many in self.shapes),
        )


def streamed(read: Callable[[], Iterator[Task]]) -> Sequence[Task]:
    """Return what *read* yields: held where the tasks are few, else read anew when they are needed."""
    tasks = read()
    held = list(islice(tasks, MOST_HELD + 1))
    if len(held) <= MOST_HELD:
        return tuple(held)
    shapes: dict[frozenset[str], tuple[Task, int]] = {}
    for task in chain(held, tasks):
        names = frozenset(task.vars)
        first, many = shapes.get(names, (task, 0))
        shapes[names] = first, many + 1
    return StreamedTasks(
        read=read,
        length=sum(many for _, many in shapes.values()),
        first=tuple(held[:_FIRST]),
        shapes=tuple(shapes.values()),
    )


def joined(first: Sequence[Task], second: Sequence[Task]) -> Sequence[Task]:
    """Return the tasks of both; a stream stays one only where it is alone."""
    if not first or not second:
        return first or second
    return (*first, *second)


def first_of(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks of a stream that are tried out before anything is asked."""
    return tuple(islice(tasks, _FIRST))


def at_hand(tasks: Sequence[Task]) -> Sequence[Task]:
    """Return *tasks*; of those that are read while they run, the first ones."""
    return tasks.first if isinstance(tasks, StreamedTasks) else tasks


class ArrivingTasks(LazyTasks):
    """Tasks of which *advance* puts further ones into the ledger: read there, in order, as they come.

    It returns whether there may be more. *expected* is how many there will be, as far as is known.
    """

    def __init__(
        self,
        rows: MutableSequence[int],
        *,
        ledger: Path,
        read: Callable[[Sequence[int]], Sequence[Task]],
        read_digests: Callable[[Sequence[int]], Sequence[str]],
        advance: Callable[[], bool],
        expected: int,
    ) -> None:
        super().__init__(rows, ledger=ledger, read=read, read_digests=read_digests)
        self._advance = advance
        self.expected = expected

    def __len__(self) -> int:
        return max(self.expected, len(self.rows))

    def __iter__(self) -> Iterator[Task]:
        start = 0
        while True:
            while len(self.rows) < start + _CHUNK and self._advance():
                pass
            tasks = self._read(self.rows[start : start + _CHUNK])
            if not tasks:
                return
            yield from tasks
            start += len(tasks)
