"""On which line of a file a key stands, and usage errors with the place of what they are about.

The file is read for it only when a mistake is told.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bakeoff._lib.decode_errors import json_line_of
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.tools import McpServerSpec, ToolSpec
from bakeoff.formats.text.convert import KeyPath
from bakeoff.formats.text.problems import at_location, in_task
from bakeoff.formats.text.toml import line_of as toml_line_of


def shown(place: SourceLocation) -> str:
    """Return *place* as a person finds it: `file:line`."""
    line = line_in(Path(place.file), place.key)
    return f"{place.file}:{line}" if line else place.file


def line_in(path: Path, key: KeyPath) -> int | None:
    """Return the line on which *key* stands in *path*, or the nearest thing that holds it.

    None where the file has no lines, or is no longer what was read a moment ago.
    """
    find = _FINDERS.get(path.suffix.lower())
    if find is None or not path.is_file():
        return None
    try:
        return find(path, key)
    except (OSError, ValueError, IndexError, RecursionError, UsageError):
        return None


def _in_json(path: Path, key: KeyPath) -> int | None:
    return json_line_of(path.read_text(encoding="utf-8-sig"), key)


def _in_toml(path: Path, key: KeyPath) -> int | None:
    return toml_line_of(path.read_text(encoding="utf-8-sig"), key)


def _in_yaml(path: Path, key: KeyPath) -> int | None:
    from bakeoff.formats.text.yaml import parse_yaml

    return parse_yaml(path.read_bytes(), source=str(path))[1](key)


def _in_front_matter(path: Path, key: KeyPath) -> int | None:
    from bakeoff.formats.text.markdown import read_markdown_file

    return read_markdown_file(path).line_of(key)


_FINDERS = {
    ".json": _in_json,
    ".toml": _in_toml,
    ".md": _in_front_matter,
    ".yaml": _in_yaml,
    ".yml": _in_yaml,
}


# --- errors with their location -------------------------------------------------------------------


@contextmanager
def about(spec: ModelSpec | AgentSpec) -> Iterator[None]:
    """Say in which file the mistake is, where *spec* came from one."""
    try:
        yield
    except UsageError as error:
        if spec.origin is None or error.location == spec.origin.where:
            raise
        raise at_location(spec.origin.where, error) from error


class about_task:  # noqa: N801 -- used like the function beside it; a class costs each task less
    """Say which task a mistake belongs to."""

    __slots__ = ("_task",)

    def __init__(self, task: Task) -> None:
        self._task = task

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, UsageError) and error.task != self._task.id:
            raise in_task(self._task.id, error) from error


class about_scorer(about_task):  # noqa: N801
    """Say in which task the mistake is, and where its scorer or tool came from."""

    __slots__ = ("_spec",)

    def __init__(self, spec: ScorerSpec | ToolSpec | McpServerSpec, task: Task) -> None:
        super().__init__(task)
        self._spec = spec

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, UsageError):
            return
        named = error if error.task == self._task.id else in_task(self._task.id, error)
        if self._spec.origin is not None:
            named = at_location(shown(self._spec.origin), named)
        if named is not error:
            raise named from error
