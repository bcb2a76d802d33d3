"""What is decided from a pair: intervals that agree, margins, prices, groups, and false verdicts."""

import math
from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.reports.wording.decision import answer, price, short_answer
from bakeoff.reports.wording.phrases import dollars, seconds, shared_tail
from bakeoff.stats.estimate import MissingBounds, Ratio
from bakeoff.stats.pace import Pace
from bakeoff.stats.paired import Pair, TaskMeans, compare, decide
from bakeoff.stats.paired_interval import newcombe
from bakeoff.stats.summarize import summarize
from support.plans import candidate, plan, scored_by, task, tasks
from support.rows import row

NAMES = "abcdefghij"


def column(name: str, means: list[float], *, binary: bool = False, **rest: object) -> TaskMeans:
    return TaskMeans(candidate=name, means=means, binary=binary, **rest)  # type: ignore[arg-type]


def decided(first: TaskMeans, second: TaskMeans, margin: float | None = None) -> Pair:
    return decide([compare(first, second)], margin=margin)[0]


# Intervals


@pytest.mark.parametrize("both", [20, 60])
def test_newcombes_interval_matches_the_reference(both: int) -> None:
    found = newcombe(15, 5, both=both, neither=80 - both)
    assert (found.low, found.high) == pytest.approx((0.011963, 0.186557), abs=5e-7)


marks = st.lists(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=2, max_size=60
)


@settings(deadline=None)
@given(marks, st.booleans())
def test_of_many_pairs_an_interval_holds_0_exactly_where_there_is_no_verdict(
    rows: list[list[float]], binary: bool
) -> None:
    columns = [column(NAMES[n], [row[n] for row in rows], binary=binary) for n in range(4)]
    pairs = [compare(a, b) for n, a in enumerate(columns) for b in columns[n + 1 :]]
    for pair in decide(pairs):
        if pair.interval is not None:
            assert (pair.better is None) == (pair.interval.low <= 0 <= pair.interval.high)


def test_the_interval_of_a_pair_covers_the_true_difference() -> None:
    rng, held = np.random.default_rng(3), 0
    for _ in range(400):
        hard = rng.beta(2, 1, 60)
        first, second = ((rng.random(60) < hard * f).astype(float).tolist() for f in (1.0, 0.8))
        interval = decided(
            column("a", first, binary=True), column("b", second, binary=True)
        ).interval
        held += interval is not None and interval.low <= 0.2 * 2 / 3 <= interval.high
    assert held / 400 >= 0.93


# Groups


def test_tasks_of_a_group_are_one_unit_for_error_and_flips() -> None:
    first, second = [1.0] * 12, [0.0] * 12
    alone = decided(column("a", first), column("b", second))
    groups = tuple("xxxyyyzzzwww")
    grouped = decided(column("a", first, groups=groups), column("b", second, groups=groups))
    assert (alone.units, alone.p, alone.better) == (12, 2 / 2**12, "a")
    assert (grouped.units, grouped.p, grouped.better) == (4, 2 / 2**4, None)
    assert grouped.test == "sign-flip of groups, exact"
    assert grouped.undecided == "12 tasks cannot show anything: it takes 6 at least"


