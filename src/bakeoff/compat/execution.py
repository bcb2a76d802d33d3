"""One call of `execute_*`: tests into the engine, results out as they come."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bakeoff import api
from bakeoff._lib.redact import Redactor
from bakeoff._lib.untrusted import one_line
from bakeoff.api.model_names import with_secrets
from bakeoff.compat.result_files import ResultFiles
from bakeoff.compat.results import TestResult, failed_result, result_of
from bakeoff.compat.runner_log import LOGGER
from bakeoff.compat.runner_progress import ProgressBoard
from bakeoff.compat.runner_settings import Layers
from bakeoff.core.brief import Brief
from bakeoff.core.candidate import Conditions
from bakeoff.core.endpoint import Patience
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Notice, RunEnded, TrialEnded, TrialStarted
from bakeoff.core.stop import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many tests run at once, and how long to wait between two; None is what the files say."""

    workers: int | None = 1
    pause_s: float | None = 0.0


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What one execution works with; `after_each` is called when a result is counted."""

    layers: Layers
    files: ResultFiles
    board: ProgressBoard
    redactor: Redactor = field(repr=False)
    stop: Stop
    after_each: Callable[[], None]

    def run(self, wanted: Brief, strangers: Sequence[TestResult], pace: Pace) -> list[TestResult]:
        """Run the tests of *wanted*; the results in their order, after them the *strangers*.

        Strangers are ids that the suite does not have: they failed before anything was run.
        """
        self.board.begin(len(wanted.tasks) + len(strangers))
        for result in strangers:
            self._count(result)
        return [*self._run(wanted, pace), *strangers]

    def _run(self, wanted: Brief, pace: Pace) -> list[TestResult]:
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

        if not wanted.tasks:
            return []
        try:
            brief = self._prepared(wanted, pace)
            output = self.layers.results_directory / "runs"
            trust = self.layers.config.suite_access.trust
            api.run(brief, output=output, listener=listen, stop=self.stop, trust=trust)
        except UsageError as error:
            LOGGER.error("the tests cannot be executed: %s", self._line(error))
            reasons.append(str(error))
        for task in wanted.tasks:
            if reasons and task.id not in results:
                results[task.id] = failed_result(task.id, task.name, reasons[0])
                self._count(results[task.id])
        return [results[task.id] for task in wanted.tasks if task.id in results]

    def _prepared(self, wanted: Brief, pace: Pace) -> Brief:
        tasks = self.layers.tasks(wanted.tasks)
        model = self.layers.model(tasks)
        # only for what the redactor learns: neither files nor log may tell a key
        with_secrets(model, os.environ, self.redactor)
        workers = self.layers.workers(pace.workers)
        if pace.workers is not None and workers < pace.workers:
            LOGGER.warning("%d workers, not %d: the metadata allows no more", workers, pace.workers)
        return replace(
            wanted,
            tasks=tasks,
            models=(model,),
            parallel=workers,
            pause_s=self.layers.delay_s if pace.pause_s is None else pace.pause_s,
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
