"""json: data in an answer, against fields and schemas."""

import asyncio
import json
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.core.values import same_json as same
from bakeoff.scorers.json_answer import JsonAnswer

FIVE_MB = 5_000_000
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars.filter(lambda v: v not in {float("inf"), float("-inf")}),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


class Silent:
    async def complete(self, request: Request) -> Completion:
        raise AssertionError("this scorer asks no model")


def task(target: Json = None) -> Task:
    return Task(id="t1", messages=(Message(role="user", content="?"),), target=target)


def score(scorer: JsonAnswer, answer: str, target: Json = None) -> Score:
    return asyncio.run(scorer.score(task(target), Outcome(answer=answer), Context(model=Silent())))


@pytest.mark.parametrize(
    "answer",
    [
        '{"a": 1, "b": null}',
        ' \n{"a": 1.0, "b": null, "more": []}\n',
        'Sure:\n```json\n{"a": 1, "b": null}\n```\nDone.',
        '```\nnot json\n```\n```json\n{"a": 1, "b": null}\n```',
        'As in [1], {curly} and {1, 2}: {"a": 1, "b": null} it is.',
    ],
)
def test_the_json_is_found_and_its_fields_compared(answer: str) -> None:
    assert score(JsonAnswer(), answer, {"a": 1, "b": None}).value == 1.0
    assert score(JsonAnswer(fields={"a": 1, "b": None}), answer).value == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        '{"a": 1}',
        '{"a": true, "b": null}',
        '{"a": "1", "b": null}',
        '[{"a": 1, "b": null}]',
        '{"a": 1, "b": NaN}',
        '{"a": 1, "b": null, "c": Infinity}',
        '{"a": 1, "b": null, "c": 1e999}',
        '{"a": 1, "b": null, "c": ' + "1" * 5000 + "}",
        '{"broken": {"a": 1, "b": null}',
        '{"x": NaN, "inner": {"a": 1, "b": null}}',
        "a is 1",
        "",
    ],
)
def test_anything_else_is_a_wrong_answer_with_an_explanation(answer: str) -> None:
    verdict = score(JsonAnswer(), answer, {"a": 1, "b": None})
    assert verdict.value == 0.0
    assert verdict.explanation


def test_partial_gives_the_share_of_fields_that_match() -> None:
    expected: dict[str, Json] = {"a": 1, "b": [1, {"c": 2}], "d": None, "e": "x"}
    verdict = score(JsonAnswer(partial=True, fields=expected), '{"a": 1, "b": [1, {"c": 2.0}]}')
    assert verdict.value == 0.5
    assert verdict.details == {"missing": ["d", "e"], "wrong": [], "fields": 4}
    assert score(JsonAnswer(fields=expected), '{"a": 1, "b": [1, {"c": 2}]}').value == 0.0


def test_a_target_that_is_no_object_is_compared_as_a_whole() -> None:
    assert score(JsonAnswer(), "So: [1, 2.0]", [1, 2]).value == 1.0
    assert score(JsonAnswer(), "[1, 2, 3]", [1, 2]).value == 0.0
    assert score(JsonAnswer(), "3", 3).value == 1.0


def test_a_schema_is_enough_and_comes_first() -> None:
    schema: dict[str, Json] = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}  # fmt: skip
    assert score(JsonAnswer(schema=schema), '{"n": 1}').value == 1.0
    verdict = score(JsonAnswer(schema=schema, partial=True), '{"n": "x", "a": 1}', {"a": 1})
    assert verdict.value == 0.0
    assert verdict.explanation == "against the schema: $.n: 'x' is not of type 'integer'"


def test_items_are_unique_as_json_has_it() -> None:
    unique = JsonAnswer(schema={"uniqueItems": True})
    assert score(unique, '[1, true, "1", null, [1], {"a": 1}]').value == 1.0
    assert score(unique, "[1, 1.0]").value == 0.0
    assert score(unique, '[{"a": 1, "b": 2}, {"b": 2, "a": 1}]').value == 0.0


