"""JSON of dataclasses without the fields that have their defaults: half the bytes, half the time.

msgspec leaves out defaults of its own structs only, and writes those faster than dataclasses. So a
value is first turned into the struct that mirrors its class. Who reads it back fills in the defaults:
those of a class that is stored are part of the format, and never change.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

_encoder = msgspec.json.Encoder(enc_hook=str)  # what is no plain data is kept as its text


def encode(value: object) -> bytes:
    """Return *value* as JSON; where it is a dataclass, without what its class knows anyway."""
    kind: type = type(value)
    if not is_dataclass(kind):
        return _encoder.encode(value)
    try:
        return _encoder.encode(msgspec.convert(value, _mirror(kind), from_attributes=True))
    except msgspec.ValidationError:  # a part is not what its type says: it is written as it is
        return _encoder.encode(value)


@cache
def _mirror(kind: type) -> type[msgspec.Struct]:
    """Return the struct with the fields of the dataclass *kind*."""
    hints = get_type_hints(kind)
    members = [_member(field, hints[field.name]) for field in fields(kind)]
    return msgspec.defstruct(kind.__name__, members, kw_only=True, omit_defaults=True)


def _member(field: "Field[Any]", hint: Any) -> Any:
    kind = _mirrored(hint)
    if field.default is not MISSING and not is_dataclass(field.default):
        return field.name, kind, field.default
    if field.default_factory in (dict, list):
        return field.name, kind, msgspec.field(default_factory=field.default_factory)
    return field.name, kind  # always written


def _mirrored(hint: Any) -> Any:
    """Return *hint* with mirrors for dataclasses; what holds none is written as it is."""
    if is_dataclass(hint):
        return _mirror(hint)  # type: ignore[arg-type]
    origin, parts = get_origin(hint), get_args(hint)
    if origin not in {Union, UnionType, tuple, Mapping}:
        return Any
    mirrored = tuple(part if part in (..., type(None)) else _mirrored(part) for part in parts)
    if all(part is Any or part in (..., type(None)) for part in mirrored):
        return Any
    container: Any = {Mapping: dict, tuple: tuple}.get(origin, Union)
    return container[mirrored]
