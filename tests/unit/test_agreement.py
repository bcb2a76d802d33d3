"""Agreement of two scorers: against published examples, and its laws."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.reports.agreement import details, headline
from bakeoff.stats.agreement import Agreement, RatedAnswer, agreement, alpha, kappa

GRADES = [[11, 2, 0], [1, 9, 3], [0, 2, 12]]
# Krippendorff (2011): four observers, twelve units, some ratings missing
OBSERVERS = [
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
]
UNITS = [
    [float(rating) for rating in unit if rating != "."]
    for unit in zip(*(line.split() for line in OBSERVERS), strict=True)
]


def rated(*pairs: tuple[float, float], per_task: int = 1) -> Agreement:
    answers = [
        RatedAnswer(trial=f"t{n:03}@m#0", unit=f"t{n // per_task}", first=a, second=b)
        for n, (a, b) in enumerate(pairs)
    ]
    return agreement("judge", "exact", answers)


def test_kappa_and_ac1_match_the_reference() -> None:
    found = kappa([[20, 5], [10, 15]])
    assert (found.observed, found.kappa) == pytest.approx((0.7, 0.4), abs=1e-12)
    assert found.se == pytest.approx(0.126996, abs=5e-7)
    assert found.ac1 == pytest.approx(0.405941, abs=5e-7)


def test_weighted_kappa_matches_the_reference() -> None:
    assert kappa(GRADES, weighting="linear").kappa == pytest.approx(0.775910, abs=5e-7)
    assert kappa(GRADES, weighting="quadratic").kappa == pytest.approx(0.851439, abs=5e-7)


def test_alpha_matches_krippendorffs_own_example() -> None:
    assert alpha(UNITS, metric="nominal") == pytest.approx(0.743421, abs=5e-7)
    assert alpha(UNITS, metric="ordinal") == pytest.approx(0.815388, abs=5e-7)
    assert alpha(UNITS, metric="interval") == pytest.approx(0.849107, abs=5e-7)


marks = st.sampled_from([0.0, 1.0])
grades = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


@given(st.lists(st.tuples(marks, marks), min_size=1, max_size=40))
def test_who_is_named_first_makes_no_difference(pairs: list[tuple[float, float]]) -> None:
    one, other = rated(*pairs), rated(*((b, a) for a, b in pairs))
    assert one.value == pytest.approx(other.value)
    assert one.same == other.same


@given(st.lists(st.tuples(grades, grades), min_size=1, max_size=40))
def test_agreement_of_graded_scores_is_krippendorffs_alpha(
    pairs: list[tuple[float, float]],
) -> None:
    found = rated(*pairs)
    if found.measure == "alpha":
        assert found.value == pytest.approx(alpha(pairs), abs=1e-9)


@given(st.lists(marks, min_size=2, max_size=40))
def test_the_same_scores_agree_wholly_unless_they_never_vary(scores: list[float]) -> None:
    found = rated(*((score, score) for score in scores))
    assert found.same == 1
    assert found.value == (1 if len(set(scores)) > 1 else None)
    assert (found.reason is None) == (len(set(scores)) > 1)
    assert found.apart == ()


def test_the_interval_is_about_that_of_independent_answers_and_wider_where_answers_share_a_task() -> (
    None
):
    pairs = [(1.0, 1.0)] * 80 + [(1.0, 0.0)] * 20 + [(0.0, 1.0)] * 40 + [(0.0, 0.0)] * 60
    alone, together = rated(*pairs), rated(*pairs, per_task=10)
    assert alone.interval is not None
    assert together.interval is not None
    se = kappa([[80, 20], [40, 60]]).se
    assert se is not None
    assert alone.interval.high - alone.interval.low == pytest.approx(2 * 1.972 * se, rel=0.02)
    assert together.interval.high - together.interval.low > 1.5 * 2 * 1.972 * se


def test_the_interval_of_answers_covers_the_true_kappa() -> None:
    rng, held = random.Random(3), 0
    for _ in range(300):
        truth = [float(rng.random() < 0.6) for _ in range(80)]
        # either says what is true in 9 of 10 answers
        pairs = [tuple(x if rng.random() < 0.9 else 1 - x for _ in "ab") for x in truth]
        found = rated(*((a, b) for a, b in pairs))
        assert found.interval is not None
        chance = 0.58**2 + 0.42**2
        held += found.interval.low <= (0.82 - chance) / (1 - chance) <= found.interval.high
    assert held / 300 >= 0.92


def test_the_words_say_whether_one_may_stand_for_the_other() -> None:
    good = rated(*[(1.0, 1.0), (0.0, 0.0)] * 60, (1.0, 0.0))
    assert headline(good) == (
        "judge and exact give the same verdict in 99.2 of 100 cases on 121 answers to 121 tasks: enough "
        "for one to stand for the other"
    )
    assert list(details(good))[1:] == [
        "both pass 60, only judge 1, only exact 0, neither 60",
        "furthest apart: t120@m#0 (1.00 and 0.00); see: bakeoff show RUN TRIAL",
    ]
    bad = rated(*[(1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0)] * 30)
    assert "surely too little for one to stand for the other" in headline(bad)
    few = rated((1.0, 1.0), (0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
    assert headline(few).endswith("whether one may stand for the other is not clear yet")
    graded = rated((0.5, 0.75), (1.0, 1.0), (0.0, 0.25), (0.25, 0.25))
    assert graded.measure == "alpha"
    assert next(iter(details(graded))).startswith("alpha 0.8")
    nothing = agreement("judge", "exact", [])
    assert (nothing.value, nothing.reason) == (None, "no answer has a score of both")
    assert math.isfinite(good.value or math.nan)
