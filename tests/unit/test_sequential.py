"""Evidence that may be looked at after every task: reference values, laws, and simulated looks."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.stats.estimate import wilson
from bakeoff.stats.sequential import (
    DifferenceMixture,
    anytime_difference,
    anytime_interval,
    mixture_interval,
)

unit = st.floats(0, 1)
values = st.lists(unit, min_size=1, max_size=60)
differences = st.lists(st.floats(-1, 1), min_size=1, max_size=60)


def anytime_p(differences: Iterable[float]) -> float:
    """The p of "there is no difference" once all of them are seen."""
    doubt = DifferenceMixture()
    for one in differences:
        doubt.see(one)
    return doubt.p


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(27, 40, 0.425023, 0.870190), (675, 1000, 0.619498, 0.727400)],
)
def test_the_mixture_has_the_reference_values(
    successes: int, n: int, low: float, high: float
) -> None:
    found = mixture_interval(successes, n)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    assert found.method == "beta mixture, anytime-valid"


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (3, 7)])
def test_the_mixture_is_wider_than_an_interval_for_one_look(successes: int, n: int) -> None:
    found, one_look = mixture_interval(successes, n), wilson(successes, n)
    assert 0 <= found.low <= one_look.low
    assert one_look.high <= found.high <= 1


@pytest.mark.parametrize(("successes", "n"), [(1, 0), (-1, 3), (4, 3)])
def test_a_count_that_cannot_be_is_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="need 0 <= successes <= n"):
        mixture_interval(successes, n)


@given(values)
def test_a_mean_that_is_refuted_stays_refuted(seen: list[float]) -> None:
    lows, highs = [], []
    for n in range(1, len(seen) + 1):
        found = anytime_interval(seen[:n])
        if found is None:
            return
        lows.append(found.low)
        highs.append(found.high)
    assert lows == sorted(lows)
    assert highs == sorted(highs, reverse=True)


@given(values)
def test_an_interval_is_within_the_range_and_within_that_of_a_higher_level(
    seen: list[float],
) -> None:
    usual, wide = anytime_interval(seen, level=0.8), anytime_interval(seen, level=0.99)
    if usual is None or wide is None:
        return
    assert 0 <= wide.low <= usual.high
    assert usual.low <= wide.high <= 1


@given(differences)
def test_two_who_are_swapped_have_the_same_p_and_the_other_sign(seen: list[float]) -> None:
    swapped = [-one for one in seen]
    assert anytime_p(swapped) == pytest.approx(anytime_p(seen))
    one, other = anytime_difference(seen), anytime_difference(swapped)
    if one is None or other is None:
        assert one is other
        return
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=1e-6)


@given(differences)
@settings(max_examples=50)
def test_p_never_rises_and_is_that_of_two_sides(seen: list[float]) -> None:
    doubt, ps = DifferenceMixture(), [1.0]
    for one in seen:
        doubt.see(one)
        ps.append(doubt.p)
        assert doubt.p <= min(doubt.p_above, doubt.p_below) + 1e-12
    assert ps == sorted(ps, reverse=True)
    assert 0 < ps[-1] <= 1


def test_a_long_and_clear_course_runs_out_of_no_range() -> None:
    assert 0 < anytime_p([1.0] * 20_000) < 1e-200
    found = anytime_interval([1.0] * 20_000)
    assert found is not None
    assert found.high == 1
    assert 0.99 < found.low < 1


def _binary_differences(random: Random, first: float, second: float, n: int) -> list[float]:
    return [(random.random() < first) - (random.random() < second) for _ in range(n)]


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.5), (0.9, 0.9), (0.98, 0.98)])
def test_looks_at_every_task_seldom_find_a_difference_that_is_not_there(
    first: float, second: float
) -> None:
    random = Random(7)
    wrong = sum(
        anytime_p(_binary_differences(random, first, second, 300)) < 0.05 for _ in range(400)
    )
    assert wrong / 400 < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


def test_looks_with_wilson_would_miss_often_and_the_mixture_does_not() -> None:
    random = Random(3)
    missed = {"wilson": 0, "mixture": 0}
    for _ in range(200):
        scores = list(accumulate(random.random() < 0.7 for _ in range(500)))
        looks = [(scores[n - 1], n) for n in range(10, 501, 10)]
        missed["wilson"] += _misses([wilson(s, n) for s, n in looks], 0.7)
        missed["mixture"] += _misses([mixture_interval(s, n) for s, n in looks], 0.7)
    assert missed["wilson"] / 200 > 0.2
    assert missed["mixture"] / 200 < 0.05


def _misses(found: Sequence[object], true: float) -> bool:
    return any(not one.low <= true <= one.high for one in found)  # type: ignore[attr-defined]


def test_what_is_there_is_found_the_sooner_the_larger_it_is() -> None:
    def tasks_until(difference: float) -> int:
        random, doubt = Random(11), DifferenceMixture()
        for n in range(1, 5_000):
            (one,) = _binary_differences(random, 0.5 + difference, 0.5, 1)
            doubt.see(one)
            if doubt.p < 0.05:
                return n
        raise AssertionError("never found")

    needed = [tasks_until(difference) for difference in (0.4, 0.2, 0.1)]
    assert needed == sorted(needed)
    assert needed[0] < 60
