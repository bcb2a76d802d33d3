"""Why two candidates differ: parts that add up, tasks that tell nothing, failures that look alike."""

from random import Random

import pytest

from bakeoff.core.record import TaskTotals, TrialFailure
from bakeoff.stats.explain import failure_groups, gap, kind_of, task_qualities


def cell(task: str, candidate: str, *scores: float, category: str | None = None) -> TaskTotals:
    passed = sum(score >= 1 for score in scores)
    low, high = (min(scores), max(scores)) if scores else (None, None)
    return TaskTotals(
        task, category, candidate, len(scores), sum(scores), low, high, True, passed, 0
    )  # fmt: skip


def test_the_parts_of_tasks_and_of_categories_add_up_to_the_difference() -> None:
    rng = Random(3)
    cells = [
        cell(
            f"t{n}",
            name,
            *(rng.random() for _ in range(3)),
            category=f"c{n % 4}" if n % 5 else None,
        )
        for n in range(40)
        for name in "ab"
    ]
    found = gap(cells, "a", "b")
    means = [sum(c.total / c.n for c in cells if c.candidate_id == name) / 40 for name in "ab"]
    assert found.difference == pytest.approx(means[0] - means[1], abs=1e-12)
    assert sum(t.part for t in found.tasks) == pytest.approx(found.difference, abs=1e-12)
    assert sum(c.part for c in found.categories) == pytest.approx(found.difference, abs=1e-12)
    assert sum(c.tasks for c in found.categories) == 40
    back = gap(cells, "b", "a")
    assert back.difference == pytest.approx(-(found.difference or 0))


def test_what_carries_the_gap_comes_first_and_what_only_one_has_is_left_out() -> None:
    found = gap(
        [cell("x", "a", 1, 1), cell("x", "b", 0, 1), cell("y", "a", 0), cell("y", "b", 1),
         cell("z", "a", 1), cell("z", "b", 0), cell("w", "a", 1), cell("v", "b")],
        "b", "a",
    )  # fmt: skip
    assert found.difference == pytest.approx(-0.5 / 3)
    assert [t.task for t in found.tasks] == ["z", "x", "y"]
    assert found.left_out == 1
    assert gap([cell("x", "a", 1)], "a", "b").difference is None


def test_flaky_and_dead_tasks_are_found_over_all_candidates() -> None:
    known = {
        quality.task: quality
        for quality in task_qualities(
            [
                cell("flaky", "a", 1, 0),
                cell("flaky", "b", 0, 0),
                cell("easy", "a", 1, 1),
                cell("easy", "b", 1, 1),
                cell("hard", "a", 0, 0),
                cell("hard", "b", 0, 0),
                cell("lost", "a"),
            ]
        )
    }
    assert known["flaky"].flaky == ("a",)
    assert known["flaky"].difficulty == 0.75
    assert [t for t, q in known.items() if q.all_pass] == ["easy"]
    assert [t for t, q in known.items() if q.none_pass] == ["hard"]
    assert known["lost"].difficulty is None


def test_a_test_with_a_wrong_expected_answer_is_suspicious_and_the_others_are_not() -> None:
    names = "abcdef"
    # candidate k solves the tasks up to its level; the broken one is failed by whoever is good
    cells = [
        cell(f"t{n}", name, float(level * 5 >= n))
        for n in range(26)
        for level, name in enumerate(names)
    ]
    cells += [cell("broken", name, float(level < 3)) for level, name in enumerate(names)]
    qualities = task_qualities(cells)
    assert [q.task for q in qualities if q.suspicious] == ["broken"]
    (broken,) = (q for q in qualities if q.task == "broken")
    assert broken.rest_correlation is not None
    assert broken.rest_correlation < -0.8


def test_the_correlation_is_the_textbook_one_and_unknown_for_few_candidates() -> None:
    import numpy as np

    rng = Random(5)
    table = {name: [rng.random() for _ in range(6)] for name in "abcde"}
    cells = [cell(f"t{n}", name, values[n]) for name, values in table.items() for n in range(6)]
    scores = np.array(list(table.values()))
    for n, quality in enumerate(task_qualities(cells)):
        rest = np.delete(scores, n, axis=1).mean(axis=1)
        expected = np.corrcoef(scores[:, n], rest)[0, 1]
        assert quality.rest_correlation == pytest.approx(expected, abs=1e-9)
    few = task_qualities(c for c in cells if c.candidate_id in "abc")
    assert all(quality.rest_correlation is None and not quality.suspicious for quality in few)


def test_of_tasks_that_are_all_luck_few_are_suspicious() -> None:
    rng, suspicious = Random(11), 0
    for _ in range(20):
        cells = [
            cell(f"t{n}", name, float(rng.random() < 0.5)) for n in range(30) for name in "abcdefgh"
        ]
        suspicious += sum(q.suspicious for q in task_qualities(cells))
    assert suspicious <= 0.09 * 600


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("expected 'Paris', got 'Lyon'", "expected 'Rome', got 'a long answer'"),
        ("expected 12.5, got 7", "Expected 1, got 3,000"),
        ("no such file: /tmp/a1/x.py", "no such file: /home/me/y.py"),
        ("request 3f2a77bc91 failed", "request 77aa01ff22 failed"),
        ("HTTP 503:  try later", "http 503: try\nlater"),
    ],
)
def test_texts_that_differ_in_values_alone_are_of_one_kind(one: str, other: str) -> None:
    assert kind_of(one) == kind_of(other)
    assert kind_of(one) != kind_of("timed out")


def test_failures_are_grouped_by_fault_and_by_what_the_scorer_said() -> None:
    def failed(task: str, candidate: str, why: str | None) -> TrialFailure:
        return TrialFailure(
            task_id=task, candidate_id=candidate, rollout=0, status="completed",
            unmet=(("numeric", why),),
        )  # fmt: skip

    broken = TrialFailure(
        task_id="t9",
        candidate_id="a",
        rollout=0,
        status="faulted",
        boundary="provider",
        message="HTTP 500",
    )
    limited = TrialFailure(task_id="t8", candidate_id="b", rollout=0, status="limited")
    groups = failure_groups(
        [failed("t1", "a", "expected 3, got 4"), failed("t2", "b", "expected 5, got 6"),
         failed("t2", "a", "expected 5, got 1"), failed("t3", "a", None), broken, limited]
    )  # fmt: skip
    assert [(g.name, g.source, g.counts) for g in groups] == [
        ("failure-1", "scorer numeric", {"a": 2, "b": 1}),
        ("failure-2", "fault of the provider", {"a": 1}),
        ("failure-3", "limit", {"b": 1}),
        ("failure-4", "scorer numeric", {"a": 1}),
    ]
    assert groups[0].tasks == ("t1", "t2")
    assert groups[0].trials == ("t1@a#0", "t2@b#0", "t2@a#0")
    assert groups[1].example == "HTTP 500"
