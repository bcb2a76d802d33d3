"""Pairings in a plan: each task for its own candidate, each trial once."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.run_spec import Pairing, RunSpec
from bakeoff.core.task import Task
from bakeoff.planning.expand import expand, with_distinct_ids
from support.plans import task


def _pairing(given_task: Task, model: str, rollouts: int = 1, **agent: Any) -> Pairing:
    return Pairing(
        task=given_task,
        model=ModelSpec(provider="scripted", name=model),
        agent=AgentSpec(name="shell", **agent),
        rollouts=rollouts,
    )


def _brief(*pairings: Pairing) -> RunSpec:
    return RunSpec(name="b", tasks=tuple(p.task for p in pairings), pairings=pairings)


def test_only_what_is_paired_is_planned() -> None:
    a, b = task("a"), task("b")
    plan = expand(_brief(_pairing(a, "x", 2), _pairing(b, "y", 3)))
    assert [t.name for t in plan] == [
        "a@shell+scripted/x#0",
        "b@shell+scripted/y#0",
        "a@shell+scripted/x#1",
        "b@shell+scripted/y#1",
        "b@shell+scripted/y#2",
    ]


def test_different_tasks_with_one_id_are_told_apart_and_the_first_keeps_it() -> None:
    one, other, third = task("a"), task("a", prompt="else"), task("a", prompt="third")
    pairings = (_pairing(one, "x"), _pairing(other, "x"), _pairing(one, "y"), _pairing(third, "y"))
    ids = [p.task.id for p in with_distinct_ids(pairings)]
    assert ids[0] == ids[2] == "a"
    assert len({*ids}) == 3
    assert with_distinct_ids(with_distinct_ids(pairings)) == with_distinct_ids(pairings)
    assert [p.task.id for p in with_distinct_ids((*pairings, _pairing(task("z"), "x")))][:4] == ids


def test_an_agent_without_a_model_is_one_candidate_whatever_model_is_beside_it() -> None:
    pairings = [_pairing(task("a"), m, 2, needs_model=False) for m in ("x", "y")]
    plan = expand(_brief(*pairings))
    assert [c.id for c in plan.candidates] == ["shell"]
    assert len(plan) == 4


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=12
    )
)
def test_every_rollout_that_is_asked_for_is_planned_once(
    entries: list[tuple[int, int, int]],
) -> None:
    pairings = [_pairing(task(f"t{t}"), f"m{m}", rollouts) for t, m, rollouts in entries]
    plan = expand(_brief(*pairings))
    assert len(plan) == sum(rollouts for _, _, rollouts in entries)
    assert len({t.id for t in plan}) == len({t.name for t in plan}) == len(plan)
