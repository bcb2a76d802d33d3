"""Faults need not strike by chance: a verdict holds whatever the faulted trials would have scored."""

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRow
from bakeoff.core.run_spec import Adaptive
from bakeoff.engine.adaptive import AdaptiveSelection
from bakeoff.stats.between_runs import contrasts, run_scores
from bakeoff.stats.paired import Pair
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.rankings import Measurements, rank
from bakeoff.stats.summarize import summarize
from support.plans import candidate, plan, scored_by, task, tasks
from support.rows import fault, row

RUNS, TASKS = 300, 120


def bench(*names: str, count: int, rollouts: int = 1) -> Plan:
    given = tasks(count, scorers=scored_by("exact"))
    return plan(*given, candidates=[candidate(name) for name in names], rollouts=rollouts)


def rows_of(name: str, letters: str) -> list[TrialRow]:
    """A letter for each task: 0, 1, x for a fault, a dot for what was not run."""
    return [
        fault(f"t{n:04}", candidate_id=name)
        if letter == "x"
        else row(f"t{n:04}", float(letter), candidate_id=name)
        for n, letter in enumerate(letters)
        if letter != "."
    ]


def compared(adaptive: Adaptive | None = None, **letters: str) -> Pairwise:
    rows = [found for name, told in letters.items() for found in rows_of(name, told)]
    many = max(map(len, letters.values()))
    found = summarize(bench(*letters, count=many), rows, adaptive=adaptive).pairwise
    assert found is not None
    return found


def only(found: Pairwise) -> Pair:
    (pair,) = found.pairs
    return pair


def failures_as_faults(chance: Random, *, share: float, count: int = TASKS) -> tuple[str, str]:
    """Two that are equally good; of the first one's failures some end as faults."""
    first, second = ([chance.random() < 0.5 for _ in range(count)] for _ in range(2))
    hidden = ["1" if right else "x" if chance.random() < share else "0" for right in first]
    return "".join(hidden), "".join("01"[right] for right in second)


def test_faults_that_hide_failures_make_nobody_better_in_more_than_one_run_of_twenty() -> None:
    chance = Random(7)
    drawn = [failures_as_faults(chance, share=0.3) for _ in range(RUNS)]
    found = [only(compared(a=first, b=second)) for first, second in drawn]
    fooled = sum(pair.p_holm is not None and pair.p_holm < 0.05 for pair in found)
    assert fooled > 0.15 * RUNS  # what the scores alone would have said
    assert sum(pair.better is not None for pair in found) <= 0.05 * RUNS


def test_between_runs_they_make_nobody_worse_in_more_than_one_run_of_twenty() -> None:
    chance = Random(11)
    worse = 0
    for _ in range(RUNS):
        first, second = failures_as_faults(chance, share=0.3)
        before, after = run_scores(rows_of("c", first)), run_scores(rows_of("c", second))
        (found,) = contrasts(before, after, [("c", "c")])
        worse += found.worse
    assert worse <= 0.05 * RUNS


def test_in_adaptive_runs_they_make_nobody_better_in_more_than_one_run_of_twenty() -> None:
    chance, rule = Random(13), Adaptive(seed=1)
    drawn = [failures_as_faults(chance, share=0.5, count=300) for _ in range(100)]
    found = [only(compared(rule, a=first, b=second)) for first, second in drawn]
    assert sum(pair.withheld for pair in found) > 5
    assert sum(pair.better is not None for pair in found) <= 5


def test_a_verdict_that_faults_could_turn_is_withheld_and_says_so() -> None:
    found = compared(good="1" * 14 + "x" * 16, bad="0" * 14 + "1" * 16)
    pair = only(found)
    assert pair.p_holm is not None
    assert pair.p_holm < 0.001
    assert (pair.better, pair.withheld, pair.faults) == (None, True, 16)
    assert pair.worst_difference == pytest.approx((14 - 16) / 30)
    assert pair.worst_p_holm == 1.0
    assert pair.tipping == 4
    assert pair.verdict == (
        "no decision (good is better unless more than 4 of the 16 faulted trials went against it)"
    )
    assert [(one.best, one.worst) for one in found.ranks] == [(1, 2), (1, 2)]


def test_a_lead_that_no_fault_could_turn_is_a_verdict() -> None:
    pair = only(compared(good="1" * 28 + "xx", bad="0" * 30))
    assert (pair.better, pair.withheld, pair.faults) == ("good", False, 2)
    assert pair.worst_difference == pytest.approx(28 / 30)
    assert pair.worst_p_holm is not None
    assert pair.worst_p_holm < 0.001


