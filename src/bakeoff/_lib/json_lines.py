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
    return None if found is None else text.count("\n", 0, found) + 1


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
