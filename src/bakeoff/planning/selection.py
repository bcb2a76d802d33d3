"""Which tasks of a suite are run: by category, id, tag, columns, a sample, or an earlier run."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from itertools import islice

from bakeoff._lib.digest import digest
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import StreamedTasks, first_of, streamed
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.planning.where import Where, parse_where

_MOST_SHOWN, _LONGEST_SHOWN = 6, 30
_OWN_COLUMNS = ("id", "prompt", "category", "group", "tags", "expected")


@value_object
class Selection:
    """What narrows a suite down; empty is everything.

    `within` are the ids that an earlier run left to choose from. `sample` draws so many tasks by
    their ids and the `seed`; `limit` takes the first ones, last of all. `columns` are other names
    of what `where` sees: `{"subject": "category"}`.
    """

    categories: Collection[str] = field(default_factory=tuple)
    tests: Collection[str] = field(default_factory=tuple)
    tags: Collection[str] = field(default_factory=tuple)
    where: str | None = None
    within: Collection[str] | None = None
    sample: int | None = None
    seed: int = 0
    limit: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def narrows(self) -> bool:
        """Whether anything is left out."""
        parts = self.within, self.where, self.sample, self.limit
        return bool(self.categories or self.tests or self.tags) or any(p is not None for p in parts)


def select(tasks: Sequence[Task], selection: Selection) -> Sequence[Task]:
    """Return the selected tasks in their order; a name that matches nothing is an error.

    Of a stream of tasks, a small part is held in memory, and a large one is again a stream.
    """
    if not tasks:
        raise UsageError("there are no tests to run: add at least one")
    if selection.limit is not None and selection.limit < 1:
        raise UsageError(f"limit must be 1 or more, not {selection.limit}")
    if isinstance(tasks, StreamedTasks) and not selection.narrows:
        return tasks
    _check_categories(tasks, selection.categories)
    _check_tags(tasks, selection.tags)
    named = _named(tasks, selection.tests)
    where = None if selection.where is None else parse_where(selection.where)

    def matches() -> Iterator[Task]:
        found = (
            task
            for task in tasks
            if (not selection.categories or task.category in selection.categories)
            and (not selection.tests or task.id in named)
            and (not selection.tags or _has_tag(task, selection.tags))
            and (selection.within is None or task.id in selection.within)
        )
        return found if where is None else matching(found, where, selection.columns)

    def chosen() -> Iterator[Task]:
        found: Iterable[Task] = matches()
        if not isinstance(tasks, StreamedTasks):
            found = list(found)  # `where` is checked on all of them
        if selection.sample is not None:
            found = sampled(found, selection.sample, seed=selection.seed)
        return islice(found, selection.limit)

    part = streamed(chosen) if isinstance(tasks, StreamedTasks) else tuple(chosen())
    if not part:
        raise UsageError(_why_nothing(tasks, selection, where))
    return part


def _why_nothing(tasks: Sequence[Task], selection: Selection, where: Where | None) -> str:
    """Say what matches none of *tasks*, and what the columns of an expression hold."""
    given = _given(selection)
    why = f"no test matches {f'all of {given}; change one of them' if ' and ' in given else given}"
    held: dict[str, dict[str, None]] = {name: {} for name in where.columns} if where else {}
    for task in first_of(tasks):
        columns = columns_of(task, selection.columns)
        for name, values in held.items():
            values[one_line(str(columns.get(name, "")), width=_LONGEST_SHOWN)] = None
    for name, values in held.items():
        shown = ", ".join(repr(value) for value in list(values)[:_MOST_SHOWN])
        why += f"\n    {name} is {shown}{', ...' if len(values) > _MOST_SHOWN else ''}"
    return why


def columns_of(task: Task, names: Mapping[str, str]) -> dict[str, Json]:
    """Return the values that `--where` sees of *task*: its variables, metadata, and own fields.

    *names* are columns that are own fields.
    """
    own: dict[str, Json] = {
        "id": task.id,
        "prompt": next((m.content for m in reversed(task.messages) if m.role == "user"), ""),
        "category": task.category or "",
        "group": task.group or "",
        "tags": task.metadata.get("tags", ()),
        "expected": "" if task.target is None else task.target,
    }
    named = {column: own[name] for column, name in names.items() if name in own}
    return {**named, **own, **task.metadata, **task.vars}


def matching(
    tasks: Iterable[Task], where: Where, names: Mapping[str, str] | None = None
) -> Iterator[Task]:
    """Yield the tasks that *where* means; a column that none of them has is an error."""
    missing = set(where.columns)
    known: dict[str, None] = dict.fromkeys(_OWN_COLUMNS)
    for task in tasks:
        columns = columns_of(task, names or {})
        if missing:
            missing -= columns.keys()
            known |= dict.fromkeys(columns)
        if where.matches(columns):
            yield task
    if missing:
        where.check(list(known))


def sampled(tasks: Iterable[Task], size: int, *, seed: int) -> list[Task]:
    """Return *size* of the tasks in their order: those whose id and *seed* give the lowest digests.

    So a task that is added or removed changes at most one place of the sample.
    """
    if size < 1:
        raise UsageError(f"sample must be 1 or more, not {size}")
    drawn = heapq.nsmallest(
        size,
        ((digest([seed, task.id]), number, task) for number, task in enumerate(tasks)),
        key=lambda entry: entry[:2],
    )
    return [task for _, _, task in sorted(drawn, key=lambda entry: entry[1])]


def _given(selection: Selection) -> str:
    """Return the options that were given, as they are typed."""
    options: Mapping[str, object] = {
        "--category": selection.categories,
        "--test": selection.tests,
        "--tag": selection.tags,
        "--where": selection.where,
        "--failed-in or --changed-in": selection.within is not None,
    }
    given = [option for option, value in options.items() if value]
    return f"{', '.join(given[:-1])} and {given[-1]}" if len(given) > 1 else "".join(given)


def _check_categories(tasks: Sequence[Task], categories: Collection[str]) -> None:
    known = {task.category for task in tasks if task.category} if categories else set()
    for category in categories:
        if category not in known:
            raise UsageError(f"no category {category!r}: {did_you_mean(category, known)}")


def tags_of(task: Task) -> list[str]:
    """Return the tags of *task*: the list `tags` in its metadata, or a text with commas."""
    tags = task.metadata.get("tags", task.vars.get("tags", ()))
    if isinstance(tags, str):
        return [tag.strip() for tag in tags.split(",") if tag.strip()]
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list | tuple) else []


def _has_tag(task: Task, tags: Collection[str]) -> bool:
    return any(tag in tags for tag in tags_of(task))


def _check_tags(tasks: Sequence[Task], tags: Collection[str]) -> None:
    known = {tag for task in tasks for tag in tags_of(task)} if tags else set()
    for tag in tags:
        if tag not in known:
            raise UsageError(f"no tag {tag!r}: {did_you_mean(tag, known)}")


def _named(tasks: Sequence[Task], patterns: Collection[str]) -> set[str]:
    """Return the ids that *patterns* mean: the one that is just so, else all that match."""
    ids = {task.id for task in tasks}
    named: set[str] = set()
    for pattern in patterns:
        matches = {pattern} if pattern in ids else {i for i in ids if fnmatchcase(i, pattern)}
        if not matches:
            hint = did_you_mean(pattern, [task.id for task in first_of(tasks)])
            raise UsageError(f"no test {pattern!r}: {hint}")
        named |= matches
    return named
