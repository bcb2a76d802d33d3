"""Any program as an agent: what it is given, and what its end means. Real boxes, real programs."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bakeoff import registry
from bakeoff.agents.programs.command import Codex, CommandAgent
from bakeoff.core.errors import AgentError, ProviderError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.task import Message, Task
from bakeoff.sandboxes.host.local import Local
from support.loopback import Loopback, Reply
from support.scripted_llm import Script, ScriptedLlm, scripted_llm
from support.trial_room import TrialRoom, broken_repo, repair_task, trial_room

ASK = """\
import json, os, sys, urllib.error, urllib.request
def ask(text):
    body = {"model": os.environ["BAKEOFF_MODEL"], "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    answer = json.load(urllib.request.urlopen(request))
    return answer["choices"][0]["message"]["content"]
"""
INSTRUCTION = "-- Fix {token} 'it' $(now) \"é\"\n\x7f {model}"


@pytest.fixture
def llm() -> Iterator[ScriptedLlm]:
    with scripted_llm(Script(steps=(), final="I am done."), key="sk-of-the-server") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return broken_repo(tmp_path / "app")


def in_room(
    folder: Path, llm: ScriptedLlm, do: Callable[[TrialRoom], Awaitable[Outcome]]
) -> Outcome:
    async def main() -> Outcome:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        async with trial_room(Local(path=path), folder, llm) as trial:
            return await do(trial)

    return asyncio.run(main())


def solved(
    folder: Path, llm: ScriptedLlm, program: str, *words: str, task: Task | None = None, **rest: Any
) -> Outcome:
    """What a Python program leaves that may ask the model."""
    agent = CommandAgent(command=("python3", "-c", ASK + program, *words), **rest)
    return in_room(folder, llm, lambda trial: agent.solve(task or repair_task(), trial.context))


# --- what it is given -------------------------------------------------------------------------


def test_the_instruction_comes_as_input_as_a_file_and_as_a_word(
    folder: Path, llm: ScriptedLlm
) -> None:
    program = """
with open(os.environ["BAKEOFF_INSTRUCTION_FILE"], newline="") as file:
    told = [sys.stdin.buffer.read().decode(), file.read(), sys.argv[1], open(sys.argv[2]).read()]
json.dump(told, open("told.json", "w"))
"""
    words = ("{instruction}", "{instruction_file}")
    solved(folder, llm, program, *words, task=repair_task(INSTRUCTION))
    assert json.loads((folder / "told.json").read_text()) == [INSTRUCTION] * 4


def test_a_message_of_the_system_comes_before_the_instruction(
    folder: Path, llm: ScriptedLlm
) -> None:
    plain = repair_task()
    task = Task(
        id="t",
        messages=(Message(role="system", content="Be brief."), *plain.messages),
        workspace=plain.workspace,
    )
    left = solved(folder, llm, "print(sys.stdin.read())", task=task)
    assert left.log == "Be brief.\n\nFix the failing test.\n"


def test_it_finds_the_gateway_by_word_and_by_variable(folder: Path, llm: ScriptedLlm) -> None:
    program = """
given = [os.environ[n] for n in ("BAKEOFF_GATEWAY", "BAKEOFF_TOKEN", "BAKEOFF_MODEL")]
assert given == sys.argv[1:4], given
assert os.environ["ANTHROPIC_BASE_URL"] + "/v1" == os.environ["OPENAI_API_BASE"]
print(ask("hello"))
"""
    left = solved(folder, llm, program, "{gateway}", "{token}", "{model}")
    assert left.log == "I am done.\n"
    assert llm.prompts == 1


def test_a_text_is_split_into_words_and_no_shell_reads_it(folder: Path, llm: ScriptedLlm) -> None:
    agent = CommandAgent(command="printf '%s|' $HOME `id` '{instruction}' a*")
    task = repair_task("$(touch owned) {token}")
    left = in_room(folder, llm, lambda trial: agent.solve(task, trial.context))
    assert left.log == "$HOME|`id`|$(touch owned) {token}|a*|"
    assert not (folder / "owned").exists()


def test_the_users_variables_go_before_ours(folder: Path, llm: ScriptedLlm) -> None:
    more = {"OPENAI_API_BASE": "{gateway}/elsewhere", "LEVEL": "7"}
    program = "print(os.environ['OPENAI_API_BASE'].rpartition('/')[2], os.environ['LEVEL'])"
    assert solved(folder, llm, program, environment=more).log == "elsewhere 7\n"


def test_what_it_prints_is_in_the_log_also_when_it_is_no_text(
    folder: Path, llm: ScriptedLlm
) -> None:
    program = (
        "sys.stdout.buffer.write('é'.encode() + b'\\xff ok\\n'); print('err', file=sys.stderr)"
    )
    log = solved(folder, llm, program).log
    assert log is not None
    assert "é\N{REPLACEMENT CHARACTER} ok\n" in log
    assert "err\n" in log


def test_another_message_runs_it_again_in_the_same_room(folder: Path, llm: ScriptedLlm) -> None:
    agent = CommandAgent(command=("sh", "-c", "cat >> said.txt; echo >> said.txt"))

    async def twice(trial: TrialRoom) -> Outcome:
        await agent.solve(repair_task("one"), trial.context)
        return await agent.resume(repair_task("one"), trial.context, "two")

    in_room(folder, llm, twice)
    assert (folder / "said.txt").read_text() == "one\ntwo\n"


# --- what its end means -----------------------------------------------------------------------


def test_the_last_thing_the_model_said_is_the_answer(folder: Path, llm: ScriptedLlm) -> None:
    left = solved(folder, llm, "ask('hello'); print('bye')")
    assert left.answer == "I am done."
    assert left.stop_reason is None
    assert left.notes["exit_code"] == 0
    assert [m.role for m in left.transcript] == ["user", "assistant"]


def test_a_program_that_fails_after_an_answer_still_leaves_an_outcome(
    folder: Path, llm: ScriptedLlm
) -> None:
    left = solved(folder, llm, "ask('hello'); sys.exit(3)")
    assert left.stop_reason == "exit 3"
    assert left.notes["exit_code"] == 3


def test_a_program_that_never_had_an_answer_and_fails_is_a_fault_with_its_last_words(
    folder: Path, llm: ScriptedLlm
) -> None:
    with pytest.raises(AgentError) as told:
        solved(folder, llm, "print('no config'); sys.exit(2)")
    assert "exit 2" in str(told.value)
    assert str(told.value).endswith("no config")


def test_a_program_that_is_not_there_is_a_fault_of_the_agent(
    folder: Path, llm: ScriptedLlm
) -> None:
    agent = CommandAgent(command="no-such-program")
    with pytest.raises(AgentError, match="no-such-program"):
        in_room(folder, llm, lambda trial: agent.solve(repair_task(), trial.context))


def test_a_program_that_needs_no_model_may_end_well_without_one(
    folder: Path, llm: ScriptedLlm
) -> None:
    left = solved(folder, llm, "open('calc.py', 'w').write('')")
    assert left.answer == ""
    assert left.stop_reason is None
    assert llm.prompts == 0


def test_where_the_endpoint_refuses_that_is_the_fault(folder: Path, llm: ScriptedLlm) -> None:
    llm.key = "sk-changed-meanwhile"
    keyed = ScriptedLlm(url=llm.url, script=llm.script, key="sk-of-the-server")
    with pytest.raises(ProviderError, match="wrong key") as told:
        solved(folder, keyed, "ask('hello')")
    assert not told.value.transient


def test_an_endpoint_that_goes_away_in_mid_run_is_a_transient_fault(folder: Path) -> None:
    llm: ScriptedLlm

    def answer(asked: Any) -> Reply:
        return llm.answer(asked) if llm.prompts == 0 else Reply(status=503)

    with Loopback(answer) as server:
        llm = ScriptedLlm(url=server.url, script=Script(steps=(), final="yes"))
        with pytest.raises(ProviderError) as told:
            solved(folder, llm, "ask('one'); ask('two')")
    assert told.value.transient
    assert llm.prompts == 1


def test_a_refused_question_that_the_program_gets_over_is_only_noted(folder: Path) -> None:
    llm: ScriptedLlm

    def answer(asked: Any) -> Reply:
        return llm.answer(asked) if llm.prompts == 0 else Reply(status=400, body=b"too long")

    program = """
ask('one')
try:
    ask('two')
except urllib.error.HTTPError:
    pass
"""
    with Loopback(answer) as server:
        llm = ScriptedLlm(url=server.url, script=Script(steps=(), final="yes"))
        left = solved(folder, llm, program)
    assert left.stop_reason is None
    assert "too long" in str(left.notes["last_question"])


# --- what it needs ----------------------------------------------------------------------------


def test_a_task_without_a_workspace_is_a_usage_error(folder: Path, llm: ScriptedLlm) -> None:
    task = Task(id="plain", messages=(Message(role="user", content="hello"),))
    with pytest.raises(UsageError, match="'plain' has none"):
        solved(folder, llm, "", task=task)


def test_the_named_agents_take_their_settings_from_the_registry(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\necho codex 7.8.9\n")
    program.chmod(0o755)
    settings: dict[str, Any] = {
        "executable": str(program),
        "args": ["-c", "x=1"],
        "environment": {"A": "b"},
    }
    agent = registry.build(registry.find("agents", "codex"), settings, what="agent 'codex'")
    assert agent == Codex(executable=str(program), args=("-c", "x=1"), environment={"A": "b"})
    assert isinstance(agent, Codex)
    assert agent.version() == "7.8.9"


def test_a_named_agent_that_never_asks_its_model_did_not_really_run(
    folder: Path, llm: ScriptedLlm, tmp_path: Path
) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\necho please log in\n")
    program.chmod(0o755)

    async def main() -> Outcome:
        agent = Codex(executable=str(program))
        async with trial_room(Local(), folder, llm, mounts=agent.mounts()) as trial:
            return await agent.solve(repair_task(), trial.context)

    with pytest.raises(AgentError, match=r"exit 0[^$]*please log in"):
        asyncio.run(main())


def test_a_program_is_cut_with_the_trial(folder: Path, llm: ScriptedLlm) -> None:
    async def main() -> None:
        agent = CommandAgent(command=("sh", "-c", "touch begun; sleep 3600"))
        async with trial_room(Local(), folder, llm) as trial:
            solving = asyncio.create_task(agent.solve(repair_task(), trial.context))
            while not (folder / "begun").exists():
                await asyncio.sleep(0.02)
            solving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await solving

    asyncio.run(asyncio.wait_for(main(), 60))


def test_without_a_gateway_it_says_so(folder: Path, llm: ScriptedLlm) -> None:
    async def no_door(trial: TrialRoom) -> Outcome:
        context = Context(model=trial.meter, journal=trial.journal, workspace=trial.room)
        return await CommandAgent(command="true").solve(repair_task(), context)

    with pytest.raises(Exception, match="needs the model gateway"):
        in_room(folder, llm, no_door)
