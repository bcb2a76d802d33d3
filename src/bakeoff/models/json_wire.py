"""JSON on its way out and in; nothing that comes in is trusted to be what it should be."""

import json
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.core.errors import ProviderError
from bakeoff.core.values import Json
from bakeoff.models.retry import TryAgain

T = TypeVar("T")

_LARGEST_COUNT = 2**53  # beyond it a number is a mistake, and no ledger could hold it
_DEEPEST_RAW = 64

_encoder = msgspec.json.Encoder()


def encode(payload: Mapping[str, Json]) -> bytes:
    """Return a request's body."""
    try:
        return _encoder.encode(payload)
    except UnicodeEncodeError as error:
        raise ProviderError(
            f"the request cannot be sent, it holds half a character: {error.reason}"
        ) from error
    except RecursionError as error:
        raise ProviderError("the request cannot be sent, it is nested too deeply") from error


def decode(data: bytes, decoder: msgspec.json.Decoder[T], *, content_type: str = "") -> T:
    """Return *data* as the decoder's type; anything else is a fault that shows how it begins."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ProviderError(f"an answer of the wrong shape: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(data, decoder, content_type)


def _decode_leniently(data: bytes, decoder: msgspec.json.Decoder[T], content_type: str) -> T:
    """Read what strict JSON refuses and servers send all the same: NaN, half characters, a BOM."""
    try:
        return msgspec.convert(json.loads(data.decode("utf-8-sig")), decoder.type)
    except UnicodeDecodeError as error:
        raise ProviderError(
            f"the answer is not UTF-8 text{_kind(content_type)}: byte {error.start} of {len(data)}"
        ) from error
    except msgspec.ValidationError as error:
        raise ProviderError(f"an answer of the wrong shape: {error}") from error
    except RecursionError as error:
        raise ProviderError("the answer is nested too deeply to be one") from error
    except ValueError as error:
        raise _not_json(data, content_type, error) from error


def _not_json(data: bytes, content_type: str, error: ValueError) -> ProviderError:
    start = one_line(data[:200].decode("utf-8", "replace"), width=80)
    if not start:
        return TryAgain("the answer is empty")
    if start.startswith("{"):
        return TryAgain(f"the answer is broken JSON, perhaps cut ({error}): it begins {start!r}")
    return ProviderError(
        f"the answer is not JSON{_kind(content_type)}: {start!r}; is the base URL right?"
    )


def _kind(content_type: str) -> str:
    return f" ({one_line(content_type, width=60)})" if content_type else ""


def count(value: float | None) -> int | None:
    """Return a number of tokens; what cannot be one is unknown."""
    return int(value) if value is not None and 0 <= value <= _LARGEST_COUNT else None


def string(value: Json) -> str:
    """Return *value* where it is text, else no text."""
    return value if isinstance(value, str) else ""


def written(value: Json) -> str:
    """Return *value* as JSON text."""
    try:
        return well_formed(json.dumps(value, ensure_ascii=False))
    except RecursionError as error:
        raise ProviderError("the answer is nested too deeply to be one") from error


def plain(body: bytes) -> Json:
    """Return an answer as data; as text where it is no strict JSON or too deep to be kept."""
    try:
        value: Json = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")
    return body.decode("utf-8", "replace") if _deeper(value, _DEEPEST_RAW) else value


def _deeper(value: Json, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_deeper(item, levels - 1) for item in value)
