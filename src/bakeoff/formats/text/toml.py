"""TOML, with the line of every key."""

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

KeyPath = tuple[str | int, ...]

_PART = re.compile(r"""[\w-]+|"(?:\\.|[^"\\])*"|'[^']*'""")
_KEYS = rf"(?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_KEYS})\s*\]")
_KEY = re.compile(rf"\s*({_KEYS})\s*=")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|"(?:\\.|[^"\\\n])*"'
    r"|'{3}.*?'{3,5}|'[^'\n]*'"
    r"|#[^\n]*|[\[\]{}]|\n",
    re.DOTALL,
)
_DEEPEST = 200  # code that walks the data later needs stack space


def read_toml(path: Path) -> tuple[dict[str, Json], str]:
    """Return the content of *path* and its text."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error
    try:
        data: dict[str, Json] = tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path}: nested more than {_DEEPEST} levels deep") from error
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+)", str(error))
        line = f":{match[1]}" if match else ""
        raise UsageError(f"{path}{line}: not valid TOML: {error}") from error
    if (wrong := _not_plain(data)) is not None:
        key, why = wrong
        line = f":{number}" if (number := line_of(text, key)) else ""
        raise UsageError(f"{path}{line}: key {str(key[-1])!r}: {why}")
    return data, text


def _not_plain(value: object, at: KeyPath = ()) -> tuple[KeyPath, str] | None:
    """Return where *value* holds what JSON has no word for, and what to do about it."""
    if len(at) > _DEEPEST:
        return at[:1], f"nested more than {_DEEPEST} levels deep"
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        problems = (_not_plain(inner, (*at, key)) for key, inner in pairs)
        return next((wrong for wrong in problems if wrong), None)
    if isinstance(value, float) and not math.isfinite(value):
        return at, f"{value} cannot be recorded; write a finite number, or leave the key out"
    if isinstance(value, str | int | float):
        return None
    return at, f"a {type(value).__name__} is not read here; write it in quotes"


def line_of(text: str, key: KeyPath) -> int | None:
    """Return the line on which *key* stands, or the nearest line that holds it."""
    best: tuple[int, int] | None = None
    for line, path in _keys(text):
        shared = _shared(path, key)
        if shared and (best is None or shared > best[0]):
            best = (shared, line)
    return best[1] if best else None


def _shared(path: KeyPath, key: KeyPath) -> int:
    """Return how much of *key* is told by *path*; 0 where they part."""
    if path[: len(key)] == key or key[: len(path)] == path:
        return min(len(path), len(key))
    return 0


@lru_cache(maxsize=8)  # a long file is asked for the lines of many keys
def _keys(text: str) -> tuple[tuple[int, KeyPath], ...]:
    """Return the lines that open a table or set a key."""
    keys: list[tuple[int, KeyPath]] = []
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for number, statement in _statements(text):
        if header := _HEADER.match(statement):
            table = _table(header, counts)
            keys.append((number, table))
        elif key := _KEY.match(statement):
            keys.append((number, table + _parts(key[1])))
    return tuple(keys)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement with the line it begins on; a value may go on over many lines."""
    number, begins, depth = 1, 0, 0
    for token in _TOKEN.finditer(text + "\n"):
        if token[0] in {"[", "{"}:
            depth += 1
        elif token[0] in {"]", "}"}:
            depth -= 1
        elif token[0] == "\n" and not depth:
            yield number, text[begins : token.start()]
            number += text.count("\n", begins, token.end())
            begins = token.end()


def _table(header: re.Match[str], counts: dict[KeyPath, int]) -> KeyPath:
    parts = _parts(header[2])
    table: KeyPath = ()
    for i, part in enumerate(parts):
        table = (*table, part)
        if i == len(parts) - 1 and header[1] == "[[":
            counts[table] = counts.get(table, -1) + 1
        if table in counts:
            table = (*table, counts[table])
    return table


def _parts(text: str) -> KeyPath:
    return tuple(p[1:-1] if p[0] in "\"'" else p for p in _PART.findall(text))


def with_overrides(data: Mapping[str, Json], overrides: Mapping[str, str]) -> dict[str, Json]:
    """Return *data* with `a.b=value` settings applied; values are read as TOML, else as text."""
    result: dict[str, Json] = dict(data)
    for key, text in overrides.items():
        spot = result
        *parents, last = key.split(".")
        for parent in parents:
            inner = spot.get(parent, {})
            if not isinstance(inner, Mapping):
                raise UsageError(f"--set {key}: {parent!r} is not a table")
            copy = dict(inner)
            spot[parent] = copy
            spot = copy
        spot[last] = _value(text)
    return result


def _value(text: str) -> Json:
    try:
        parsed: Json = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if _not_plain(parsed) else parsed  # a date is meant as text
