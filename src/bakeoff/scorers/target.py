"""What a task expects, as texts an answer can be compared with."""

import json

from bakeoff.core.errors import UsageError
from bakeoff.core.task import Task
from bakeoff.core.values import Json


def as_text(value: str | float) -> str:
    """Return a scalar as a person would write it: 42, 0.5, true."""
    return value if isinstance(value, str) else json.dumps(value)


def expected_values(task: Task, scorer: str, given: Json = None) -> tuple[str | float, ...]:
    """Return what *task* accepts, one entry per alternative; *given* overrules its target."""
    target = task.target if given is None else given
    if target is None:
        raise UsageError(
            f"task {task.id!r}: scorer {scorer!r} needs `expected`; "
            "add it to the task, or choose a scorer that needs none (judge, reasoning)"
        )
    several = target if isinstance(target, list | tuple) else (target,)
    if not several:
        raise UsageError(f"task {task.id!r}: `expected` is an empty list; name one answer at least")
    values = []
    for value in several:
        if not isinstance(value, str | bool | int | float):
            raise UsageError(
                f"task {task.id!r}: scorer {scorer!r} compares texts and numbers, not "
                f"{type(value).__name__}; for objects use the scorer 'json'"
            )
        values.append(value)
    return tuple(values)
