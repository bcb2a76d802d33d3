"""One task for one candidate, against numbers worked out by hand."""

import pytest

from bakeoff.core.plan import Block, Plan
from bakeoff.core.record import TrialRow
from bakeoff.stats.by_task import by_task, metric_means, weighted_mean
from bakeoff.stats.estimate import TaskScores, estimate
from support.plans import candidate, task

A, B = task("a"), task("b")
X, Y = candidate("x"), candidate("y", temperature=1.0)
PLAN = Plan(
    blocks=(
        Block(tasks=(A,), candidates=(X,), rollouts=4),
        Block(tasks=(A,), candidates=(Y,), rollouts=2),
        Block(tasks=(B,), candidates=(Y,), rollouts=2),
    )
)


def _row(task_id: str, model: str, rollout: int, score: float | None, status: str) -> TrialRow:
    passed = None if score is None else score >= 1
    return TrialRow(
        task_id, None, model, rollout, status, score, passed, None, None, 1, 1.0, 1.0, None,
        1, 10, 5, None,
    )  # fmt: skip


ROWS = [
    _row("a", "x", 0, 1.0, "completed"),
    _row("a", "x", 1, 0.5, "completed"),
    _row("a", "x", 2, 1.0, "limited"),
    _row("a", "x", 3, None, "faulted"),
    _row("a", "y", 0, 1.0, "completed"),
    _row("a", "y", 1, 0.0, "completed"),
]


def test_a_cell_is_counted_and_estimated_over_its_rollouts() -> None:
    cell = by_task(PLAN, ROWS)[0]
    assert (cell.task, cell.candidate) == ("a", "x")
    assert (cell.planned, cell.recorded, cell.scored, cell.passed, cell.faulted) == (4, 4, 3, 2, 1)
    assert cell.mean == pytest.approx(2.5 / 3)
    assert cell.best == 1.0
    over_rollouts = estimate(TaskScores.of([score]) for score in (1.0, 1.0, 0.5))
    assert cell.interval == over_rollouts.interval
    assert cell.interval is not None
    assert 0 < cell.interval.low < 2.5 / 3 < cell.interval.high <= 1.0
    assert [p.pass_at for p in cell.passes] == [pytest.approx(2 / 3), 1.0, 1.0]
    assert [p.pass_hat for p in cell.passes] == [pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0]


def test_candidates_are_never_averaged_together_and_what_has_not_run_is_there() -> None:
    cells = {(c.task, c.candidate): c for c in by_task(PLAN, ROWS)}
    assert cells["a", "y"].mean == 0.5
    assert cells["a", "y"].interval is not None
    assert cells["a", "y"].interval.method == "wilson with t"
    unknown = cells["b", "y"]
    assert (unknown.planned, unknown.recorded, unknown.mean, unknown.best) == (2, 0, None, None)
    assert unknown.passes == ()


def test_what_is_not_judged_leaves_both_sums() -> None:
    assert weighted_mean([(1.0, 2.0), (0.0, 1.0), (None, 5.0)]) == pytest.approx(2 / 3)
    assert weighted_mean([(None, 1.0)]) is None
    assert weighted_mean([]) is None


def test_metrics_are_averaged_over_those_that_tell_them() -> None:
    told: list[dict[str, object]] = [
        {"lines": 3, "name": "x"},
        {"lines": 5, "speed": 0.5},
        {"lines": float("nan")},
    ]
    assert metric_means(told) == {"lines": (4.0, 2), "speed": (0.5, 1)}


def test_the_group_of_a_task_goes_with_its_results() -> None:
    grouped = task("a", group="passage 1")
    cells = by_task(
        Plan(blocks=(Block(tasks=(grouped, B), candidates=(X,), rollouts=4),)), ROWS[:4]
    )
    assert [cell.group for cell in cells] == ["passage 1", None]