def test_a_lead_must_stay_sure_and_not_just_stay_a_lead() -> None:
    pair = only(compared(good="1" * 8 + "0" * 20 + "xx", bad="0" * 30))
    assert pair.p_holm == pytest.approx(2 / 2**8)
    assert pair.worst_difference is not None
    assert pair.worst_difference > 0
    better = only(compared(good="1" * 8 + "0" * 20 + "xx", bad="0" * 28 + "11"))
    assert (better.better, better.withheld) == (None, True)


def test_what_was_not_run_yet_turns_nothing() -> None:
    pair = only(compared(good="1" * 14 + "." * 16, bad="0" * 14 + "." * 16))
    assert (pair.better, pair.faults, pair.worst_difference) == ("good", 0, None)


def test_of_several_rollouts_only_the_faulted_ones_are_unknown() -> None:
    given = bench("a", "b", count=12, rollouts=2)
    rows = [
        *(row(f"t{n:04}", 1.0, candidate_id="a") for n in range(12)),
        *(fault(f"t{n:04}", candidate_id="a", rollout=1) for n in range(12)),
        *(row(f"t{n:04}", 0.0, candidate_id="b", rollout=r) for n in range(12) for r in range(2)),
    ]
    found = summarize(given, rows).pairwise
    assert found is not None
    pair = only(found)
    assert pair.worst_difference == pytest.approx(0.5)
    assert (pair.better, pair.faults) == ("a", 12)


def test_a_task_that_nothing_checks_turns_no_verdict_by_its_faults() -> None:
    checked = tasks(12, scorers=scored_by("exact"))
    loose = task("loose")
    given = plan(*checked, loose, candidates=[candidate("a"), candidate("b")])
    rows = [
        *(row(f"t{n:04}", 1.0, candidate_id="a") for n in range(12)),
        *(row(f"t{n:04}", 0.0, candidate_id="b") for n in range(12)),
        *(fault("loose", candidate_id=name) for name in "ab"),
    ]
    found = summarize(given, rows).pairwise
    assert found is not None
    assert (only(found).better, only(found).faults) == ("a", 0)


def _heard(first: str, second: str, rule: Adaptive) -> Iterator[bool]:
    """Whether an adaptive run still wants trials, after each task in the order it was drawn."""
    given = bench("a", "b", count=len(first))
    until = AdaptiveSelection(given, rule)
    letters = {"a": first, "b": second}
    for drawn in given.drawn_tasks(rule.seed):
        for name, told in letters.items():
            letter = told[int(drawn.id[1:])]
            score = None if letter == "x" else float(letter)
            until.record(name, drawn.id, score, faulted=letter == "x")
        yield until.undecided


def test_an_adaptive_run_goes_on_while_faults_could_turn_its_verdict() -> None:
    rule = Adaptive(seed=3)
    sure = list(_heard("1" * 120, "0" * 120, rule))
    assert not sure[-1]
    stopped = sure.index(False)
    assert all(_heard("1x" * 60, "01" * 60, rule))
    found = only(compared(rule, a="1x" * 60, b="01" * 60))
    assert (found.better, found.withheld, found.settled) == (None, True, False)
    assert stopped < 60


def _ranked(first: Sequence[float], second: Sequence[float], *, lost: int) -> object:
    ranking = rank(
        [
            Measurements(candidate="fast", values=tuple(first), faults=lost, most=100.0),
            Measurements(candidate="slow", values=tuple(second), most=100.0),
        ]
    )
    (duel,) = ranking.duels
    return duel.decided, duel.withheld, ranking.reason


def test_a_place_in_a_ranking_that_lost_rollouts_could_turn_is_open() -> None:
    fast, slow = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], [3.0, 3.1, 3.2, 3.3, 3.4, 3.5]
    assert _ranked(fast, slow, lost=0) == (True, False, None)
    assert _ranked(fast, slow, lost=3) == (
        False, True, "the rollouts that faulted could change the order",
    )  # fmt: skip


def test_where_a_figure_has_no_upper_end_a_lost_rollout_of_the_first_leaves_it_open() -> None:
    ranking = rank(
        [
            Measurements(candidate="few", values=(1.0,) * 6, faults=1),
            Measurements(candidate="many", values=(9.0,) * 6),
        ]
    )
    assert not ranking.decided
    turned = rank(
        [
            Measurements(candidate="few", values=(1.0,) * 8),
            Measurements(candidate="many", values=(9.0,) * 8, faults=1),
        ]
    )
    assert turned.decided
