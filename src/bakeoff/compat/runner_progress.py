"""How far an execution has come; may be asked from any thread."""

from threading import Lock

from bakeoff._lib.clock import monotonic
from bakeoff.compat.results import ExecutionProgress, TestResult


class ProgressBoard:
    """Counts what is started and finished."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear(0)

    def begin(self, total: int) -> None:
        """Forget the execution before; *total* tests are to come."""
        with self._lock:
            self._clear(total)

    def started(self, test_id: str) -> None:
        """Note that a test is under way."""
        with self._lock:
            self._under_way[test_id] = None

    def ended(self, result: TestResult) -> None:
        """Note that a test is finished."""
        with self._lock:
            self._under_way.pop(result.test_id, None)
            self._completed += 1
            self._successful += result.success
            self._test_s += result.execution_time

    def end(self) -> None:
        """Note that nothing more will be started or finished."""
        with self._lock:
            self._under_way.clear()
            self._over = True

    def now(self) -> ExecutionProgress:
        """Return how things stand. `current_test` is the one that was started last."""
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
