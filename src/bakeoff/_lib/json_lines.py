"""Where a key stands in JSON text. The fast decoder forgets it, and only a mistake asks for it."""

import json
import re
from collections.abc import Iterator, Sequence

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def json_line_of(text: str, key: Sequence[str | int]) -> int | None:
    """Return the line on which *key* stands, or the nearest thing that holds it.

    *text* is JSON that a decoder has read already. Of a key that stands twice, the last counts.
    """
    found, value = None, _after_blank(text, 0)
    for step in key:
        here = [place for name, *place in _inside(text, value) if name == step]
        if not here:
            break
        found, value = here[-1]
    return None if found is None else _line(text, found)


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
