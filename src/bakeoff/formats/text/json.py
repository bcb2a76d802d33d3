"""JSON, with a message a person can act on."""

import json
import math
import re
from pathlib import Path

import msgspec

from bakeoff._lib.decode_errors import repeated_keys
from bakeoff._lib.digest import digest_bytes
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Source
from bakeoff.core.values import Json
from bakeoff.formats.text.convert import dotted
from bakeoff.formats.text.problems import error_of

_DEEPEST = 200  # code that walks the data later needs stack space
_LONE_SURROGATE = re.compile(
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]..)"
)
_TEXT_OR_NUMBER = re.compile(r'"(?:\\.|[^"\\])*"|-?(?:Infinity|NaN|\d+[.eE][\d.eE+-]*)')


def read_json(path: Path) -> tuple[Json, Source]:
    """Return the content of *path*, and what to remember of it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not data.strip():
        raise UsageError(f"{path} is empty; it must hold JSON, such as {{}}")
    try:
        value: Json = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(explain_json_error(path, data, error)) from error
    if is_deep(value):
        raise UsageError(f"{path}: nested more than {_DEEPEST} levels deep")
    _refuse_repeated_keys(path, data)
    return value, Source(path=str(path.resolve()), digest=digest_bytes(data))


def _refuse_repeated_keys(path: Path, data: bytes) -> None:
    """Raise where a key stands twice in an object: the decoder would keep the last one in silence."""
    text = data.decode("utf-8-sig")
    try:
        json.loads(text, object_pairs_hook=_distinct)
    except _RepeatedKeyError:
        raise error_of(
            [
                f"{path}:{line}: key {dotted(key)!r} is repeated here; it was first on line {before}"
                for key, line, before in repeated_keys(text)
            ]
        ) from None


class _RepeatedKeyError(Exception):
    """An object has a key twice."""


def _distinct(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _RepeatedKeyError


def is_deep(value: Json) -> bool:
    """Whether *value* is nested more deeply than code that walks it may go."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    return any(level)


def explain_json_error(path: Path, data: bytes, error: Exception, *, first_line: int = 1) -> str:
    """Say where the JSON breaks; the fast decoder gives a byte, a person wants a line.

    *data* is the whole file, or what begins on its *first_line*.
    """
    if isinstance(error, RecursionError):
        return f"{path}: nested more than {_DEEPEST} levels deep"
    above = first_line - 1
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        line = data[: bad.start].count(b"\n") + 1
        return f"{path}:{above + line}: not UTF-8 text (byte {bad.start})"
    try:
        json.loads(text)
    except json.JSONDecodeError as bad:
        return f"{path}:{above + bad.lineno}: not valid JSON: {bad.msg} (column {bad.colno})"
    except ValueError as bad:  # a number of more digits than Python reads
        return f"{path}: not valid JSON: {bad}"
    if odd := _no_number(text):
        before = text[: odd.start()]
        line, column = before.count("\n") + 1, odd.start() - before.rfind("\n")
        what = "is out of range" if odd[0][-1].isdigit() else "is not a JSON value"
        why = f"{odd[0][:20]} {what}; write null or a number"
        return f"{path}:{above + line}: not valid JSON: {why} (column {column})"
    if lone := _LONE_SURROGATE.search(text):
        line = above + text.count("\n", 0, lone.start()) + 1
        return f"{path}:{line}: {lone[0]} is half a character and cannot be sent; write it whole"
    return f"{path}: not valid JSON: {error}"


def _no_number(text: str) -> re.Match[str] | None:
    """Return the first number in valid JSON that no number of ours can hold."""
    numbers = (token for token in _TEXT_OR_NUMBER.finditer(text) if token[0][0] != '"')
    return next((token for token in numbers if not math.isfinite(float(token[0]))), None)
