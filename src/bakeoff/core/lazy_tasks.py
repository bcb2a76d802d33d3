"""The tasks of a large stored plan: read in chunks when they are needed, and not kept."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, overload

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


class LazyTasks(Sequence[Task]):
    """A sequence of tasks that keeps eight bytes of each at most; whoever iterates reads them again.

    *read* returns the tasks in the given rows of *ledger*, *read_digests* just their digests. Without
    a ledger they are not as they are stored. Rows that follow each other are a range.
    """

    def __init__(
        self,
        rows: Sequence[int],
        *,
        ledger: Path | None,
        read: Callable[[Sequence[int]], Sequence[Task]],
        read_digests: Callable[[Sequence[int]], Sequence[str]],
    ) -> None:
        self.rows = rows
        self.ledger = ledger
        self._read = read
        self._read_digests = read_digests

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
                rows, ledger=self.ledger, read=self._read, read_digests=self._read_digests
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

    def changed(self, change: Callable[[Task], Task]) -> "LazyTasks":
        """Return these tasks, each changed when it is read."""

        def read(rows: Sequence[int]) -> Sequence[Task]:
            return [change(task) for task in self._read(rows)]

        return LazyTasks(self.rows, ledger=None, read=read, read_digests=self._read_digests)

    def digests(self) -> Iterator[str]:
        """Yield the digest of each task, without reading the tasks."""
        for start in range(0, len(self.rows), _CHUNK):
            yield from self._read_digests(self.rows[start : start + _CHUNK])


def digests_of(tasks: Sequence[Task]) -> Iterator[str]:
    """Yield the digest of each of *tasks*."""
    if isinstance(tasks, LazyTasks):
        return tasks.digests()
    return (task.digest for task in tasks)


def mapped(change: Callable[[Task], Task], tasks: Sequence[Task]) -> Sequence[Task]:
    """Return *tasks* changed one by one; those that are read as needed are changed as they are read."""
    if not isinstance(tasks, LazyTasks):
        return tuple(map(change, tasks))
    return tasks.changed(change)
