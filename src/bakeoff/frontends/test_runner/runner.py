"""The `TestRunner` class: a suite in, results out, through the same engine as the command line."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import ClassVar

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.redact import Redactor
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.threads import run_sync
from bakeoff.app.model_names import with_secrets
from bakeoff.app.options import RunOptions
from bakeoff.app.run import execute_run, new_event_loop
from bakeoff.core.candidate import Conditions, Patience
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Notice, RunEnded, TrialEnded, TrialStarted
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task
from bakeoff.formats.suite import SuiteFiles, read_suite_files
from bakeoff.formats.suite_companions import Metadata, filled, read_metadata
from bakeoff.frontends.test_runner.results import (
    ExecutionProgress,
    ProgressBoard,
    ResultFiles,
    TestResult,
    failed_result,
    result_of,
)
from bakeoff.frontends.test_runner.settings import (
    LOGGER,
    APIConfiguration,
    ApiOverride,
    Layers,
    RunnerConfig,
    close_log,
    open_log,
    read_config,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestPacing:
    """How many tests run at once, and how long to wait between two; None is what the files say."""

    workers: int | None = 1
    pause_s: float | None = 0.0


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One execution of tests; `after_each` is called for each result."""

    layers: Layers
    files: ResultFiles
    board: ProgressBoard
    redactor: Redactor = field(repr=False)
    stop: Stop
    after_each: Callable[[], None]

    def run(
        self, spec: RunSpec, unknown: Sequence[TestResult], pacing: TestPacing
    ) -> list[TestResult]:
        """Run the tests of *spec*; return the results in their order, after them the *unknown*.

        Those are the failed results of ids that the suite does not have.
        """
        self.board.begin(len(spec.tasks) + len(unknown))
        for result in unknown:
            self._count(result)
        return [*self._run(spec, pacing), *unknown]

    def _run(self, spec: RunSpec, pacing: TestPacing) -> list[TestResult]:
        results: dict[str, TestResult] = {}
        reasons: list[str] = []  # why tests have no result of their own

        def listen(event: Event) -> None:
            if isinstance(event, TrialStarted):
                self.board.started(event.trial.task.id)
            elif isinstance(event, TrialEnded) and event.last:
                result = result_of(event.trial, event.attempt)
                results[result.test_id] = result
                self._write(result)
                self._count(result)
            elif isinstance(event, Notice):
                LOGGER.info("%s", self._line(event.text))
            elif isinstance(event, RunEnded):
                reasons.extend(f"not run: {why}" for why in event.given_up)

        if not spec.tasks:
            return []
        try:
            brief = self._prepared(spec, pacing)
            output = self.layers.results_directory / "runs"
            trust = self.layers.config.suite_access.trust
            options = RunOptions(brief, output=output, listener=listen, stop=self.stop, trust=trust)
            run_sync(execute_run(options), loop_factory=new_event_loop)
        except UsageError as error:
            LOGGER.error("the tests cannot be executed: %s", self._line(error))
            reasons.append(str(error))
        for task in spec.tasks:
            if reasons and task.id not in results:
                results[task.id] = failed_result(task.id, task.name, reasons[0])
                self._count(results[task.id])
        return [results[task.id] for task in spec.tasks if task.id in results]

    def _prepared(self, spec: RunSpec, pacing: TestPacing) -> RunSpec:
        tasks = self.layers.tasks(spec.tasks)
        model = self.layers.model(tasks)
        # only for what the redactor learns: neither files nor log may tell a key
        with_secrets(model, os.environ, self.redactor)
        workers = self.layers.workers(pacing.workers)
        if pacing.workers is not None and workers < pacing.workers:
            LOGGER.warning(
                "%d workers, not %d: the metadata allows no more", workers, pacing.workers
            )
        return replace(
            spec,
            tasks=tasks,
            models=(model,),
            parallel=workers,
            pause_s=self.layers.delay_s if pacing.pause_s is None else pacing.pause_s,
            conditions=Conditions(attempts=1),  # `retry_attempts` says how often, and no more
            patience=Patience(waits=False),
        )

    def _write(self, result: TestResult) -> None:
        try:
            self.files.write(result)
        except (OSError, TypeError, ValueError) as error:
            # the ledger has it; a full disk or an odd value must not end the run
            LOGGER.error("no files for test %s: %s", self._line(result.test_id), self._line(error))

    def _count(self, result: TestResult) -> None:
        self.board.ended(result)
        self._report(result)
        self.after_each()

    def _report(self, result: TestResult) -> None:
        name = self._line(result.test_id)
        if not result.success:
            LOGGER.warning("test %s failed: %s", name, self._line(result.error_message))
        if self.layers.config.execution_defaults.progress_reporting:
            progress = self.board.now()
            LOGGER.info(
                "%d of %d tests done, %s last (%.2f s); about %.0f s left",
                progress.completed_tests,
                progress.total_tests,
                name,
                result.execution_time,
                progress.estimated_remaining_time,
            )

    def _line(self, what: object) -> str:
        return one_line(self.redactor.text(str(what)), width=500)


