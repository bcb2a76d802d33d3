"""Our own coding agent in a real box: how a model uses its one tool, well or badly."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bakeoff.agents.shell import Shell
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Journal, Outcome, Request
from bakeoff.core.ports import Context
from bakeoff.core.sandbox import BoxSpec
from bakeoff.core.task import Message, Task, ToolCall
from bakeoff.core.workspace import Workspace
from bakeoff.models.adapters.function import FunctionModel
from bakeoff.sandboxes.host.local import Local
from support.trial_room import Room

TASK = Task(id="t", messages=(Message(role="user", content="Do it."),), workspace=Workspace())
Reply = Completion | str | ProviderError


class Model:
    """Gives one reply after another, and keeps what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[Request] = []
        self._replies = list(replies)

    def __call__(self, request: Request) -> Completion | str:
        self.asked.append(request)
        reply = self._replies.pop(0)
        if isinstance(reply, ProviderError):
            raise reply
        return reply


def calls(*arguments: str, tool: str = "run") -> Completion:
    made = (ToolCall(id=f"c{n}", name=tool, arguments=text) for n, text in enumerate(arguments))
    return Completion(text="", tool_calls=tuple(made))


def runs(*commands: str) -> Completion:
    return calls(*(json.dumps({"command": command}) for command in commands))


def solved(folder: Path, model: Callable[[Request], Completion | str], agent: Shell) -> Outcome:
    async def main() -> Outcome:
        sandbox = Local()
        box = await sandbox.open(BoxSpec(label="t", folder=folder))
        try:
            room = Room(box=box, folder=folder)
            context = Context(model=FunctionModel(model), journal=Journal(), workspace=room)
            return await agent.solve(TASK, context)
        finally:
            await box.close()
            await sandbox.close()

    return asyncio.run(main())


def test_every_command_is_run_and_its_result_goes_back_to_its_call(tmp_path: Path) -> None:
    model = Model(runs("echo one > made", "cat made; exit 3"), "Done.")
    left = solved(tmp_path, model, Shell())
    assert (tmp_path / "made").read_text() == "one\n"
    assert left.answer == "Done."
    told = {m.tool_call_id: m.content for m in model.asked[1].messages if m.role == "tool"}
    assert told == {"c0": "exit code 0", "c1": "exit code 3\none"}


def test_a_model_without_tools_writes_its_command_in_a_block(tmp_path: Path) -> None:
    refused = ProviderError("this model does not support tools")
    model = Model(refused, "Let me see.\n```sh\necho hi > made\n```\n", "Done.")
    left = solved(tmp_path, model, Shell())
    assert (tmp_path / "made").read_text() == "hi\n"
    assert [bool(request.tools) for request in model.asked] == [True, False, False]
    assert left.answer == "Done."


@pytest.mark.parametrize(
    "error",
    [ProviderError("the model is unknown"), ProviderError("the tool is away", transient=True)],
    ids=["another refusal", "may pass"],
)
def test_other_faults_of_the_endpoint_are_faults(tmp_path: Path, error: ProviderError) -> None:
    with pytest.raises(ProviderError, match=str(error)):
        solved(tmp_path, Model(error), Shell())


def test_who_begins_without_a_command_is_asked_for_one_once(tmp_path: Path) -> None:
    left = solved(tmp_path, Model("I would run ls.", "It is done already."), Shell())
    assert [m.role for m in left.transcript] == ["assistant", "user", "assistant"]
    assert left.answer == "It is done already."


@pytest.mark.parametrize(
    "wrong",
    [
        calls('{"command": "touch made"}', tool="bash"),
        calls('{"cmd": "touch made"}'),
        calls('["touch made"]'),
        calls("touch made"),
        calls("[" * 100_000),
    ],
    ids=["other tool", "other argument", "no object", "no JSON", "too deep"],
)
def test_a_tool_that_is_called_wrongly_is_explained_and_not_run(
    tmp_path: Path, wrong: Completion
) -> None:
    model = Model(wrong, "Done.")
    solved(tmp_path, model, Shell())
    assert model.asked[1].messages[-1].content == (
        "There is one tool, `run`, and it takes one text: `command`."
    )
    assert not (tmp_path / "made").exists()


def test_half_a_character_in_a_command_is_no_fault(tmp_path: Path) -> None:
    model = Model(calls(r'{"command": "echo a \ud83d b"}'), "Done.")
    left = solved(tmp_path, model, Shell())
    assert model.asked[1].messages[-1].content == "exit code 0\na \N{REPLACEMENT CHARACTER} b"
    assert left.answer == "Done."


def test_it_stops_when_its_steps_are_spent(tmp_path: Path) -> None:
    left = solved(tmp_path, Model(runs("true"), runs("true")), Shell(steps=2))
    assert left.stop_reason == "2 steps are spent"
