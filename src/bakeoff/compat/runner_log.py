"""The log of the `TestRunner` class: one named logger, never the root."""

import logging
import sys
from pathlib import Path

from bakeoff._lib import private
from bakeoff._lib.untrusted import for_terminal
from bakeoff.compat.runner_config import LoggingSettings
from bakeoff.core.errors import UsageError

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
    """Let the logger speak as *settings* say; whatever an earlier call opened is closed."""
    handlers: list[logging.Handler] = [_Console()]
    if settings.file:
        handlers.append(_open_file(Path(settings.file)))
    close_log()
    for handler in handlers:
        handler.setFormatter(logging.Formatter(settings.format))
        LOGGER.addHandler(handler)
    LOGGER.setLevel(settings.level.upper())


def close_log() -> None:
    """Take back and close what `open_log` opened."""
    for handler in list(LOGGER.handlers):
        if isinstance(handler, _LogFile | _Console):
            LOGGER.removeHandler(handler)
            handler.close()


def _open_file(path: Path) -> _LogFile:
    try:
        private.make_folder(path.parent)
        private.make_file(path)
        return _LogFile(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"the log file {path} cannot be opened: {error.strerror}") from error
