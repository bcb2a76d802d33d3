"""`test_runner_config.json`: its keys and their defaults; and the log that it sets up."""

import logging
import re
import sys
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib import files
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.sanitize import for_terminal
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.formats.text.convert import convert
from bakeoff.formats.text.json import read_json
from bakeoff.formats.text.locate import line_in, shown

TEMPLATE_FIELD = re.compile(r"\{([^{}]*)\}")
TEMPLATE_FIELDS = ("test_id", "timestamp", "model", "category")


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
