"""Estimates, intervals, fault bounds and quantiles against reference values and their laws."""

import subprocess
import sys
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest

from bakeoff.stats.estimate import (
    Estimate,
    Interval,
    IntervalMethod,
    Spread,
    TaskScores,
    clopper_pearson,
    estimate,
    fault_bounds,
    jeffreys,
    quantile,
    quantile_interval,
    quantile_ranks,
    ratio_of_totals,
    spread_of,
    student_interval,
    weighted_average,
    wilson,
)

# The ten tasks x four rollouts of the reference values.
A = ["1111", "1111", "1011", "1111", "0110", "0000", "1101", "0010", "1111", "1001"]
B = ["1101", "1111", "0101", "1111", "0010", "0000", "0100", "1000", "1011", "0110"]


def graded(rows: list[str]) -> list[TaskScores]:
    return [TaskScores.of([int(mark) for mark in row]) for row in rows]


def bounds(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


def six(*values: float) -> object:
    return pytest.approx(values if len(values) > 1 else values[0], abs=5e-7)


unit_tasks = st.lists(st.floats(0, 1), min_size=1, max_size=5).map(TaskScores.of)
binary_tasks = st.lists(st.integers(0, 1), min_size=1, max_size=5).map(TaskScores.of)
open_tasks = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5).map(TaskScores.of)
bounded_suites = st.one_of(
    st.lists(binary_tasks, min_size=2, max_size=20), st.lists(unit_tasks, min_size=2, max_size=20)
)
suites = st.one_of(bounded_suites, st.lists(open_tasks, max_size=20))
levels = st.floats(0.01, 0.999)


# Reference values


def test_the_reference_candidate_has_its_mean_error_and_t_interval() -> None:
    result = estimate(graded(A), method="t")
    assert result.mean == six(0.675)
    assert result.se == six(0.112114)
    assert bounds(result.interval) == six(0.421382, 0.928618)
    assert result.interval is not None
    assert result.interval.method == "task-mean t"
    assert result.interval.level == 0.95
    assert (result.tasks, result.trials, result.reason) == (10, 40, None)
    assert estimate(graded(B)).mean == six(0.525)


def in_groups(rows: list[str], groups: str) -> list[TaskScores]:
    return [replace(t, group=g) for t, g in zip(graded(rows), groups, strict=True)]


def test_tasks_in_groups_have_the_clustered_error_and_a_t_interval_over_groups() -> None:
    result = estimate(in_groups(A, "1112223344"))
    assert result.se == six(0.112324)
    assert bounds(result.interval) == six(0.317535, 1.0)
    assert result.interval is not None
    assert result.interval.method == "clustered t (CR1)"
    spread = Spread(se=result.se, units=4, grouped=True)
    assert bounds(student_interval(0.675, spread)) == six(0.317535, 1.032465)


def test_clustered_by_task_the_error_is_that_of_task_means() -> None:
    means = [task.mean for task in graded(A) for _ in range(4)]
    by_task = [str(number) for number in range(10) for _ in range(4)]
    se = spread_of(means, 0.675, groups=by_task).se
    assert se == six(0.112114)
    assert se is not None
    assert se * (9 / 10) ** 0.5 == six(0.106360)  # CR0, without the correction for few groups


def test_a_group_for_each_task_is_no_group() -> None:
    assert estimate(in_groups(A, "abcdefghij")) == estimate(graded(A))


def test_one_group_of_all_tasks_has_no_variance_to_measure() -> None:
    result = estimate(in_groups(A, "xxxxxxxxxx"))
    assert (result.se, result.interval) == (None, None)
    assert result.reason == "all 10 tasks are of one group: no variance between groups to measure"


def test_clopper_pearson_matches_the_reference() -> None:
    assert bounds(clopper_pearson(9, 10)) == six(0.554984, 0.997471)


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (9, 10), (27, 40), (675, 1000), (1, 2)])
def test_clopper_pearson_and_jeffreys_agree_with_scipy(successes: int, n: int) -> None:
    exact = binomtest(successes, n).proportion_ci(method="exact")
    assert bounds(clopper_pearson(successes, n)) == pytest.approx((exact.low, exact.high))
    low, high = (float(beta.ppf(q, successes + 0.5, n - successes + 0.5)) for q in (0.025, 0.975))
    found = bounds(jeffreys(successes, n))
    assert found == pytest.approx((low if successes else 0.0, high))


@pytest.mark.parametrize("method", ["wilson", "clopper-pearson", "jeffreys"])
def test_an_interval_on_request_is_that_of_the_scores(method: IntervalMethod) -> None:
    tasks = [TaskScores.of([int(i < 27)]) for i in range(40)]
    by = {"wilson": wilson, "clopper-pearson": clopper_pearson, "jeffreys": jeffreys}
    assert bounds(estimate(tasks, method=method).interval) == bounds(by[method](27, 40))


