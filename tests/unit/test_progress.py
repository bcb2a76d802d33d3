"""What is known of a run while it goes."""

import io
import time
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from bakeoff.cli.views.progress import RunProgress
from bakeoff.cli.views.terminal import Level, PlainLines, ProgressLine
from bakeoff.core.budget import Bill, Cap
from bakeoff.core.candidate import EndpointWait
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.events import (
    Notice,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialNotRun,
    TrialOutput,
    TrialStarted,
    TurnEnded,
    TurnStarted,
    Waiting,
)
from bakeoff.core.record import Fault, Status
from support.plans import attempt, candidate, task, trial


def _progress(planned: int = 10, before: int = 0) -> RunProgress:
    progress = RunProgress()
    progress.take(RunStarted("r", "runs/r", planned, before))
    return progress


def _end(progress: RunProgress, last: bool = True, **how: Any) -> ProgressLine | None:
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
    assert line.weight is Level.FAULT
    assert line.text.startswith("fault (provider) t1@m#0: ")
    assert "\x1b" not in line.text
    assert "\n" not in line.text
    assert "[red]no[/red]" in line.text


def test_a_notice_is_a_line() -> None:
    line = _progress().take(Notice("task 'a'\ndiffers \x1b[31m"))
    assert line == ProgressLine("task 'a' differs \ufffd[31m", Level.NOTICE)


def test_money_is_shown_where_it_is_known() -> None:
    progress = _progress()
    assert "$" not in progress.figures()
    paid = replace(attempt(), bill=Bill(cost_usd=0.5, tokens=10))
    progress.take(TrialStarted(trial()))
    progress.take(TrialEnded(trial(), paid, last=True))
    assert "$0.5000" in progress.figures()


def test_the_share_of_the_budget_is_shown_with_what_was_billed_before() -> None:
    progress = RunProgress()
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


def test_it_is_told_at_which_turns_the_conversations_are_that_go_on() -> None:
    progress = _progress()
    talks = [trial(task(name, dialogue=Dialogue(objective="o"))) for name in ("a", "b")]
    for talk in talks:
        progress.take(TrialStarted(talk))
    assert "turn" not in progress.figures()
    progress.take(TurnStarted(talks[0], 1))
    assert "at turn 1," in progress.figures() + ","
    progress.take(TurnEnded(talks[0], 1))
    progress.take(TrialOutput(talks[0], "turn 7 agent: it printed that itself\n"))
    progress.take(TurnStarted(talks[1], 3))
    assert "at turns 1 to 3" in progress.figures()
    progress.take(TrialEnded(talks[1], attempt(), last=True))
    assert "at turn 1," in progress.figures() + ","
    progress.take(TrialEnded(talks[0], attempt(), last=True))
    assert "turn" not in progress.figures()


def test_nothing_is_left_when_everything_is_done() -> None:
    progress = _progress(planned=3, before=2)
    _end(progress)
    assert "left" not in progress.figures()
    line = progress.take(RunEnded("r", stopped_early=False))
    assert line is not None
    assert line.text.startswith("1 trial in ")


def test_a_run_that_ends_early_does_not_say_at_its_end_what_is_left() -> None:
    progress = RunProgress()
    progress.take(RunStarted("r", "runs/r", 10, 0, adaptive=True))
    _end(progress)
    assert progress.figures().endswith(" left at most")
    line = progress.take(RunEnded("r", stopped_early=False))
    assert line is not None
    assert "left" not in line.text


def test_a_scorers_fault_counts_as_a_fault_not_as_a_failure() -> None:
    progress = _progress()
    broken = replace(
        attempt(score=None),
        status=Status.FAULTED,
        fault=Fault(boundary="scorer", message="no verdict"),
    )
    progress.take(TrialStarted(trial()))
    line = progress.take(TrialEnded(trial(), broken, last=True))
    assert line == ProgressLine("fault (scorer) t1@m#0: no verdict", Level.FAULT)
    assert (progress.faults, progress.checked) == (1, 0)


