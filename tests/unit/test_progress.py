"""What is known of a run while it goes."""

from dataclasses import replace

import pytest

from bakeoff.cli.progress import Progress, duration
from bakeoff.core.budget import Bill, Cap
from bakeoff.core.events import Notice, RunEnded, RunStarted, TrialEnded, TrialStarted
from bakeoff.core.record import Fault, Status
from support.plans import attempt, trial


def _progress(planned: int = 10, before: int = 0) -> Progress:
    progress = Progress()
    progress.take(RunStarted("r", "runs/r", planned, before))
    return progress


def _end(progress: Progress, last: bool = True, **how: object) -> str | None:
    progress.take(TrialStarted(trial()))
    return progress.take(TrialEnded(trial(), attempt(**how), last))


def test_trials_are_counted_by_how_they_ended() -> None:
    progress = _progress()
    _end(progress)
    _end(progress, score=0.0)
    _end(progress, score=None)
    _end(progress, status=Status.LIMITED, score=0.0)
    _end(progress, status=Status.FAULTED)
    assert (progress.done, progress.running) == (5, 0)
    assert (progress.passed, progress.checked) == (1, 3)
    assert (progress.limited, progress.faults) == (1, 1)
    figures = progress.figures()
    assert "1 of 3 passed" in figures
    assert "1 limited, 1 faulted" in figures
    assert figures.endswith("left")


def test_an_attempt_that_is_tried_again_is_not_a_trial_that_is_done() -> None:
    progress = _progress()
    assert _end(progress, last=False, status=Status.FAULTED) is None
    assert (progress.done, progress.faults, progress.running) == (0, 0, 1)
    assert progress.output_tokens == 3
    assert progress.remaining_s is None


def test_a_fault_is_a_line_and_its_message_is_harmless() -> None:
    line = _end(_progress(), status=Status.FAULTED, message="\x1b[2J<html>\n[red]no[/red]")
    assert line is not None
    assert line.startswith("fault (provider) t1@m#0: ")
    assert "\x1b" not in line
    assert "\n" not in line
    assert "[red]no[/red]" in line


def test_a_notice_is_a_line() -> None:
    assert _progress().take(Notice("task 'a'\ndiffers \x1b[31m")) == "task 'a' differs \ufffd[31m"


def test_money_is_shown_where_it_is_known() -> None:
    progress = _progress()
    assert "$" not in progress.figures()
    paid = replace(attempt(), bill=Bill(cost_usd=0.5, tokens=10))
    progress.take(TrialStarted(trial()))
    progress.take(TrialEnded(trial(), paid, last=True))
    assert "$0.5000" in progress.figures()


def test_the_share_of_the_budget_is_shown_with_what_was_billed_before() -> None:
    progress = Progress()
    before = Bill(cost_usd=0.25, unsure_usd=0.25)
    progress.take(RunStarted("r", "runs/r", 10, 2, Cap(cost_usd=2.0), before))
    assert "$0.2500, 25% of the budget" in progress.figures()
    progress.take(TrialStarted(trial()))
    progress.take(TrialEnded(trial(), replace(attempt(), bill=Bill(cost_usd=1.0)), last=True))
    assert "$1.2500, 75% of the budget" in progress.figures()


def test_a_trial_that_the_budget_refused_is_not_done() -> None:
    progress = _progress()
    progress.take(TrialStarted(trial()))
    refused = replace(attempt(), status=Status.CANCELLED, score=None, passed=None)
    assert progress.take(TrialEnded(trial(), refused, last=True)) is None
    assert (progress.done, progress.running) == (0, 0)


def test_nothing_is_left_when_everything_is_done() -> None:
    progress = _progress(planned=3, before=2)
    _end(progress)
    assert "left" not in progress.figures()
    assert progress.take(RunEnded("r", stopped_early=False)) is None


def test_a_scorers_fault_counts_as_a_fault_not_as_a_failure() -> None:
    progress = _progress()
    broken = replace(
        attempt(score=None),
        status=Status.FAULTED,
        fault=Fault(boundary="scorer", message="no verdict"),
    )
    progress.take(TrialStarted(trial()))
    line = progress.take(TrialEnded(trial(), broken, last=True))
    assert line == "fault (scorer) t1@m#0: no verdict"
    assert (progress.faults, progress.checked) == (1, 0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (7260, "2 h 01 min")],
)
def test_a_duration_is_said_as_a_person_says_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
