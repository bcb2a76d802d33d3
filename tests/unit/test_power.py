"""How large a run must be: the formula, what the exact test adds, a simulation, and a pilot's word."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.paired import Pair, TaskMeans, compare
from bakeoff.stats.power import decided_with, detectable, least_tasks, tasks_needed, to_decide
from bakeoff.stats.sizing import (
    Assumptions,
    DifferenceVariance,
    ErrorRates,
    detectable_difference,
    measured,
    rollouts_for,
    seen_with,
    sizes,
    tasks_for,
)
from bakeoff.stats.variance import (
    VariancePart,
    VarianceSplit,
    bounds,
    chi_squared_over_df,
    split_variance,
)
from support.plans import candidate, plan, scored_by, task, tasks
from support.rollouts import Scores, marks

A = ["1111", "1111", "1011", "1111", "0110", "0000", "1101", "0010", "1111", "1001"]
B = ["1101", "1111", "0101", "1111", "0010", "0000", "0100", "1000", "1011", "0110"]

TWO = ErrorRates()


def six(value: float) -> object:
    return pytest.approx(value, abs=5e-7)


def pair_of(first: list[list[float]], second: list[list[float]]) -> tuple[Pair, DifferenceVariance]:
    """Two candidates compared, and why their difference varies."""
    once = all(len(one) == 1 for one in first)
    pair = compare(
        TaskMeans(candidate="a", means=[math.fsum(x) / len(x) for x in first], binary=once),
        TaskMeans(candidate="b", means=[math.fsum(x) / len(x) for x in second], binary=once),
    )
    spread = measured(pair, {"a": split_of(first), "b": split_of(second)})
    assert spread is not None
    return pair, spread


def split_of(given: list[list[float]]) -> VarianceSplit:
    return split_variance(Scores.of(one) for one in given)


# The formula


def test_the_reference_number_of_tasks_is_found() -> None:
    (size,) = sizes(0.03, DifferenceVariance(between=1 / 9, noise=0.0), TWO, rollouts=[1])
    assert size.by_formula == pytest.approx(968.9975, abs=5e-5)
    assert size.tasks > size.by_formula


def test_rollouts_divide_the_noise_and_leave_what_is_between_tasks() -> None:
    spread = Assumptions(score=0.5, noise=2 / 3, correlation=1 / 3).spread()
    assert (spread.between, spread.noise) == (pytest.approx(1 / 9), pytest.approx(1 / 3))
    for k, size in zip((1, 4, 16), sizes(0.03, spread, TWO, rollouts=(1, 4, 16)), strict=True):
        normal = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
        assert size.by_formula == pytest.approx(normal**2 * (1 / 9 + 1 / 3 / k) / 0.03**2)
        assert size.trials == size.tasks * k * 2


@given(
    st.integers(20, 5_000),
    st.floats(0.01, 1),
    st.sampled_from([1.0, 0.5, 0.1, 0.0]),
    st.sampled_from([0.95, 0.99]),
)
def test_what_is_seen_with_so_many_tasks_takes_so_many_tasks(
    n: int, variance: float, step: float, level: float
) -> None:
    seen = decided_with(n, variance=variance, step=step, level=level)
    assert seen is not None
    assert to_decide(seen * (1 + 1e-9), variance=variance, step=step, level=level) == n
    assert seen > detectable(n, variance=variance, level=level)
    assert to_decide(seen, variance=variance, step=step, level=level) > tasks_needed(
        seen, variance=variance, level=level
    )


def test_fewer_tasks_than_an_exact_test_needs_decide_nothing() -> None:
    assert least_tasks(0.95) == 6  # 2 / 2^6 < 0.05
    assert decided_with(5, variance=0.001, step=1.0) is None
    assert to_decide(0.9, variance=0.0, step=0.0) == 6
    assert seen_with(5, DifferenceVariance(between=0.01, noise=0.0), TWO, rollouts=1) is None
    assert (
        seen_with(6, DifferenceVariance(between=9.0, noise=0.0), TWO, rollouts=1) is None
    )  # beyond 1


@pytest.mark.parametrize("wrong", [0.0, -0.1, math.nan])
def test_no_difference_takes_no_number_of_tasks(wrong: float) -> None:
    with pytest.raises(ValueError, match="difference"):
        to_decide(wrong, variance=1, step=1)


spreads = st.builds(DifferenceVariance, between=st.floats(0, 0.5), noise=st.floats(0, 0.5))


@given(spreads, st.floats(0.01, 0.5))
def test_more_rollouts_never_take_more_tasks_and_more_candidates_never_fewer(
    spread: DifferenceVariance, difference: float
) -> None:
    found = [size.tasks for size in sizes(difference, spread, TWO)]
    assert found == sorted(found, reverse=True)
    assert (tasks_for(difference, spread, TWO, rollouts=math.inf) or 0) <= found[-1]
    many = sizes(difference, spread, ErrorRates(candidates=5))
    assert all(more.tasks >= n for more, n in zip(many, found, strict=True))


@given(spreads, st.floats(0.02, 0.5), st.integers(6, 2_000))
def test_the_rollouts_that_make_tasks_enough_are_the_fewest(
    spread: DifferenceVariance, difference: float, at_hand: int
) -> None:
    def needed(rollouts: float) -> int:
        return tasks_for(difference, spread, TWO, rollouts=rollouts) or 0

    found = rollouts_for(difference, spread, TWO, tasks=at_hand)
    if found is None:
        assert needed(1_000) > at_hand
    else:
        assert needed(found) <= at_hand
        assert found == 1 or needed(found - 1) > at_hand


def test_rollouts_that_are_all_alike_buy_nothing() -> None:
    found = sizes(0.1, DifferenceVariance(between=0.2, noise=0.0), TWO)
    assert len({size.tasks for size in found}) == 1
    assert found[0].trials < found[1].trials


# What is planned is what happens


def drawn(chance: Random, *, apart: float, rollouts: int) -> tuple[list[float], list[float]]:
    """A task as two candidates find it: chances from 0 to 1, for half of the tasks the same."""
    mine = chance.random()
    other = mine if chance.random() < 0.5 else chance.random()
    likely = mine * (1 - apart) + apart, other * (1 - apart)
    first, second = ([float(chance.random() < p) for _ in range(rollouts)] for p in likely)
    return first, second


def spread_of_drawn(apart: float) -> DifferenceVariance:
    """The true variances of such tasks."""
    even = (1 - apart) ** 2 / 12
    means = (0.5 + apart / 2, 0.5 - apart / 2)
    return DifferenceVariance(between=even, noise=sum(m * (1 - m) - even for m in means))


@pytest.mark.parametrize("rollouts", [1, 4])
def test_a_difference_is_seen_as_often_as_planned(rollouts: int) -> None:
    apart, chance, runs = 0.2, Random(3), 1_000
    n = tasks_for(apart, spread_of_drawn(apart), TWO, rollouts=rollouts)
    assert n is not None
    seen = 0
    for _ in range(runs):
        both = [drawn(chance, apart=apart, rollouts=rollouts) for _ in range(n)]
        pair = compare(
            TaskMeans(
                candidate="a", means=[sum(a) / rollouts for a, _ in both], binary=rollouts == 1
            ),
            TaskMeans(
                candidate="b", means=[sum(b) / rollouts for _, b in both], binary=rollouts == 1
            ),
        )
        seen += pair.p is not None and pair.p < 0.05 and (pair.difference or 0) > 0
    # the bare formula's number of tasks is found to be seen in 72 %
    assert seen / runs == pytest.approx(0.8, abs=0.04)


def test_the_number_that_is_needed_is_mostly_where_a_pilot_says() -> None:
    apart, chance, pilots = 0.2, Random(5), 150
    truth, ks = spread_of_drawn(apart), (1, 2, 16)
    needed = {k: tasks_for(0.1, truth, TWO, rollouts=k) or 0 for k in ks}
    inside = dict.fromkeys(ks, 0)
    for _ in range(pilots):
        both = [drawn(chance, apart=apart, rollouts=2) for _ in range(30)]
        _, spread = pair_of([a for a, _ in both], [b for _, b in both])
        for size in sizes(0.1, spread, TWO, rollouts=ks):
            assert size.likely is not None
            assert size.likely[0] <= size.tasks <= size.likely[1]
            inside[size.rollouts] += size.likely[0] <= needed[size.rollouts] <= size.likely[1]
    assert all(many / pilots > 0.9 for many in inside.values()), inside


def test_a_pilot_is_right_on_average() -> None:
    apart, chance, pilots = 0.2, Random(6), 200
    truth, found = spread_of_drawn(apart), []
    for _ in range(pilots):
        both = [drawn(chance, apart=apart, rollouts=3) for _ in range(40)]
        _, spread = pair_of([a for a, _ in both], [b for _, b in both])
        found.append((spread.variance(3), spread.noise))
    for index, true in enumerate((truth.variance(3), truth.noise)):
        mean = math.fsum(one[index] or 0.0 for one in found) / pilots
        assert mean == pytest.approx(true, rel=0.05)


# What a pilot says


def test_the_parts_of_a_pair_add_up_to_its_standard_error() -> None:
    pair, spread = pair_of(marks(*A), marks(*B))
    assert pair.se == six(0.055277)
    assert spread.observed == pytest.approx(10 * 0.055277**2, rel=1e-4)
    assert spread.noise == pytest.approx(
        (split_of(marks(*A)).within or 0) + (split_of(marks(*B)).within or 0)
    )
    # less than the noise alone: nothing is left between tasks, and that is said
    assert (spread.between, spread.clipped, spread.rollouts, spread.tasks) == (0.0, True, 4, 10)


def test_one_rollout_tells_of_one_rollout_only() -> None:
    first, second = marks(*"1110110101"), marks(*"1010010001")
    pair, spread = pair_of(first, second)
    assert (spread.between, spread.noise, spread.rollouts) == (None, None, 1)
    found = sizes(0.1, spread, TWO)
    assert [size.rollouts for size in found] == [1]
    variance = (pair.se or 0) ** 2 * 10
    assert found[0].tasks == to_decide(0.1, variance=variance, step=1.0)
    assert rollouts_for(0.01, spread, TWO, tasks=10) is None


def test_two_with_unequal_rollouts_have_as_many_as_make_the_same_noise() -> None:
    _, spread = pair_of(marks(*A), [one[:2] for one in marks(*B)])
    assert spread.rollouts is not None
    assert 2 < spread.rollouts < 4
    assert spread.observed is not None
    if not spread.clipped:
        assert spread.variance(spread.rollouts) == pytest.approx(spread.observed)


def test_a_pair_without_spread_measures_none() -> None:
    pair = compare(
        TaskMeans(candidate="a", means=[1.0, 1.0], binary=True),
        TaskMeans(candidate="b", means=[0.0, 0.0], binary=True),
    )
    assert measured(pair, {}) is None


@pytest.mark.parametrize("df", [5, 12, 99])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_one_variance_lies_where_chi_squared_says(df: int, level: float) -> None:
    z = stats.norm.ppf(0.5 + level / 2)
    assert chi_squared_over_df(z, df) == pytest.approx(
        stats.chi2.ppf(0.5 + level / 2, df) / df, rel=0.01
    )
    found = bounds([VariancePart(value=2.0, df=df)], level=level)
    assert found is not None
    ends = [2.0 * df / stats.chi2.ppf(0.5 + side * level / 2, df) for side in (1, -1)]
    assert found == pytest.approx(ends, rel=0.05)


def test_bounds_of_a_difference_hold_it_and_end_at_nothing() -> None:
    found = bounds([VariancePart(value=0.2, df=29), VariancePart(value=-0.15, df=60)])
    assert found is not None
    assert found[0] == 0.0
    assert found[1] > 0.05
    assert bounds([VariancePart(value=0.2, df=4)]) is None


# What a plan can see, before anything ran


def test_a_plan_foresees_what_its_tasks_show() -> None:
    scored = tasks(100, scorers=scored_by("exact"))
    two = (candidate("a"), candidate("b"))
    found = detectable_difference(plan(*scored, candidates=two, rollouts=2))
    assert found is not None
    assert (found.tasks, found.rollouts, found.candidates) == (100, 2, 2)
    assert found.detectable == seen_with(100, Assumptions().spread(), TWO, rollouts=2)
    three = detectable_difference(plan(*scored, candidates=(*two, candidate("c")), rollouts=2))
    assert three is not None
    assert (three.detectable or 0) > (found.detectable or 1)


def test_a_plan_with_one_candidate_or_without_scores_foresees_nothing() -> None:
    two = (candidate("a"), candidate("b"))
    assert detectable_difference(plan(task(scorers=scored_by("exact")))) is None
    assert detectable_difference(plan(task(), candidates=two)) is None
    few = detectable_difference(plan(task(scorers=scored_by("exact")), candidates=two))
    assert few is not None
    assert (few.tasks, few.detectable) == (1, None)