def test_plain_lines_say_now_and_then_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainLines(RunProgress(), every_s=0.0)
    view(RunStarted("r", "runs/r", 10, 4))
    view(TrialStarted(trial()))
    view(TrialEnded(trial(), attempt(), last=True))
    head, *rest = capsys.readouterr().err.splitlines()
    assert head == "run r: 10 trials, 4 already done"
    assert [line[:5] for line in rest] == ["4/10:", "5/10:"]


def test_quiet_lines_are_only_those_that_must_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainLines(RunProgress(), every_s=0.0, quiet=True)
    view(RunStarted("r", "runs/r", 10, 0))
    view(Notice("look here"))
    view(TrialStarted(trial()))
    view(TrialEnded(trial(), attempt(status=Status.FAULTED, message="gone"), last=True))
    view(RunEnded("r", stopped_early=False))
    assert capsys.readouterr().err.splitlines() == [
        "look here",
        "fault (provider) t1@m#0: gone",
    ]


def _drawn(progress: RunProgress) -> str:
    console = Console(width=120, height=30, file=io.StringIO())
    with console.capture() as capture:
        console.print(progress.draw(console.size))
    return capture.get()


def test_equal_faults_are_one_line_and_a_count_at_the_end() -> None:
    progress = _progress()
    lines = [
        _end(progress, status=Status.FAULTED, message=f"HTTP 401, request_id req_00{n}f3a")
        for n in range(3)
    ]
    lines.append(_end(progress, status=Status.FAULTED, message="HTTP 403"))
    assert [line is not None for line in lines] == [True, False, False, True]
    assert "3 faults (provider) like t1@m#0: HTTP 401" in _drawn(progress)
    ended = progress.take(RunEnded("r", stopped_early=False))
    assert ended is not None
    folded, told = ended.text.splitlines()
    assert folded == "3 faults (provider) like t1@m#0: HTTP 401, request_id req_000f3a"
    assert told.startswith("4 trials in ")


def test_candidates_are_rows_where_there_are_several() -> None:
    progress = RunProgress()
    progress.take(RunStarted("r", "runs/r", 20, 0, candidates={"m": 10, "other": 10}))
    _end(progress)
    _end(progress, status=Status.FAULTED)
    progress.take(TrialStarted(trial(candidates=[candidate("other")])))
    rows = [line.split() for line in _drawn(progress).splitlines()]
    assert ["m", "2/10", "1", "of", "1", "1", "12"] in rows
    assert ["other", "0/10", "1"] in rows
    progress.take(TrialNotRun(trial(candidates=[candidate("other")]), "the run is stopping"))
    assert progress.rows["other"].running == 0


def test_what_requests_wait_for_is_said() -> None:
    progress = _progress()
    limited = EndpointWait(endpoint="openai", waiting=5, under_way=3, at_once=3, next_s=2.0)
    down = EndpointWait(
        endpoint="http://h:1", waiting=2, under_way=0, next_s=4.0, down_s=65.0,
        given_up_in_s=835.0, reason="HTTP 503 from h: closed",
    )  # fmt: skip
    progress.take(Waiting((limited, down)))
    assert "limited by openai: 3 at once, 5 waiting, next in 2 s" in progress.so_far()
    told = "http://h:1 is down for 1 min 5 s, next in 4 s, given up in 13 min 55 s: HTTP 503"
    assert told in progress.so_far()
    assert told in _drawn(progress)
    progress.take(Waiting())
    assert "limited" not in progress.so_far()


def test_plain_lines_say_ever_more_rarely_that_they_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = PlainLines(RunProgress(), every_s=0.02)
    view(RunStarted("r", "runs/r", 10, 0))
    waiting = Waiting((EndpointWait(endpoint="openai", waiting=5, under_way=3),))
    for _ in range(60):
        time.sleep(0.01)
        view(waiting)
    _, *rest = capsys.readouterr().err.splitlines()
    assert 3 <= len(rest) <= 6  # at 0.02, 0.06, 0.14, 0.3 s
    assert all("limited by openai: 3 under way, 5 waiting" in line for line in rest)
