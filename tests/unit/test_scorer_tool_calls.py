"""tool-calls: the tools a model called, against those that were expected."""

import asyncio
import json
from typing import Any

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Context
from bakeoff.core.task import Message, Task, ToolCall
from bakeoff.core.values import Json
from bakeoff.scorers.tool_calls import ToolCalls

A1: Json = {"name": "a", "arguments": {"x": 1}}
B2: Json = {"name": "b", "arguments": {"y": [2], "z": None}}


class Silent:
    async def complete(self, request: Request) -> Completion:
        raise AssertionError("this scorer asks no model")


def value(made: list[Any], expected: Json, **settings: Any) -> float:
    calls = tuple(
        ToolCall(id=str(n), name=call["name"], arguments=json.dumps(call["arguments"]))
        for n, call in enumerate(made)
    )
    outcome = Outcome(
        answer="", transcript=(Message(role="assistant", content="", tool_calls=calls),)
    )
    task = Task(id="t", messages=(), target=expected)
    scorer = ToolCalls(**settings)
    scorer.check(task)
    return asyncio.run(scorer.score(task, outcome, Context(model=Silent()))).value


@pytest.mark.parametrize(
    ("made", "expected", "settings", "share"),
    [
        ([A1], [A1], {}, 1.0),
        ([A1], A1, {}, 1.0),
        ([A1], "a", {}, 1.0),
        ([A1, B2], ["a", {"name": "b", "arguments": {"y": [2]}}], {}, 1.0),
        ([B2, A1], [A1, B2], {}, 0.0),
        ([B2, A1], [A1, B2], {"any_order": True}, 1.0),
        ([B2], [{"name": "b", "arguments": {"y": [2]}}], {"exact": True}, 0.0),
        ([B2], ["b"], {"exact": True}, 1.0),
        ([A1], [{"name": "a", "arguments": {"x": True}}], {}, 0.0),
        ([A1], [{"name": "a", "arguments": {"x": 1.0}}], {}, 1.0),
        ([], [], {}, 1.0),
        ([A1], [], {}, 0.0),
        ([], [A1], {}, 0.0),
        ([A1, A1], [A1], {"partial": True}, 0.5),
        ([A1], [A1, B2], {"partial": True}, 0.5),
        ([A1], None, {"calls": ["a"]}, 1.0),
    ],
)
def test_calls_match_by_name_and_by_the_arguments_that_were_named(
    made: list[Any], expected: Json, settings: dict[str, Any], share: float
) -> None:
    assert value(made, expected, **settings) == share


def test_in_any_order_each_call_is_counted_once_and_as_many_match_as_can() -> None:
    loose: Json = {"name": "a", "arguments": {}}
    assert value([A1, {"name": "a", "arguments": {}}], [loose, A1], any_order=True) == 1.0
    assert value([A1, A1], [A1, B2], any_order=True, partial=True) == 0.5


@pytest.mark.parametrize("expected", [[1], [{"arguments": {}}], [{"name": "a", "args": {}}]])
def test_what_is_no_call_is_refused_before_the_run(expected: Json) -> None:
    with pytest.raises(UsageError, match="is no tool call; write the name of a tool"):
        value([A1], expected)


def test_a_task_without_expected_calls_is_told_what_to_write() -> None:
    with pytest.raises(UsageError, match="needs `expected`"):
        value([A1], None)
