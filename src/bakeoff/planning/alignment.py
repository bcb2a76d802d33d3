"""Which tasks of several plans are the same one: by what they are, not by what they are called.

A task is the same one where its content is: a new id makes no other task of it. What is left is matched by
id, where the wording alone has changed: a prompt that was edited is what people compare. With other
targets, scorers, tools or settings it is another test, whatever it is called.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bakeoff._lib.digest import digest
from bakeoff.core.plan import Plan
from bakeoff.core.task import Task

_WORDING = frozenset({"messages", "prompt", "vars", "turns"})
Names = dict[str, str]
"""By the id of a task in its plan, the name under which all plans know it."""


@dataclass(frozen=True, slots=True)
class _Content:
    """A task by its digests: all of it, all but its id, and all but its id and its wording."""

    id: str
    digest: str
    content: str
    test: str

    @classmethod
    def of(cls, task: Task) -> "_Content":
        identity = task.identity()
        del identity["id"]
        test = {key: value for key, value in identity.items() if key not in _WORDING}
        return cls(id=task.id, digest=task.digest, content=digest(identity), test=digest(test))


@dataclass(slots=True)
class _Known:
    """The names of the tasks of all plans so far."""

    by_digest: dict[str, str] = field(default_factory=dict)
    by_content: dict[str, str] = field(default_factory=dict)
    by_id: dict[str, tuple[str, str]] = field(default_factory=dict)  # with the digest of the test
    names: set[str] = field(default_factory=set)

    def add(self, task: _Content, name: str) -> None:
        self.by_digest[task.digest] = self.by_content[task.content] = name
        self.by_id[task.id] = name, task.test
        self.names.add(name)

    def fresh(self, wanted: str) -> str:
        """Return a name that no task has yet."""
        name, number = wanted, 2
        while name in self.names:
            name, number = f"{wanted} ({number})", number + 1
        return name


def aligned(plans: Sequence[Plan], *, by_name: bool = False) -> list[Names]:
    """Return the names of the tasks of each plan; *by_name*, one id is one task whatever is in it."""
    if len(plans) == 1 or len({plan.digest for plan in plans}) == 1:
        return [{task.id: task.id for task in plan.tasks} for plan in plans]
    known = _Known()
    return [_named(plan.tasks, known, by_name=by_name) for plan in plans]


def _named(tasks: Iterable[Task], known: _Known, *, by_name: bool) -> Names:
    names: Names = {}
    used: set[str] = set()
    left = [_Content.of(task) for task in tasks]
    every = list(left)

    def match(task: _Content, name: str | None) -> bool:
        if name is None or name in used or task.id in names:
            return False
        names[task.id] = name
        used.add(name)
        return True

    def of_same_id(task: _Content) -> str | None:
        name, test = known.by_id.get(task.id, (None, None))
        return name if by_name or test == task.test else None

    left = [task for task in left if not match(task, known.by_digest.get(task.digest))]
    left = [task for task in left if not match(task, known.by_content.get(task.content))]
    left = [task for task in left if not match(task, of_same_id(task))]
    for task in left:
        match(task, known.fresh(task.id))
    for task in every:
        known.add(task, names[task.id])
    return names
