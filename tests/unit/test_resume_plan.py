"""What a plan must keep of the plan of the run that it resumes."""

from bakeoff.core.plan import Block, Plan
from bakeoff.planning.expand import select_part
from bakeoff.planning.resume import merged, missing_from
from bakeoff.planning.selection import Selection
from support.plans import candidate, plan, task, tasks

TWO = [candidate("a"), candidate("b")]


def names(given: Plan) -> list[str]:
    return [trial.name for trial in given]


def test_more_of_everything_keeps_all() -> None:
    before = plan(*tasks(3), candidates=TWO, rollouts=2)
    after = plan(*tasks(5), candidates=[*TWO, candidate("c")], rollouts=3)
    assert missing_from(after, before) == []
    assert missing_from(before, before) == []


def test_each_kind_of_loss_is_named() -> None:
    before = plan(*tasks(8), candidates=TWO, rollouts=3)
    after = plan(*tasks(2), candidates=TWO[:1], rollouts=1)
    assert missing_from(after, before) == [
        "no candidate 'b'",
        "no task 't0002', 't0003', 't0004', 't0005', 't0006' and 1 more",
        "1 instead of 3 rollouts of t0000@a, t0001@a",
    ]


def test_what_was_edited_is_run_again_and_is_not_missing() -> None:
    before = plan(task("x", prompt="one"), candidates=[candidate("a")])
    after = plan(task("x", prompt="two"), candidates=[candidate("a", temperature=1)])
    assert missing_from(after, before) == []


def test_a_candidate_under_another_label_is_the_same_one() -> None:
    before = plan(task(), candidates=[candidate("a")])
    (only,) = before.candidates
    renamed = type(only)(id="a(default)~1234", model=only.model, agent=only.agent)
    assert missing_from(plan(task(), candidates=[renamed]), before) == []


def test_a_pair_that_is_in_no_block_any_more_is_missing() -> None:
    one, two = tasks(2)
    before = plan(one, two, candidates=TWO)
    after = Plan(
        blocks=(
            Block(tasks=(one,), candidates=tuple(TWO)),
            Block(tasks=(two,), candidates=tuple(TWO[:1])),
        ),
        conditions=before.conditions,
    )
    assert missing_from(after, before) == ["0 instead of 1 rollouts of t0001@b"]


def test_a_part_and_the_rest_are_each_planned_once() -> None:
    before = plan(*tasks(3), candidates=TWO, rollouts=2)
    part = plan(*tasks(4)[2:], candidates=[TWO[1], candidate("c")], rollouts=3)
    whole = merged(before, part)
    assert sorted(names(whole)) == sorted({*names(before), *names(part)})
    assert len(whole) == len(names(whole))
    assert missing_from(whole, before) == missing_from(whole, part) == []
    again = merged(whole, part)
    assert sorted(names(again)) == sorted(names(whole))


def test_a_part_of_the_same_plan_leaves_it_as_it_was() -> None:
    before = plan(*tasks(3), candidates=TWO, rollouts=2)
    part = select_part(before, Selection(limit=1), models=["a"], rollouts=1)
    assert names(part) == ["t0000@a#0"]
    assert merged(before, part).digest == before.digest
