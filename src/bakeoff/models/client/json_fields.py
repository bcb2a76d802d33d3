"""JSON on its way out and in; nothing that comes in is trusted to be what it should be."""

import json
import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from bakeoff._lib.sanitize import one_line, well_formed
from bakeoff.core.errors import ProviderError
from bakeoff.core.values import Json
from bakeoff.models.client.retry import RetryableError

T = TypeVar("T")

_LARGEST_COUNT = 2**53  # beyond it a number is a mistake, and no ledger could hold it
_DEEPEST_RAW = 64

_USAGE = frozenset({"usage", "usageMetadata"})
_USAGE_HOLDERS = frozenset({"message", "response"})  # events with a whole answer in them
_COUNT_NAME = re.compile("token|count|cost", re.IGNORECASE)
_OLLAMA_COUNTS = frozenset(
    {"eval_count", "load_duration", "prompt_eval_cached_count", "prompt_eval_count"}
)
_UNREADABLE = "bakeoff:unreadable"  # a key that no server sends

USAGE_UNREADABLE = "usage_unreadable"
"""The flag of an answer whose token counts are no numbers."""

_encoder = msgspec.json.Encoder()


class UsageFields(msgspec.Struct):
    """Token counts of an answer; those that are no numbers were taken out as `unreadable`."""

    unreadable: bool = msgspec.field(default=False, name=_UNREADABLE)

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of the answer should know of its counts."""
        return (USAGE_UNREADABLE,) if self.unreadable else ()


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(data, decoder, content_type)


def _decode_leniently(data: bytes, decoder: msgspec.json.Decoder[T], content_type: str) -> T:
    """Read what is refused and servers send all the same: NaN, half characters, a BOM, odd counts."""
    try:
        value = _with_readable_counts(json.loads(data.decode("utf-8-sig")))
        return msgspec.convert(value, decoder.type)
    except UnicodeDecodeError as error:
        if error.end == len(data) and error.reason == "unexpected end of data":
            raise RetryableError("the answer was cut in the middle of a character") from error
        raise ProviderError(
            f"the answer is not UTF-8 text{_kind(content_type)}: byte {error.start} of {len(data)}"
        ) from error
    except msgspec.ValidationError as error:
        raise ProviderError(f"an answer of the wrong shape: {error}") from error
    except RecursionError as error:
        raise ProviderError("the answer is nested too deeply to be one") from error
    except ValueError as error:
        raise _not_json(data, content_type, error) from error


def _with_readable_counts(value: Json) -> Json:
    """Return an answer without the token counts that are no numbers, marked where there were some."""
    if not isinstance(value, Mapping):
        return value
    clean = dict(value)
    for key in _USAGE_HOLDERS & clean.keys():
        clean[key] = _with_readable_counts(clean[key])
    for key in _USAGE & clean.keys():
        if clean[key] is not None:
            clean[key] = _readable(clean[key])
    if odd := [key for key in _OLLAMA_COUNTS & clean.keys() if not _is_number(clean[key])]:
        clean = {**{k: v for k, v in clean.items() if k not in odd}, _UNREADABLE: True}
    return clean


def _readable(usage: Json) -> dict[str, Json]:
    """Return the counts of a usage object, and the finer ones inside it."""
    if not isinstance(usage, Mapping):
        return {_UNREADABLE: True}
    clean: dict[str, Json] = {}
    for key, value in usage.items():
        if _is_number(value):
            clean[key] = value
        elif key.lower().endswith("details"):
            clean[key] = _readable(value) if isinstance(value, Mapping) else None
        elif value is not None and _COUNT_NAME.search(key):
            clean[_UNREADABLE] = True
    return clean


def _is_number(value: Json) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= _LARGEST_COUNT
    )


def _not_json(data: bytes, content_type: str, error: ValueError) -> ProviderError:
    start = one_line(data[:200].decode("utf-8", "replace"), width=80)
    if not start:
        return RetryableError("the answer is empty")
    if start.startswith("{"):
        return RetryableError(
            f"the answer is broken JSON, perhaps cut ({error}): it begins {start!r}"
        )
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
