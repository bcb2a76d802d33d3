"""An agent that wrecks its own box gets the grade of what it left; its trial is no fault."""

import json
from pathlib import Path

import pytest

import bakeoff
from bakeoff.core.outcome import Completion, Request, Usage
from bakeoff.core.record import Attempt, Status
from bakeoff.core.task import ToolCall
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from support.coding_tasks import FIX, write_fix_add
from support.container_engines import PYTHON, engine
from support.parts import require

NO_SHELL = "rm -f /bin/sh /usr/bin/sh /bin/dash /usr/bin/dash"
WRECKS = {
    "no shell": NO_SHELL,
    "no folder": 'rm -rf -- "$PWD"',
    "a file for a folder": 'here=$PWD; rm -rf -- "$here"; echo x >"$here"',
    "a closed folder": "chmod 000 .",
}


def attempt_of(
    task: Path, sandbox: str, monkeypatch: pytest.MonkeyPatch, *commands: str
) -> Attempt:
    """Let the shell agent run *commands*, one after another, and say that it is done."""
    if sandbox == "docker":
        on = engine("docker")
        on.with_python()
        for name in on.environment.keys() - {"PATH", "HOME"}:
            monkeypatch.setenv(name, on.environment[name])
        with (task / "task.toml").open("a") as settings:
            settings.write(f'[box]\nimage = "{PYTHON}"\n')
    if sandbox == "bubblewrap":
        require("bubblewrap", Bubblewrap.available() is None, "apt install bubblewrap")

    def model(request: Request) -> Completion:
        turn = sum(1 for message in request.messages if message.role == "assistant")
        if turn >= len(commands):
            return Completion(text="Done.", usage=Usage(), stop_reason="stop", model="played")
        call = ToolCall(id="c", name="run", arguments=json.dumps({"command": commands[turn]}))
        return Completion(text="", tool_calls=(call,), usage=Usage(), model="played")

    run = bakeoff.run(task, models=[model], sandbox=sandbox, output=task.parent / "runs")
    (record,) = run.trials()
    return record.attempt


CASES = [
    *(("bubblewrap", name) for name in WRECKS),
    *(("local", name) for name in WRECKS if "/" not in WRECKS[name]),
    *(("docker", name) for name in WRECKS),
]


@pytest.mark.parametrize(("sandbox", "wreck"), CASES)
def test_an_agent_that_wrecks_its_box_is_graded_by_what_it_left(
    sandbox: str, wreck: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write_fix_add(tmp_path)
    attempt = attempt_of(task, sandbox, monkeypatch, WRECKS[wreck], "echo still here", "echo here")
    assert attempt.fault is None
    assert (attempt.status, attempt.score) == (Status.COMPLETED, 0.0)


def test_work_that_was_done_counts_although_the_shell_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write_fix_add(tmp_path)
    attempt = attempt_of(task, "docker", monkeypatch, FIX, NO_SHELL, "echo still here")
    assert (attempt.fault, attempt.score) == (None, 1.0)
    assert attempt.outcome is not None
    answers = [message.content for message in attempt.outcome.transcript if message.role == "tool"]
    assert answers[2].startswith("exit code 126\n'sh' could not be started")


def test_a_command_out_of_time_without_a_shell_to_start_again_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write_fix_add(tmp_path)
    (task / "task.toml").write_text("time_s = 4\n")
    attempt = attempt_of(task, "docker", monkeypatch, f"{NO_SHELL}; sleep 1000")
    assert (attempt.fault, attempt.status, attempt.score) == (None, Status.LIMITED, 0.0)
