"""`{{name}}` in a prompt. There are no templates: it is sent as it stands, which is seldom meant."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.formats.text.locate import shown

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")
_VARIABLES = ("vars", "variables")
_NO_TEMPLATES = "prompts are not templates here"


def variables_in(data: Mapping[str, Json]) -> set[str]:
    """Return the names that a test or a suite gives values to, as tools with templates do."""
    tables = (data.get(key) for key in _VARIABLES)
    return {str(name) for table in tables if isinstance(table, Mapping) for name in table}


def refuse_unfilled(task: Task, variables: Collection[str], at: SourceLocation) -> None:
    """Raise where *task* waits for one of *variables* to be filled in: it would go out as it is."""
    for name in _names(task) if variables else ():
        if name.partition(".")[0] in variables:
            raise UsageError(
                f"{shown(at)}: test {task.id!r}: {{{{{name}}}}} would not be filled in: "
                f"{_NO_TEMPLATES}; write the text out, or `literal: true` to send it unchanged"
            )


def placeholder_notes(
    tasks: Sequence[Task], literal: Collection[str], at: SourceLocation
) -> Iterator[str]:
    """Yield a note where some *tasks*, a list *at* a place, look like templates.

    *literal* are the ids of those that are meant as they stand.
    """
    waiting = [
        (number, names[0])
        for number, task in enumerate(tasks)
        if task.id not in literal and (names := _names(task))
    ]
    if waiting:
        number, name = waiting[0]
        task, many = tasks[number], len(waiting)
        which = f"{task.id!r}" if many == 1 else f"{many} tasks, {task.id!r} first"
        yield (
            f"{shown(at.inside(number))}: {which}: {{{{{name}}}}} is sent unchanged: "
            f"{_NO_TEMPLATES}; write `literal: true` next to the prompt if that is intended"
        )


def _names(task: Task) -> list[str]:
    texts = [*(message.content for message in task.messages), task.prompt or ""]
    return [name for text in texts if "{{" in text for name in _PLACEHOLDER.findall(text)]
