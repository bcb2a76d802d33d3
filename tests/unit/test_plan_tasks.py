"""Which tasks a plan has."""

from dataclasses import replace

from bakeoff._lib.digest import digest
from bakeoff.core.candidate import AgentSpec, Candidate, ModelSpec
from bakeoff.core.plan import Block, Plan
from bakeoff.core.task import Message, Task

_CANDIDATE = Candidate(
    id="m", agent=AgentSpec(name="none"), model=ModelSpec(provider="p", name="m")
)


def _task(name: str, content: str = "?") -> Task:
    return Task(id=name, messages=(Message(role="user", content=content),))


def _plan(*blocks: tuple[Task, ...]) -> Plan:
    return Plan(blocks=tuple(Block(tasks=tasks, candidates=(_CANDIDATE,)) for tasks in blocks))


def test_a_task_of_two_blocks_is_listed_once_also_where_it_is_an_equal_copy() -> None:
    first, second = _task("first"), _task("second")
    plan = _plan((first, second), (first, replace(second)), (replace(first),))
    assert list(plan.tasks) == [first, second]


def test_tasks_of_one_id_that_differ_are_all_listed() -> None:
    old, new, newest = _task("a", "old"), _task("a", "new"), _task("a", "newest")
    plan = _plan((old,), (new, newest), (replace(new), replace(old), newest))
    assert list(plan.tasks) == [old, new, newest]


def test_the_digest_of_a_plan_is_that_of_its_parts_as_data() -> None:
    plan = _plan((_task("a"), _task("b")), (_task("c"),))
    parts = [
        [[t.digest for t in b.tasks], [c.digest for c in b.candidates], b.rollouts]
        for b in plan.blocks
    ]
    assert plan.digest == digest([plan.conditions.digest, parts])
    assert Plan(blocks=()).digest == digest([plan.conditions.digest, []])
