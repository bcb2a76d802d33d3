"""What every agent promises; run against each kind, built in and own.

An external program is here as the agent `command`; what else there is to the programs of others
(Codex, Claude Code ...) is in tests/component/test_command_agent.py.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import Attempt, Completion, Message, ProviderError, Request, Status, Task, Workspace
from bakeoff.core.candidate import AgentSpec, Conditions, ModelSpec
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.workspace import Reference
from support.terminal import at_terminal

OWN = """
import asyncio
from bakeoff import Message, Outcome, Request

def _request(task):
    return Request(messages=task.messages, parameters=task.parameters)

async def waits(task, model):
    return (await model.complete(_request(task))).text

def blocks(task, model):
    return asyncio.run(model.complete(_request(task))).text

class Solves:
    async def solve(self, task, context):
        reply = await context.model.complete(_request(task))
        return Outcome(answer=reply.text, transcript=(Message(role="assistant", content=reply.text),))

class Waits:
    def solve(self, task, context):
        return blocks(task, context.model)
"""


PROGRAM = """
import json, os, sys, urllib.request
body = {"model": os.environ["BAKEOFF_MODEL"], "messages": [{"role": "user", "content": sys.stdin.read()}]}
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
"""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """An agent by its name; one that `works` does so on files, in a box; one that `talks` is led."""

    agent: str
    works: bool = False
    talks: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"dialogue with {self.agent}" if self.talks else self.agent

    def task(self, number: int, **rest: Any) -> Task:
        question = f"This is question {number}."
        workspace = Workspace(root="/app") if self.works else None
        if self.talks:
            led = Dialogue(objective="An answer.", opening=question, max_turns=1)
            return Task(id=f"t{number}", messages=(), dialogue=led, **rest)
        asked = (Message(role="user", content=question),)
        return Task(id=f"t{number}", messages=asked, workspace=workspace, **rest)


KINDS = [
    Kind(agent="direct"),
    Kind(agent="own_agents:waits"),
    Kind(agent="own_agents:blocks"),
    Kind(agent="own_agents:Solves"),
    Kind(agent="own_agents:Waits"),
    Kind(agent="direct", talks=True),
    Kind(agent="shell", works=True),
    Kind(agent="code-session", works=True),
    Kind(agent="command", works=True, settings={"command": ["python3", "-c", PROGRAM]}),
]


_ROLE = ModelSpec(
    provider="scripted",
    name="agrees",
    settings={"replies": ['{"thought": "t", "user_response": "", "end": true}']},
)
LED = Conditions(roles={"instructor": _ROLE, "supervisor": _ROLE})


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_agents.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attempts(kind: Kind, model: Callable[[Request], Any], *tasks: Task) -> list[Attempt]:
    run = bakeoff.run(
        RunSpec(name="contract", tasks=tasks, conditions=LED if kind.talks else Conditions()),
        models=[model],
        agents=[AgentSpec(name=kind.agent, settings=kind.settings)],
        sandbox="local",
        parallel=4,
        output="runs",
    )
    return [record.attempt for record in run.trials()]


def answer(request: Request) -> Completion:
    """Answer with the question, as it was asked."""
    question = next(m.content for m in request.messages if m.content.startswith("This is"))
    return Completion(
        text=f"Asked: {question}", usage=bakeoff.Usage(input_tokens=5, output_tokens=2)
    )


def test_what_the_model_says_is_the_answer_and_its_cost_is_booked(kind: Kind) -> None:
    several = attempts(kind, answer, *(kind.task(n) for n in range(3)))
    for number, attempt in enumerate(several):
        assert attempt.fault is None, attempt.fault
        assert attempt.outcome is not None
        assert (
            f"Asked: This is question {number}." in attempt.outcome.answer
        )  # its own, not another's
        said = [m.content for m in attempt.outcome.transcript if m.role == "assistant"]
        assert any("Asked: " in text for text in said)
        assert attempt.spent.requests >= 1
        assert attempt.spent.usage.output_tokens == 2 * attempt.spent.requests


def test_a_fault_of_the_endpoint_is_the_providers_not_the_agents(kind: Kind) -> None:
    def broken(request: Request) -> str:
        raise ProviderError("no such key")

    (attempt,) = attempts(kind, broken, kind.task(0))
    assert attempt.status is Status.FAULTED
    assert attempt.fault is not None
    assert (attempt.fault.boundary, attempt.fault.message) == ("provider", "no such key")


def test_its_time_ends_it_whatever_it_waits_for(kind: Kind) -> None:
    requests: list[Request] = []

    async def never(request: Request) -> str:
        requests.append(request)
        await asyncio.sleep(600)
        return "too late"

    for time_s in (1.0, 4.0, 16.0):  # only a program that had no time to ask gets more of it
        began = time.monotonic()
        (attempt,) = attempts(kind, never, kind.task(0, time_s=time_s))
        assert time.monotonic() - began < 60 + time_s
        assert attempt.status is Status.LIMITED, attempt.fault
        assert attempt.spent.cut == len(requests)
        if requests:
            break
    assert len(requests) == 1


@pytest.mark.parametrize("agent", ["nop", "oracle", "cheat"])
def test_an_agent_that_needs_no_model_asks_none_and_leaves_an_outcome(
    agent: str, folder: Path
) -> None:
    (folder / "fix.sh").write_text("echo right > answer.txt\n")
    reference = Reference(kind="script", path=str(folder / "fix.sh"))
    task = Kind(agent=agent, works=True).task(0)
    assert task.workspace is not None
    task = replace(task, workspace=replace(task.workspace, reference=reference))

    def unasked(request: Request) -> str:
        raise AssertionError("it asked a model")

    settings = {"tricks": ["fake-checks"]} if agent == "cheat" else {}
    (attempt,) = attempts(Kind(agent=agent, works=True, settings=settings), unasked, task)
    assert attempt.fault is None, attempt.fault
    assert attempt.spent.requests == 0
    assert attempt.outcome is not None
    changed = attempt.outcome.change is not None and attempt.outcome.change.files > 0
    assert changed == (agent != "nop")


AT_A_TERMINAL = """
import bakeoff
from bakeoff import AgentSpec, Message, Task, Workspace

def unasked(request):
    raise AssertionError("it asked a model")

task = Task(id="t0", messages=(Message(role="user", content="Do it."),), workspace=Workspace(root="/app"))
bakeoff.run([task], models=[unasked], agents=[AgentSpec(name="human")], sandbox="local", output="runs")
"""


def test_a_person_at_a_terminal_asks_no_model_and_leaves_an_outcome() -> None:
    with at_terminal([sys.executable, "-c", AT_A_TERMINAL]) as terminal:
        terminal.wait_for("$ ")
        terminal.type("echo right > answer.txt\n")
        terminal.wait_for("$ ", after=terminal.wait_for("answer.txt"))
        terminal.type("exit\n")
        assert terminal.end() == 0, terminal.seen
    (record,) = bakeoff.load_run("latest", output="runs").trials()
    assert record.attempt.fault is None, record.attempt.fault
    assert record.attempt.spent.requests == 0
    assert record.attempt.outcome is not None
    assert record.attempt.outcome.change is not None
    assert record.attempt.outcome.change.files == 1
