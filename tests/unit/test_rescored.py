"""A plan whose answers are to be scored differently."""

from dataclasses import replace
from typing import Any

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.planning.resume import rescored
from support.plans import plan, task

OLD = task("a", target="x", scorers=(ScorerSpec(name="exact"),), category="old")


def _again(new: Task) -> Task:
    (found,) = rescored(plan(OLD), [new]).plan.tasks
    return found


def test_targets_scorers_and_thresholds_are_taken_over() -> None:
    new = replace(OLD, target="y", scorers=(ScorerSpec(name="includes"),), pass_threshold=0.5)
    assert _again(new).digest == new.digest


def test_a_task_that_is_not_given_stays_as_it_was() -> None:
    before = plan(OLD, task("b"), rollouts=3)
    after, found = rescored(before, [replace(OLD, target="y"), task("unknown")])
    assert found == 1
    assert [t.id for t in after.tasks] == ["a", "b"]
    assert [t.target for t in after.tasks] == ["y", None]
    assert len(after) == len(before)
    assert rescored(before, []).plan.digest == before.digest


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": (Message(role="user", content="other"),)}, "messages"),
        ({"parameters": {"temperature": 1}}, "parameters"),
        ({"time_s": 3.0}, "time_s"),
        ({"api_type": "chat"}, "api_type"),
    ],
)
def test_another_question_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match=rf"task 'a' asks something else now \({field} differ"):
        _again(replace(OLD, **change))


def test_a_task_that_is_called_otherwise_is_found_by_what_it_asks() -> None:
    (found,) = rescored(plan(OLD), [replace(OLD, id="b", target="y")]).plan.tasks
    assert (found.id, found.target) == ("a", "y")


def test_scorers_take_the_place_of_all() -> None:
    exact = (ScorerSpec(name="exact"),)
    new = replace(OLD, target="y", scorers=(ScorerSpec(name="includes"),))
    (found,) = rescored(plan(OLD), [new], exact).plan.tasks
    assert (found.target, found.scorers) == ("y", exact)