def test_rollouts_of_one_task_are_not_independent_evidence() -> None:
    as_if_independent = estimate(TaskScores.of([int(mark)]) for mark in "".join(A))
    # The textbook sqrt(p(1-p)/N); the sample error differs by sqrt(N/(N-1)).
    assert as_if_independent.se is not None
    assert as_if_independent.se * (39 / 40) ** 0.5 == six(0.074057)
    assert as_if_independent.se < (estimate(graded(A)).se or 0)


def test_wilson_matches_the_reference() -> None:
    assert bounds(wilson(0, 10)) == six(0.0, 0.277533)
    assert bounds(wilson(27, 40)) == six(0.520177, 0.799155)


# Which method


def test_binary_scores_with_one_rollout_each_get_a_wilson_interval() -> None:
    result = estimate(TaskScores.of([int(i < 27)]) for i in range(40))
    assert result.interval == wilson(27, 40)
    assert result.se is not None


def test_a_second_rollout_of_any_task_moves_binary_scores_to_effective_tasks() -> None:
    result = estimate([TaskScores.of([1, 0]), *graded(["1", "0", "1"])])
    assert result.interval is not None
    assert result.interval.method == "effective-task wilson"


def test_few_tasks_with_one_rollout_get_a_wider_interval_than_wilsons() -> None:
    few = estimate(TaskScores.of([int(i < 9)]) for i in range(10)).interval
    assert few is not None
    assert few.low < wilson(9, 10).low
    assert few.high > wilson(9, 10).high


def test_every_task_weighs_the_same_whatever_its_rollouts() -> None:
    result = estimate(graded(["1111", "0"]))
    assert result.mean == 0.5
    assert result.trials == 5


def test_scores_beyond_the_unit_range_are_not_clipped_to_it() -> None:
    result = estimate([TaskScores.of([5.0]), TaskScores.of([9.0])])
    low, high = bounds(result.interval)
    assert low < 0
    assert high > 9


# Not estimable: None with a reason, never an error of zero


def test_no_tasks_give_no_mean_and_a_reason() -> None:
    assert estimate([]) == Estimate(
        mean=None, se=None, interval=None, tasks=0, trials=0, reason="no task has a score"
    )


@pytest.mark.parametrize("scores", [[1], [0, 1, 1], [0.3, 0.8]])
def test_one_task_gives_a_mean_but_no_interval_and_a_reason(scores: list[float]) -> None:
    result = estimate([TaskScores.of(scores)])
    assert result.mean == pytest.approx(sum(scores) / len(scores))
    assert result.se is None
    assert result.interval is None
    assert result.reason == "one task: no variance between tasks to measure"


def test_a_saturated_suite_falls_back_to_wilson_over_tasks_not_rollouts() -> None:
    result = estimate(graded(["1111"] * 10))
    assert result.mean == 1.0
    assert result.se is None
    assert result.reason is not None
    assert bounds(result.interval) == bounds(wilson(10, 10))
    assert result.interval is not None
    assert result.interval.method == "wilson over tasks"


def test_a_saturated_suite_with_one_rollout_keeps_wilson_and_has_no_standard_error() -> None:
    result = estimate(graded(["0"] * 10))
    assert result.interval == wilson(0, 10)
    assert result.se is None
    assert (
        result.reason
        == "all 10 task means are equal: no variance to estimate a standard error from"
    )


def test_equal_binary_means_between_the_ends_also_fall_back_to_wilson_over_tasks() -> None:
    result = estimate(graded(["10", "01", "10", "01"]))
    assert result.se is None
    assert bounds(result.interval) == pytest.approx(bounds(wilson(2, 4)))


def test_equal_continuous_means_give_no_interval_and_a_reason() -> None:
    result = estimate([TaskScores.of([0.37])] * 3)
    assert result.mean == pytest.approx(0.37)
    assert result.se is None
    assert result.interval is None
    assert result.reason is not None


def test_rounding_between_orders_of_the_same_scores_is_no_spread() -> None:
    first = TaskScores.of([0.1]).plus(0.2).plus(0.3)
    second = TaskScores.of([0.3]).plus(0.2).plus(0.1)
    assert first.total != second.total
    assert estimate([first, second]).se is None


@given(suites)
def test_a_standard_error_is_positive_or_unknown_with_a_reason(tasks: list[TaskScores]) -> None:
    result = estimate(tasks)
    assert result.se is None or result.se > 0
    missing = result.mean is None or result.se is None or result.interval is None
    assert missing == (result.reason is not None)


# Laws


