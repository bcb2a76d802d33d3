"""Two candidates on the same tasks: reference values, scipy, laws, and what cannot be told."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bakeoff.core.plan import Block, Plan
from bakeoff.core.record import TrialRow
from bakeoff.core.task import ScorerSpec
from bakeoff.reports.files import as_json
from bakeoff.stats.paired import (
    McNemar,
    Pair,
    SignFlip,
    TaskMeans,
    compare,
    decide,
    mcnemar,
    sign_flip,
    two_digits,
)
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.power import detectable, tasks_needed
from bakeoff.stats.rankings import RankedCandidate
from bakeoff.stats.summarize import summarize
from bakeoff.stats.summary import Summary
from support.plans import candidate, plan, task
from support.rows import fault, row

# The ten tasks x four rollouts of the reference values.
A = ["1111", "1111", "1011", "1111", "0110", "0000", "1101", "0010", "1111", "1001"]
B = ["1101", "1111", "0101", "1111", "0010", "0000", "0100", "1000", "1011", "0110"]

binary = st.integers(0, 1).map(float)
quarters = st.integers(0, 4).map(lambda n: n / 4)
unit = st.floats(0, 1)
missing = st.just(math.nan)


def of(mark: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[float, float]]]:
    return st.lists(st.tuples(mark, mark), max_size=14)


rows = st.one_of(of(binary), of(quarters), of(unit), of(binary | missing), of(unit | missing))


def six(*values: Any) -> object:
    return pytest.approx(values if len(values) > 1 else values[0], abs=5e-7)


def column(name: str, means: Sequence[float], *, once: bool = True) -> TaskMeans:
    marks = once and all(mean in {0, 1} or math.isnan(mean) for mean in means)
    return TaskMeans(candidate=name, means=list(means), binary=marks)


def compared(both: Sequence[tuple[float, float]], *, once: bool = True) -> Pair:
    """The only pair of a run, with its verdict."""
    first, second = zip(*both, strict=True) if both else ((), ())
    return decide([compare(column("a", first, once=once), column("b", second, once=once))])[0]


def reference() -> Pair:
    return compared(
        [(a.count("1") / 4, b.count("1") / 4) for a, b in zip(A, B, strict=True)], once=False
    )


# Reference values


def test_the_reference_pair_has_its_difference_error_and_p_values() -> None:
    pair = reference()
    assert pair.difference == six(0.15)
    assert pair.se == six(0.055277)
    assert pair.t_p == six(0.023856)
    assert pair.sign_flip is not None
    assert (pair.sign_flip.p, pair.sign_flip.exact, pair.sign_flip.draws) == (0.0625, True, None)
    assert (pair.tasks, pair.left_out, pair.won, pair.lost) == (10, 0, 5, 0)
    assert pair.mcnemar is None
    assert pair.interval is not None
    assert pair.interval.method == "paired t"
    theirs = stats.ttest_1samp([0.25, 0, 0.25, 0, 0.25, 0, 0.5, 0, 0.25, 0], 0)
    expected = theirs.confidence_interval(0.95)
    assert expected.low > 0
    # t alone would leave out 0, which the exact test does not refute: no verdict, and 0 is in it
    assert (pair.interval.low, pair.interval.high) == six(0.0, expected.high)


def test_the_small_n_trap_the_exact_test_decides_and_says_so() -> None:
    pair = reference()
    assert (pair.test, pair.p, pair.p_holm) == ("sign-flip, exact", 0.0625, 0.0625)
    assert pair.better is None
    # five of ten tasks speak, all for the same one; six have to: twelve tasks
    assert pair.more_tasks == 2
    assert pair.verdict == (
        "no decision (these 10 tasks would show 0.15 or more; to show 0.1: about 24)"
    )


def test_mcnemar_has_its_reference_values_and_those_of_the_binomial_test() -> None:
    found = mcnemar(15, 5)
    assert (found.p_exact, found.p_mid) == six(0.041389, 0.026604)
    assert mcnemar(0, 0).p_exact == mcnemar(0, 0).p_mid == 1.0
    assert mcnemar(7, 7).p_exact == 1.0
    far = mcnemar(100_900, 99_100)
    assert far.p_exact == pytest.approx(stats.binomtest(99_100, 200_000).pvalue, rel=1e-6)


def test_miller_says_how_many_tasks_a_difference_needs() -> None:
    needed = tasks_needed(0.03, variance=1 / 9)
    assert needed == pytest.approx(968.9975, abs=5e-5)
    assert detectable(969, variance=1 / 9) == pytest.approx(0.03, abs=1e-6)
    assert tasks_needed(0.03, variance=1 / 9, power=0.9) > needed
    with pytest.raises(ValueError, match="difference of 0"):
        tasks_needed(0, variance=1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        detectable(5, variance=1, power=1)


def test_the_least_detectable_difference_is_that_of_the_observed_spread() -> None:
    pair = reference()
    assert pair.se is not None
    assert pair.detectable == pytest.approx(2.801585 * pair.se, abs=1e-6)


# Against scipy


@settings(deadline=None)
@given(st.lists(st.integers(-4, 4).map(lambda n: n / 4), min_size=2, max_size=9))
def test_the_exact_sign_flip_is_that_of_scipy(differences: list[float]) -> None:
    theirs = stats.permutation_test(
        (np.array(differences),),
        lambda d, axis: np.abs(np.sum(d, axis=axis)),
        permutation_type="samples",
        vectorized=True,
        alternative="greater",
        n_resamples=np.inf,
    )
    found = sign_flip(differences)
    assert found is not None
    assert found.exact
    assert found.p == pytest.approx(float(theirs.pvalue))


@settings(deadline=None)
@given(st.lists(unit, min_size=3, max_size=30), st.integers(0, 9))
def test_t_is_that_of_scipy(first: list[float], seed: int) -> None:
    chance = Random(seed)
    both = [(a, chance.random()) for a in first]
    pair = compared(both)
    theirs = stats.ttest_rel([a for a, _ in both], [b for _, b in both])
    assert pair.t_p == pytest.approx(float(theirs.pvalue), abs=1e-9)


@pytest.mark.parametrize(
    ("rollouts", "tasks", "exact"),
    [(5, 300, True), (20, 100, True), (0, 26, True), (0, 27, False)],
)
def test_where_flips_cannot_be_counted_out_they_are_sampled_and_it_says_so(
    rollouts: int, tasks: int, exact: bool
) -> None:
    chance = Random(4)

    def score() -> float:
        if not rollouts:
            return chance.random()
        return sum(chance.random() < 0.5 for _ in range(rollouts)) / rollouts

    differences = [score() - score() + 0.05 for _ in range(tasks)]
    once, again = sign_flip(differences), sign_flip(list(reversed(differences)))
    assert once is not None
    assert once == again
    assert (once.exact, once.draws) == (exact, None if exact else 9_999)
    t = stats.ttest_1samp(differences, 0).pvalue
    assert once.p == pytest.approx(float(t), abs=0.03)


def test_more_than_can_be_sampled_is_left_to_t() -> None:
    chance = Random(5)
    both = [(chance.random(), chance.random() ** 2) for _ in range(60)]
    first, second = (
        column(name, means) for name, means in zip("ab", zip(*both, strict=True), strict=True)
    )
    assert compare(first, second, most_sampled=59).sign_flip is None
    sampled = compare(first, second, most_sampled=60)
    assert sampled.sign_flip is not None
    assert not sampled.sign_flip.exact
    assert (sampled.test, sampled.p) == ("paired t", sampled.t_p)


# Laws


@settings(deadline=None)
@given(rows, st.randoms())
def test_the_order_of_tasks_changes_nothing(
    both: list[tuple[float, float]], chance: Random
) -> None:
    mixed = list(both)
    chance.shuffle(mixed)
    assert compared(mixed) == compared(both)


@settings(deadline=None)
@given(rows)
def test_swapping_the_two_negates_the_difference_and_keeps_p(
    both: list[tuple[float, float]],
) -> None:
    one, other = compared(both), compared([(b, a) for a, b in both])
    assert other.difference == (None if one.difference is None else -one.difference)
    assert (other.p_holm, other.t_p, other.sign_flip) == (one.p_holm, one.t_p, one.sign_flip)
    assert (other.won, other.lost, other.left_out) == (one.lost, one.won, one.left_out)
    assert (other.detectable, other.more_tasks) == (one.detectable, one.more_tasks)
    assert other.better == {"a": "b", "b": "a", None: None}[one.better]


@settings(deadline=None)
@given(of(binary).filter(lambda both: len(both) > 1))
def test_mcnemar_is_the_sign_flip_of_binary_scores(both: list[tuple[float, float]]) -> None:
    pair = compared(both)
    assert pair.mcnemar is not None
    assert pair.sign_flip is not None
    assert pair.test == "McNemar, exact"
    assert pair.mcnemar.p_exact == pytest.approx(pair.sign_flip.p)
    assert pair.mcnemar.p_mid <= pair.mcnemar.p_exact
    assert pair.mcnemar.only_first == sum(a > b for a, b in both)


@settings(deadline=None)
@given(st.lists(rows, min_size=1, max_size=4))
def test_being_one_of_many_never_lowers_a_p_and_nothing_is_nan(
    pairs: list[list[tuple[float, float]]],
) -> None:
    found = decide([
        compare(column("a", [a for a, _ in both]), column("b", [b for _, b in both]))
        for both in pairs
    ])  # fmt: skip
    for pair in found:
        assert (pair.p is None) == (pair.p_holm is None) == (pair.tasks < 2)
        if pair.p is not None and pair.p_holm is not None:
            assert pair.p <= pair.p_holm <= 1
        assert (pair.se is None) == (pair.t_p is None)
        assert pair.interval is not None or pair.se is None
        if pair.interval is not None:
            assert (pair.better is None) == (pair.interval.low <= 0 <= pair.interval.high)
        assert (pair.se is None) == (pair.reason is not None)
        assert pair.se != 0
        if pair.interval is not None and pair.difference is not None:
            assert -1 <= pair.interval.low <= pair.difference <= pair.interval.high <= 1
        assert pair.verdict
        for value in (pair.difference, pair.se, pair.t_p, pair.p_holm, pair.detectable):
            assert value is None or math.isfinite(value)


# Verdicts


def test_who_wins_often_enough_is_better() -> None:
    pair = compared([(1.0, 0.0)] * 8 + [(0.0, 0.0)] * 4)
    assert (pair.better, pair.verdict) == ("a", "a is better")
    assert pair.p_holm == pytest.approx(2 / 2**8)
    assert pair.more_tasks is None
    assert compared([(0.2, 0.7)] * 12 + [(0.3, 0.7)]).verdict == "b is better"


def test_many_pairs_make_it_harder_for_each_of_them() -> None:
    clear = compare(column("a", [1.0] * 8), column("b", [0.0] * 7 + [1.0]))
    alone, *_ = decide([clear])
    among, *_ = decide([clear] * 10)
    assert alone.better == "a"
    assert (among.better, among.p, among.p_holm) == (None, alone.p, pytest.approx(10 * 2 / 2**7))
    assert alone.detectable is not None
    assert among.detectable is not None
    assert among.detectable > alone.detectable
    assert among.more_tasks is not None


def test_a_number_of_tasks_is_told_to_two_digits() -> None:
    assert [two_digits(n) for n in (1, 2, 99, 101, 1_234)] == [1, 2, 99, 110, 1_300]


def test_with_as_many_more_tasks_as_it_says_a_difference_is_mostly_found() -> None:
    chance = Random(8)

    def run(tasks: int) -> Pair:
        marks = ((chance.random() < 0.7, chance.random() < 0.5) for _ in range(tasks))
        return compared([(float(a), float(b)) for a, b in marks])

    needed = round(tasks_needed(0.2, variance=0.7 * 0.3 + 0.5 * 0.5))
    found = sum(run(needed).better == "a" for _ in range(200)) / 200
    assert 0.68 < found < 0.9  # 80 %, and a little less: the exact test is careful


# What cannot be told is None, with a reason


def test_one_shared_task_has_a_difference_and_nothing_else() -> None:
    pair = compared([(1.0, 0.0), (math.nan, 1.0), (1.0, math.nan)])
    assert (pair.difference, pair.tasks, pair.left_out) == (1.0, 1, 2)
    assert (pair.se, pair.interval, pair.p, pair.p_holm, pair.detectable) == (None,) * 5
    assert pair.verdict.startswith("no decision (one shared task")


def test_no_shared_task_has_no_difference() -> None:
    for both in ([], [(math.nan, 1.0), (1.0, math.nan)]):
        pair = compared(both)
        assert (pair.difference, pair.tasks, pair.left_out) == (None, 0, len(both))
        assert pair.verdict == "no decision (no task has a score of both)"


def test_equal_differences_have_no_error_but_may_decide() -> None:
    pair = compared([(0.75, 0.25)] * 7)
    assert (pair.se, pair.interval, pair.t_p, pair.detectable) == (None,) * 4
    assert "all 7 differences are equal" in str(pair.reason)
    assert (pair.p, pair.verdict) == (2 / 2**7, "a is better")
    few = compared([(0.75, 0.25)] * 4)
    assert few.p == 2 / 2**4
    assert few.verdict == "no decision (4 tasks cannot show anything: it takes 6 at least)"


def test_two_that_do_the_same_everywhere_are_not_told_apart() -> None:
    pair = compared([(1.0, 1.0)] * 5 + [(0.0, 0.0)] * 5)
    assert (pair.difference, pair.se, pair.p, pair.more_tasks) == (0.0, None, 1.0, None)
    assert pair.verdict == "no decision (no difference was seen)"


# In a run


def _row(task_id: str, candidate_id: str, score: float | None, rollout: int = 0) -> TrialRow:
    made = fault(task_id) if score is None else row(task_id, score)
    return made._replace(candidate_id=candidate_id, rollout=rollout)


def _run(chance: Random | None = None, **marks: str) -> Summary:
    """A run of candidates whose marks are a letter per task: 0, 1, x for a fault, . for not run."""
    tasks = [
        task(f"t{n:02}", scorers=(ScorerSpec(name="exact"),))
        for n in range(max(map(len, marks.values())))
    ]
    seen = [
        _row(f"t{n:02}", name, None if mark == "x" else float(mark))
        for name, told in marks.items()
        for n, mark in enumerate(told)
        if mark != "."
    ]
    if chance is not None:
        chance.shuffle(seen)
    return summarize(plan(*tasks, candidates=[candidate(name) for name in marks]), seen, run="r")


def _pairwise(**marks: str) -> Pairwise:
    found = _run(None, **marks).pairwise
    assert found is not None
    return found


def test_one_candidate_alone_is_not_compared() -> None:
    assert _run(a="0110").pairwise is None
    assert as_json(_run(a="0110"))["pairwise"] is None


def test_every_two_candidates_are_a_pair_in_the_order_of_the_plan() -> None:
    found = _pairwise(c="1" * 12, a="0" * 12, b="01" * 6)
    assert [(p.first, p.second) for p in found.pairs] == [("c", "a"), ("c", "b"), ("a", "b")]
    assert found.pairs[0].verdict == "c is better"
    assert all(p.test == "McNemar, exact" for p in found.pairs)


def test_a_fault_leaves_the_task_out_for_that_pair_only() -> None:
    found = _pairwise(a="1111x1", b="00x000", c="010101")
    pairs = {p.first + p.second: p for p in found.pairs}
    assert (pairs["ab"].tasks, pairs["ab"].left_out) == (4, 2)
    assert (pairs["ac"].tasks, pairs["ac"].left_out) == (5, 1)
    assert found.tasks == 4


def test_tasks_that_everybody_or_nobody_passes_are_counted() -> None:
    found = _pairwise(a="110010", b="11000x", c="111000")
    assert (found.tasks, found.passed_by_all, found.passed_by_none) == (5, 2, 1)


def test_ranks_are_ranges_that_the_decisions_leave_open() -> None:
    found = _pairwise(low="0" * 14, high="1" * 14, near="1" * 13 + "0")
    assert [(r.candidate, r.rank, r.best, r.worst) for r in found.ranks] == [
        ("high", 1, 1, 2), ("near", 2, 1, 2), ("low", 3, 3, 3),
    ]  # fmt: skip
    assert found.reason is None


def test_nobody_ranks_before_one_that_beats_it_on_what_they_share() -> None:
    # a has the higher mean, but only because b alone was run on thirty hard tasks so far
    found = _pairwise(a="0" * 9 + "1" * 20 + "." * 30, b="1" * 9 + "." * 20 + "0" * 30)
    assert found.pairs[0].better == "b"
    assert [(r.candidate, r.best, r.worst) for r in found.ranks] == [("b", 1, 1), ("a", 2, 2)]
    assert found.ranks[0].value < found.ranks[1].value


def test_nobody_gains_a_place_by_faults() -> None:
    found = _pairwise(broken="1" * 14 + "0" * 6 + "x" * 12, good="1" * 20 + "0" * 12)
    assert [one.candidate for one in found.ranks] == ["good", "broken"]
    assert found.ranks[0].value < found.ranks[1].value
    assert found.ordered_by == "score with faulted trials counted as 0"
    assert _pairwise(a="10", b="11").ordered_by == "score"


def test_a_candidate_without_any_score_has_no_rank() -> None:
    found = _pairwise(a="1100", b="1010", broken="xxxx")
    assert [r.candidate for r in found.ranks] == ["a", "b"]
    assert [p.reason for p in found.pairs][1:] == ["no task has a score of both"] * 2


def test_without_two_shared_tasks_there_are_no_ranges_and_a_reason() -> None:
    found = _pairwise(a="1", b="0")
    assert [(r.best, r.worst) for r in found.ranks] == [(None, None), (None, None)]
    assert found.reason is not None


def test_candidates_with_tasks_of_their_own_are_compared_on_the_others() -> None:
    tasks = [task(f"t{n}", scorers=(ScorerSpec(name="exact"),)) for n in range(4)]
    first, second = candidate("a"), candidate("b")
    blocks = (
        Block(tasks=tuple(tasks[:3]), candidates=(first,)),
        Block(tasks=tuple(tasks[1:]), candidates=(second,)),
    )
    seen = [_row(f"t{n}", "a", 1.0) for n in (0, 1, 2)]
    seen += [_row(f"t{n}", "b", float(n == 1)) for n in (1, 2, 3)]
    found = summarize(Plan(blocks=blocks), seen).pairwise
    assert found is not None
    assert (found.pairs[0].tasks, found.pairs[0].left_out) == (2, 2)
    assert found.pairs[0].difference == 0.5


marks = st.text("01x", min_size=1, max_size=9)


@settings(deadline=None, max_examples=60)
@given(st.lists(marks, min_size=2, max_size=4), st.randoms())
def test_rows_in_any_order_say_the_same_and_fit_into_json(told: list[str], chance: Random) -> None:
    width = max(map(len, told))
    named = {f"m{n}": line.ljust(width, "x") for n, line in enumerate(told)}
    found = _run(None, **named)
    assert _run(chance, **named) == found
    text = json.dumps(as_json(found), allow_nan=False)
    assert len(json.loads(text)["pairwise"]["pairs"]) == math.comb(len(told), 2)
    assert found.pairwise is not None
    for one in found.pairwise.ranks:
        assert one.best is None or one.best <= one.rank <= (one.worst or 0)


def test_rollouts_are_averaged_before_tasks_are_compared() -> None:
    tasks = [task(f"t{n}", scorers=(ScorerSpec(name="exact"),)) for n in range(10)]
    seen = [
        _row(f"t{n}", name, float(mark), rollout)
        for name, given_marks in (("a", A), ("b", B))
        for n, row in enumerate(given_marks)
        for rollout, mark in enumerate(row)
    ]
    two = [candidate("a"), candidate("b")]
    found = summarize(plan(*tasks, rollouts=4, candidates=two), seen).pairwise
    assert found is not None
    assert found.pairs == (replace(reference(), solved=True),)


def test_every_key_is_on_the_page_of_the_summary() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/summary-json.md").read_text()
    for kind in (Pairwise, Pair, SignFlip, McNemar, RankedCandidate):
        for field in fields(kind):
            assert re.search(rf"`(pairwise\.)?{field.name}(\[\])?`", page), field.name


def test_a_comparison_needs_no_scipy() -> None:
    program = (
        "import sys; from bakeoff.stats.paired import *; "
        "x = TaskMeans(candidate='a', means=[.1, .2, .4], binary=False); "
        "before = 'numpy' in sys.modules; compare(x, x); print(before, 'scipy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
