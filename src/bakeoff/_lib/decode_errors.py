"""Decoder errors in plain words, and where in a JSON text a key is."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from bakeoff._lib.phrasing import did_you_mean, near

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "a table of keys and values",
    "null": "null",
}
_BOUNDS = {">=": "of {} or more", ">": "over {}", "<=": "of at most {}", "<": "under {}"}
_KIND = re.compile(r"Expected `([^`]+)`, got `(\w+)`")
_BOUND = re.compile(r"Expected `(\w+)` ([<>]=?) (\S+)")
_LENGTH = re.compile(r"Expected `(\w+)` of length >= 1")
_PATTERN = re.compile(r"Expected `str` matching regex (.*)")
_BEGINS = re.compile(r"'\^([\w/]+)'")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_CHOICE = re.compile(r"Invalid enum value (.*)")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def explain_decode_error(
    message: str,
    *,
    value: object,
    known: Iterable[str] = (),
    choices: Callable[[], Iterable[str]] = tuple,
    toml: bool = False,
) -> str:
    """Return *message* in plain words.

    *value* is what stands there, *known* are the keys of it that mean something, and *choices*
    tells the words that may stand there, where there are only a few. *toml* is how it is written.
    """
    if match := _UNKNOWN.search(message):
        return f"unknown key {match[1]!r}"
    if match := _MISSING.search(message):
        return f"`{match[1]}` is missing{_misspelt(match[1], value, known)}"
    if match := _CHOICE.search(message):
        return f"{match[1]} is not allowed here; {did_you_mean(str(value), choices())}"
    if match := _KIND.search(message):
        return _another_kind(match[1], match[2], value, toml=toml)
    return _of_value(message, value) or message[0].lower() + message[1:]


def _of_value(message: str, value: object) -> str | None:
    """Return what is wrong with a value of the right kind; None where it is something else."""
    if match := _BOUND.search(message):
        bound = _BOUNDS[match[2]].format(match[3].removesuffix(".0"))
        given = f", not {_shown(value)}" if isinstance(value, int | float) else ""
        return f"{_KINDS.get(match[1], match[1])} {bound} is expected{given}"
    if match := _LENGTH.search(message):
        return f"{_KINDS.get(match[1], match[1])} is expected that is not empty"
    if match := _PATTERN.search(message):
        begins = _BEGINS.fullmatch(match[1])
        how = f"begins with {begins[1]!r}" if begins else f"matches the pattern {match[1]}"
        return f"a text is expected that {how}"
    return None


def _another_kind(expected: str, got: str, value: object, *, toml: bool) -> str:
    kinds = [kind for kind in expected.split(" | ") if kind != "null"]
    problem = f"{_listed(kinds)} is expected, not {_found(got, value)}"
    return f"{problem}{_remedy(kinds, value, toml=toml)}"


def _listed(kinds: list[str]) -> str:
    words = [_KINDS.get(kind, kind) for kind in kinds if kind != "int" or "float" not in kinds]
    return " or ".join(words)


def _found(got: str, value: object) -> str:
    """Return what stands there; a text may be a secret, and is not shown."""
    if got in ("int", "float", "bool") and isinstance(value, int | float):
        return _shown(value)
    return _KINDS.get(got, got)


def _remedy(kinds: list[str], value: object, *, toml: bool) -> str:
    if "str" in kinds and isinstance(value, int | float):
        return ": write it in quotes"
    if "array" in kinds and isinstance(value, Mapping):
        return "; put the name of each in [[ ]]" if toml else ": write it in [ ]"
    if not isinstance(value, str):
        return ""
    as_number = {"int", "float"} & set(kinds) and _NUMBER.fullmatch(value)
    if as_number or ("bool" in kinds and value in ("true", "false")):
        return ": leave out the quotes"
    return ": write it in [ ]" if "array" in kinds else ""


def _shown(value: int | float | bool) -> str:  # noqa: FBT001 -- it is what stands in the file
    return str(value).lower() if isinstance(value, bool) else str(value)


def _misspelt(key: str, value: object, known: Iterable[str]) -> str:
    """Return a hint at a key that is there and means nothing, but was perhaps meant."""
    keys = value if isinstance(value, Mapping) else {}
    meant = near(key, [str(name) for name in keys if name not in set(known)])
    return f"; is {meant!r} a misspelling of it?" if meant else ""


_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def json_line_of(text: str, key: Sequence[str | int]) -> int | None:
    """Return the line on which *key* stands, or the nearest thing that holds it.

    *text* is JSON that a decoder has read already. Of a key that stands twice, the last counts.
    """
    position, value = None, _after_blank(text, 0)
    for step in key:
        here = [place for name, *place in _inside(text, value) if name == step]
        if not here:
            break
        position, value = here[-1]
    return None if position is None else _line(text, position)


def repeated_keys(text: str) -> Iterator[tuple[tuple[str | int, ...], int, int]]:
    """Yield each key that stands again in its object: the key, its line, and the line before."""
    todo: list[tuple[tuple[str | int, ...], int]] = [((), _after_blank(text, 0))]
    while todo:
        path, at = todo.pop()
        seen: dict[str | int, int] = {}
        inner = []
        for name, begins, value in _inside(text, at):
            if name in seen:
                yield (*path, name), _line(text, begins), _line(text, seen[name])
            seen[name] = begins
            inner.append(((*path, name), value))
        todo += reversed(inner)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _inside(text: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Yield what the value at *at* holds: its key or number, where that begins, and its value."""
    opening = text[at : at + 1]
    if opening not in ("{", "["):
        return
    at, number = _after_blank(text, at + 1), 0
    while text[at] not in "}]":
        begins = at
        name: str | int = number
        if opening == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = _after_blank(text, _after_blank(text, at) + 1)  # over the colon
        yield name, begins, at
        at = _after_blank(text, _DECODER.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _after_blank(text, at + 1)
        number += 1


def _after_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at
