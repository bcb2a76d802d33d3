"""What is known of a batch while it goes: a row for each model, in as much room as there is."""

import io

import pytest
from rich.console import Console

from bakeoff.cli.batch_running import BatchProgress
from bakeoff.cli.views.terminal import Level, ProgressLine
from bakeoff.core.candidate import AgentSpec, Candidate, Conditions, ModelSpec
from bakeoff.core.events import Notice, RunStarted, TrialEnded, TrialSpent, TrialStarted
from bakeoff.core.outcome import Spent, Usage
from bakeoff.core.plan import Block, Plan, Trial
from bakeoff.core.record import TrialRecord
from bakeoff.core.task import Message, Task
from support.batches import broken, failed, solved, timed_out


def plan_of(*names: str, rollouts: int = 1) -> Plan:
    task = Task(id="t", messages=(Message(role="user", content="Do it."),))
    candidates = tuple(
        Candidate(id=name, model=ModelSpec(provider="ollama", name=name), agent=AgentSpec(name="shell"))
        for name in names
    )  # fmt: skip
    return Plan(
        blocks=(Block(tasks=(task,), candidates=candidates, rollouts=rollouts),),
        conditions=Conditions(),
    )


def progress_of(plan: Plan) -> BatchProgress:
    return BatchProgress("batch_1, t", plan, {c.id: c.id for c in plan.candidates})


def trials(plan: Plan) -> dict[tuple[str, int], Trial]:
    return {(trial.candidate.id, trial.rollout): trial for trial in plan}


def screen(progress: BatchProgress, *, width: int = 80, height: int = 24) -> str:
    out = Console(file=io.StringIO(), width=width, height=height)
    out.print(progress.draw(out.size))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def rows(progress: BatchProgress) -> dict[str, list[str]]:
    _, _, *lines = (line.split() for line in screen(progress).splitlines() if line.strip())
    return {words[0]: words[1:] for words in lines[1:]}


def test_a_row_tells_what_its_model_is_at_and_what_it_has_taken() -> None:
    plan = plan_of("a", "b", "c")
    progress, trial = progress_of(plan), trials(plan)
    progress.take(TrialStarted(trial["a", 0]))
    progress.take(TrialEnded(trial["a", 0], solved(3.0, prompts=4, tokens=2400), last=True))
    progress.take(TrialStarted(trial["b", 0]))
    usage = Usage(input_tokens=100, output_tokens=20)
    progress.take(TrialSpent(trial["b", 0], Spent(requests=2, usage=usage)))
    shown = rows(progress)
    assert shown["a"] == ["✓", "success", "3.0", "s", "4", "2,400"]
    assert shown["b"][1] == "running"
    assert shown["b"][-2:] == ["2", "120"]
    assert shown["c"] == ["·", "waiting"]
    assert "1 of 3 models done" in screen(progress)
    assert progress.so_far().startswith("1 of 3 done; b running: ")
    assert progress.so_far().endswith(", 2 prompts, 120 tokens")


def test_several_rollouts_are_counted_and_a_fault_is_not_a_failure() -> None:
    plan = plan_of("a", rollouts=3)
    progress, trial = progress_of(plan), trials(plan)
    for rollout, attempt in enumerate((solved(3.0), timed_out(), broken())):
        progress.take(TrialStarted(trial["a", rollout]))
        assert f"running {rollout + 1} of 3" in screen(progress)
        progress.take(TrialEnded(trial["a", rollout], attempt, last=True))
    assert "~ 1 of 2 solved, 1 broken" in screen(progress)


def test_an_attempt_that_is_tried_again_goes_on_and_its_prompts_are_not_counted_twice() -> None:
    plan = plan_of("a")
    progress, trial = progress_of(plan), trials(plan)["a", 0]
    progress.take(TrialStarted(trial))
    progress.take(TrialSpent(trial, Spent(requests=1)))
    assert progress.take(TrialEnded(trial, broken(), last=False)) is None
    assert "running" in screen(progress)
    progress.take(TrialEnded(trial, failed(2.0, prompts=6), last=True))
    assert rows(progress)["a"] == ["✗", "failed", "2.0", "s", "6", "4,100"]


def test_what_was_done_before_is_there_from_the_start() -> None:
    plan = plan_of("a", "b")
    done = TrialRecord(task_id="t", category=None, candidate_id="a", rollout=0, attempt=solved(3.0))
    names = {c.id: c.id for c in plan.candidates}
    progress = BatchProgress("batch_1, t", plan, names, [done])
    assert rows(progress)["a"][:2] == ["✓", "success"]
    line = progress.take(RunStarted("run", "runs/run", 2, 1))
    assert line == ProgressLine("batch_1, t: 2 models, 1 already done")


def test_a_rollout_that_is_over_is_news_a_fault_must_be_read_and_neither_moves_the_cursor() -> None:
    plan = plan_of("a\x1b[2J", rollouts=2)
    progress, (first, second) = progress_of(plan), list(plan)
    line = progress.take(TrialEnded(first, solved(3.0), last=True))
    assert line == ProgressLine("a\ufffd[2J rollout 1: success in 3.0 s, 4 prompts, 2,400 tokens")
    line = progress.take(TrialEnded(second, broken("no\n\x1b[31m"), last=True))
    assert line is not None
    assert line.weight is Level.FAULT
    assert line.text.endswith("(no \ufffd[31m)")
    assert progress.take(Notice("hear")) == ProgressLine("hear", Level.NOTICE)


@pytest.mark.parametrize("height", [8, 12, 24])
def test_more_models_than_lines_leave_those_at_work_in_sight(height: int) -> None:
    plan = plan_of(*(f"m{number:02}" for number in range(40)))
    progress, trial = progress_of(plan), trials(plan)
    for number in range(30):
        progress.take(TrialEnded(trial[f"m{number:02}", 0], solved(1.0), last=True))
    progress.take(TrialStarted(trial["m30", 0]))
    shown = screen(progress, height=height)
    assert len(shown.splitlines()) <= height - 1, "and a line for what is said above"
    assert "running" in shown
    assert "30 of 40 models done" in shown
    assert "not shown: " in shown
