"""The scorer `json`: an answer that is data, against a schema, fields, or both."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from bakeoff._lib.untrusted import one_line
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.scorers.json_schema import check_schema, schema_fault
from bakeoff.scorers.json_text import NoJsonError, find_json

_SHORT = 20_000  # characters; a longer value is validated beside the event loop


@dataclass(frozen=True, kw_only=True)
class JsonAnswer:
    """1 where the JSON in the answer has the expected fields and keeps to the schema.

    The JSON is the whole answer, else a fenced block, else the first object (or array, where no
    object is expected) in it. What is expected is `fields`, else the task's target; keys beyond
    those are free, a value counts as a whole. 1 is 1.0, true is not 1; a key that is null matches null, a key that is missing does not.
    With `partial` the value is the share of fields that match. No JSON, or JSON against the schema,
    is a wrong answer: 0.
    """

    fields: dict[str, Json] | None = None
    schema: dict[str, Json] | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        if self.fields is not None and not self.fields:
            raise UsageError("scorer 'json': `fields` is empty; name one, or leave it out")
        if self.schema is not None:
            check_schema(self.schema)

    def check(self, task: Task) -> None:
        """Refuse a task with nothing to compare the answer with."""
        if self.fields is None and self.schema is None and task.target is None:
            raise UsageError(
                f"task {task.id!r}: scorer 'json' needs `expected`, or one of the settings "
                "`fields` and `schema`"
            )
        if self.fields is None and task.target == {}:
            raise UsageError(
                f"task {task.id!r}: `expected` is {{}}, which every object has; name a field"
            )

    async def score(self, task: Task, outcome: Outcome, kit: Context) -> Score:  # noqa: ARG002
        """Take the JSON out of the answer and compare it."""
        expected = task.target if self.fields is None else self.fields
        try:
            # a citation such as [1] is no answer where an object is due
            value = find_json(outcome.answer, only_object=isinstance(expected, Mapping))
        except NoJsonError as error:
            return _wrong(f"no JSON in the answer: {one_line(str(error))}")
        if fault := await self._schema_fault(value, len(outcome.answer)):
            return _wrong(f"against the schema: {fault}")
        if isinstance(expected, Mapping):
            return self._score_fields(value, expected)
        if expected is None or same(value, expected):
            return Score(scorer="json", value=1.0)
        return _wrong("the value is not as expected")

    async def _schema_fault(self, value: Json, length: int) -> str | None:
        if self.schema is None:
            return None
        if length < _SHORT:
            return schema_fault(value, self.schema)
        return await asyncio.to_thread(schema_fault, value, self.schema)

    def _score_fields(self, value: Json, expected: Mapping[str, Json]) -> Score:
        if not isinstance(value, dict):
            return _wrong("the JSON in the answer is not an object")
        missing = [key for key in expected if key not in value]
        wrong = [key for key in expected if key in value and not same(value[key], expected[key])]
        share = 1 - (len(missing) + len(wrong)) / len(expected)
        faults = [f"{key!r} is missing" for key in missing] + [f"{key!r} differs" for key in wrong]
        return Score(
            scorer="json",
            value=share if self.partial else float(share == 1),
            explanation=", ".join(faults) or None,
            details={"missing": missing, "wrong": wrong, "fields": len(expected)},
        )


def same(value: Json, expected: Json) -> bool:
    """Whether two JSON values are equal as JSON has it: 1 is 1.0, and true is not 1."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    if isinstance(expected, Mapping):
        return (
            isinstance(value, Mapping)
            and value.keys() == expected.keys()
            and all(same(value[key], expected[key]) for key in expected)
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(expected)
            and all(map(same, value, expected))
        )
    return value == expected


def _wrong(why: str) -> Score:
    return Score(scorer="json", value=0.0, explanation=why)
