"""JSON Schema for untrusted values: no network, no time bombs."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bakeoff._lib.untrusted import one_line
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.values import Json, JsonObject

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_TIMEOUT_S = 2.0


def check_schema(schema: dict[str, Json]) -> None:
    """Refuse a schema that is not one, or that refers to what is not in it."""
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
    """Return what is wrong with *value* by *schema*, or None."""
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