def test_equal_candidates_on_grouped_tasks_are_rarely_told_apart() -> None:
    rng, wrong = np.random.default_rng(4), 0
    groups = tuple(str(n // 5) for n in range(50))
    for _ in range(400):
        apart = np.repeat(rng.normal(0, 0.3, 10), 5) + rng.normal(0, 0.1, 50)
        pair = decided(
            column("a", (0.5 + apart).tolist(), groups=groups),
            column("b", [0.5] * 50, groups=groups),
        )
        wrong += pair.better is not None
    assert wrong / 400 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


# Margins


def test_what_differs_by_less_than_the_margin_is_equivalent() -> None:
    first = [1.0] * 190 + [0.0] * 10
    found = decided(column("a", first, binary=True), column("b", first, binary=True), margin=0.05)
    assert (found.equivalent, found.better, found.verdict) == (True, None, "equivalent within 0.05")
    few = decided(
        column("a", first[-20:], binary=True), column("b", first[-20:], binary=True), margin=0.05
    )
    assert (few.equivalent, few.verdict) == (False, "no decision (no difference was seen)")


def test_a_small_but_sure_difference_is_better_and_less_than_the_margin() -> None:
    first = [0.51] * 50 + [0.515] * 50
    found = decided(column("a", first), column("b", [0.5] * 100), margin=0.05)
    assert (found.better, found.equivalent) == ("a", True)
    assert found.verdict == "a is better, by less than 0.05"


def test_faults_that_could_hide_a_difference_forbid_equivalence() -> None:
    means = [1.0] * 190 + [0.0] * 10
    lost = {n: MissingBounds(low=0.0, high=1.0, faults=1) for n in range(20)}
    faulted = [math.nan] * 20 + means[20:]
    found = decided(
        column("a", faulted, binary=True, bounds=lost), column("b", means, binary=True), margin=0.05
    )
    assert not found.equivalent


def test_candidates_at_the_margin_are_rarely_called_equivalent() -> None:
    rng, wrong = np.random.default_rng(6), 0
    for _ in range(400):
        hard = rng.random(300)
        first = (rng.random(300) < 0.5 + hard * 0.3).astype(float)
        second = (rng.random(300) < 0.4 + hard * 0.3).astype(float)
        pair = decided(
            column("a", first.tolist(), binary=True),
            column("b", second.tolist(), binary=True),
            margin=0.1,
        )
        wrong += bool(pair.equivalent)
    assert wrong / 400 <= 0.05


# Faults


def test_the_tipping_point_is_how_many_faults_may_go_against_the_leader() -> None:
    good = [1.0] * 14 + [math.nan] * 16
    lost = {n: MissingBounds(low=0.0, high=1.0, faults=1) for n in range(14, 30)}
    bad = column("bad", [0.0] * 14 + [1.0] * 16, binary=True)
    pair = decided(column("good", good, binary=True, bounds=lost), bad)
    assert (pair.withheld, pair.tipping, pair.faults) == (True, 4, 16)
    for against, better in ((4, "good"), (5, None)):
        known = [1.0] * 14 + [0.0] * against + [math.nan] * (16 - against)
        assert decided(column("good", known, binary=True), bad).better == better


@pytest.mark.parametrize("of_whom", ["failures", "successes", "everybody's failures"])
def test_faults_of_any_rule_rarely_make_equals_differ(of_whom: str) -> None:
    rng, wrong = np.random.default_rng(9), 0
    for _ in range(400):
        hard = rng.random(100)
        both = [(rng.random(100) < hard).astype(float) for _ in range(2)]
        columns = []
        for number, scores in enumerate(both):
            hit = rng.random(100) < 0.3
            hit &= scores == (1.0 if of_whom == "successes" else 0.0)
            hit &= (number == 0) | (of_whom == "everybody's failures")
            bounds = {
                int(n): MissingBounds(low=0.0, high=1.0, faults=1) for n in np.flatnonzero(hit)
            }
            means = np.where(hit, np.nan, scores).tolist()
            columns.append(column(NAMES[number], means, binary=True, bounds=bounds))
        wrong += decided(columns[0], columns[1]).better is not None
    assert wrong / 400 <= 0.05


# False verdicts


@pytest.mark.parametrize(
    ("candidates", "repetitions"), [(2, 300), pytest.param(5, 1_000, marks=pytest.mark.soak)]
)
def test_equal_candidates_rarely_get_a_false_verdict(candidates: int, repetitions: int) -> None:
    rng, wrong = np.random.default_rng(candidates), 0
    for _ in range(repetitions):
        hard = rng.beta(2, 1, 100)
        columns = [
            column(NAMES[n], (rng.binomial(3, hard) / 3).tolist()) for n in range(candidates)
        ]
        pairs = [compare(a, b) for n, a in enumerate(columns) for b in columns[n + 1 :]]
        wrong += any(pair.better is not None for pair in decide(pairs))
    assert wrong / repetitions <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / repetitions)


# Words and prices


def test_the_headline_says_how_many_tasks_more_at_what_price() -> None:
    given = plan(
        *tasks(40, scorers=scored_by("exact")), candidates=[candidate("dear"), candidate("cheap")]
    )
    rows = [
        row(f"t{n:04}", float(n < right), candidate_id=name, requests=1, cost_usd=cost)
        for name, right, cost in (("dear", 36, 0.04), ("cheap", 20, 0.01))
        for n in range(40)
    ]
    found = answer(summarize(given, rows))
    assert found.text.startswith("dear solves 40 of 100 tasks more than cheap (")
    assert found.text.endswith("), at 4 times the cost.")
    prices = "dear $0.0444 ($0.0399 to $0.0495), cheap $0.0200 ($0.0145 to $0.0276)."
    assert found.why.endswith(f"Cost per solved task: {prices}")


def test_on_a_page_the_headline_says_once_what_all_names_end_with() -> None:
    names = ("terse · shell · m/one", "polite · shell · m/one")
    given = plan(
        *tasks(40, scorers=scored_by("exact")), candidates=[candidate(name) for name in names]
    )
    rows = [
        row(f"t{n:04}", float(n < right), candidate_id=name)
        for name, right in zip(names, (36, 20), strict=True)
        for n in range(40)
    ]
    found = short_answer(summarize(given, rows))
    assert found.text.startswith("terse solves 40 of 100 tasks more than polite (")
    assert found.why.endswith("All with shell · m/one.")
    assert found.decided


@pytest.mark.parametrize(
    ("names", "tail"),
    [
        (["a · m", "b · m"], " · m"),
        (["a · x · m", "b · x · m"], " · x · m"),
        (["a · m", "m"], ""),
        (["a · m", "a · n"], ""),
        (["m"], ""),
        ([], ""),
    ],
)
def test_what_names_share_at_their_end_leaves_each_a_name(names: list[str], tail: str) -> None:
    assert shared_tail(names) == tail


@pytest.mark.parametrize(
    ("times", "text"),
    [(1.01, ", at the same cost"), (4.67, ", at 4.7 times the cost"), (0.2, ", at 0.2 times the cost"),
     (79.4, ", at 79 times the cost"), (1234.5, ", at 1,234 times the cost")],
)  # fmt: skip
def test_how_many_times_the_cost_is_a_plain_number(times: float, text: str) -> None:
    pair = Pair(first="a", second="b", tasks=9, left_out=0, cost_ratio=Ratio(value=times))
    assert price(pair) == text


def test_the_headline_says_what_more_tasks_would_take_in_money_and_time() -> None:
    given = plan(
        *tasks(40, scorers=scored_by("exact")), candidates=[candidate("a"), candidate("b")]
    )
    rows = [
        row(f"t{n:04}", float(n % of > 0), candidate_id=name)
        for name, of in (("a", 3), ("b", 4))
        for n in range(40)
    ]
    summary = summarize(given, rows)
    assert summary.pairwise is not None
    needed = summary.pairwise.pairs[0].to_show
    assert needed is not None
    # 80 trials cost 0.80 and took 160 s: each task more is two trials
    priced = replace(summary, pace=Pace(trials=80, cost_usd=0.8, seconds=160.0))
    found = answer(priced)
    more = needed.tasks - 40
    assert found.text.endswith(f"; to show {needed.difference:g}: about {needed.tasks}).")
    assert (
        f"{more} more tasks, to show {needed.difference:g}, would take about "
        f"{dollars(more * 0.02)} and {seconds(more * 4)}." in found.why
    )
    assert "would take" not in answer(summary).why


def test_a_group_of_a_task_reaches_the_comparison() -> None:
    given = plan(
        *(task(f"t{n}", scorers=scored_by("exact"), group=str(n // 3)) for n in range(12)),
        candidates=[candidate("a"), candidate("b")],
    )
    rows = [row(f"t{n}", s, candidate_id=c) for c, s in (("a", 1.0), ("b", 0.0)) for n in range(12)]
    found = summarize(given, rows).pairwise
    assert found is not None
    assert found.pairs[0].units == 4


# Speed


def test_all_pairs_of_ten_candidates_on_a_thousand_tasks_take_under_3_s_of_cpu() -> None:
    rng = np.random.default_rng(2)
    names = [candidate(f"m{n}") for n in range(10)]
    given = plan(*tasks(1_000, scorers=scored_by("exact")), candidates=names, rollouts=5)
    hard = rng.beta(2, 1, 1_000)
    rows = [
        row(f"t{n:04}", float(rng.random() < hard[n]), candidate_id=name.id, rollout=k)
        for name in names
        for n in range(1_000)
        for k in range(5)
    ]
    began = process_time()
    found = summarize(given, rows).pairwise
    assert process_time() - began < 3
    assert found is not None
    assert len(found.pairs) == 45
