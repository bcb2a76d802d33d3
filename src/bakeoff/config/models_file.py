"""`models_config.yaml`: models with their settings, categories of them, and how a batch is run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta

from bakeoff._lib.digest import digest_bytes
from bakeoff.config.convert import KeyPath, convert, dotted
from bakeoff.core.brief import Source
from bakeoff.core.candidate import TRANSPORT_SETTINGS, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

_DEEPEST = 200
_MOST_VALUES = 100_000  # an alias in an alias grows faster than any file
_SETTING_NAMES = {"timeout": "timeout_s"}


class ModelEntry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One model; `settings` is what is sent with each request, and how."""

    name: str
    provider: str = ""
    display_name: str | None = None
    enabled: bool = True
    api_key: str | None = None
    base_url: str | None = None
    settings: dict[str, Json] | None = None


class BatchSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How a batch is run where the command line does not say."""

    default_timeout: Annotated[float, Meta(gt=0)] = 1800.0
    save_intermediate: bool = True
    max_parallel: Annotated[int, Meta(ge=1)] = 1
    retry_on_failure: bool = False
    max_retries: Annotated[int, Meta(ge=0)] = 1
    show_progress: bool = True
    verbose: bool = False

    @property
    def attempts(self) -> int:
        """How often a model may start a task over."""
        return 1 + (self.max_retries if self.retry_on_failure else 0)


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    models: list[ModelEntry] | None = None
    batch_settings: BatchSettings | None = None
    categories: dict[str, list[str] | None] | None = None


@dataclass(frozen=True, kw_only=True)
class ModelsConfig:
    """What the file says; `models` are the enabled ones, `disabled` the names of the others."""

    source: Source
    models: tuple[ModelSpec, ...] = ()
    disabled: tuple[str, ...] = ()
    batch: BatchSettings = field(default_factory=BatchSettings)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_models_file(path: Path) -> ModelsConfig:
    """Return the content of *path*; a mistake is told with its line and the nearest right key."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    value, lines = _parse(path, data)
    file = convert(value or {}, _File, source=str(path), line_of=lambda key: _line(lines, key))
    entries = file.models or []
    return ModelsConfig(
        source=Source(path=str(path.resolve()), digest=digest_bytes(data)),
        models=tuple(_spec(entry) for entry in entries if entry.enabled),
        disabled=tuple(entry.display_name or entry.name for entry in entries if not entry.enabled),
        batch=file.batch_settings or BatchSettings(),
        categories={name: tuple(names or ()) for name, names in (file.categories or {}).items()},
    )


def _spec(entry: ModelEntry) -> ModelSpec:
    given = {_SETTING_NAMES.get(key, key): value for key, value in (entry.settings or {}).items()}
    return ModelSpec(
        provider=entry.provider,
        name=entry.name,
        base_url=entry.base_url,
        api_key=entry.api_key,
        parameters={k: v for k, v in given.items() if k not in TRANSPORT_SETTINGS},
        settings={k: v for k, v in given.items() if k in TRANSPORT_SETTINGS},
        label=entry.display_name,
    )


Lines = Mapping[KeyPath, int]


def _parse(path: Path, data: bytes) -> tuple[Json, Lines]:
    """Return the file as plain data, and the line of every key in it."""
    try:
        text = data.decode("utf-8-sig")
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None, {}
        lines = _Lines(path)
        lines.walk(node, ())
        value: Json = loader.construct_document(node)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{line}: not valid YAML: {error.problem or error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{path}: not valid YAML: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: nested more than {_DEEPEST} levels deep") from error
    if not isinstance(value, Mapping):
        raise UsageError(f"{path}: write keys in it, such as `models:`, not a bare value")
    _check_plain(value, path, lines.found)
    return value, lines.found


class _Lines:
    """Where each key stands; a key that stands twice would lose its first value in silence."""

    def __init__(self, path: Path) -> None:
        self.found: dict[KeyPath, int] = {}
        self._path = path
        self._values = 0

    def walk(self, node: yaml.Node, at: KeyPath) -> None:
        self._values += 1
        if len(at) > _DEEPEST:
            raise UsageError(f"{self._path}: nested more than {_DEEPEST} levels deep")
        if self._values > _MOST_VALUES:
            raise UsageError(f"{self._path}: more than {_MOST_VALUES} values, aliases written out")
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.found[(*at, index)] = item.start_mark.line + 1
                self.walk(item, (*at, index))
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._key(key, at)
                self.walk(value, (*at, str(key.value)))

    def _key(self, key: yaml.Node, at: KeyPath) -> None:
        here, line = (*at, str(key.value)), key.start_mark.line + 1
        merged = key.tag == "tag:yaml.org,2002:merge"
        if not merged and key.tag != "tag:yaml.org,2002:str":
            raise UsageError(f"{self._path}:{line}: write the key {str(key.value)!r} in quotes")
        if here in self.found and not merged:
            raise UsageError(
                f"{self._path}:{line}: key {dotted(here)!r} stands here a second time, "
                f"after line {self.found[here]}"
            )
        self.found[here] = line


def _check_plain(value: object, path: Path, lines: Lines, at: KeyPath = ()) -> None:
    """Raise where *value* holds what JSON has no word for."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            _check_plain(inner, path, lines, (*at, key))
        return
    plain = value is None or isinstance(value, str | int | float)
    if plain and not (isinstance(value, float) and not math.isfinite(value)):
        return
    what = f"{value} is no number" if plain else f"a {type(value).__name__} is not read here"
    line = _line(lines, at)
    where = f"{path}:{line}" if line else str(path)
    raise UsageError(f"{where}: key {dotted(at)!r}: {what}; write it in quotes")


def _line(lines: Lines, key: KeyPath) -> int | None:
    """Return the line of *key*, or of the nearest thing that holds it."""
    return next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), None)
