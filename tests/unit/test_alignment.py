"""Which tasks of several plans are the same one."""

from dataclasses import replace

from bakeoff.core.task import ScorerSpec
from bakeoff.planning.alignment import aligned
from support.plans import plan, task


def test_tasks_are_matched_by_content_whatever_they_are_called() -> None:
    before = plan(task("a", prompt="one"), task("b", prompt="two"))
    after = plan(task("b", prompt="one"), task("c", prompt="two"))
    assert aligned([before, after]) == [{"a": "a", "b": "b"}, {"b": "a", "c": "b"}]


def test_a_task_with_another_wording_is_the_same_task_and_one_with_another_test_is_not() -> None:
    asked, scored = task("a", prompt="one"), task("b", target="x")
    other = plan(replace(asked, messages=task(prompt="please, one").messages),
                 replace(scored, target="y"))  # fmt: skip
    first, second = aligned([plan(asked, scored), other])
    assert first == {"a": "a", "b": "b"}
    assert second == {"a": "a", "b": "b (2)"}
    assert aligned([plan(asked, scored), other], by_name=True)[1] == {"a": "a", "b": "b"}


def test_another_scorer_or_setting_makes_another_test() -> None:
    known = task("a", target="x")
    for change in (
        {"scorers": (ScorerSpec(name="exact"),)},
        {"pass_threshold": 0.5},
        {"parameters": {"max_tokens": 5}},
        {"time_s": 3.0},
    ):
        _, second = aligned([plan(known), plan(replace(known, **change))])
        assert second == {"a": "a (2)"}, change


def test_a_third_run_finds_the_task_of_either_of_the_first() -> None:
    old, new = task("a", prompt="one"), task("a", prompt="two")
    plans = [plan(old), plan(new), plan(replace(new, id="z")), plan(old)]
    assert [next(iter(names.values())) for names in aligned(plans)] == ["a", "a", "a", "a"]


def test_two_tasks_with_one_content_stay_two() -> None:
    twins = plan(task("a", prompt="same"), task("b", prompt="same"))
    other = plan(task("b", prompt="same"), task("c", prompt="same"))
    _, second = aligned([twins, other])
    assert len(set(second.values())) == 2
    assert second["b"] == "b"
