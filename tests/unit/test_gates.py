"""Gates decide as rarely wrong as they say: simulated at no difference, and at the margin."""

import numpy as np
import pytest
from numpy.typing import NDArray

from bakeoff.stats.between_runs import contrasts, run_scores
from bakeoff.stats.gate import GateState, against_baseline
from support.rows import row

Marks = NDArray[np.float64]


def state(before: Marks, after: Marks, margin: float) -> GateState:
    """The state of a gate between two runs of one candidate, of tasks by rollouts."""
    runs = [
        run_scores(
            row(f"t{task:04}", float(score), candidate_id="m", rollout=k)
            for task, scores in enumerate(marks)
            for k, score in enumerate(scores)
        )
        for marks in (before, after)
    ]
    (contrast,) = contrasts(runs[0], runs[1], [("m", "m")])
    return against_baseline(contrast, margin=margin).state


def share_of(
    wanted: GateState, *, loss: float, margin: float, rollouts: int, repetitions: int
) -> float:
    """The share of simulated gates that come to *wanted*, where it became worse by *loss*."""
    rng, found = np.random.default_rng([rollouts, int(loss * 1000)]), 0
    for _ in range(repetitions):
        hard = 0.1 + 0.8 * rng.beta(2, 1, 200)
        before = rng.random((200, rollouts)) < hard[:, None]
        after = rng.random((200, rollouts)) < hard[:, None] - loss
        found += state(before.astype(float), after.astype(float), margin) is wanted
    return found / repetitions


def at_most(share: float, repetitions: int) -> float:
    return share + 2 * (share * (1 - share) / repetitions) ** 0.5


LENGTHS = [200, pytest.param(1_000, marks=pytest.mark.soak)]


@pytest.mark.parametrize("rollouts", [1, 3])
@pytest.mark.parametrize("repetitions", LENGTHS)
def test_what_did_not_change_is_rarely_called_worse(rollouts: int, repetitions: int) -> None:
    share = share_of(
        GateState.FAILED, loss=0, margin=0.05, rollouts=rollouts, repetitions=repetitions
    )
    assert share <= at_most(0.05, repetitions)


@pytest.mark.parametrize("rollouts", [1, 3])
@pytest.mark.parametrize("repetitions", LENGTHS)
def test_what_lost_as_much_as_the_margin_rarely_passes(rollouts: int, repetitions: int) -> None:
    share = share_of(
        GateState.PASSED, loss=0.05, margin=0.05, rollouts=rollouts, repetitions=repetitions
    )
    assert share <= at_most(0.05, repetitions)


def test_a_few_tasks_that_broke_among_many_that_did_not_change_do_not_pass_unseen() -> None:
    # one task in thirty always breaks: of 60 tasks often none or one is seen
    rng, passed = np.random.default_rng(8), 0
    for _ in range(200):
        before = np.ones((60, 3))
        after = before * (rng.random((60, 1)) > 1 / 30)
        passed += state(before, after, 1 / 30) is GateState.PASSED
    assert passed / 200 <= at_most(0.05, 200)


def test_runs_that_are_alike_pass_where_there_are_tasks_enough() -> None:
    alike = np.ones((200, 3))
    assert state(alike, alike, 0.02) is GateState.PASSED
    few = np.ones((20, 3))
    assert state(few, few, 0.02) is GateState.NOT_SHOWN
