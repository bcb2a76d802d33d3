"""Plain data into typed values; a mistake is told with file, line, key and the nearest right key."""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec import inspect

from bakeoff._lib.decoder_words import in_words
from bakeoff._lib.suggest import did_you_mean
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

T = TypeVar("T")
KeyPath = tuple[str | int, ...]

_WHERE = re.compile(r" - at `(?:key in )?\$(.*?)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_TABLES = inspect.StructType | inspect.DataclassType


def convert(
    data: Json, kind: type[T], *, source: str, line_of: Callable[[KeyPath], int | None]
) -> T:
    """Return *data* as a *kind*, or raise an error that says where it is wrong and what is right."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        where = _WHERE.search(message)
        unknown = _UNKNOWN.search(message)
        steps = _steps(where[1]) if where else []
        path = _path(data, steps, holds=unknown[1] if unknown else None)
        if unknown:
            keys = _keys_at(kind, path)
            path = (*path, unknown[1])
            message = f"unknown key {unknown[1]!r}; {did_you_mean(unknown[1], keys)}"
        else:
            told = in_words(
                _WHERE.sub("", message),
                value=_value_at(data, path) if len(path) == len(steps) else None,
                known=_keys_at(kind, path),
                choices=lambda: _choices_at(kind, path),
            )
            message = f"key {dotted(path)!r}: {told}" if path else told
        line = line_of(path)
        raise UsageError(f"{source}{f':{line}' if line else ''}: {message}") from error


def dotted(path: KeyPath) -> str:
    """Return a key path as a person writes it: `models[0].name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _steps(text: str) -> list[str | int | None]:
    """Return the steps the decoder names; None where it says only that it is some key."""
    return [int(m[2]) if m[2] else m[1] for m in _STEP.finditer(text)]


def _path(data: Json, steps: list[str | int | None], *, holds: str | None) -> KeyPath:
    """Return *steps* with the keys that are missing in them, as far as *data* tells which."""
    if not steps:
        return ()
    step, *rest = steps
    inside = _inside_of(data)
    if step is None:
        fits = [key for key, value in inside.items() if not holds or _holds(value, rest, holds)]
        if not fits or (len(fits) > 1 and not holds):
            return ()
        step = fits[0]
    return (step, *_path(inside.get(step), rest, holds=holds))


def _holds(data: Json, steps: list[str | int | None], key: str) -> bool:
    """Whether *steps* lead from *data* to a table with *key*."""
    inside = _inside_of(data)
    if not steps:
        return key in inside
    step, *rest = steps
    values = inside.values() if step is None else [inside.get(step)]
    return any(_holds(value, rest, key) for value in values)


def _inside_of(data: Json) -> dict[str | int, Json]:
    if isinstance(data, Mapping):
        return {str(key): value for key, value in data.items()}
    return dict(enumerate(data)) if isinstance(data, list | tuple) else {}


def _value_at(data: Json, path: KeyPath) -> Json:
    for step in path:
        data = _inside_of(data).get(step)
    return data


def _types_at(kind: type, path: KeyPath) -> list[inspect.Type]:
    here: list[inspect.Type] = [inspect.type_info(kind)]
    for step in path:
        here = [inner for t in here for inner in _inside(t, step)]
    return _flat(here)


def _keys_at(kind: type, path: KeyPath) -> list[str]:
    """Return the keys that may stand at *path*."""
    return [
        f.encode_name for t in _types_at(kind, path) if isinstance(t, _TABLES) for f in t.fields
    ]


def _choices_at(kind: type, path: KeyPath) -> list[str]:
    """Return the words that may stand at *path*, where there are only a few."""
    literals = (t for t in _types_at(kind, path) if isinstance(t, inspect.LiteralType))
    return [str(word) for t in literals for word in t.values]


def _flat(types: list[inspect.Type]) -> list[inspect.Type]:
    flat: list[inspect.Type] = []
    for t in types:
        flat += _flat(list(t.types)) if isinstance(t, inspect.UnionType) else [t]
    return flat


def _inside(outer: inspect.Type, step: str | int) -> list[inspect.Type]:
    found: list[inspect.Type] = []
    for t in _flat([outer]):
        if isinstance(t, _TABLES):
            found += [f.type for f in t.fields if f.encode_name == step]
        elif isinstance(t, inspect.ListType | inspect.VarTupleType):
            found.append(t.item_type)
        elif isinstance(t, inspect.DictType):
            found.append(t.value_type)
    return found