def test_a_schema_never_causes_network_access(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(UsageError, match="nothing is fetched"):
        JsonAnswer(schema={"properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}})
    relative: dict[str, Json] = {"$id": "http://127.0.0.1:9/", "properties": {"a": {"$ref": "other"}}}  # fmt: skip
    with pytest.raises(ScorerError, match="refers to what is not in it"):
        score(JsonAnswer(schema=relative), '{"a": 1}')


@pytest.mark.parametrize(
    "schema", [{"type": "objekt"}, {"$ref": "#/$defs/none"}, {"pattern": "("}, {"required": "a"}]
)
def test_a_schema_that_cannot_work_is_refused_when_it_is_built(schema: dict[str, Json]) -> None:
    with pytest.raises(UsageError, match="scorer 'json'"):
        JsonAnswer(schema=schema)


def test_a_schema_may_refer_to_its_own_definitions() -> None:
    schema: dict[str, Json] = {
        "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "$ref": "#/$defs/node",
    }
    assert score(JsonAnswer(schema=schema), "[[], [[]]]").value == 1.0
    assert score(JsonAnswer(schema=schema), "[[], [1]]").value == 0.0
    assert score(JsonAnswer(schema=schema), "[" * 900 + "]" * 900).value in {0.0, 1.0}


def test_a_schema_pattern_that_explodes_is_a_fault_and_not_a_hang() -> None:
    scorer = JsonAnswer(schema={"pattern": "^(?:a|a|aa)+$"})
    with pytest.raises(ScorerError, match="pattern"):
        score(scorer, json.dumps("a" * 60 + "b"))


@given(values)
def test_every_value_is_the_same_as_itself_through_an_answer(value: Json) -> None:
    assert same(json.loads(json.dumps(value)), value)
    assert score(JsonAnswer(), json.dumps({"v": value}), {"v": value}).value == 1.0


@given(st.text() | st.text(alphabet='{}[]"\\:,1atrue \n`'))
def test_any_text_can_be_read(text: str) -> None:
    assert score(JsonAnswer(schema={"type": "object"}), text).value in {0.0, 1.0}


@pytest.mark.parametrize("target", [None, {}])
def test_a_task_with_nothing_to_compare_is_refused_before_the_run(target: Json) -> None:
    with pytest.raises(UsageError, match="task 't1'"):
        JsonAnswer().check(task(target))
    JsonAnswer(fields={"a": 1}).check(task(target))


def test_fields_may_not_be_empty() -> None:
    with pytest.raises(UsageError, match="`fields` is empty"):
        JsonAnswer(fields={})


@pytest.mark.parametrize("depth", [100_000, 5_000_000])
@pytest.mark.parametrize("bomb", ["[", '{"a":', "[{", "```\n["])
def test_a_json_bomb_is_a_wrong_answer(bomb: str, depth: int) -> None:
    began = time.process_time()
    verdict = score(JsonAnswer(), bomb * (depth // len(bomb)), [1])
    assert verdict.value == 0.0
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "answer",
    [
        "{1" * (FIVE_MB // 2),
        "[1," * (FIVE_MB // 3),
        '["' * (FIVE_MB // 2),
        "```\n" * (FIVE_MB // 4),
        "```\n[1\n```\n" * (FIVE_MB // 12),
        "[" + "1," * (FIVE_MB // 2),
        "{" + " " * FIVE_MB,
        "x" * FIVE_MB,
    ],
)
def test_five_megabytes_take_less_than_a_second(answer: str) -> None:
    began = time.process_time()
    assert score(JsonAnswer(schema={"type": "object"}), answer, {"a": 1}).value == 0.0
    assert time.process_time() - began < 1


def test_many_mixed_items_are_compared_in_one_pass() -> None:
    answer = json.dumps([n if n % 2 else str(n) for n in range(100_000)])
    began = time.process_time()
    assert score(JsonAnswer(schema={"uniqueItems": True}), answer).value == 1.0
    assert time.process_time() - began < 2
