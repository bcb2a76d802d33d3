"""YAML, with the line of every key; what JSON has no word for is refused."""

import math
from collections.abc import Callable, Mapping

import yaml

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.formats.text.convert import KeyPath, dotted
from bakeoff.formats.text.problems import Problems

_DEEPEST = 200
_MOST_VALUES = 100_000  # an alias in an alias grows faster than any file

Lines = Mapping[KeyPath, int]


def parse_yaml(
    data: bytes, *, source: str, before: int = 0, such_as: str = "models"
) -> tuple[Mapping[str, Json], Callable[[KeyPath], int | None]]:
    """Return *data* as plain keys and values, and what tells the line of a key.

    *before* is how many lines of *source* come before it; *such_as* is a key that it may hold.
    """
    try:
        text = data.decode("utf-8-sig")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return {}, lambda _: None
        lines = _Lines(source, before)
        lines.walk(node, ())
        lines.problems.raise_any()
        value: Json = loader.construct_document(node)
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 text (byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1 + before}" if mark else ""
        column = f" (column {mark.column + 1})" if mark else ""
        why = f"{error.problem or error}{column}"
        hint = (
            "; are the lines above and below indented as they should be?" if "block" in why else ""
        )
        raise UsageError(f"{source}{line}: not valid YAML: {why}{hint}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{source}: not valid YAML: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{source}: nested more than {_DEEPEST} levels deep") from error
    if not isinstance(value, Mapping):
        raise UsageError(f"{source}: write keys in it, such as `{such_as}:`, not a bare value")
    _check_plain(value, source, lines.lines_by_key)
    return value, lambda key: _line(lines.lines_by_key, key)


class _Lines:
    """Where each key stands; a key that stands twice would lose its first value in silence."""

    def __init__(self, source: str, before: int) -> None:
        self.lines_by_key: dict[KeyPath, int] = {}
        self.problems = Problems()
        self._source = source
        self._before = before
        self._values = 0

    def walk(self, node: yaml.Node, at: KeyPath) -> None:
        self._values += 1
        if len(at) > _DEEPEST:
            raise UsageError(f"{self._source}: nested more than {_DEEPEST} levels deep")
        if self._values > _MOST_VALUES:
            raise UsageError(
                f"{self._source}: more than {_MOST_VALUES} values, aliases written out"
            )
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.lines_by_key[(*at, index)] = self._line(item)
                self.walk(item, (*at, index))
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                with self.problems.gathered():
                    self._key(key, at)
                self.walk(value, (*at, str(key.value)))

    def _line(self, node: yaml.Node) -> int:
        return int(node.start_mark.line) + 1 + self._before

    def _key(self, key: yaml.Node, at: KeyPath) -> None:
        here, line = (*at, str(key.value)), self._line(key)
        merged = key.tag == "tag:yaml.org,2002:merge"
        if not merged and key.tag != "tag:yaml.org,2002:str":
            raise UsageError(f"{self._source}:{line}: write the key {str(key.value)!r} in quotes")
        if here in self.lines_by_key and not merged:
            raise UsageError(
                f"{self._source}:{line}: key {dotted(here)!r} is repeated here; it was "
                f"first on line {self.lines_by_key[here]}"
            )
        self.lines_by_key[here] = line


def _check_plain(value: object, source: str, lines: Lines, at: KeyPath = ()) -> None:
    """Raise where *value* holds what JSON has no word for."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            _check_plain(inner, source, lines, (*at, key))
        return
    plain = value is None or isinstance(value, str | int | float)
    if plain and not (isinstance(value, float) and not math.isfinite(value)):
        return
    what = f"{value} is not a number" if plain else f"a {type(value).__name__} is not read here"
    line = _line(lines, at)
    where = f"{source}:{line}" if line else source
    raise UsageError(f"{where}: key {dotted(at)!r}: {what}; write it in quotes")


def _line(lines: Lines, key: KeyPath) -> int | None:
    """Return the line of *key*, or of the nearest thing that holds it."""
    return next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), None)
