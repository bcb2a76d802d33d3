"""The progress of an execution, readable from any thread, and its log."""

import logging
import sys
from pathlib import Path
from threading import Lock

from bakeoff._lib import files
from bakeoff._lib.clock import monotonic
from bakeoff._lib.sanitize import for_terminal
from bakeoff.core.errors import UsageError
from bakeoff.frontends.test_runner.config import LoggingSettings
from bakeoff.frontends.test_runner.results import ExecutionProgress, TestResult


class ProgressBoard:
    """Counts what is started and finished."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear(0)

    def begin(self, total: int) -> None:
        """Start counting an execution of *total* tests."""
        with self._lock:
            self._clear(total)

    def started(self, test_id: str) -> None:
        """Count a test that starts."""
        with self._lock:
            self._under_way[test_id] = None

    def ended(self, result: TestResult) -> None:
        """Count a test that is finished."""
        with self._lock:
            self._under_way.pop(result.test_id, None)
            self._completed += 1
            self._successful += result.success
            self._test_s += result.execution_time

    def end(self) -> None:
        """End the execution."""
        with self._lock:
            self._under_way.clear()
            self._over = True

    def now(self) -> ExecutionProgress:
        """Return the progress so far; `current_test` is the test that was started last."""
        with self._lock:
            done = self._completed
            left = 0 if self._over else self._total - done
            # by the clock on the wall: it knows of pauses and of tests that run side by side
            pace_s = (monotonic() - self._began) / done if done else 0.0
            return ExecutionProgress(
                total_tests=self._total,
                completed_tests=done,
                successful_tests=self._successful,
                failed_tests=done - self._successful,
                current_test=next(reversed(self._under_way), None),
                estimated_remaining_time=left * pace_s,
                average_execution_time=self._test_s / done if done else 0.0,
            )

    def _clear(self, total: int) -> None:
        self._total = total
        self._completed = 0
        self._successful = 0
        self._test_s = 0.0
        self._under_way: dict[str, None] = {}
        self._over = False
        self._began = monotonic()


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
