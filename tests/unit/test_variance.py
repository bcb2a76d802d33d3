"""Why a score is unsure: reference values, an analysis of variance by the book, laws, and nulls."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bakeoff.reports.files import as_json
from bakeoff.reports.wording.phrases import more_rollouts
from bakeoff.stats.estimate import TaskScores, estimate
from bakeoff.stats.summarize import summarize
from bakeoff.stats.variance import VarianceSplit, split_variance
from support.plans import plan, task
from support.rollouts import Scores, marks
from support.rows import row

A = ["1111", "1111", "1011", "1111", "0110", "0000", "1101", "0010", "1111", "1001"]


def split(*tasks: Sequence[float]) -> VarianceSplit:
    return split_variance(Scores.of(t) for t in tasks)


def six(value: float) -> object:
    return pytest.approx(value, abs=5e-7)


def test_the_reference_tasks_have_their_icc_and_standard_errors() -> None:
    found = split(*marks(*A))
    assert found.icc == six(0.389222)
    assert found.se(tasks=10, rollouts=4) == six(0.112114)
    assert found.se(tasks=10, rollouts=16) == six(0.099565)
    assert found.se_any_rollouts == six(0.095015)
    assert found.se_twice_tasks == six(0.112114 / math.sqrt(2))
    assert (found.tasks, found.rollouts, found.clipped, found.reason) == (10, 4, False, None)


scored = st.lists(st.floats(0, 1), min_size=3, max_size=3)
equal = st.lists(scored, min_size=2, max_size=12)
unequal = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=12)


@given(equal)
def test_with_equal_rollouts_it_is_the_analysis_of_variance_of_the_book(
    tasks: list[list[float]],
) -> None:
    found, n, k = split(*tasks), len(tasks), 3
    overall = math.fsum(x for t in tasks for x in t) / (n * k)
    means = [math.fsum(t) / k for t in tasks]
    msb = k * math.fsum((m - overall) ** 2 for m in means) / (n - 1)
    msw = math.fsum((x - m) ** 2 for t, m in zip(tasks, means, strict=True) for x in t) / (n * 2)
    assert found.within == pytest.approx(msw, abs=1e-11)
    assert found.between == pytest.approx(max((msb - msw) / k, 0), abs=1e-11)
    if (msb - msw) / k < -1e-11:
        assert found.clipped
    # scipy's F is the ratio of the same two mean squares
    if msw > 1e-9:
        assert stats.f_oneway(*tasks).statistic == pytest.approx(msb / msw, rel=1e-6, abs=1e-6)


@given(equal)
def test_as_it_was_run_the_parts_add_up_to_the_standard_error_of_task_means(
    tasks: list[list[float]],
) -> None:
    found = split(*tasks)
    whole = estimate([TaskScores.of(t) for t in tasks])
    if whole.se is not None and whole.se > 1e-5 and not found.clipped:
        assert found.se(tasks=len(tasks), rollouts=3) == pytest.approx(whole.se, rel=1e-4)
        assert found.se_twice_tasks == pytest.approx(whole.se / math.sqrt(2), rel=1e-4)


@given(unequal, st.randoms())
def test_the_order_of_tasks_does_not_matter_and_nothing_is_negative(
    tasks: list[list[float]], chance: Random
) -> None:
    found = split(*tasks)
    mixed = tasks[:]
    chance.shuffle(mixed)
    again = split(*mixed)
    for field in fields(VarianceSplit):
        one, other = getattr(found, field.name), getattr(again, field.name)
        assert one == (pytest.approx(other, abs=1e-12) if isinstance(other, float) else other)
        if isinstance(one, float):
            assert math.isfinite(one)
            assert one >= 0
    assert found.icc is None or 0 <= found.icc <= 1
    assert (found.icc is None) <= (found.reason is not None)
    for fewer, more in (("se_twice_rollouts", "se_any_rollouts"),):
        if getattr(found, more) is not None:
            assert getattr(found, more) <= getattr(found, fewer)


def test_the_parts_of_simulated_scores_are_found_again() -> None:
    chance = Random(4)
    tasks = []
    for _ in range(3_000):
        own = chance.gauss(0.5, 0.3)
        tasks.append([chance.gauss(own, 0.4) for _ in range(chance.choice((2, 3, 5)))])
    found = split(*tasks)
    assert found.between == pytest.approx(0.09, rel=0.1)
    assert found.within == pytest.approx(0.16, rel=0.05)


def test_the_parts_are_right_on_average_however_small_the_run() -> None:
    chance, runs = Random(9), 4_000
    between = within = 0.0
    for _ in range(runs):
        found = split(*_drawn(chance, tasks=6, rollouts=3))
        between += (found.between or 0.0) / runs
        within += (found.within or 0.0) / runs
        assert not found.clipped  # that would not be right on average
    assert between == pytest.approx(0.36, rel=0.03)
    assert within == pytest.approx(0.01, rel=0.03)


def _drawn(chance: Random, *, tasks: int, rollouts: int) -> list[list[float]]:
    """Tasks whose means have a variance of 0.36, and rollouts of 0.01 about them."""
    means = [chance.gauss(0.5, 0.6) for _ in range(tasks)]
    return [[chance.gauss(mean, 0.1) for _ in range(rollouts)] for mean in means]


def test_a_negative_part_is_clipped_and_said_and_leaves_no_error_of_zero() -> None:
    found = split(*marks("10", "01", "10", "01"))
    assert (found.between, found.clipped, found.icc) == (0.0, True, 0.0)
    assert found.se_any_rollouts is None
    assert found.reason == "tasks differ no more than their rollouts do"


def test_rollouts_that_all_score_the_same_leave_nothing_to_gain_from_more() -> None:
    found = split([0.1] * 3, [0.7] * 3, [0.3] * 3)  # sums that are not exact
    assert (found.within, found.icc, found.reason) == (0.0, 1.0, None)
    assert found.se_any_rollouts == found.se_twice_rollouts


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ([], "no task has a score"),
        (["1", "0", "1"], "one rollout of each task"),
        (["1011"], "one task"),
        (["11", "11"], "all scores are equal"),
        (["00", "00"], "all scores are equal"),
    ],
)
def test_what_cannot_be_told_is_null_with_a_reason(tasks: list[str], reason: str) -> None:
    found = split(*marks(*tasks))
    assert found.icc is None
    assert found.se_any_rollouts is None
    assert str(found.reason).startswith(reason)


def test_a_summary_has_it_for_each_candidate_and_the_page_tells_its_keys() -> None:
    tasks = [task(f"t{n}", category=f"c{n % 2}") for n in range(10)]
    rows = [
        row(f"t{n}", float(mark), rollout=k, category=f"c{n % 2}")
        for n, told in enumerate(A)
        for k, mark in enumerate(told)
    ]
    summary = summarize(plan(*tasks, rollouts=4), rows)
    assert summary.candidates[0].variance == split(*marks(*A))
    assert "NaN" not in json.dumps(as_json(summary), allow_nan=False)
    page = (Path(__file__).parents[2] / "docs/reference/summary-json.md").read_text()
    for field in fields(VarianceSplit):
        assert re.search(rf"`(variance\.)?{field.name}`", page), field.name


def test_a_person_is_told_whether_more_rollouts_would_help() -> None:
    assert more_rollouts(split(*marks(*A))) == (
        "twice the rollouts would shrink the error by 7 %, twice the tasks by 29 %"
    )
    alike = split(*marks("1111", "0000", "1111", "0000", "1110"))
    assert more_rollouts(alike) == "more rollouts would hardly help: the variance is between tasks"
    noise = split(*marks("10", "01", "10", "01"))
    assert more_rollouts(noise) == (
        "twice the rollouts would shrink the error by 29 %, twice the tasks by 29 %"
    )


@pytest.mark.parametrize("told", [["1", "0"], ["10"], ["11", "11"], []])
def test_where_that_is_not_known_nothing_is_said(told: list[str]) -> None:
    assert more_rollouts(split(*marks(*told))) is None
