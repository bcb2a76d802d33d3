"""How values become the bytes of a ledger, and values again."""

import zlib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from bakeoff._lib.redact import Redactor
from bakeoff._lib.sanitize import well_formed

T = TypeVar("T")

_encoder = msgspec.json.Encoder(enc_hook=str)  # what is no plain data is kept as its text

_PLAIN, _DEFLATED, _SHORT, _SHORT_DEFLATED = b"p", b"z", b"a", b"b"
_LONG = 512  # from here on, deflating is worth its time

# What most records are made of. JSON has no control characters: one of them stands for each of these.
# The list is part of the format, and never changes; another one would get another first byte.
_START, _AGAIN, _END = (
    b'{"outcome":{"answer":',
    b',"transcript":[{"role":"assistant","content":',
    b"}]",
)
_SAID_AGAIN = b"\x01"  # a transcript that is the answer, and nothing else
_FRAGMENTS = (
    (_START, b"\x02"),
    (b',"stop_reason":"stop","model":', b"\x03"),
    (b'},"scores":[{"scorer":', b"\x04"),
    (b',"value":1.0}]', b"\x05"),
    (b',"explanation":', b"\x06"),
)


def pack(value: object, redactor: Redactor | None = None) -> bytes:
    """Return *value* as compact bytes without secrets."""
    return deflated(plain_json(value, redactor))


def plain_json(value: object, redactor: Redactor | None = None) -> bytes:
    """Return *value* as JSON without defaults and without secrets."""
    try:
        data = encode(value)
    except UnicodeEncodeError:
        data = encode(_clean(msgspec.to_builtins(value, enc_hook=str)))
    return data if redactor is None else redactor.data(data)


def pack_record(value: object, redactor: Redactor | None = None) -> bytes:
    """Return what is kept of an attempt as bytes that are more compact still."""
    data = _abbreviated(plain_json(value, redactor))
    return _SHORT + data if len(data) < _LONG else _SHORT_DEFLATED + zlib.compress(data, 1)


def deflated(data: bytes, level: int = 1) -> bytes:
    """Return JSON, compressed where that is worth it."""
    return _PLAIN + data if len(data) < _LONG else _DEFLATED + zlib.compress(data, level)


def inflated(data: bytes) -> bytes:
    """Return the JSON that *data* was made from, now or by an older version."""
    kind, packed = data[:1], data[1:]
    if kind == _SHORT:
        return _written_out(packed)
    if kind == _SHORT_DEFLATED:
        return _written_out(zlib.decompress(packed))
    return zlib.decompress(packed) if kind == _DEFLATED else packed


def _abbreviated(data: bytes) -> bytes:
    """Return JSON with a control character for each of its usual parts."""
    again = data.find(_AGAIN)
    if again > 0 and data.startswith(_START):
        said = data[len(_START) : again]
        end = again + len(_AGAIN) + len(said) + len(_END)
        if data[again + len(_AGAIN) : end] == said + _END:
            data = data[:again] + _SAID_AGAIN + data[end:]
    for text, code in _FRAGMENTS:
        data = data.replace(text, code)
    return data


def _written_out(data: bytes) -> bytes:
    """Return the JSON that `_abbreviated` made *data* from."""
    for text, code in reversed(_FRAGMENTS):
        data = data.replace(code, text)
    again = data.find(_SAID_AGAIN)
    if again > 0:
        said = data[len(_START) : again]
        data = b"".join((data[:again], _AGAIN, said, _END, data[again + 1 :]))
    return data


def unpack(data: bytes, kind: type[T]) -> T:
    """Return the value that `pack` made *data* from."""
    return msgspec.json.decode(inflated(data), type=kind)


def _clean(value: object) -> object:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(str(k)): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    return value


# --- JSON without defaults: half the bytes, half the time ------------------------------------------
#
# msgspec leaves out defaults of its own structs only, and writes those faster than dataclasses. So a
# value is first turned into the struct that mirrors its class. The reader fills in the defaults: those
# of a class that is stored are part of the format, and never change.


def encode(value: object) -> bytes:
    """Return *value* as JSON; where it is a dataclass, without what its class knows anyway."""
    kind: Any = type(value)  # mypy takes no class for hashable
    mirror = _mirror_if_any(kind)
    if mirror is None:
        return _encoder.encode(value)
    try:
        return _encoder.encode(msgspec.convert(value, mirror, from_attributes=True))
    except msgspec.ValidationError:  # a part is not what its type says: it is written as it is
        return _encoder.encode(value)


@cache
def _mirror_if_any(kind: type) -> type[msgspec.Struct] | None:
    return _mirror(kind) if is_dataclass(kind) else None


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