__all__ = ["APIConfiguration", "ExecutionProgress", "TestResult", "TestRunner"]

DEFAULT_SUITE = Path("test_definitions") / "reasoning_tests_complete.json"

ProgressCallback = Callable[[ExecutionProgress], None]


class _Default(int):
    """A default value that differs from the same number given by the caller."""


_THREE = _Default(3)


class TestRunner:
    """Flexible test execution engine for LLM benchmarking.

    Settings are looked up in this order: what is said at run time (`configure_api`, arguments),
    the test, the suite's metadata, the config file, the default. Nothing here raises for what a
    test, a server or a setting did wrong: `load_*` return False, `execute_*` return results with
    `success` False and an `error_message`, and the log (`bakeoff.test_runner`) says why. A broken
    config file, an execution after a load that failed, a second execution at the same time and a
    ledger that cannot be written do raise.

    Each result's files are in the results directory by the time its progress callback is called,
    and the run's ledger is in `runs/` there: every `bakeoff` command can read it.
    """

    __test__: ClassVar[bool] = False  # not something for pytest to collect

    def __init__(self, config_path: str | None = None) -> None:
        """Initialize TestRunner with configuration; the log settings hold for the process."""
        self._config = read_config(Path(config_path)) if config_path else RunnerConfig()
        open_log(self._config.logging)
        self._suite: SuiteFiles | None = None
        self._suite_error: str | None = None
        self._metadata = Metadata()
        self._metadata_error: str | None = None
        self._override = ApiOverride()
        self._asked: dict[str, Task] = {}
        self._redactor = Redactor()
        self._board = ProgressBoard()
        self._callbacks: list[ProgressCallback] = []
        self._lock = RLock()  # a signal handler may cancel, in the very thread that holds it
        self._running: Stop | None = None
        self.progress_callback: ProgressCallback | None = None

    def load_test_suite(self, suite_path: str) -> bool:
        """Load test suite from JSON file, with the metadata and the categories beside it.

        After a load that failed nothing can be executed, also not what was loaded before.
        """
        self._suite, self._suite_error = None, None
        try:
            self._suite = read_suite_files(Path(suite_path))
        except UsageError as error:
            self._suite_error = str(error)
            self._log_errors("no test suite loaded", error)
            return False
        self._asked.update({task.id: task for task in self._suite.run_spec.tasks})
        return True

    def load_test_metadata(self, metadata_path: str) -> bool:
        """Load suite metadata and API configuration; it wins over what the suite came with.

        After a load that failed nothing is sent to the endpoint of other files: only to the one
        that `configure_api` names.
        """
        self._metadata, self._metadata_error = Metadata(), None
        try:
            self._metadata, _ = read_metadata(Path(metadata_path))
        except UsageError as error:
            self._metadata_error = str(error)
            self._log_errors("no metadata loaded", error)
            return False
        return True

    def configure_api(
        self,
        endpoint: str,
        model: str,
        headers: dict[str, str] | None = None,
        *,
        timeout: float | None = None,
        retry_attempts: int | None = None,
        retry_delay: float | None = None,
    ) -> None:
        """Configure API connection settings, over everything that files and tests say.

        *endpoint* is a full URL (`.../chat/completions`, `.../completions`) or a base URL.
        Headers that the metadata gives for another endpoint are not sent to this one.
        """
        if not endpoint or (timeout is not None and timeout <= 0):
            raise UsageError("configure_api needs an endpoint URL, and a timeout over 0 s if any")
        self._override = ApiOverride(
            endpoint=endpoint,
            model=model,
            headers=headers,
            timeout=timeout,
            retry_attempts=retry_attempts,
            retry_delay=retry_delay,
        )

    @property
    def api_configuration(self) -> APIConfiguration | None:
        """The endpoint as it would be asked now; None where none is configured."""
        return self._layers.api if self._layers.has_api else None

    def execute_single_test(self, test_id: str) -> TestResult:
        """Execute a single test case; an unknown id is a failed result that names the near ones."""
        results = self._execute([test_id], TestPacing())
        return results[0] if results else failed_result(test_id, None, "the test was cancelled")

    def execute_sequential(
        self, test_ids: list[str] | None = None, *, delay: float | None = None
    ) -> list[TestResult]:
        """Execute tests sequentially with delays between them; the results in suite order.

        Without *test_ids*, all tests. Unknown ids come last, as failed results. After
        `cancel_execution`, only what was finished is returned.
        """
        return self._execute(test_ids, TestPacing(pause_s=delay))

    def execute_concurrent(
        self, test_ids: list[str] | None = None, workers: int = _THREE
    ) -> list[TestResult]:
        """Execute tests concurrently; the results in suite order, as `execute_sequential` does.

        Where *workers* is left out, the metadata's `default_workers` holds, then the config's
        `concurrent_workers`, then 3. The metadata's `max_workers` caps each of them.
        """
        return self._execute(test_ids, TestPacing(workers=None if workers is _THREE else workers))

    def execute_category(self, category: str, *, workers: int | None = None) -> list[TestResult]:
        """Execute all tests in a specific category, concurrently; with *workers* 1, one by one.

        A category is what `categories.json` lists under that name and every test that names it
        itself. An unknown one gives an empty list, and the log says which there are.
        """
        suite = self._loaded()
        listed = {name: set(entry.test_ids) for name, entry in suite.categories.items()}
        for task in suite.run_spec.tasks:
            if task.category:
                listed.setdefault(task.category, set()).add(task.id)
        if category not in listed:
            names = ", ".join(sorted(listed)) or "none"
            LOGGER.error("no category %r; there are: %s", self._line(category), self._line(names))
            return []
        ids = [task.id for task in suite.run_spec.tasks if task.id in listed[category]]
        if missing := listed[category].difference(ids):
            LOGGER.warning(
                "category %s lists tests that the suite does not have: %s",
                self._line(category),
                self._line(", ".join(sorted(missing))),
            )
        return self._execute(ids, TestPacing(workers=workers))

    def save_results(self, results: list[TestResult], output_dir: str | None = None) -> bool:
        """Save raw test results to files: two for each test, and one for the whole batch."""
        files = self._files(Path(output_dir) if output_dir else self._layers.results_directory)
        try:
            for result in results:
                files.write(result)
            path = files.write_batch(results)
        except (OSError, TypeError, ValueError) as error:
            LOGGER.error("the results cannot be saved: %s", self._line(error))
            return False
        LOGGER.info("%d results saved; all of them in %s", len(results), path)
        return True

    def get_progress(self) -> ExecutionProgress:
        """Get current execution progress information; from any thread, at any time."""
        return self._board.now()

    def add_progress_callback(self, callback: ProgressCallback) -> None:
        """Call *callback* after each test, as `progress_callback` is; what it raises is logged.

        It is called where the tests run, between two steps of them: it should be quick.
        """
        self._callbacks.append(callback)

    def cancel_execution(self) -> bool:
        """Cancel running execution gracefully: tests under way are finished, none is started.

        May be called from another thread or a callback. False where nothing was running.
        """
        with self._lock:
            if self._running is None:
                return False
            self._running.request()
        return True

    def close(self) -> None:
        """Close the log file; it is opened again by the next `TestRunner`."""
        close_log()

    def _execute(self, test_ids: list[str] | None, pacing: TestPacing) -> list[TestResult]:
        stop = Stop()
        with self._lock:
            if self._running is not None:
                raise UsageError("this TestRunner is executing tests already; make another one")
            self._running = stop
        try:
            spec, unknown = self._chosen(test_ids)
            execution = Execution(
                layers=self._layers,
                files=self._files(self._layers.results_directory),
                board=self._board,
                redactor=self._redactor,
                stop=stop,
                after_each=self._call_back,
            )
            return execution.run(spec, unknown, pacing)
        finally:
            self._board.end()
            with self._lock:
                self._running = None

    def _chosen(self, test_ids: list[str] | None) -> tuple[RunSpec, list[TestResult]]:
        """Return the chosen tests in suite order, and a failed result for each unknown id."""
        brief = self._loaded().run_spec
        if test_ids is None:
            return brief, []
        chosen, known = set(test_ids), {task.id: task for task in brief.tasks}
        unknown = [
            failed_result(
                test_id, None, f"no test {test_id!r}; {did_you_mean(test_id, [*known][:100])}"
            )
            for test_id in dict.fromkeys(test_ids)
            if test_id not in known
        ]
        tasks = tuple(task for task in brief.tasks if task.id in chosen)
        return replace(brief, tasks=tasks), unknown

    def _call_back(self) -> None:
        progress = self._board.now()
        for callback in (self.progress_callback, *self._callbacks):
            try:
                if callback is not None:
                    callback(progress)
            except Exception:  # noqa: BLE001 -- it is somebody else's code
                LOGGER.exception("a progress callback failed; the run goes on")

    @property
    def _layers(self) -> Layers:
        below = self._suite.metadata if self._suite else Metadata()
        return Layers(
            config=self._config,
            metadata=filled(self._metadata, below),
            override=self._override,
            own_endpoint=self._metadata.api_config is not None,
        )

    def _loaded(self) -> SuiteFiles:
        """Return the loaded suite; the default one where `load_test_suite` was never called."""
        if self._suite is None and self._suite_error is None:
            self.load_test_suite(str(DEFAULT_SUITE))
        if self._suite is None:
            raise UsageError(
                f"no test suite is loaded, so nothing was executed: {self._suite_error}; "
                "call load_test_suite with a suite for which it returns True"
            )
        if self._metadata_error is not None and not self._override.endpoint:
            raise UsageError(
                f"the metadata was not loaded, so nothing was executed: {self._metadata_error}; call "
                "load_test_metadata with a file for which it returns True, or configure_api"
            )
        return self._suite

    def _files(self, folder: Path) -> ResultFiles:
        return ResultFiles(
            folder=folder,
            style=self._config.output_settings,
            save_raw=self._layers.save_raw,
            tasks=self._asked,
            sends_prompt=self._layers.sends_prompt,
            redactor=self._redactor,
        )

    def _log_errors(self, what: str, error: UsageError) -> None:
        """Log each problem of a file on a line of its own."""
        for problem in error.problems:
            LOGGER.error("%s: %s", what, self._line(problem))

    def _line(self, what: object) -> str:
        return one_line(self._redactor.text(str(what)), width=500)
