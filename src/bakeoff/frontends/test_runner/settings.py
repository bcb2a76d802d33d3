"""The settings of `TestRunner`: its config file, the log that it sets up, and which setting holds."""

import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from bakeoff._lib import files
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.redact import public_url
from bakeoff._lib.sanitize import for_terminal
from bakeoff.app.known_secrets import variables_of
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Task
from bakeoff.formats.suite_companions import API_TYPES, ApiConfig, Metadata, model_of
from bakeoff.formats.text.convert import convert
from bakeoff.formats.text.json import read_json
from bakeoff.formats.text.locate import line_in, shown

TEMPLATE_FIELD = re.compile(r"\{([^{}]*)\}")
TEMPLATE_FIELDS = ("test_id", "timestamp", "model", "category")
_GRACE_S = 5.0  # the test's own limit must strike first: it says whose time ran out

T = TypeVar("T")


class ApiDefaults(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Defaults for requests to the endpoint; seconds.

    `timeout` bounds a test with all its tries. `retry_attempts` are further tries after the first.
    """

    timeout: Annotated[float, Meta(gt=0)] = 600.0
    retry_attempts: Annotated[int, Meta(ge=0)] = 3
    retry_delay: Annotated[float, Meta(ge=0)] = 1.0
    retry_backoff: Annotated[float, Meta(ge=1)] = 1.5


class ExecutionDefaults(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How tests follow each other. `progress_reporting` is a log line for every test."""

    sequential_delay: Annotated[float, Meta(ge=0)] = 1.0
    concurrent_workers: Annotated[int, Meta(ge=1)] = 3
    progress_reporting: bool = True
    save_raw_responses: bool = True


class OutputSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What is written, and where. Without a template, a result is `<test id>_result.json`."""

    results_directory: str = "test_results"
    filename_template: str | None = None
    include_metadata: bool = True
    pretty_print: bool = True


class SuiteAccess(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What a suite, and the metadata that lies beside it, may do: they may be somebody else's.

    `allow_env` are the environment variables that its `api_config` may read as `${NAME}`. With `trust`
    it may name Python of its own (`module:attr`) as a scorer.
    """

    allow_env: tuple[str, ...] = ()
    trust: bool = False


class LoggingSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The logger `bakeoff.test_runner`; without a file, it writes to standard error."""

    level: str = "INFO"
    format: str = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"
    file: str | None = None


class RunnerConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The whole file: every table and key is optional, and an unknown one is an error."""

    api_defaults: ApiDefaults = ApiDefaults()
    execution_defaults: ExecutionDefaults = ExecutionDefaults()
    output_settings: OutputSettings = OutputSettings()
    suite_access: SuiteAccess = SuiteAccess()
    logging: LoggingSettings = LoggingSettings()


def read_config(path: Path) -> RunnerConfig:
    """Return the config at *path*; an error names the key and the nearest right one."""
    data, _ = read_json(path)
    config = convert(data, RunnerConfig, source=str(path), line_of=partial(line_in, path))
    at = SourceLocation(file=str(path))
    _check_logging(config.logging, at.inside("logging"))
    if config.output_settings.filename_template is not None:
        where = at.inside("output_settings", "filename_template")
        _check_template(config.output_settings.filename_template, where)
    return config


def _check_logging(settings: LoggingSettings, at: SourceLocation) -> None:
    levels = logging.getLevelNamesMapping()
    if settings.level.upper() not in levels:
        hint = did_you_mean(settings.level.upper(), levels)
        where = f"{shown(at.inside('level'))}: key 'logging.level'"
        raise UsageError(f"{where}: no level {settings.level!r}; {hint}")
    try:
        logging.Formatter(settings.format)
    except ValueError as error:
        where = f"{shown(at.inside('format'))}: key 'logging.format'"
        raise UsageError(f"{where}: {error}") from error


def _check_template(template: str, at: SourceLocation) -> None:
    if fault := _template_fault(template):
        where = f"{shown(at)}: key 'output_settings.filename_template'"
        raise UsageError(f"{where}: {template!r} {fault}")


def _template_fault(template: str) -> str | None:
    used = TEMPLATE_FIELD.findall(template)
    for name in used:
        if name not in TEMPLATE_FIELDS:
            return f"has a field {name!r}; {did_you_mean(name, TEMPLATE_FIELDS)}"
    if "test_id" not in used:
        return "must have {test_id} in it, or results would share a file"
    if not template.endswith(".json"):
        return "must end in .json"
    path = PurePosixPath(template.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in template or ":" in template:
        return "must stay inside the results directory"
    return None


# --- the log --------------------------------------------------------------------------------------


LOGGER = logging.getLogger("bakeoff.test_runner")


class _LogFile(logging.FileHandler):
    """The file that the config names."""


class _Console(logging.Handler):
    """Standard error, but only where the application has set up no logging of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        if logging.getLogger().handlers or sys.stderr is None:
            return
        try:
            sys.stderr.write(for_terminal(self.format(record)) + "\n")
        except (OSError, ValueError):
            self.handleError(record)


def open_log(settings: LoggingSettings) -> None:
    """Set up the logger as *settings* say; what an earlier call opened is closed."""
    handlers: list[logging.Handler] = [_Console()]
    if settings.file:
        handlers.append(_open_file(Path(settings.file)))
    close_log()
    for handler in handlers:
        handler.setFormatter(logging.Formatter(settings.format))
        LOGGER.addHandler(handler)
    LOGGER.setLevel(settings.level.upper())


def close_log() -> None:
    """Close what `open_log` opened."""
    for handler in list(LOGGER.handlers):
        if isinstance(handler, _LogFile | _Console):
            LOGGER.removeHandler(handler)
            handler.close()


def _open_file(path: Path) -> _LogFile:
    try:
        files.make_folder(path.parent)
        files.make_file(path)
        return _LogFile(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"the log file {path} cannot be opened: {error.strerror}") from error


# --- which setting holds: runtime override > test > metadata > config file > default --------------


@dataclass
class APIConfiguration:
    """Container for API configuration; times in seconds."""

    endpoint: str
    model: str
    headers: dict[str, str] = field(repr=False)  # there may be a key in them
    timeout: float
    retry_attempts: int
    retry_delay: float


@dataclass(frozen=True, kw_only=True)
class ApiOverride:
    """The arguments of `configure_api`; empty where it was never called."""

    endpoint: str = ""
    model: str = ""
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    timeout: float | None = None
    retry_attempts: int | None = None
    retry_delay: float | None = None


@dataclass(frozen=True, kw_only=True)
class Layers:
    """All settings, from the weakest to the strongest.

    `own_endpoint` is whether the operator named the file with the `api_config`, and not the suite.
    """

    config: RunnerConfig
    metadata: Metadata
    override: ApiOverride
    own_endpoint: bool = False

    @property
    def api(self) -> APIConfiguration:
        """The endpoint as it will be asked."""
        api, defaults = self._endpoint, self.config.api_defaults
        retries = self.metadata.global_settings.default_retry_attempts
        return APIConfiguration(
            endpoint=api.endpoint,
            model=api.model,
            headers=dict(api.headers),
            timeout=self._timeout(None),
            retry_attempts=_first(self.override.retry_attempts, retries, defaults.retry_attempts),
            retry_delay=_first(self.override.retry_delay, defaults.retry_delay),
        )

    @property
    def has_api(self) -> bool:
        """Whether an endpoint is configured."""
        return bool(self.override.endpoint or self.metadata.api_config)

    @property
    def delay_s(self) -> float:
        """How long to wait between two tests that run one after the other."""
        in_metadata = self.metadata.global_settings.delay_between_tests
        return _first(in_metadata, self.config.execution_defaults.sequential_delay)

    @property
    def results_directory(self) -> Path:
        """Where results are written during an execution."""
        in_metadata = self.metadata.global_settings.output_directory
        return Path(_first(in_metadata, self.config.output_settings.results_directory))

    @property
    def save_raw(self) -> bool:
        """Whether the API's own JSON is kept."""
        in_metadata = self.metadata.global_settings.save_raw_responses
        return _first(in_metadata, self.config.execution_defaults.save_raw_responses)

    @property
    def most_workers(self) -> int | None:
        """The upper limit for workers."""
        return self.metadata.execution_modes.concurrent.max_workers

    def workers(self, wish: int | None) -> int:
        """Return how many tests run at once where *wish* was asked for."""
        in_metadata = self.metadata.execution_modes.concurrent.default_workers
        workers = _first(wish, in_metadata, self.config.execution_defaults.concurrent_workers)
        if workers < 1:
            raise UsageError(f"workers must be 1 or more, not {workers}")
        return min(workers, self.most_workers or workers)

    def tasks(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """Return *tasks*, each with the time it has."""
        return tuple(replace(t, time_s=self._timeout(_own_timeout(t))) for t in tasks)

    def model(self, tasks: Sequence[Task]) -> ModelSpec:
        """Return the model that is to answer *tasks*, which have their times."""
        api = self.api
        spec = model_of(self._endpoint, self.metadata.global_settings)
        settings = {
            **spec.settings,
            "timeout_s": max((t.time_s or 0.0 for t in tasks), default=0.0) + _GRACE_S,
            "max_retries": api.retry_attempts,
            "retry_delay_s": api.retry_delay,
            "retry_backoff": self.config.api_defaults.retry_backoff,
            "keep_raw": self.save_raw,
        }
        spec = replace(spec, settings=settings)
        return replace(spec, may_read=None) if self._is_own else self._allowed(spec)

    def _allowed(self, spec: ModelSpec) -> ModelSpec:
        """Return a model that the suite names; raise where it wants a variable that is not allowed."""
        allowed = self.config.suite_access.allow_env
        if refused := [name for name in variables_of(spec) if name not in allowed]:
            raise UsageError(
                f"the suite wants the value of your environment variable {refused[0]} for its own "
                f"endpoint, {public_url(spec.base_url or '')}; if that is right, allow it with "
                f'"suite_access": {{"allow_env": ["{refused[0]}"]}} in the config of TestRunner, or '
                "name the file yourself with load_test_metadata"
            )
        return replace(spec, may_read=allowed)

    @property
    def _is_own(self) -> bool:
        """Whether the endpoint and its credentials come from the operator, not from the suite."""
        known, override = self.metadata.api_config, self.override
        if self.own_endpoint or not (known and override.endpoint):
            return self.own_endpoint or bool(override.endpoint)
        return known.endpoint != override.endpoint or override.headers is not None

    def sends_prompt(self, task: Task) -> bool:
        """Whether *task* is sent to a completions API, which takes one text."""
        # here: it brings an HTTP client along
        from bakeoff.models.adapters.openai_compatible import Endpoint, first_api

        if not self.has_api:
            return False
        api = self._endpoint
        named = api.type if api.type in API_TYPES else None
        wishes = (task.api_type, named, Endpoint.of(api.endpoint).api_type)
        return first_api(*wishes) == "completions"

    @property
    def _endpoint(self) -> ApiConfig:
        known, override = self.metadata.api_config, self.override
        if not override.endpoint:
            if known is None:
                raise UsageError(
                    "no API is configured: call configure_api(endpoint, model), or load metadata "
                    "with an `api_config`"
                )
            return known
        if known is not None and known.endpoint == override.endpoint:
            if override.headers is None:
                return msgspec.structs.replace(known, model=override.model)
            # headers of the operator's stand for whatever a suite would have sent
            key = known.api_key if self.own_endpoint else None
            return msgspec.structs.replace(
                known, model=override.model, headers=dict(override.headers), api_key=key
            )
        # another server: keys and headers meant for the first one are not sent to it
        named = override.endpoint.rstrip("/").endswith("/completions")
        return ApiConfig(
            endpoint=override.endpoint,
            model=override.model,
            headers=dict(override.headers or {}),
            type=known.type if known and not named else None,
        )

    def _timeout(self, own: float | None) -> float:
        api = self.metadata.api_config
        return _first(
            self.override.timeout,
            own,
            self.metadata.global_settings.default_timeout_seconds,
            api.timeout if api else None,
            self.config.api_defaults.timeout,
        )


def _own_timeout(task: Task) -> float | None:
    return task.time_s if task.metadata.get("timeout_seconds") is not None else None


def _first(*values: T | None) -> T:
    """Return the first value that is set; the last one always is."""
    return next(value for value in values if value is not None)
