"""Why a recorded result cannot stand for a planned trial."""

from collections.abc import Mapping

from bakeoff.core.plan import Plan
from bakeoff.core.task import Task
from bakeoff.core.values import Json

_MOST_SHOWN = 5


def differences(
    plan: Plan, tasks: Mapping[str, Task], seats: Mapping[str, Mapping[str, Json]]
) -> list[str]:
    """Return one line for each task or candidate that has the name of a known one but not its content.

    *tasks* and *seats* are what the ledger knows, by id; a seat is a candidate's identity with
    that of its conditions.
    """
    lines = []
    changed = [
        (f"task {task.id!r}", fields_apart(tasks[task.id].identity(), task.identity()))
        for task in plan.tasks
        if task.id in tasks and tasks[task.id].digest != task.digest
    ]
    for candidate in plan.candidates:
        known = seats.get(candidate.id)
        today = {**candidate.identity(), **plan.conditions.identity()}
        if known is not None and known != today:
            changed.append((f"candidate {candidate.id!r}", fields_apart(known, today)))
    lines = [f"{what} differs in {', '.join(fields)}" for what, fields in changed[:_MOST_SHOWN]]
    if len(changed) > _MOST_SHOWN:
        lines.append(f"and {len(changed) - _MOST_SHOWN} more")
    return lines


def fields_apart(old: Mapping[str, Json], new: Mapping[str, Json], prefix: str = "") -> list[str]:
    """Return the keys whose values are not equal, those of tables with dots."""
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += fields_apart(before, after, f"{prefix}{key}.")
        else:
            found.append(prefix + key)
    return found
