"""pass@k and pass^k against the reference values and their laws."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.stats.by_task import PassMeasure, mean_pass, pass_at_k, pass_hat_k
from bakeoff.stats.estimate import TaskScores, estimate

# The ten tasks x four rollouts of candidate A in the reference values.
A = ["1111", "1111", "1011", "1111", "0110", "0000", "1101", "0010", "1111", "1001"]
A_COUNTS = [(len(task), task.count("1")) for task in A]

counts = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@pytest.mark.parametrize(("k", "expected"), [(1, 0.675), (2, 0.816667), (3, 0.875), (4, 0.9)])
def test_pass_at_k_of_the_reference_candidate(k: int, expected: float) -> None:
    assert mean_pass(A_COUNTS, k, measure=pass_at_k).value == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("k", "expected"), [(1, 0.675), (2, 0.533333), (3, 0.45), (4, 0.4)])
def test_pass_hat_k_of_the_reference_candidate(k: int, expected: float) -> None:
    assert mean_pass(A_COUNTS, k, measure=pass_hat_k).value == pytest.approx(expected, abs=5e-7)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
def test_both_measures_count_the_ways_to_draw_k_of_the_rollouts(
    rollouts: list[bool], k: int
) -> None:
    n, c = len(rollouts), sum(rollouts)
    draws = list(combinations(rollouts, k))
    if not draws:
        assert pass_at_k(n, c, k) is None
        assert pass_hat_k(n, c, k) is None
    else:
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
        assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@given(counts, st.integers(1, 40))
def test_pass_at_k_agrees_with_the_product_formula(pair: tuple[int, int], k: int) -> None:
    n, c = pair
    if k > n:
        return
    miss = 1.0
    for i in range(k):
        miss *= max(0, n - c - i) / (n - i)
    assert pass_at_k(n, c, k) == pytest.approx(1 - miss, abs=1e-12)


@given(counts)
def test_pass_at_k_never_falls_and_pass_hat_k_never_rises_with_k(pair: tuple[int, int]) -> None:
    n, c = pair
    at = [pass_at_k(n, c, k) or 0.0 for k in range(1, n + 1)]
    hat = [pass_hat_k(n, c, k) or 0.0 for k in range(1, n + 1)]
    assert at == sorted(at)
    assert hat == sorted(hat, reverse=True)
    assert all(0 <= low <= high <= 1 for low, high in zip(hat, at, strict=True))


@given(st.lists(counts, min_size=1, max_size=30))
def test_pass_at_1_and_pass_hat_1_are_the_mean_of_task_means(pairs: list[tuple[int, int]]) -> None:
    mean = estimate(TaskScores.of([1] * c + [0] * (n - c)) for n, c in pairs).mean
    assert mean_pass(pairs, 1, measure=pass_at_k).value == pytest.approx(mean)
    assert mean_pass(pairs, 1, measure=pass_hat_k).value == pytest.approx(mean)


@given(st.lists(counts, min_size=1, max_size=30), st.integers(1, 10), st.randoms())
def test_the_order_of_tasks_does_not_change_the_mean(
    pairs: list[tuple[int, int]], k: int, order: Random
) -> None:
    shuffled = pairs.copy()
    order.shuffle(shuffled)
    assert mean_pass(shuffled, k, measure=pass_at_k) == mean_pass(pairs, k, measure=pass_at_k)


@pytest.mark.parametrize("measure", [pass_at_k, pass_hat_k])
def test_more_rollouts_than_were_scored_cannot_be_estimated(measure: PassMeasure) -> None:
    assert measure(3, 2, 4) is None
    assert measure(0, 0, 1) is None


def test_one_task_with_too_few_rollouts_leaves_the_mean_unknown_and_says_so() -> None:
    result = mean_pass([(4, 2), (3, 3), (4, 4)], 4, measure=pass_at_k)
    assert result.value is None
    assert result.tasks == 3
    assert result.reason == "1 of 3 tasks have fewer than 4 scored rollouts"


def test_no_tasks_have_no_pass_rate_and_a_reason() -> None:
    result = mean_pass([], 1, measure=pass_hat_k)
    assert result.value is None
    assert result.reason == "no task has a score"


def test_thousands_of_rollouts_keep_full_precision() -> None:
    assert pass_at_k(5000, 1, 2500) == 0.5
    assert pass_hat_k(5000, 4999, 2500) == 0.5


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (-1, 0, 1)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="must"):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError, match="must"):
        pass_hat_k(n, c, k)


def test_pass_at_2_has_the_standard_error_of_its_task_values() -> None:
    assert mean_pass(A_COUNTS, 2, measure=pass_at_k).se == pytest.approx(0.103786, abs=5e-7)


def test_the_error_of_pass_at_1_is_that_of_the_score() -> None:
    tasks = [TaskScores.of([1] * c + [0] * (n - c)) for n, c in A_COUNTS]
    assert mean_pass(A_COUNTS, 1, measure=pass_at_k).se == pytest.approx(estimate(tasks).se)


def test_tasks_in_groups_have_a_pass_rate_with_a_clustered_error() -> None:
    groups = list("1112223344")
    found = mean_pass(A_COUNTS, 1, measure=pass_at_k, groups=groups)
    assert found.se == pytest.approx(0.112324, abs=5e-7)
