"""`models_config.yaml`: models with their settings, categories of them, and how a batch is run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import digest_bytes
from bakeoff.core.candidate import TRANSPORT_SETTINGS, EndpointLimits, ModelSpec, Origin
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Source
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.values import Json
from bakeoff.formats.text.convert import convert
from bakeoff.formats.text.entries import Endpoints, check_parameters, endpoint_limits
from bakeoff.formats.text.yaml import parse_yaml

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
    max_parallel: Annotated[int, Meta(ge=1)] = 8
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
    endpoints: Endpoints | None = None


@dataclass(frozen=True, kw_only=True)
class ModelsConfig:
    """What the file says; `models` are the enabled ones, `disabled` the names of the others.

    `disabled_as` are all names of those that a user may write. `shown` is its path as given.
    """

    source: Source
    shown: str
    models: tuple[ModelSpec, ...] = ()
    disabled: tuple[str, ...] = ()
    disabled_as: tuple[str, ...] = ()
    batch: BatchSettings = field(default_factory=BatchSettings)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    endpoints: Mapping[str, EndpointLimits] = field(default_factory=dict)


def read_models_file(path: Path) -> ModelsConfig:
    """Return the content of *path*; a mistake is reported with its line and the nearest valid key."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    value, line_of = parse_yaml(data, source=str(path))
    file = convert(value, _File, source=str(path), line_of=line_of)
    entries = file.models or []
    for number, entry in enumerate(entries):
        where = SourceLocation(file=str(path), key=("models", number, "settings"))
        check_parameters(entry.settings or {}, at=where)
    return ModelsConfig(
        source=Source(path=str(path.resolve()), digest=digest_bytes(data)),
        shown=str(path),
        models=tuple(
            replace(_spec(entry), origin=Origin.at(path, line_of(("models", number))))
            for number, entry in enumerate(entries)
            if entry.enabled
        ),
        disabled=tuple(entry.display_name or entry.name for entry in entries if not entry.enabled),
        disabled_as=tuple(
            dict.fromkeys(n for entry in entries if not entry.enabled for n in _names(entry))
        ),
        batch=file.batch_settings or BatchSettings(),
        categories={name: tuple(names or ()) for name, names in (file.categories or {}).items()},
        endpoints=endpoint_limits(file.endpoints),
    )


def _names(entry: ModelEntry) -> list[str]:
    full_name = f"{entry.provider}/{entry.name}" if entry.provider else None
    return [name for name in (entry.display_name, entry.name, full_name) if name]


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
