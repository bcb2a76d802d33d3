"""A run as the pilot of the next one: what it measures, what is assumed beside it, what is refused."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import bakeoff
from bakeoff import Message, Request, Run, Task
from bakeoff.core.errors import UsageError
from bakeoff.reports.wording.power import answers, as_json, asked, grounds
from bakeoff.stats.power_plan import PowerPlan
from bakeoff.stats.sizing import Assumptions
from support.plans import scored_by

A = ["1111", "1111", "1011", "1111", "0110", "0000", "1101", "0010", "1111", "1001"]
B = ["1101", "1111", "0101", "1111", "0010", "0000", "0100", "1000", "1011", "0110"]


def pupil(name: str, told: Sequence[str]) -> Callable[[Request], str]:
    """A model that is right in those rollouts of those tasks."""
    asked: Counter[int] = Counter()

    def answer(request: Request) -> str:
        task = int(request.messages[-1].content)
        asked[task] += 1
        return "right" if told[task][asked[task] - 1] == "1" else "wrong"

    answer.__qualname__ = answer.__name__ = name
    return answer


@pytest.fixture
def pilot(tmp_path: Path) -> Callable[..., Run]:
    """Run models that are right as told, a word of marks for each task."""

    def run(**told: Sequence[str]) -> Run:
        (count,) = {len(marks) for marks in told.values()}
        tasks = [
            Task(
                id=f"t{n:03}",
                messages=(Message(role="user", content=str(n)),),
                target="right",
                scorers=scored_by("exact"),
            )
            for n in range(count)
        ]
        models = [pupil(name, marks) for name, marks in told.items()]
        rollouts = len(next(iter(told.values()))[0])
        return bakeoff.run(tasks, models=models, rollouts=rollouts, parallel=1, output=tmp_path)

    return run


def told(plan: PowerPlan) -> str:
    return "\n".join([asked(plan), *answers(plan), *grounds(plan)])


Pilots = Callable[..., Run]


def test_the_pair_of_a_run_is_measured_and_nothing_is_assumed(pilot: Pilots) -> None:
    run = pilot(one=A, other=B)
    plan = bakeoff.power(0.1, run=run)
    assert plan.pilot is not None
    assert (plan.pilot.pair, plan.pilot.tasks, plan.pilot.rollouts) == (("one", "other"), 10, 4)
    assert (plan.assumed, plan.tasks, plan.spread.clipped) == ({}, 10, True)
    splits = [c.variance for c in run.summary().candidates]
    assert plan.spread.noise == pytest.approx(sum(split.within or 0 for split in splits))
    assert plan.cheapest is not None
    assert plan.cheapest.rollouts == 1
    text = told(plan)
    assert "between two candidates" in text
    assert f"measured in {run.id}: one and other, on 10 tasks with 4 rollouts" in text
    assert "tasks differ no more than rollouts do" in text
    assert "likely: the range of 95 out of 100 pilots; 10 tasks" in text
    assert "assumed" not in text


def test_a_run_may_be_named_and_other_rollouts_and_tasks_wished_for(
    pilot: Pilots, tmp_path: Path
) -> None:
    run = pilot(one=A, other=B)
    plan = bakeoff.power(0.1, run=run.id, output=tmp_path, rollouts=3, tasks=60)
    assert [size.rollouts for size in plan.sizes] == [1, 2, 3, 4, 8, 16]
    fits = next(size.rollouts for size in plan.sizes if size.tasks <= 60)
    assert plan.rollouts_at_hand is not None
    assert plan.rollouts_at_hand <= fits
    assert f"with the 60 tasks at hand, {plan.rollouts_at_hand} rollouts of each" in told(plan)
    assert all((size.detectable or 1) <= 0.1 for size in plan.sizes if size.tasks <= 60)


def test_of_several_pairs_the_one_that_takes_most_counts_or_the_chosen_one(pilot: Pilots) -> None:
    third = [mark[::-1] if n % 2 else "0000" for n, mark in enumerate(A)]
    run = pilot(one=A, other=B, third=third)
    pairs = run.summary().pairwise
    assert pairs is not None
    worst = max(pairs.pairs, key=lambda pair: pair.se or 0)
    plan = bakeoff.power(0.1, run=run)
    assert plan.pilot is not None
    assert plan.pilot.pair == (worst.first, worst.second)
    assert plan.strictness.pairs == 3
    assert "of 3 pairs, the one that takes the most tasks" in told(plan)
    assert "between two candidates of 3 (3 pairs)" in told(plan)

    chosen = bakeoff.power(0.1, run=run, pair=("other", "one"))
    assert chosen.pilot is not None
    assert chosen.pilot.pair == ("one", "other")
    assert chosen.strictness.pairs == 1
    assert "of 3 pairs" not in told(chosen)


def test_one_rollout_says_nothing_about_more(pilot: Pilots) -> None:
    plan = bakeoff.power(0.1, run=pilot(one=[m[0] for m in A], other=[m[0] for m in B]))
    assert [size.rollouts for size in plan.sizes] == [1]
    assert (plan.fewest_tasks, plan.rollouts_at_hand) == (None, None)
    assert "no task was repeated" in told(plan)
    assert "that many rollouts are not enough" in told(plan)


def test_of_one_candidate_alone_only_what_it_cannot_tell_is_assumed(pilot: Pilots) -> None:
    repeated = bakeoff.power(0.1, run=pilot(one=A))
    assert repeated.assumed == {"correlation": 0.5}
    split = pilot(one=A).summary().candidates[0].variance
    assert repeated.spread.noise == pytest.approx(2 * (split.within or 0))
    assert repeated.spread.between == pytest.approx(split.between)
    once = bakeoff.power(0.1, run=pilot(one=[m[0] for m in A]), noise=0.5, correlation=0.0)
    assert once.assumed == {"correlation": 0.0, "noise": 0.5}
    assert "one candidate, one, on 10 tasks with 1 rollout" in told(once)
    assert "rough: one candidate says nothing about a difference" in told(once)


def test_without_a_run_all_is_assumed_and_said() -> None:
    plan = bakeoff.power(0.05, score=0.9)
    assert plan.assumed == {"score": 0.9, "noise": Assumptions().noise, "correlation": 0.5}
    assert (plan.pilot, plan.tasks) == (None, None)
    assert "assumed: a mean score of 0.9; 0.67 of the variance" in told(plan)
    assert all(size.likely is None for size in plan.sizes)
    harder = bakeoff.power(0.05, score=0.9, candidates=5, alpha=0.01, power=0.95)
    assert all(more.tasks > few.tasks for more, few in zip(harder.sizes, plan.sizes, strict=True))
    assert "of 95 % to detect it" in told(harder)
    assert "of 1 % for a false positive in any of 10 pairs" in told(harder)


def test_few_tasks_are_said_to_be_too_few(pilot: Pilots) -> None:
    plan = bakeoff.power(
        0.1, run=pilot(one=["10", "01", "11", "00"], other=["00", "11", "01", "10"])
    )
    assert "4 tasks are too few to trust these numbers" in told(plan)


def test_the_plan_as_data_has_no_number_that_json_lacks(pilot: Pilots) -> None:
    for plan in (bakeoff.power(0.1, run=pilot(one=A, other=B)), bakeoff.power(0.1)):
        data = json.loads(json.dumps(as_json(plan), allow_nan=False))
        assert data["cheapest"]["tasks"] == data["sizes"][0]["tasks"]
        assert data["difference"] == 0.1


@pytest.mark.parametrize(
    ("difference", "options", "message"),
    [
        (0, {}, "difference is 0; give a number from 0.000001 to 1, such as 0.05"),
        (-0.1, {}, "difference is -0.1"),
        (5, {}, "difference is 5, but scores go from 0 to 1; 5 points of a hundred are 0.05"),
        (500, {}, "difference is 500; give"),
        (float("nan"), {}, "difference is nan"),
        ("5", {}, "difference is '5'; give a number"),
        (True, {}, "difference is True; give a number"),
        (0.1, {"rollouts": 0}, "rollouts is 0; give a whole number from 1"),
        (0.1, {"tasks": 2.5}, "tasks is 2.5; give a whole number"),
        (0.1, {"candidates": 1}, "candidates is 1; give a whole number from 2 to 1,000"),
        (0.1, {"alpha": 0}, "alpha is 0; give a number from 0.000001 to 0.5"),
        (0.1, {"power": 1}, "power is 1; give a number from 0.5 to 0.999999"),
        (0.1, {"score": 1}, "score is 1; give a number from 0.001 to 0.999"),
        (0.1, {"noise": -1}, "noise is -1; give a number from 0 to 1"),
        (0.1, {"rolouts": 2}, "no option is called 'rolouts'; did you mean 'rollouts'?"),
        (0.1, {"pair": ("a", "b")}, "name the run as well"),
        (0.1, {"run": "nope"}, "there are no runs in"),
    ],
)
def test_what_cannot_be_is_refused_and_said_how(
    difference: object, options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        bakeoff.power(difference, output=tmp_path, **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": ("one", "othre")}, "has no candidate 'othre'; did you mean 'other'?"),
        ({"pair": ("one", "one")}, "a pair is two different candidates, not 'one' twice"),
        ({"pair": ("one",)}, "give the names of two candidates"),
        ({"pair": "one"}, "give the names of two candidates"),
        ({"run": "nope"}, "no run 'nope' in"),
        ({"noise": 0.5}, "noise: a run is there to tell that; leave it out"),
        ({"score": 0.5, "correlation": 0.5}, "correlation and score: a run is there"),
    ],
)
def test_what_a_run_does_not_have_is_refused(
    options: dict[str, object], message: str, pilot: Pilots
) -> None:
    run = pilot(one=A, other=B)
    with pytest.raises(UsageError) as caught:
        bakeoff.power(0.1, output=run.folder.parent, **{"run": run, **options})  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_run_that_shows_no_spread_is_no_pilot(pilot: Pilots) -> None:
    for marks, why in ((["1"], "one shared task"), (["1", "1"], "all 2 differences are equal")):
        with pytest.raises(UsageError, match=f"variance of a difference: {why}"):
            bakeoff.power(0.1, run=pilot(one=marks, other=marks))
    with pytest.raises(UsageError, match="one says nothing about the variance"):
        bakeoff.power(0.1, run=pilot(one=["11", "11"]))
    with pytest.raises(UsageError, match="has one candidate: there is no pair to choose"):
        bakeoff.power(0.1, run=pilot(one=A), pair=("one", "other"))
    with pytest.raises(UsageError, match="noise: a run is there to tell that"):
        bakeoff.power(0.1, run=pilot(one=A), noise=0.5)
