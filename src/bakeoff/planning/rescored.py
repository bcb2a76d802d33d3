"""A plan whose answers are to be scored differently."""

from collections.abc import Iterable
from dataclasses import replace

from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Block, Plan
from bakeoff.core.task import Task

_SCORING = frozenset({"target", "scorers", "pass_threshold"})


def rescored(plan: Plan, tasks: Iterable[Task]) -> Plan:
    """Return *plan* with the scoring of *tasks*, by id; what is asked must be the same."""
    today = {task.id: task for task in tasks}

    def scored_anew(task: Task) -> Task:
        new = today.get(task.id)
        if new is None:
            return task
        _refuse_another_question(task, new)
        return replace(
            task, target=new.target, scorers=new.scorers, pass_threshold=new.pass_threshold
        )

    blocks = [
        Block(
            tasks=tuple(scored_anew(task) for task in block.tasks),
            candidates=block.candidates,
            rollouts=block.rollouts,
        )
        for block in plan.blocks
    ]
    return Plan(blocks=tuple(blocks), conditions=plan.conditions)


def _refuse_another_question(before: Task, after: Task) -> None:
    old, new = before.identity(), after.identity()
    changed = [key for key in new if key not in _SCORING and old[key] != new[key]]
    if changed:
        raise UsageError(
            f"task {before.id!r} asks something else now ({', '.join(changed)} differ): "
            "its stored answers cannot be scored again; start a new run"
        )
