"""Time to solve with what was cut off: against scipy, worked examples and its laws."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.censored import Observation, TimeToSolve, kaplan_meier, log_rank, time_to_solve

LIMIT = 100.0


def solved(*seconds: float) -> list[Observation]:
    return [Observation(seconds=s, solved=True) for s in seconds]


def cut(*seconds: float) -> list[Observation]:
    return [Observation(seconds=s, solved=False) for s in seconds]


def mean(found: TimeToSolve) -> float:
    assert found.restricted_mean_s is not None
    return found.restricted_mean_s


watched = st.lists(
    st.builds(
        Observation, seconds=st.integers(0, 120).map(float), solved=st.booleans()
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


@given(watched)
def test_the_curve_is_that_of_scipy(seen: list[Observation]) -> None:
    data: Any = stats.CensoredData(
        uncensored=[w.seconds for w in seen if w.solved],
        right=[w.seconds for w in seen if not w.solved],
    )
    theirs = stats.ecdf(data).sf
    for step in kaplan_meier(seen):
        assert step.unsolved == pytest.approx(float(theirs.evaluate([step.seconds])[0]))


def test_a_worked_example_with_one_lost_on_the_way() -> None:
    # 10 solved (of 4), 20 lost, 30 solved (of 2), one unsolved at the limit of 100
    found = time_to_solve([*solved(10, 30), *cut(20, LIMIT)], horizon_s=LIMIT)
    assert mean(found) == pytest.approx(10 + 0.75 * 20 + 0.375 * 70)
    # Greenwood: the areas after 10 and 30 are 41.25 and 26.25
    assert found.se_s == pytest.approx((41.25**2 / (4 * 3) + 26.25**2 / (2 * 1)) ** 0.5)
    assert found.median_s == 30
    assert (found.rollouts, found.solved) == (4, 2)


def test_par2_counts_the_unsolved_double_and_leaves_out_what_was_lost() -> None:
    found = time_to_solve([*solved(10), *cut(20, LIMIT)], horizon_s=LIMIT)
    assert found.par2_s == pytest.approx((10 + 200) / 2)


def test_without_anything_cut_off_it_is_the_plain_mean_and_its_error() -> None:
    times = [10.0, 20.0, 60.0]
    found = time_to_solve(solved(*times), horizon_s=LIMIT)
    assert mean(found) == pytest.approx(30)
    spread = sum((t - 30) ** 2 for t in times) / 3
    assert found.se_s == pytest.approx((spread / 3) ** 0.5)


def test_who_is_fast_when_lucky_is_not_faster_than_who_always_solves() -> None:
    lucky = time_to_solve([*solved(5), *cut(LIMIT, LIMIT, LIMIT)], horizon_s=LIMIT)
    steady = time_to_solve(solved(30, 32, 34, 36), horizon_s=LIMIT)
    assert mean(lucky) > mean(steady)
    assert (lucky.par2_s or 0) > (steady.par2_s or 0)


def test_what_cannot_be_estimated_is_none_with_a_reason() -> None:
    nothing = time_to_solve([], horizon_s=LIMIT)
    assert (nothing.restricted_mean_s, nothing.reason) == (None, "nothing was run")
    one = time_to_solve(solved(7), horizon_s=LIMIT)
    assert (one.restricted_mean_s, one.se_s, one.interval) == (7, None, None)
    assert one.reason == "one rollout: a single observation"
    none_solved = time_to_solve(cut(LIMIT, LIMIT), horizon_s=LIMIT)
    assert (none_solved.median_s, none_solved.restricted_mean_s) == (None, LIMIT)
    assert none_solved.interval is None
    assert "no variance" in (none_solved.reason or "")


@given(watched, st.randoms())
def test_order_does_not_matter_and_the_mean_stays_within_the_limit(
    seen: list[Observation], chance: Random
) -> None:
    found = time_to_solve(seen, horizon_s=LIMIT)
    mixed = list(seen)
    chance.shuffle(mixed)
    assert time_to_solve(mixed, horizon_s=LIMIT) == found
    assert 0 <= mean(found) <= LIMIT + 1e-9
    if found.interval is not None:
        assert 0 <= found.interval.low <= mean(found) + 1e-9
        assert mean(found) - 1e-9 <= found.interval.high <= LIMIT


def test_the_interval_covers_about_as_often_as_it_says() -> None:
    chance, hits = Random(3), 0
    limit = 60.0
    truth = 30 * (1 - 2.718281828459045 ** (-limit / 30))  # E[min(X, 60)] of a mean of 30
    for _ in range(400):
        times = [chance.expovariate(1 / 30) for _ in range(40)]
        seen = [Observation(seconds=min(t, limit), solved=t < limit) for t in times]
        interval = time_to_solve(seen, horizon_s=limit).interval
        assert interval is not None
        hits += interval.low <= truth <= interval.high
    assert 0.90 <= hits / 400 <= 0.98


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="a time is finite"):
        time_to_solve(cut(wrong), horizon_s=LIMIT)
    with pytest.raises(ValueError, match="the horizon"):
        time_to_solve([], horizon_s=wrong)


@pytest.mark.parametrize("many", range(2, 51, 2))
def test_the_median_of_an_even_number_that_all_solve_is_the_last_of_the_first_half(
    many: int,
) -> None:
    seen = solved(*(float(second) for second in range(1, many + 1)))
    assert time_to_solve(seen, horizon_s=LIMIT).median_s == many / 2


def test_the_median_with_censored_ones_before_it_is_exact_too() -> None:
    for many in range(4, 51, 2):
        seen = [*cut(0.5, 0.6), *solved(*(float(second) for second in range(1, many + 1)))]
        assert time_to_solve(seen, horizon_s=LIMIT).median_s == many / 2


# The log-rank test


def test_the_log_rank_test_matches_the_reference() -> None:
    first = [*solved(120, 180, 240, 300), *cut(600, 600, 600)]
    other = [*solved(200, 260, 320, 380, 420, 480), *cut(600)]
    assert log_rank(first, other).p == pytest.approx(0.710366, abs=5e-7)


@given(watched, watched)
def test_the_log_rank_test_is_that_of_scipy(
    first: list[Observation], other: list[Observation]
) -> None:
    def data(seen: list[Observation]) -> Any:
        return stats.CensoredData(
            uncensored=[w.seconds for w in seen if w.solved],
            right=[w.seconds for w in seen if not w.solved],
        )

    ours = log_rank(first, other)
    assert ours == log_rank(other, first) or ours.p == pytest.approx(log_rank(other, first).p)
    if ours.p is not None:
        assert ours.p == pytest.approx(stats.logrank(data(first), data(other)).pvalue, abs=1e-9)


# How often the interval of the restricted mean holds


@pytest.mark.parametrize(("rollouts", "least"), [(3, 0.84), (5, 0.86), (10, 0.9)])
def test_the_interval_of_the_restricted_mean_allows_for_few_rollouts(
    rollouts: int, least: float
) -> None:
    order, held, given_at_all = Random(7), 0, 0
    # exponential times with a mean of 60 s, of which what is over 100 s is cut off
    truth = 60 * (1 - 2.718281828 ** (-LIMIT / 60))
    for _ in range(1_000):
        times = [order.expovariate(1 / 60) for _ in range(rollouts)]
        seen = [Observation(seconds=min(t, LIMIT), solved=t <= LIMIT) for t in times]
        interval = time_to_solve(seen, horizon_s=LIMIT).interval
        given_at_all += interval is not None  # none of rollouts that all ran out of time
        held += interval is not None and interval.low <= truth <= interval.high
    assert held / given_at_all >= least
