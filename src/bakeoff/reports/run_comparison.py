"""Two runs compared, in words: what moved, how surely, and what else was not the same."""

from collections.abc import Iterator, Sequence

import msgspec

from bakeoff._lib.untrusted import one_line
from bakeoff.core.values import Json
from bakeoff.reports.decision import methods
from bakeoff.reports.in_words import amount, counted
from bakeoff.stats.between_runs import Contrast, Moved
from bakeoff.stats.one_task import ROLLOUT

_MOST_TASKS = 8


def as_json(comparison: object) -> Json:
    """Return it as plain data; what is unknown is null."""
    data: Json = msgspec.to_builtins(comparison)
    return data


def told_apart(
    contrasts: Sequence[Contrast], *, only_before: int, only_after: int
) -> Iterator[str]:
    """Yield by what they were compared, and what could not be."""
    tested = [one.pair for one in contrasts if one.pair.p is not None]
    if tested:
        yield methods(tested)
    if any(pair.detectable is not None for pair in tested):
        yield "MDE: the least difference that so many tasks show with a chance of 80 %"
    if any(one.pair.withheld for one in contrasts):
        yield "a verdict has to hold with each faulted trial counted against the one ahead"
    if left_out := max((one.pair.left_out for one in contrasts), default=0):
        yield f"left out, because only one of the two has a score: {counted(left_out, 'task')}"
    if only_before or only_after:
        yield f"tasks only in the run before: {only_before}; only in the run after: {only_after}"


def moved(one: Contrast) -> Iterator[str]:
    """Yield the tasks on which a candidate did worse, then those on which it did better."""
    name = one_line(one.after)
    worse = [task for task in one.moved if task.after < task.before]
    better = [task for task in reversed(one.moved) if task.after > task.before]
    for word, tasks in (("worse", worse), ("better", better)):
        if tasks:
            yield f"{name}: {word} on {counted(len(tasks), 'task')}: {_named(tasks)}"
    if not one.moved and one.pair.tasks:
        yield f"{name}: the same score on each of {counted(one.pair.tasks, 'task')}"


def _named(tasks: Sequence[Moved]) -> str:
    told = [f"{one_line(t.task)} {t.before:.2f} → {t.after:.2f}" for t in tasks[:_MOST_TASKS]]
    more = len(tasks) - len(told)
    return ", ".join(told) + (f", and {more} more (--json has all)" if more else "")


def verdict(one: Contrast) -> str:
    """Return what became of a candidate, as a person says it."""
    pair = one.pair
    if pair.better is None:
        return pair.verdict
    by = amount(pair.difference or 0.0)
    where = " on this task" if pair.unit == ROLLOUT else ""
    return f"{'worse' if one.worse else 'better'} than before{where}, by {by}"
