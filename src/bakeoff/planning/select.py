"""Which of the tasks are meant."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from bakeoff._lib.suggest import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """By category, by id (wildcards allowed), and at most so many; empty is everything."""

    categories: Collection[str] = field(default_factory=tuple)
    tests: Collection[str] = field(default_factory=tuple)
    limit: int | None = None


def select(tasks: Sequence[Task], selection: Selection) -> tuple[Task, ...]:
    """Return the selected tasks in their order; a name that matches nothing is an error."""
    if not tasks:
        raise UsageError("there are no tests to run: write at least one")
    known = {t.category for t in tasks if t.category}
    for category in selection.categories:
        if category not in known:
            raise UsageError(f"no category {category!r}: {did_you_mean(category, known)}")
    for pattern in selection.tests:
        if not any(_matches(t, pattern) for t in tasks):
            raise UsageError(
                f"no test {pattern!r}: {did_you_mean(pattern, [t.id for t in tasks[:1000]])}"
            )
    chosen = [t for t in tasks if _wanted(t, selection)]
    if selection.limit is not None:
        if selection.limit < 1:
            raise UsageError(f"limit must be 1 or more, not {selection.limit}")
        chosen = chosen[: selection.limit]
    if not chosen:
        raise UsageError("the selection leaves no test: loosen --category or --test")
    return tuple(chosen)


def _wanted(task: Task, selection: Selection) -> bool:
    if selection.categories and task.category not in selection.categories:
        return False
    return not selection.tests or any(_matches(task, p) for p in selection.tests)


def _matches(task: Task, pattern: str) -> bool:
    return task.id == pattern or fnmatchcase(task.id, pattern)
