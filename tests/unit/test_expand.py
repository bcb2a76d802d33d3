"""From a brief to a plan, and what makes a trial the same trial."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.core.candidate import AgentSpec, Conditions, Limits, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Trial
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Message, ScorerSpec
from bakeoff.planning.expand import expand
from support.plans import task, tasks

MODEL = ModelSpec(provider="scripted", name="echo")
TASK = task("a", target="x", scorers=(ScorerSpec(name="includes"),), parameters={"temperature": 0})
BRIEF = RunSpec(name="b", tasks=(TASK,), models=(MODEL,))


def _trial(brief: RunSpec) -> Trial:
    return next(iter(expand(brief)))


def test_a_plan_is_tasks_times_candidates_times_rollouts() -> None:
    brief = replace(
        BRIEF,
        tasks=tasks(3),
        models=(MODEL, ModelSpec(provider="openai", name="x")),
        agents=(AgentSpec(), AgentSpec(name="mine:solve")),
        rollouts=2,
    )
    plan = expand(brief)
    trials = list(plan)
    assert len(plan) == len(trials) == 3 * 4 * 2
    assert len({t.id for t in trials}) == len({t.name for t in trials}) == 24
    assert [t.rollout for t in trials] == [0] * 12 + [1] * 12
    assert [c.id for c in plan.candidates] == [
        "scripted/echo",
        "openai/x",
        "mine:solve+scripted/echo",
        "mine:solve+openai/x",
    ]


def test_the_same_model_twice_is_one_candidate() -> None:
    assert len(expand(replace(BRIEF, models=(MODEL, MODEL)))) == 1


def test_candidates_with_the_same_name_are_told_apart() -> None:
    warm = replace(MODEL, parameters={"temperature": 1})
    elsewhere = replace(MODEL, base_url="http://x")
    ids = [c.id for c in expand(replace(BRIEF, models=(MODEL, warm, elsewhere))).candidates]
    assert len(set(ids)) == 3
    assert ids[1].startswith("scripted/echo(temperature=1)~")


@pytest.mark.parametrize(
    ("brief", "message"),
    [
        (replace(BRIEF, tasks=()), "'b' has no tasks to run"),
        (replace(BRIEF, rollouts=0), "rollouts must be 1 or more, not 0"),
    ],
)
def test_a_brief_that_asks_for_nothing_is_refused(brief: RunSpec, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        expand(brief)


@pytest.mark.parametrize(
    "label",
    [
        {"name": "Another"},
        {"category": "other"},
        {"metadata": {"description": "better words"}},
    ],
)
def test_labels_are_no_part_of_a_trials_identity(label: dict[str, Any]) -> None:
    assert _trial(replace(BRIEF, tasks=(replace(TASK, **label),))).id == _trial(BRIEF).id


@pytest.mark.parametrize(
    "change",
    [
        {"id": "b"},
        {"messages": (Message(role="user", content="other"),)},
        {"messages": (Message(role="system", content="ask a"),)},
        {"parameters": {"temperature": 1}},
        {"parameters": {}},
        {"target": "y"},
        {"scorers": ()},
        {"scorers": (ScorerSpec(name="exact"),)},
        {"scorers": (ScorerSpec(name="includes", weight=2.0),)},
        {"scorers": (ScorerSpec(name="includes", settings={"all": True}),)},
        {"pass_threshold": 0.5},
        {"time_s": 3.0},
        {"api_type": "completions"},
    ],
)
def test_what_is_asked_and_how_it_is_checked_is_identity(change: dict[str, Any]) -> None:
    assert _trial(replace(BRIEF, tasks=(replace(TASK, **change),))).id != _trial(BRIEF).id


@pytest.mark.parametrize(
    "change",
    [
        {"provider": "openai"},
        {"name": "other"},
        {"base_url": "http://x/v1"},
        {"parameters": {"temperature": 1}},
        {"settings": {"replies": ["x"]}},
    ],
)
def test_who_answers_is_identity(change: dict[str, Any]) -> None:
    assert _trial(replace(BRIEF, models=(replace(MODEL, **change),))).id != _trial(BRIEF).id


@pytest.mark.parametrize(
    "change",
    [
        {"label": "nice name"},
        {"api_key": "${OTHER}"},
        {"headers": {"X": "y"}},
        {"settings": {"timeout_s": 1, "max_retries": 9, "stream": True, "keep_raw": True}},
    ],
)
def test_how_a_model_is_reached_is_not(change: dict[str, Any]) -> None:
    assert _trial(replace(BRIEF, models=(replace(MODEL, **change),))).id == _trial(BRIEF).id


def test_agents_limits_and_roles_are_identity_but_attempts_and_places_are_not() -> None:
    base = _trial(BRIEF).id
    judge = ModelSpec(provider="openai", name="judge")
    for other in (
        replace(BRIEF, agents=(AgentSpec(name="mine:solve"),)),
        replace(BRIEF, agents=(AgentSpec(version="2"),)),
        replace(BRIEF, agents=(AgentSpec(settings={"n": 1}),)),
        replace(BRIEF, conditions=Conditions(limits=Limits(time_s=9.0))),
        replace(BRIEF, conditions=Conditions(limits=Limits(requests=9))),
        replace(BRIEF, conditions=Conditions(limits=Limits(output_tokens=9))),
        replace(BRIEF, conditions=Conditions(roles={"judge": judge})),
    ):
        assert _trial(other).id != base
    for same in (
        replace(BRIEF, name="other", parallel=7, pause_s=3.0, rollouts=5),
        replace(BRIEF, conditions=Conditions(attempts=9)),
        replace(BRIEF, agents=(AgentSpec(label="nice"),)),
    ):
        assert _trial(same).id == base


@settings(deadline=None)
@given(st.permutations(range(5)))
def test_positions_are_no_part_of_identity(order: list[int]) -> None:
    given_tasks = tasks(5)
    shuffled = replace(BRIEF, tasks=tuple(given_tasks[i] for i in order))
    straight = replace(BRIEF, tasks=given_tasks)
    assert {t.id for t in expand(shuffled)} == {t.id for t in expand(straight)}


def test_rollouts_of_one_task_are_different_trials() -> None:
    assert len({t.id for t in expand(replace(BRIEF, rollouts=50))}) == 50


def test_one_model_under_two_names_is_refused_and_not_dropped() -> None:
    twins = (replace(MODEL, label="one"), replace(MODEL, label="two"))
    with pytest.raises(UsageError, match="'one' and 'two' are the same model"):
        expand(replace(BRIEF, models=twins))
