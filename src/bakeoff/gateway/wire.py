"""JSON and server-sent events, as programs send and want them; nothing that comes in is trusted."""

import json
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from bakeoff._lib.sanitize import one_line, well_formed
from bakeoff.core.task import ToolCall
from bakeoff.core.values import Json
from bakeoff.gateway.request import NotUnderstoodError

T = TypeVar("T")

_NO_OBJECT = "INVALID_JSON"
_encoder = msgspec.json.Encoder()


def decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Return a request's body as the decoder's type, or say what is wrong with it."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise NotUnderstoodError(f"the request has the wrong shape: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(body, decoder)


def _decode_leniently(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Read what strict JSON refuses and programs send all the same: half characters, NaN, a BOM."""
    try:
        return msgspec.convert(_well_formed(json.loads(body.decode("utf-8-sig"))), decoder.type)
    except msgspec.ValidationError as error:
        raise NotUnderstoodError(f"the request has the wrong shape: {error}") from error
    except RecursionError as error:
        raise NotUnderstoodError("the request is nested too deeply") from error
    except ValueError as error:
        start = one_line(body[:200].decode("utf-8", "replace"), width=60)
        raise NotUnderstoodError(
            f"the request is not JSON ({error}): it begins {start!r}"
        ) from error


def _well_formed(value: Json) -> Json:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed(item) for item in value]
    if isinstance(value, Mapping):
        return {well_formed(key): _well_formed(item) for key, item in value.items()}
    return value


def encode(data: Json) -> bytes:
    """Return *data* as JSON; a model may have written half of a character, which no JSON takes."""
    try:
        return _encoder.encode(data)
    except UnicodeEncodeError:
        return _encoder.encode(_well_formed(data))


def event(data: Mapping[str, Json]) -> bytes:
    """Return an event without a name."""
    return b"data: " + encode(data) + b"\n\n"


def named_event(data: Mapping[str, Json]) -> bytes:
    """Return an event whose name is the `type` of its data."""
    return b"event: " + str(data["type"]).encode() + b"\n" + event(data)


def written(value: Json) -> str:
    """Return *value* as JSON text; a text stands for itself."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise NotUnderstoodError("the request is nested too deeply") from error


def arguments_object(call: ToolCall) -> Mapping[str, Json]:
    """Return the arguments of a call as an object; what is none is wrapped, not lost."""
    try:
        value = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {_NO_OBJECT: call.arguments}
