"""One task, several candidates, several rollouts: compared on this task, and said to hold for it only."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from bakeoff.core.record import TrialRow
from bakeoff.reports.wording import decision
from bakeoff.reports.wording.decision import answer
from bakeoff.stats.between_runs import contrasts, run_scores
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.rankings import permutation_p
from bakeoff.stats.summarize import summarize
from bakeoff.stats.summary import Summary
from support.plans import candidate, plan, scored_by, task
from support.rows import fault, row

Scores = Sequence[float | None]


def rows_of(name: str, scores: Scores) -> list[TrialRow]:
    return [
        fault("only", candidate_id=name, rollout=number)
        if score is None
        else row("only", score, candidate_id=name, rollout=number)
        for number, score in enumerate(scores)
    ]


def run(scores: Mapping[str, Scores]) -> Summary:
    given = plan(
        task("only", scorers=scored_by("exact")),
        candidates=[candidate(name) for name in scores],
        rollouts=max(map(len, scores.values())),
    )
    return summarize(given, [one for name, told in scores.items() for one in rows_of(name, told)])


def compared(**scores: Scores) -> Pairwise:
    found = run(scores).pairwise
    assert found is not None
    return found


def test_models_are_compared_over_the_rollouts_of_their_one_task() -> None:
    good, bad = [1, 0.9, 1, 0.8, 1], [0.1, 0, 0.2, 0, 0.1]
    (pair,) = compared(good=good, bad=bad).pairs
    assert (pair.unit, pair.test) == ("rollout", "permutation of rollouts, exact")
    assert pair.p == permutation_p(good, bad) == pytest.approx(2 / 252)
    assert pair.difference == pytest.approx(0.94 - 0.08)
    assert (pair.better, pair.verdict) == ("good", "good is better on this task")
    assert pair.reason == "one task: its rollouts say nothing about other tasks"


def test_every_view_says_that_it_holds_for_this_task_only() -> None:
    summary = run({"good": [1.0] * 6, "bad": [0.0] * 6})
    found = summary.pairwise
    assert found is not None
    assert decision.verdict(found) == "good is better than bad on this task, by 1.000"
    assert decision.in_short(found.pairs[0]) == "A is better on this task"
    lines = list(decision.remarks(found, found.pairs))
    assert lines == [
        "on one task, over its rollouts, and for this task only; "
        "chance by permutation of rollouts, exact, for 1 pair",
        "by chance: how often two equals differ this much; under 0.05 decides",
    ]
    told = answer(summary)
    assert told.text == "good is better than bad on this task, by 1.000."
    assert told.why == (
        "Over the rollouts of this one task good − bad is +1.000; equals would differ as "
        "much in 0.2 % of runs, by chance (permutation of rollouts, exact). It says nothing about other tasks."
    )


def test_of_many_the_best_is_the_best_on_this_task() -> None:
    found = compared(a=[1.0] * 8, b=[0.0] * 8, c=[0.5, 0.4, 0.6, 0.5, 0.4, 0.6, 0.5, 0.4])
    assert decision.verdict(found) == "a is the best of 3 on this task"
    assert [(one.candidate, one.best, one.worst) for one in found.ranks] == [
        ("a", 1, 1), ("c", 2, 2), ("b", 3, 3),
    ]  # fmt: skip


def test_too_few_rollouts_say_how_many_could_decide() -> None:
    (pair,) = compared(a=[1.0] * 3, b=[0.0] * 3).pairs
    assert pair.better is None
    assert pair.verdict == "no decision (needs at least 4 rollouts of each)"
    three = compared(a=[1.0] * 4, b=[0.0] * 4, c=[1.0] * 4)
    assert {pair.verdict for pair in three.pairs} >= {
        "no decision (needs at least 5 rollouts of each)",
    }


def test_rollouts_that_do_not_separate_are_no_decision() -> None:
    (pair,) = compared(a=[1, 0, 1, 0, 1], b=[0, 1, 0, 1, 1]).pairs
    assert pair.verdict == "no decision (the rollouts of this task do not separate them)"


def test_one_rollout_of_one_task_is_not_compared_and_says_what_would_help() -> None:
    found = compared(a=[1.0], b=[0.0])
    assert found.pairs[0].p is None
    assert found.pairs[0].reason == "one rollout of one task: run several rollouts to compare them"


def test_a_fault_that_could_turn_it_withholds_the_verdict_here_too() -> None:
    (pair,) = compared(a=[1.0] * 5 + [None] * 5, b=[0.0] * 5 + [1.0] * 5).pairs
    assert (pair.better, pair.withheld, pair.faults) == (None, False, 5)
    (sure,) = compared(a=[1.0] * 5 + [None] * 3, b=[0.0] * 8).pairs
    assert sure.p is not None
    assert sure.p < 0.01
    assert (sure.better, sure.faults) == ("a", 3)
    (turned,) = compared(a=[1.0] * 5 + [None] * 5, b=[0.0] * 8 + [None] * 2).pairs
    assert (turned.better, turned.withheld) == (None, True)


def test_equal_models_are_told_apart_on_one_task_in_one_run_of_twenty_at_most() -> None:
    chance, wrong = Random(5), 0
    for _ in range(200):
        first, second = ([float(chance.random() < 0.5) for _ in range(8)] for _ in range(2))
        wrong += compared(a=first, b=second).pairs[0].better is not None
    assert wrong <= 10


def test_two_runs_of_one_task_are_compared_over_its_rollouts_too() -> None:
    before = run_scores(rows_of("c", [1.0] * 6), rollouts_of="only")
    after = run_scores(rows_of("c", [0.0] * 6), rollouts_of="only")
    (found,) = contrasts(before, after, [("c", "c")])
    assert found.worse
    assert found.pair.unit == "rollout"
    assert found.pair.p == pytest.approx(2 / 924)
