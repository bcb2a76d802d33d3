"""Why a recorded result cannot stand for a planned trial."""

from dataclasses import replace

from bakeoff.core.candidate import Limits, ModelSpec
from bakeoff.core.plan import Plan
from bakeoff.core.task import ScorerSpec
from bakeoff.core.values import Json
from bakeoff.planning.resume import differences
from support.plans import candidate, plan, task, tasks


def _seats(known: Plan) -> dict[str, dict[str, Json]]:
    return {c.id: {**c.identity(), **known.conditions.identity()} for c in known.candidates}


def _between(old: Plan, new: Plan) -> list[str]:
    return differences(new, {t.id: t for t in old.tasks}, _seats(old))


def test_nothing_is_said_where_nothing_differs() -> None:
    before = plan(*tasks(3))
    assert _between(before, plan(*tasks(3), rollouts=5)) == []


def test_a_changed_label_is_no_difference() -> None:
    assert _between(plan(task("a")), plan(task("a", name="N", category="c"))) == []


def test_the_fields_of_a_task_that_differ_are_named() -> None:
    old = task("a", target="x", parameters={"temperature": 0, "top_p": 1})
    new = replace(
        task("a", prompt="other", target="x", parameters={"temperature": 1, "top_p": 1}),
        scorers=(ScorerSpec(name="exact"),),
    )
    assert _between(plan(old), plan(new)) == [
        "task 'a' differs in messages, parameters.temperature, scorers"
    ]


def test_the_fields_of_a_candidate_that_differ_are_named_with_its_conditions() -> None:
    old = plan(task("a"), candidates=[candidate("m", temperature=0)])
    new = plan(task("a"), candidates=[candidate("m", temperature=1)], limits=Limits(time_s=3.0))
    assert _between(old, new) == [
        "candidate 'm' differs in limits.time_s, model.parameters.temperature"
    ]


def test_a_new_task_or_candidate_is_no_difference() -> None:
    assert _between(plan(task("a")), plan(task("b"), candidates=[candidate("n")])) == []


def test_a_key_that_went_away_is_a_difference() -> None:
    spec = ModelSpec(provider="python", name="m", parameters={})
    new = plan(task("a"), candidates=[replace(candidate("m"), model=spec)])
    assert _between(plan(task("a")), new) == [
        "candidate 'm' differs in model.parameters.temperature"
    ]


def test_many_differences_are_counted_not_listed() -> None:
    old, new = plan(*tasks(20)), plan(*tasks(20, target="x"))
    lines = _between(old, new)
    assert len(lines) == 6
    assert lines[-1] == "and 15 more"
