"""Where a request differs from one that was recorded."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from bakeoff._lib.untrusted import one_line
from bakeoff.core.values import Json
from bakeoff.models.tape import Question

_SHOWN = 3
_WIDTH = 40
_BEFORE = 10  # so much of what is still equal is shown before the first difference


def differences(recorded: Question, asked: Question) -> list[str]:
    """Return where the two differ, in words: `parameters.temperature`, `message 2`."""
    found: list[str] = []
    for name in dict.fromkeys((*recorded, *asked)):
        before, after = recorded.get(name), asked.get(name)
        if before == after:
            continue
        if name == "messages":
            found += _messages(_list(before), _list(after))
        elif isinstance(before or {}, Mapping) and isinstance(after or {}, Mapping):
            found += _entries(name, _mapping(before), _mapping(after))
        else:
            found.append(_changed(name, before, after))
    return found


def distance(recorded: Question, asked: Question) -> tuple[int, int]:
    """Return how far the two are apart: the fewer differences, and the later, the nearer."""
    before, after = _list(recorded.get("messages")), _list(asked.get("messages"))
    pairs = enumerate(zip_longest(before, after))
    equal = next((number for number, (old, new) in pairs if old != new), len(before))
    return len(differences(recorded, asked)), -equal


def described(found: Sequence[str]) -> str:
    """Return the first few differences as one text."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _entries(name: str, before: Mapping[str, Json], after: Mapping[str, Json]) -> Iterator[str]:
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) != after.get(key):
            yield _changed(f"{name}.{key}", before.get(key), after.get(key))


def _messages(before: Sequence[Json], after: Sequence[Json]) -> Iterator[str]:
    for number, (old, new) in enumerate(zip_longest(before, after), 1):
        if old == new:
            continue
        if old is None or new is None:
            yield f"message {number} ({'recorded' if new is None else 'asked'} only)"
            continue
        old_text, new_text = _content(old), _content(new)
        if old_text == new_text:
            yield f"message {number}"
            continue
        at = next(
            (i for i, (a, b) in enumerate(zip(old_text, new_text, strict=False)) if a != b),
            min(len(old_text), len(new_text)),
        )
        start = max(at - _BEFORE, 0)
        yield _changed(
            f"message {number} from character {at + 1}", old_text[start:], new_text[start:]
        )


def _content(message: Json) -> str:
    return str(message.get("content", "")) if isinstance(message, Mapping) else ""


def _changed(what: str, before: Json, after: Json) -> str:
    return f"{what} (recorded {_short(before)}, asked {_short(after)})"


def _short(value: Json) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(one_line(value, width=_WIDTH))
    return one_line(str(value), width=_WIDTH)


def _list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
