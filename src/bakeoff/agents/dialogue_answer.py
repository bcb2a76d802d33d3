"""What a role answers, read: an object of JSON, wherever in a text it stands, and its fields."""

import json
from collections.abc import Mapping

from bakeoff._lib.untrusted import well_formed
from bakeoff.core.values import Json

MOST_SHARDS = 3

Answer = Mapping[str, Json]


class FormError(Exception):
    """A role's answer is not of the form it was asked for; the message says why."""


def json_object(text: str) -> dict[str, Json]:
    """Return the JSON object in *text*: the first one that stands in it, or what there is of one.

    A model that ran on until it was cut has said what it said; whether that is enough is for the
    reader to see.
    """
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{")
    for attempt in (text, _closed(text, at)) if at >= 0 else ():
        start = at
        while start >= 0:
            try:
                found, _ = decoder.raw_decode(attempt, start)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict):
                return found
            start = attempt.find("{", start + 1)
    raise FormError("there is no JSON object in it")


def _closed(text: str, at: int) -> str:
    """Return *text* with the strings, lists and objects closed that are open at its end."""
    open_ones: list[str] = []
    quoted = escaped = False
    for sign in text[at:]:
        if quoted:
            quoted = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            quoted = True
        elif sign in "{[":
            open_ones.append("}" if sign == "{" else "]")
        elif sign in "}]" and open_ones:
            open_ones.pop()
    rest = text.rstrip("\\") if escaped else text
    return rest + ('"' if quoted else "") + "".join(reversed(open_ones))


def text_of(answer: Answer, key: str) -> str:
    """Return the text under *key*, which must say something."""
    value = answer.get(key)
    if not isinstance(value, str) or not value.strip():
        raise FormError(f"{key!r} is not a text")
    return well_formed(value).strip()


def flag_of(answer: Answer, key: str) -> bool:
    """Return the truth value under *key*, also where a model wrote it as a text."""
    value = answer.get(key)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise FormError(f"{key!r} is neither true nor false")
    return value


def shards_of(answer: Answer, open_shards: Mapping[int, str]) -> tuple[int, ...]:
    """Return the shards that were told: one to three of those that are left."""
    value = answer.get("shards")
    numbers = value if isinstance(value, list) else [value]
    chosen = tuple(dict.fromkeys(n for n in numbers if isinstance(n, int) and n in open_shards))
    if not chosen or len(chosen) > MOST_SHARDS or len(chosen) < len(set(map(str, numbers))):
        left = ", ".join(map(str, open_shards))
        raise FormError(f"'shards' must name one to three of the shards that are left: {left}")
    return chosen
