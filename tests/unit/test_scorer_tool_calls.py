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
from bakeoff.scorers.tool_calls import ToolCalls, Trajectory

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
        ([B2, A1, B2], ["a"], {"extra": True}, 1.0),
        ([B2, A1, B2], ["a", "b"], {"extra": True}, 1.0),
        ([B2, A1], ["a", "b"], {"extra": True}, 0.0),
        ([B2, A1], ["a", "b"], {"extra": True, "partial": True}, 0.5),
        ([A1], ["a", "b"], {"extra": True, "partial": True}, 0.5),
        ([], ["a"], {"extra": True}, 0.0),
        ([A1, B2], ["a"], {"extra": True, "forbidden": ("b",)}, 0.0),
        ([A1, B2], ["a"], {"extra": True, "forbidden": ("c",)}, 1.0),
        ([B2], [{"name": "b", "arguments": {"y": [2], "z": None}, "exact": True}], {}, 1.0),
        ([B2], [{"name": "b", "arguments": {"y": [2]}, "exact": True}], {}, 0.0),
        ([A1], [{"name": "a", "schema": {"properties": {"x": {"type": "integer"}}}}], {}, 1.0),
        ([A1], [{"name": "a", "schema": {"required": ["z"]}}], {}, 0.0),
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


class Grader:
    """Grades 2 of 2 where the arguments hold a 1, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.messages[-1].content)
        grade = 2 if '"x": 1' in self.asked[-1] else 1
        return Completion(text=json.dumps({"reasoning": "so", "score": grade}))


def test_a_judge_reads_the_arguments_of_calls_with_the_right_name_only() -> None:
    expected: Json = [{"name": "a", "judge": "x is the first number"}]
    grader = Grader()
    task = Task(id="t", messages=(Message(role="user", content="?"),), target=expected)
    scorer = ToolCalls(any_order=True, extra=True)
    scorer.check(task)
    assert scorer.needs_roles(task) == ("judge",)
    context = Context(model=Silent(), roles={"judge": grader})
    for made, value_expected in (([B2, A1], 1.0), ([{"name": "a", "arguments": {"x": 7}}], 0.0)):
        score = asyncio.run(scorer.score(task, _outcome(made), context))
        assert score.value == value_expected
    assert len(grader.asked) == 2


def _outcome(made: list[Any]) -> Outcome:
    messages = [
        Message(
            role="assistant",
            content="",
            tool_calls=(ToolCall(id="", name=c["name"], arguments=json.dumps(c["arguments"])),),
        )
        for c in made
    ]
    return Outcome(answer="", transcript=tuple(messages))


@pytest.mark.parametrize(
    ("names", "settings", "share"),
    [
        ("ab", {"before": [("a", "b")]}, 1.0),
        ("ba", {"before": [("a", "b")]}, 0.0),
        ("b", {"before": [("a", "b")]}, 0.0),
        ("", {"before": [("a", "b")]}, 1.0),
        ("aab", {"most_calls": 3}, 1.0),
        ("aaab", {"most_calls": 3}, 0.0),
        ("aab", {"most": {"a": 1, "b": 1}}, 0.0),
        ("aab", {"most": {"a": 1, "b": 1}, "partial": True}, 0.5),
        ("ab", {"only": ["a"]}, 0.0),
        ("", {"only": []}, 1.0),
        ("a", {"only": []}, 0.0),
        ("ab", {"required": ["a", "c"]}, 0.0),
        ("ab", {"forbidden": ["c"]}, 1.0),
        ("abc", {"forbidden": ["c"], "required": ["a"], "partial": True}, 0.5),
    ],
)
def test_a_trajectory_keeps_to_every_rule(names: str, settings: Any, share: float) -> None:
    outcome = _outcome([{"name": name, "arguments": {}} for name in names])
    task = Task(id="t", messages=())
    score = asyncio.run(Trajectory(**settings).score(task, outcome, Context(model=Silent())))
    assert score.value == share
    assert (score.explanation is None) == (share == 1)


def test_a_trajectory_without_a_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="has no rule"):
        Trajectory()
