"""Two runs compared: which tasks moved, and how surely."""

from itertools import combinations
from random import Random
from time import process_time

import pytest

from bakeoff.stats.between_runs import AFTER, BEFORE, Contrast, RunScores, contrasts, run_scores
from support.rows import row

Scores = dict[str, list[float | None]]


def compared(old: Scores, new: Scores) -> Contrast:
    (found,) = contrasts(_marks(old), _marks(new), [("c", "c")])
    return found


def _marks(scores: Scores) -> RunScores:
    return run_scores(
        row(task, score, candidate_id="c", rollout=number)
        for task, given in scores.items()
        for number, score in enumerate(given)
    )


def test_the_difference_is_that_of_task_means_after_minus_before() -> None:
    found = compared(
        {"a": [1, 0], "b": [0, 0], "c": [1, 1]}, {"a": [1, 1], "b": [0, 1], "c": [1, 1]}
    )
    assert found.pair.difference == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert (found.mean_before, found.mean_after) == pytest.approx((0.5, 5 / 6))
    assert (found.pair.won, found.pair.lost, found.pair.tasks) == (2, 0, 3)
    assert [(m.task, m.before, m.after) for m in found.moved] == [("a", 0.5, 1.0), ("b", 0.0, 0.5)]


def test_the_worst_loss_is_told_first() -> None:
    found = compared({"a": [0.5], "b": [1], "c": [0]}, {"a": [0.4], "b": [0], "c": [1]})
    assert [m.task for m in found.moved] == ["b", "a", "c"]


def test_tasks_of_one_run_alone_and_missing_scores_are_left_out() -> None:
    found = compared({"a": [1], "b": [1], "gone": [1]}, {"a": [0], "b": [None], "new": [1]})
    assert (found.pair.tasks, found.pair.left_out) == (1, 3)
    assert (found.mean_before, found.mean_after) == (1, 0)
    assert [m.task for m in found.moved] == ["a"]
    assert found.pair.reason is not None


def test_the_unequal_numbers_of_rollouts_do_not_matter() -> None:
    found = compared({"a": [1], "b": [0]}, {"a": [1, 1, 1], "b": [0, 0, 1]})
    assert found.pair.difference == pytest.approx(1 / 6)
    assert found.pair.mcnemar is None


def test_who_is_surely_worse_is_called_so_and_luck_is_not() -> None:
    names = [f"t{n}" for n in range(40)]
    good: Scores = {name: [1.0] for name in names}
    bad: Scores = {name: [float(n % 2)] for n, name in enumerate(names)}
    assert compared(good, bad).worse
    assert compared(good, bad).pair.better == BEFORE
    assert compared(bad, good).pair.better == AFTER
    assert not compared(bad, good).worse
    assert not compared(good, good).worse
    assert compared(good, good).moved == ()


def test_tasks_of_one_group_do_not_count_as_independent_evidence() -> None:
    names = [f"t{n}" for n in range(40)]
    old: Scores = {name: [1.0] for name in names}
    new: Scores = {name: [float(n >= 10)] for n, name in enumerate(names)}
    groups = {name: f"document {n // 10}" for n, name in enumerate(names)}
    marks = _marks(old), _marks(new), [("c", "c")]
    (alone,) = contrasts(*marks)
    (grouped,) = contrasts(*marks, groups=groups)
    assert alone.worse  # ten tasks lost
    assert not grouped.worse  # one document lost
    assert (alone.pair.units, grouped.pair.units) == (40, 4)
    assert grouped.pair.difference == alone.pair.difference == -0.25


def test_of_many_equal_couples_hardly_ever_one_is_called_worse() -> None:
    rng, wrong = Random(7), 0
    for _ in range(60):
        old, new = (
            run_scores(
                row(f"t{n}", float(rng.random() < 0.5), candidate_id=name)
                for name in "abcd"
                for n in range(30)
            )
            for _ in range(2)
        )
        found = contrasts(old, new, [(name, name) for name in "abcd"])
        wrong += any(one.pair.better for one in found)
    assert wrong <= 8  # 3 are expected of 60 at a level of 5 %; more than 8 in one of 200


def test_a_candidate_without_any_score_is_open() -> None:
    (found,) = contrasts({}, _marks({"a": [1]}), [("nobody", "c")])
    assert found.pair.difference is None
    assert (found.mean_before, found.mean_after, found.moved) == (None, None, ())
    assert found.pair.verdict == "no decision (no task has a score of both)"


def test_all_pairs_of_ten_candidates_on_a_thousand_tasks_take_less_than_three_seconds() -> None:
    rng, names = Random(3), [f"m{n}" for n in range(10)]
    scores = run_scores(
        row(f"t{task}", float(rng.random() < 0.4 + 0.03 * n), candidate_id=name, rollout=rollout)
        for n, name in enumerate(names)
        for task in range(1000)
        for rollout in range(5)
    )
    couples = list(combinations(names, 2))
    began = process_time()
    found = contrasts(scores, scores, couples)
    assert process_time() - began < 3
    assert len(found) == 45
    assert sum(contrast.pair.better is not None for contrast in found) > 20
