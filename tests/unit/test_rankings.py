"""Ranks and the ranges they may have: against scipy, by hand, and by their laws."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.stats.rankings import Measurements, Ranking, holm, permutation_p, rank

values = st.lists(st.integers(0, 20).map(float), min_size=2, max_size=5)


def measured(**given_values: list[float]) -> list[Measurements]:
    return [Measurements(candidate=name, values=tuple(v)) for name, v in given_values.items()]


def ranges(found: Ranking) -> dict[str, tuple[int | None, int | None]]:
    return {one.candidate: (one.best, one.worst) for one in found.placed}


@given(values, values)
def test_the_permutation_test_is_that_of_scipy(first: list[float], second: list[float]) -> None:
    theirs = stats.permutation_test(
        (np.array(first), np.array(second)),
        lambda a, b, axis: np.abs(np.mean(a, axis=axis) - np.mean(b, axis=axis)),
        vectorized=True,
        alternative="greater",
        n_resamples=np.inf,
    )
    assert permutation_p(first, second) == pytest.approx(float(theirs.pvalue))


def test_too_many_deals_are_sampled_with_a_seed_and_come_close() -> None:
    chance = Random(1)
    first = [chance.gauss(0, 1) for _ in range(12)]
    second = [chance.gauss(0.6, 1) for _ in range(12)]
    once, again = permutation_p(first, second), permutation_p(first, second)
    assert once == again
    assert once == pytest.approx(float(stats.ttest_ind(first, second).pvalue), abs=0.03)


@given(values, values)
def test_swapping_two_candidates_changes_no_p(first: list[float], second: list[float]) -> None:
    assert permutation_p(first, second) == pytest.approx(permutation_p(second, first))


def test_holm_by_hand_and_never_below_the_raw_p() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_the_range(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(raw <= a <= 1 for raw, a in zip(p, adjusted, strict=True))
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_far_apart_and_often_enough_they_are_separated() -> None:
    found = rank(measured(slow=[90, 91, 92, 93, 95, 96], fast=[1, 2, 3, 4, 5, 6],
                          middle=[40, 41, 42, 43, 44, 45]))  # fmt: skip
    assert [one.candidate for one in found.placed] == ["fast", "middle", "slow"]
    assert ranges(found) == {"fast": (1, 1), "middle": (2, 2), "slow": (3, 3)}
    assert found.decided
    assert found.reason is None


def test_two_that_cannot_be_told_apart_share_their_range() -> None:
    found = rank(measured(a=[10, 12, 11, 13, 12, 11], b=[11, 12, 12, 13, 11, 11],
                          far=[80, 81, 82, 83, 84, 85]))  # fmt: skip
    assert ranges(found) == {"a": (1, 2), "b": (1, 2), "far": (3, 3)}
    assert not found.decided


def test_with_one_value_it_is_an_order_and_no_ranking() -> None:
    found = rank(measured(a=[3.0], b=[1.0]))
    assert [(one.candidate, one.rank) for one in found.placed] == [("b", 1), ("a", 2)]
    assert ranges(found) == {"a": (None, None), "b": (None, None)}
    assert "single observation" in (found.reason or "")
    assert found.duels == ()


def test_three_rollouts_of_two_candidates_cannot_decide_and_it_says_so() -> None:
    found = rank(measured(a=[1, 2, 3], b=[1001, 1002, 1003]))
    assert found.duels[0].p == pytest.approx(2 / 20)
    assert "this few rollouts" in (found.reason or "")


def test_a_tie_goes_to_the_faster() -> None:
    found = rank([
        Measurements(candidate="a", values=(2.0,), tie_break=(9.0,)),
        Measurements(candidate="b", values=(2.0,), tie_break=(4.0,)),
    ])  # fmt: skip
    assert [one.candidate for one in found.placed] == ["b", "a"]


def test_nobody_and_one_alone_are_rankings_too() -> None:
    assert rank([]).reason == "no model is ranked"
    alone = rank(measured(a=[1.0, 2.0]))
    assert (alone.reason, alone.placed[0].rank) == ("nothing to compare with", 1)


@given(st.lists(values, min_size=1, max_size=5), st.randoms())
def test_every_rank_lies_in_its_range_whatever_the_order_of_rows(
    rows: list[list[float]], chance: Random
) -> None:
    given_rows = [Measurements(candidate=f"m{i}", values=tuple(v)) for i, v in enumerate(rows)]
    found = rank(given_rows)
    mixed = list(given_rows)
    chance.shuffle(mixed)
    assert rank(mixed) == found
    for one in found.placed:
        assert one.best is not None
        assert one.worst is not None
        assert 1 <= one.best <= one.rank <= one.worst <= len(rows)
