"""Gates decide as rarely wrong as they say: simulated at no difference, and at the margin."""

import numpy as np
import pytest

from bakeoff.stats.gate import GateState
from support.simulated_runs import FAULT_RULES, gate_check, gate_share


def at_most(share: float, repetitions: int) -> float:
    return share + 2 * (share * (1 - share) / repetitions) ** 0.5


LENGTHS = [200, pytest.param(1_000, marks=pytest.mark.soak)]


@pytest.mark.parametrize("rollouts", [1, 3])
@pytest.mark.parametrize("repetitions", LENGTHS)
def test_what_did_not_change_is_rarely_called_worse(rollouts: int, repetitions: int) -> None:
    share = gate_share(
        GateState.FAILED, loss=0, margin=0.05, rollouts=rollouts, repetitions=repetitions
    )
    assert share <= at_most(0.05, repetitions)


@pytest.mark.parametrize("rollouts", [1, 3])
@pytest.mark.parametrize("repetitions", LENGTHS)
def test_what_lost_as_much_as_the_margin_rarely_passes(rollouts: int, repetitions: int) -> None:
    share = gate_share(
        GateState.PASSED, loss=0.05, margin=0.05, rollouts=rollouts, repetitions=repetitions
    )
    assert share <= at_most(0.05, repetitions)


@pytest.mark.parametrize("faults", FAULT_RULES)
@pytest.mark.parametrize("repetitions", [100, pytest.param(1_000, marks=pytest.mark.soak)])
def test_faults_of_any_rule_carry_nothing_through_and_fail_nothing(
    faults: str, repetitions: int
) -> None:
    for loss, wrong in ((0.05, GateState.PASSED), (0.0, GateState.FAILED)):
        share = gate_share(
            wrong, loss=loss, margin=0.05, rollouts=1, repetitions=repetitions, faults=faults
        )
        assert share <= at_most(0.05, repetitions)


def test_a_few_tasks_that_broke_among_many_that_did_not_change_do_not_pass_unseen() -> None:
    # one task in thirty always breaks: of 60 tasks often none or one is seen
    rng, passed = np.random.default_rng(8), 0
    for _ in range(200):
        before = np.ones((60, 3))
        after = before * (rng.random((60, 1)) > 1 / 30)
        passed += gate_check(before, after, 1 / 30).state is GateState.PASSED
    assert passed / 200 <= at_most(0.05, 200)


def test_runs_that_are_alike_pass_where_there_are_tasks_enough() -> None:
    alike = np.ones((200, 3))
    assert gate_check(alike, alike, 0.02).state is GateState.PASSED
    few = np.ones((20, 3))
    assert gate_check(few, few, 0.02).state is GateState.NOT_SHOWN


def test_what_did_not_change_says_how_much_it_may_hide_and_how_many_tasks_would_show_it() -> None:
    few = np.ones((20, 1))
    found = gate_check(few, few, 0.02)
    assert found.text.endswith(
        "; as hardly a task changed, 0.168 may be lost on others like these; about 190 tasks would show it"
    )
    assert found.tasks_needed == 190
    many = np.ones((190, 1))
    assert gate_check(many, many, 0.02).state is GateState.PASSED


def test_faults_that_may_hide_a_loss_are_named() -> None:
    before = np.tile([[1.0], [1.0], [0.0]], (100, 1))
    after = before.copy()
    after[:9] = np.nan
    found = gate_check(before, after, 0.02)
    assert found.state is GateState.NOT_SHOWN
    assert "if the 9 faulted trials went against it" in found.text
