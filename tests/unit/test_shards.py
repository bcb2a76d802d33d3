"""How a plan is cut into shards."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.budget import Cap
from bakeoff.core.candidate import EndpointLimits
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Block, Plan
from bakeoff.planning.shards import cut, read_shard
from support import plans

COUNTS = st.integers(1, 12)


def whole(tasks: int, *, rollouts: int = 1) -> Plan:
    candidates = (plans.candidate("a"), plans.candidate("b", temperature=1.0))
    return plans.plan(*plans.tasks(tasks), rollouts=rollouts, candidates=candidates)


@given(tasks=st.integers(1, 40), count=COUNTS, rollouts=st.integers(1, 3))
def test_every_trial_is_in_exactly_one_shard(tasks: int, count: int, rollouts: int) -> None:
    plan = whole(tasks, rollouts=rollouts)
    dealt = Counter(trial.id for index in range(count) for trial in cut(plan, index, count).plan)
    assert dealt == Counter(trial.id for trial in plan)


@given(tasks=st.integers(1, 40), count=COUNTS)
def test_shards_differ_by_one_task_at_most(tasks: int, count: int) -> None:
    sizes = [cut(whole(tasks), index, count).plan.task_count for index in range(count)]
    assert max(sizes) - min(sizes) <= 1


@given(tasks=st.integers(1, 40), count=COUNTS)
def test_all_trials_of_a_task_are_in_one_shard(tasks: int, count: int) -> None:
    homes: dict[str, set[int]] = {}
    for index in range(count):
        for trial in cut(whole(tasks, rollouts=2), index, count).plan:
            homes.setdefault(trial.task.id, set()).add(index)
    assert all(len(shards) == 1 for shards in homes.values())


def test_the_order_of_the_file_does_not_change_what_is_in_a_shard() -> None:
    there = plans.tasks(20)
    forwards, backwards = (
        {trial.task.id for trial in cut(plans.plan(*given), 0, 3).plan}
        for given in (there, there[::-1])
    )
    assert forwards == backwards


def test_a_task_that_is_in_several_blocks_is_cut_as_one() -> None:
    first, second = plans.tasks(2)
    one, other = plans.candidate("a"), plans.candidate("b", temperature=1.0)
    plan = Plan(
        blocks=(
            Block(tasks=(first, second), candidates=(one,), rollouts=2),
            Block(tasks=(second,), candidates=(other,)),
        )
    )
    parts = [cut(plan, index, 2) for index in range(2)]
    assert sorted(len(part.plan) for part in parts) == [2, 3]
    assert {number for part in parts for number, _ in part.places} == {0, 1}
    assert {part.shard.plan for part in parts} == {plan.digest}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("3/3", "counted from 0, so there are 0/3 to 2/3"),
        ("0/0", "counted from 0"),
        ("1", "write I/N"),
        ("-1/3", "write I/N"),
        ("a/b", "write I/N"),
    ],
)
def test_what_is_no_shard_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_shard(text)


@given(cost=st.floats(0.01, 1e6), tokens=st.integers(1, 10**9), count=st.integers(1, 1000))
def test_the_budgets_of_all_shards_are_never_more_than_that_of_the_run(
    cost: float, tokens: int, count: int
) -> None:
    own = Cap(cost_usd=cost, tokens=tokens).divided(count)
    assert own.cost_usd * count <= cost * (1 + 1e-12)
    assert own.tokens * count <= tokens


def test_limits_are_divided_and_leave_one_request_to_each() -> None:
    whole = EndpointLimits(max_concurrency=2, rpm=60, tpm=9000, adaptive=False)
    assert whole.divided(3) == EndpointLimits(max_concurrency=1, rpm=20, tpm=3000, adaptive=False)
    assert EndpointLimits().divided(3) == EndpointLimits()