@given(suites, st.randoms())
def test_the_order_of_tasks_changes_nothing(tasks: list[TaskScores], order: Random) -> None:
    shuffled = tasks.copy()
    order.shuffle(shuffled)
    before, after = estimate(tasks), estimate(shuffled)
    assert after.mean == before.mean
    assert after.se == pytest.approx(before.se)
    assert (after.interval is None) == (before.interval is None)
    if before.interval is not None:
        assert bounds(after.interval) == pytest.approx(bounds(before.interval))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.randoms())
def test_the_order_of_rollouts_changes_nothing(scores: list[float], order: Random) -> None:
    shuffled = scores.copy()
    order.shuffle(shuffled)
    assert TaskScores.of(shuffled) == TaskScores.of(scores)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
def test_scores_added_one_by_one_summarize_as_scores_given_at_once(scores: list[float]) -> None:
    streamed = TaskScores.of(scores[:1])
    for score in scores[1:]:
        streamed = streamed.plus(score)
    whole = TaskScores.of(scores)
    assert streamed.total == pytest.approx(whole.total, abs=1e-9)
    assert (streamed.n, streamed.low, streamed.high, streamed.binary) == (
        whole.n,
        whole.low,
        whole.high,
        whole.binary,
    )


@given(bounded_suites, levels)
def test_intervals_hold_the_mean_and_stay_inside_the_range(
    tasks: list[TaskScores], level: float
) -> None:
    result = estimate(tasks, level=level)
    if result.interval is not None and result.mean is not None:
        low, high = bounds(result.interval)
        assert 0 <= low <= result.mean + 1e-12
        assert result.mean - 1e-12 <= high <= 1


@given(suites, levels, levels)
def test_a_higher_level_gives_an_interval_around_the_lower_one(
    tasks: list[TaskScores], one: float, other: float
) -> None:
    inner = estimate(tasks, level=min(one, other)).interval
    outer = estimate(tasks, level=max(one, other)).interval
    assert (inner is None) == (outer is None)
    if inner is not None and outer is not None:
        slack = 1e-9 * max(1.0, abs(outer.low), abs(outer.high))
        assert outer.low <= inner.low + slack
        assert outer.high >= inner.high - slack


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), levels)
def test_wilson_is_symmetric_in_success_and_failure(pair: tuple[int, int], level: float) -> None:
    successes, n = pair
    there, back = wilson(successes, n, level=level), wilson(n - successes, n, level=level)
    assert there.low == pytest.approx(1 - back.high, abs=1e-12)
    assert there.high == pytest.approx(1 - back.low, abs=1e-12)


# Faults are missing data


def test_fault_bounds_count_a_fault_as_a_miss_then_as_a_hit() -> None:
    assert fault_bounds(27, scored=36, faulted=4) == (27 / 40, 31 / 40)


def test_without_faults_the_bounds_meet_at_the_mean() -> None:
    assert fault_bounds(27, scored=40, faulted=0) == (0.675, 0.675)


def test_with_only_faults_anything_is_possible() -> None:
    assert fault_bounds(0, scored=0, faulted=3) == (0.0, 1.0)


def test_without_trials_there_are_no_bounds() -> None:
    assert fault_bounds(0, scored=0, faulted=0) is None


@given(st.lists(st.text("01F", min_size=4, max_size=4), min_size=1, max_size=20))
def test_fault_bounds_hold_the_estimate_when_every_task_was_planned_alike(rows: list[str]) -> None:
    scored = [row.replace("F", "") for row in rows]
    marks = "".join(scored)
    held = fault_bounds(marks.count("1"), scored=len(marks), faulted="".join(rows).count("F"))
    mean = estimate(graded([row for row in scored if row])).mean
    assert held is not None
    assert mean is None or held[0] - 1e-12 <= mean <= held[1] + 1e-12


# Refusals


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_score_that_is_no_finite_number_is_refused(bad: float) -> None:
    for scores in ([bad], [0.5, bad], [bad, 0.5], [float("inf"), bad]):
        with pytest.raises(ValueError, match=r"inf|finite"):
            TaskScores.of(scores)
    with pytest.raises(ValueError, match="finite"):
        TaskScores.of([0.5]).plus(bad)


def test_a_task_without_a_scored_trial_is_refused() -> None:
    with pytest.raises(ValueError, match="leave it out"):
        TaskScores.of([])


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, float("nan")])
def test_a_level_outside_nought_and_one_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        estimate([], level=level)
    with pytest.raises(ValueError, match="level"):
        wilson(1, 2, level=level)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 3), (4, 3)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson(successes, n)


@pytest.mark.parametrize(
    ("total", "scored", "faulted"), [(5, 4, 0), (-1, 4, 0), (0, 4, -1), (float("nan"), 4, 1)]
)
def test_fault_bounds_refuse_scores_outside_the_unit_range(
    total: float, scored: int, faulted: int
) -> None:
    with pytest.raises(ValueError, match=r"scores in \[0, 1\]"):
        fault_bounds(total, scored=scored, faulted=faulted)


