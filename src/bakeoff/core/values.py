"""Plain data, as it stands in JSON and TOML."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
else:
    Json = Any  # decoders read this at run time, and a recursive alias says nothing to them
JsonObject: TypeAlias = Mapping[str, Json]


def same_json(value: Json, expected: Json) -> bool:
    """Whether two JSON values are equal in JSON's sense: 1 is 1.0, and true is not 1."""
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    if isinstance(expected, Mapping):
        return (
            isinstance(value, Mapping)
            and value.keys() == expected.keys()
            and all(same_json(value[key], expected[key]) for key in expected)
        )
    if isinstance(expected, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(expected)
            and all(map(same_json, value, expected))
        )
    return value == expected


def includes_json(value: Json, expected: Mapping[str, Json]) -> bool:
    """Whether *value* is an object that has every key of *expected*, with an equal value."""
    return isinstance(value, Mapping) and all(
        key in value and same_json(value[key], expected[key]) for key in expected
    )
