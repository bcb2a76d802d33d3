"""Converts plain data to typed values; mistakes name file, line, key and the closest valid key."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import inspect

from bakeoff._lib.decode_errors import explain_decode_error
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.formats.text.problems import error_of

T = TypeVar("T")
KeyPath = tuple[str | int, ...]

_WHERE = re.compile(r" - at `(?:key in )?\$(.*?)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_MOST_MISTAKES = 50
_TABLES = inspect.StructType | inspect.DataclassType


def convert(
    data: Json,
    kind: type[T],
    *,
    source: str,
    line_of: Callable[[KeyPath], int | None],
    name_of: Callable[[KeyPath], str | None] = lambda _: None,
) -> T:
    """Return *data* as a *kind*, or raise an error that says where it is wrong and what is right.

    All mistakes are reported, one per line. *name_of* is what a person calls the thing
        at a path, where it has a name.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        messages: dict[str, None] = {}
        for path, message in _mistakes(data, kind, str(error), toml=source.endswith(".toml")):
            line, name = line_of(path), name_of(path)
            where = f"{source}:{line}" if line else source
            messages[f"{where}: {message}{f' ({name})' if name else ''}"] = None
        raise error_of(list(messages)) from error


def _mistakes(data: Json, kind: type, first: str, *, toml: bool) -> Iterator[tuple[KeyPath, str]]:
    """Yield where each mistake is, and what it is; *first* is what the decoder says at first.

    The decoder stops at a mistake, so that is taken out of a copy of the data, and it is asked again.
    """
    rest, message = _Rest(data), first
    for _ in range(_MOST_MISTAKES):
        mistake = _Mistake.read(message, rest.data, kind, toml=toml)
        if not rest.caused(mistake):
            at = rest.original(mistake.path)
            yield (
                at,
                f"key {dotted(at)!r}: {mistake.text}" if at and mistake.keyed else mistake.text,
            )
        if not mistake.path or not mistake.exact:
            return
        rest.take_out(mistake.path)
        try:
            msgspec.convert(rest.data, kind)
        except msgspec.ValidationError as error:
            message = str(error)
        except UsageError:  # a part that checks its settings itself, and now lacks some
            return
        else:
            return


@value_object
class _Mistake:
    """What the decoder found: where, in words, and a required key that it misses there, if any.

    Not `exact` where only something around it is known; `keyed` where its key belongs before it.
    """

    path: KeyPath
    text: str
    exact: bool
    keyed: bool = True
    missing: str | None = None

    @classmethod
    def read(cls, message: str, data: Json, kind: type, *, toml: bool) -> "_Mistake":
        """Understand a *message* of the decoder about *data*."""
        where, unknown = _WHERE.search(message), _UNKNOWN.search(message)
        missing = _MISSING.search(message)
        steps = _steps(where[1]) if where else []
        path = _path(data, steps, _same_error(message, kind))
        exact = len(path) == len(steps)
        if unknown:
            text = f"unknown key {unknown[1]!r}; {did_you_mean(unknown[1], _keys_at(kind, path))}"
            return cls(path=(*path, unknown[1]), text=text, exact=exact, keyed=False)
        text = explain_decode_error(
            _WHERE.sub("", message),
            value=_value_at(data, path) if exact else None,
            known=_keys_at(kind, path),
            choices=lambda: _choices_at(kind, path),
            toml=toml,
        )
        return cls(path=path, text=text, exact=exact, missing=missing[1] if missing else None)


