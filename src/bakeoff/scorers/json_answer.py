"""The scorer `json`: compares a JSON answer with a schema, with fields, or both."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.core.values import Json, JsonObject, same_json

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_TIMEOUT_S = 2.0


def check_schema(schema: dict[str, Json]) -> None:
    """Refuse an invalid schema, or one with references that cannot be resolved in it."""
    from jsonschema.exceptions import SchemaError

    try:
        _draft(schema).check_schema(schema)
    except SchemaError as error:
        raise UsageError(
            f"scorer 'json': `schema` is not a JSON schema: {one_line(error.message)}; correct it"
        ) from error
    own = {*_strings(schema, "$id"), *_strings(schema, "id")}
    for ref in _strings(schema, "$ref"):
        document = ref.partition("#")[0]
        foreign = "://" in document and document not in own
        if foreign or (not own and not _resolves(ref, schema)):
            raise UsageError(
                f"scorer 'json': `schema` refers to {ref!r}, which is not in it, and nothing is "
                "fetched; put that schema into `$defs` and refer to it as '#/$defs/...'"
            )


def schema_fault(value: Json, schema: dict[str, Json]) -> str | None:
    """Return how *value* violates *schema*, or None."""
    from referencing.exceptions import Unresolvable

    try:
        fault = next(iter(_validator(schema).iter_errors(value)), None)
    except RecursionError:
        return "it is nested too deep"
    except TimeoutError as error:
        raise ScorerError(
            f"scorer 'json': a `pattern` of the schema took more than {_TIMEOUT_S:g} s; "
            "write it without nested repetition"
        ) from error
    except Unresolvable as error:
        raise ScorerError(
            f"scorer 'json': the schema refers to what is not in it: {error}"
        ) from error
    return None if fault is None else one_line(f"{fault.json_path}: {fault.message}")


def _validator(schema: dict[str, Json]) -> "Validator":
    from jsonschema.validators import extend
    from referencing import Registry

    guarded = extend(  # type: ignore[no-untyped-call]  # its stubs leave it out
        _draft(schema), {"pattern": _pattern, "uniqueItems": _unique_items}
    )
    # an empty registry: the default one fetches what it does not know
    validator: Validator = guarded(schema, registry=Registry())
    return validator


def _draft(schema: dict[str, Json]) -> "type[Validator]":
    from jsonschema.validators import Draft202012Validator, validator_for

    return validator_for(schema, default=Draft202012Validator)


def _resolves(ref: str, schema: dict[str, Json]) -> bool:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    registry = Registry().with_resource("", DRAFT202012.create_resource(schema))
    try:
        registry.resolver().lookup(ref)
    except Unresolvable:
        return False
    return True


def _pattern(
    _validator: "Validator", pattern: str, instance: Json, _schema: JsonObject
) -> Iterator[Exception]:
    import regex
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not regex.search(pattern, instance, timeout=_TIMEOUT_S):
        yield ValidationError(f"{one_line(instance, width=60)!r} does not match {pattern!r}")


def _unique_items(
    _validator: "Validator", unique: Json, instance: Json, _schema: JsonObject
) -> Iterator[Exception]:
    from jsonschema.exceptions import ValidationError

    if not unique or not isinstance(instance, list):
        return
    # jsonschema compares every pair of mixed items; a set of them needs one pass
    if len(set(map(_hashable, instance))) < len(instance):
        yield ValidationError("it has items that are not unique")


def _hashable(item: Json) -> tuple[str, Json]:
    if isinstance(item, dict | list):
        return "nested", json.dumps(item, sort_keys=True)
    return "bool" if isinstance(item, bool) else "plain", item


def _strings(node: Json, key: str) -> Iterator[str]:
    if isinstance(node, dict):
        value = node.get(key)
        if isinstance(value, str):
            yield value
        for child in node.values():
            yield from _strings(child, key)
    elif isinstance(node, list):
        for child in node:
            yield from _strings(child, key)


_FENCED = re.compile(r"^[ \t]*```[\w-]*[ \t\r]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


_OBJECT = re.compile(r"""\{\s*["}]""")
_OBJECT_OR_ARRAY = re.compile(r"""\{\s*["}]|\[\s*["{\[\]\dtfn-]""")
_TRIES = 200  # an error counts the lines before it, so many of them would be quadratic


class NoJsonError(ValueError):
    """The text holds no JSON; the message says why."""


def read_json(text: str) -> Json:
    """Parse *text* as JSON by RFC 8259, which refuses NaN and infinity."""
    try:
        value: Json = _DECODER.decode(text.strip())
    except RecursionError as error:
        raise NoJsonError("it is nested too deep") from error
    except ValueError as error:
        raise NoJsonError(str(error)) from error
    return value


def find_json(text: str, *, only_object: bool = False) -> Json:
    """Return the JSON in *text*: the whole text, a fenced block, or the first object or array."""
    fenced = (match[1] for match in islice(_FENCED.finditer(text), _TRIES))
    for candidate in chain([text], fenced):
        try:
            return read_json(candidate)
        except NoJsonError:
            continue
    return _first_in_prose(text, _OBJECT if only_object else _OBJECT_OR_ARRAY)


def _first_in_prose(text: str, starts: re.Pattern[str]) -> Json:
    """Decode at each plausible bracket until it works.

    Text that an attempt has read is skipped, so no part of a broken value is taken for the whole.
    """
    why, end = "there is none", 0
    for _ in range(_TRIES):
        start = starts.search(text, end)
        if start is None:
            break
        try:
            value: Json = _DECODER.raw_decode(text, start.start())[0]
        except json.JSONDecodeError as error:
            why, end = str(error), max(error.pos, start.end())
        except RecursionError as error:
            raise NoJsonError("it is nested too deep") from error
        except ValueError as error:
            raise NoJsonError(str(error)) from error
        else:
            return value
    raise NoJsonError(why)


def _constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        raise ValueError("a number in it is too large")
    # 1.0 is 1 in JSON, so that equality and uniqueness need no cases
    return int(number) if number.is_integer() else number


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_float)


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
                "`fields` and `schema`",
                task=task.id,
            )
        if self.fields is None and task.target == {}:
            raise UsageError(
                f"task {task.id!r}: `expected` is {{}}, which every object has; name a field",
                task=task.id,
            )

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Extract the JSON from the answer and compare it."""
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
        if expected is None or same_json(value, expected):
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
        wrong = [
            key for key in expected if key in value and not same_json(value[key], expected[key])
        ]
        share = 1 - (len(missing) + len(wrong)) / len(expected)
        faults = [f"{key!r} is missing" for key in missing] + [f"{key!r} differs" for key in wrong]
        return Score(
            scorer="json",
            value=share if self.partial else float(share == 1),
            explanation=", ".join(faults) or None,
            details={"missing": missing, "wrong": wrong, "fields": len(expected)},
        )


def _wrong(why: str) -> Score:
    return Score(scorer="json", value=0.0, explanation=why)
