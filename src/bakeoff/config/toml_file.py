"""TOML, with the line of every key."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

KeyPath = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def read_toml(path: Path) -> tuple[dict[str, Json], str]:
    """Return the content of *path* and its text."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        line = f":{found[1]}" if found else ""
        raise UsageError(f"{path}{line}: not valid TOML: {error}") from error


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


def _keys(text: str) -> list[tuple[int, KeyPath]]:
    """List the lines that open a table or set a key."""
    found: list[tuple[int, KeyPath]] = []
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    quote = None
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            if quote in line:
                quote = None
            continue
        if header := _HEADER.match(line):
            table = _table(header, counts)
            found.append((number, table))
        elif key := _KEY.match(line):
            found.append((number, table + _parts(key[1])))
            quote = next((q for q in ('"""', "'''") if line.count(q) == 1), None)
    return found


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
    return tuple(p.strip("\"'") for p in _PART.findall(text))


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
    return parsed