def test_importing_the_statistics_does_not_import_scipy() -> None:
    modules = "bakeoff.stats.estimate, bakeoff.stats.by_task, bakeoff.stats.estimate"
    check = f"import sys, {modules}; sys.exit('scipy' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# Quantiles


def test_the_median_of_an_even_count_lies_halfway() -> None:
    assert quantile([1.0, 2.0, 4.0, 8.0], 0.5) == 3.0


def test_no_values_have_no_quantile() -> None:
    assert quantile([], 0.5) is None


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50).map(sorted), st.floats(0, 1))
def test_quantiles_agree_with_numpy(values: list[float], q: float) -> None:
    assert quantile(values, q) == pytest.approx(float(np.quantile(values, q)), abs=1e-6)
    assert quantile(values, 0) == values[0]
    assert quantile(values, 1) == values[-1]


@pytest.mark.parametrize("q", [-0.1, 1.1, 95, float("nan")])
def test_a_quantile_outside_nought_and_one_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="q must"):
        quantile([1.0], q)


@pytest.mark.parametrize(
    ("n", "q", "ranks"), [(40, 0.5, (14, 27)), (100, 0.5, (40, 61)), (100, 0.95, (90, 100))]
)
def test_the_ranks_of_a_quantile_match_the_reference(
    n: int, q: float, ranks: tuple[int, int]
) -> None:
    assert quantile_ranks(n, q) == ranks
    values = [float(value) for value in range(1, n + 1)]
    assert bounds(quantile_interval(values, q)) == ranks


@pytest.mark.parametrize(("n", "q"), [(0, 0.5), (5, 0.5), (50, 0.95)])
def test_too_few_values_have_no_interval_of_a_quantile(n: int, q: float) -> None:
    assert quantile_interval([1.0] * n, q) is None


# Averages and ratios


def test_the_macro_average_weighs_every_category_the_same() -> None:
    small, large = graded(["1111", "1110"]), graded(["0000"] * 8 + ["1111"] * 8)
    parts = [estimate(small), estimate(large)]
    macro = weighted_average([(part, 1.0) for part in parts])
    by_task = weighted_average([(part, part.tasks) for part in parts])
    assert macro is not None
    assert by_task is not None
    assert macro.mean == pytest.approx((0.875 + 0.5) / 2)
    assert by_task.mean == pytest.approx(estimate([*small, *large]).mean)
    errors = [part.se or 0.0 for part in parts]
    assert macro.se == pytest.approx(0.5 * (errors[0] ** 2 + errors[1] ** 2) ** 0.5)
    assert bounds(macro.interval)[0] < macro.mean < bounds(macro.interval)[1]


def test_a_category_that_is_solved_in_whole_is_not_taken_as_certain() -> None:
    parts = [estimate(graded(["1111"] * 10)), estimate(graded(A))]
    macro = weighted_average([(part, 1.0) for part in parts])
    assert macro is not None
    assert macro.se is None
    of_the_other = bounds(parts[1].interval)
    assert macro.interval is not None
    assert macro.interval.high - macro.interval.low > (of_the_other[1] - of_the_other[0]) / 2


def test_the_cost_of_a_success_is_a_ratio_of_totals_with_the_error_of_the_delta_method() -> None:
    costs, passed = [0.2, 0.4, 0.1, 0.3, 0.5], [1, 2, 0, 1, 2]
    found = ratio_of_totals(list(zip(costs, passed, strict=True)))
    ratio = sum(costs) / sum(passed)
    assert found.value == pytest.approx(ratio)
    residuals = np.array(costs) - ratio * np.array(passed)
    by_hand = residuals.std(ddof=1) / 5**0.5 / np.mean(passed)
    assert found.se == pytest.approx(by_hand)
    assert bounds(found.interval)[0] < ratio < bounds(found.interval)[1]


def test_where_nothing_was_solved_a_success_has_no_price() -> None:
    found = ratio_of_totals([(0.2, 0.0), (0.4, 0.0)])
    assert (found.value, found.reason) == (None, "nothing was solved")


@pytest.mark.soak
def test_the_interval_of_the_cost_of_a_success_covers_the_truth() -> None:
    rng, held = np.random.default_rng(5), 0
    for _ in range(2_000):
        passed = rng.random(100) < 0.6
        costs = rng.lognormal(0.0, 0.5, 100) * (1 + passed)
        interval = ratio_of_totals(list(zip(costs, passed.astype(float), strict=True))).interval
        truth = np.exp(0.125) * 1.6 / 0.6
        held += interval is not None and interval.low <= truth <= interval.high
    assert held / 2_000 >= 0.93