class _Rest:
    """A copy of the data without what was wrong in it."""

    def __init__(self, data: Json) -> None:
        self.data = _copied(data)
        self._taken: set[KeyPath] = set()
        self._places: dict[int, list[int]] = {}  # of a list: where each item of it stood at first

    def take_out(self, path: KeyPath) -> None:
        """Take out what stands at *path*."""
        self._taken.add(self.original(path))
        holder = _value_at(self.data, path[:-1])
        if isinstance(holder, list) and isinstance(path[-1], int):
            places = self._places.setdefault(id(holder), list(range(len(holder))))
            del holder[path[-1]], places[path[-1]]
        elif isinstance(holder, dict):
            del holder[path[-1]]

    def original(self, path: KeyPath) -> KeyPath:
        """Return where *path* leads in the data as it was given."""
        steps: list[str | int] = []
        holder = self.data
        for step in path:
            places = self._places.get(id(holder))
            steps.append(places[step] if places and isinstance(step, int) else step)
            holder = _inside_of(holder).get(step)
        return tuple(steps)

    def caused(self, mistake: _Mistake) -> bool:
        """Whether *mistake* is there only because something was taken out."""
        at = self.original(mistake.path)
        if mistake.missing is not None:
            return (*at, mistake.missing) in self._taken
        return any(taken[:-1] == at for taken in self._taken)


def _copied(data: Json) -> Json:
    """Return a copy of *data* with copied tables and lists."""
    if isinstance(data, Mapping):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(value) for value in data] if isinstance(data, list | tuple) else data


def dotted(path: KeyPath) -> str:
    """Return a key path as a person writes it: `models[0].name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _steps(text: str) -> list[str | int | None]:
    """Return the steps the decoder names; None where it says only that it is some key."""
    return [int(m[2]) if m[2] else m[1] for m in _STEP.finditer(text)]


def _path(data: Json, steps: list[str | int | None], is_wrong: Callable[[Json], bool]) -> KeyPath:
    """Return *steps* with the keys that are missing in them.

    The decoder takes keys in their order: one that it does not name is the first that makes a
    difference to it.
    """
    path: KeyPath = ()
    for named in steps:
        step = named
        if step is None:
            keys = [str(key) for key in _inside_of(_value_at(data, path))]
            first = bisect_left(
                range(len(keys)),
                True,  # noqa: FBT003 -- what the key function is to say
                key=lambda n: is_wrong(_with_only(data, path, keys[: n + 1])),
            )
            if first == len(keys):
                return path
            step = keys[first]
        path = (*path, step)
    return path


def _same_error(message: str, kind: type) -> Callable[[Json], bool]:
    """Return what tells whether the decoder says *message* of other data too."""

    def says(data: Json) -> bool:
        try:
            msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            return str(error) == message
        except UsageError:
            return False
        return False

    return says


def _with_only(data: Json, path: KeyPath, keys: Sequence[str]) -> Json:
    """Return *data* where the table at *path* holds these *keys* alone."""
    if not path:
        inside = _inside_of(data)
        return {key: inside[key] for key in keys}
    step, *rest = path
    inner = _with_only(_inside_of(data)[step], tuple(rest), keys)
    if isinstance(data, Mapping):
        return {**data, str(step): inner}
    items = list(_inside_of(data).values())
    return [inner if number == step else item for number, item in enumerate(items)]


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
    types: list[inspect.Type] = []
    for t in _flat([outer]):
        if isinstance(t, _TABLES):
            types += [f.type for f in t.fields if f.encode_name == step]
        elif isinstance(t, inspect.ListType | inspect.VarTupleType):
            types.append(t.item_type)
        elif isinstance(t, inspect.DictType):
            types.append(t.value_type)
    return types


@contextmanager
def as_given(path: Path) -> Iterator[None]:
    """Tell mistakes at and below *path* by the path as it stands, not by the whole one."""
    try:
        yield
    except UsageError as error:
        raise error.rewritten(lambda text: told_as_given(text, path)) from error


def told_as_given(message: str, path: Path | str) -> str:
    """Return *message* with *path* as it stands in place of the whole path."""
    return message.replace(str(Path(path).resolve()), str(path))


def placed_as_given(task: Task, path: Path | str) -> Task:
    """Return *task* with the places of its scorers as they are told: by *path* as it stands."""

    def placed(spec: ScorerSpec) -> ScorerSpec:
        if spec.origin is None:
            return spec
        file = told_as_given(spec.origin.file, path)
        return replace(spec, origin=replace(spec.origin, file=file))

    return replace(task, scorers=tuple(map(placed, task.scorers)))
