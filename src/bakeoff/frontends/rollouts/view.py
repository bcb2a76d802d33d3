"""The folders and files of a rollout, written as trials end, and the lines on the terminal.

Every file can be deleted and made again from the ledger.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import msgspec

from bakeoff._lib import files as private
from bakeoff._lib.clock import monotonic, now
from bakeoff._lib.files import write_atomic
from bakeoff._lib.sanitize import for_terminal, one_line, well_formed
from bakeoff.app.run_results import Run
from bakeoff.core.errors import LedgerError, UsageError
from bakeoff.core.events import (
    Event,
    Notice,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialOutput,
    TrialStarted,
)
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, TrialRecord, pass_rule
from bakeoff.core.values import Json
from bakeoff.frontends.rollouts import record
from bakeoff.frontends.rollouts.folders import Rollout
from bakeoff.frontends.rollouts.record import RunOfTask, line_of, status_of
from bakeoff.frontends.rollouts.summary import RolloutFindings, scoring_page, summary_page
from bakeoff.frontends.session import View, pretty_json
from bakeoff.reports.artifacts import patch_files
from bakeoff.stats.by_task import by_task
from bakeoff.stores.writing import FolderLock

MANIFEST = "manifest.json"
_RUN_IDS = "run_ids.json"
_STALE = (
    "evaluation_results.json",
    "artifacts/diff.patch",
    "artifacts/outside_repository.patch",
)
_LEAST_S = 0.2  # between two versions of the manifest
_SHARE = 20  # of the time, at most so small a part goes into writing it


class RolloutView:
    """Writes the files of one rollout: as its run goes, or all of them from the ledger."""

    def __init__(
        self, rollout: Rollout, *, config: str | None, name: str, parallel: int = 1
    ) -> None:
        self.rollout = rollout
        self.config = config
        self.name = name
        self.parallel = parallel
        self._ids: dict[str, str] = {}
        self._trials: dict[str, Trial] = {}
        self._entries: dict[str, dict[str, Json]] = {}  # by run id; only what the manifest says
        self._written = monotonic()
        self._pause_s = _LEAST_S
        self._later: asyncio.TimerHandle | None = None

    def __call__(self, event: Event) -> None:
        """Write what *event* changes."""
        if isinstance(event, RunStarted):
            self.rebuild()
        elif isinstance(event, TrialStarted):
            self._put(self._run_of(event.trial))
            self._write_soon()
        elif isinstance(event, TrialEnded) and event.last:
            # as the ledger has it, without the secrets that the live one may still hold
            attempts = Run(self.rollout.ledger).attempts(event.trial.name)
            self._put(self._of_record(attempts[-1]))
            self._write_soon()
        elif isinstance(event, RunEnded):
            self.finish()

    def run_id(self, trial: Trial) -> str:
        """Return the id of the run that *trial* is."""
        return self._ids[trial.name]

    def rebuild(self) -> None:
        """Write every file from the ledger."""
        run = self._planned()
        self._entries = {}
        for trial_record in run.trials():
            self._put(self._of_record(trial_record))
        with _writing(self.rollout.folder):
            _write(self.rollout.index, _json(self._index()))
        self.finish()

    def refresh(self) -> None:
        """Write every file from the ledger, unless another process is writing them now."""
        try:
            lock = FolderLock(self.rollout.ledger)
        except UsageError:
            self._planned()
            return
        try:
            self.rebuild()
        finally:
            lock.release()

    def _planned(self) -> Run:
        """Return the run, with every trial of its plan numbered."""
        run = Run(self.rollout.ledger)
        self._trials = {trial.name: trial for trial in run.plan}
        self._ids = self._numbered()
        return run

    def finish(self) -> None:
        """Write the files about the rollout as a whole."""
        if self._later is not None:
            self._later.cancel()
        self._write_manifest()
        with _writing(self.rollout.folder):
            _write(self.rollout.folder / "eval_manifest.json", _json(self._eval_manifest()))
            _write(self.rollout.folder / "summary.md", summary_page(self.findings()))

    def counts(self) -> dict[str, int]:
        """Return how many runs ended in which way, in the order in which a person wants to know."""
        ways = Counter(str(entry["status"]) for entry in self._entries.values())
        return {status: ways[status] for status in record.STATUSES if ways[status]}

    def findings(self) -> RolloutFindings:
        """Return the results of the rollout."""
        run = Run(self.rollout.ledger)
        lines = {self._ids[t.name]: line_of(self._of_record(t)) for t in run.trials()}
        return RolloutFindings(
            name=self.name,
            stamp=self.rollout.stamp,
            config=self.config,
            summary=run.summary(),
            cells=by_task(run.plan, run.rows()),
            runs=[lines[run_id] for run_id in self._ids.values() if run_id in lines],
        )

    def _numbered(self) -> dict[str, str]:
        """Return the run id of each trial; ids of an earlier session stay."""
        path = self.rollout.folder / _RUN_IDS
        known = _ids_before(path)
        stamp = self.rollout.stamp
        for name in self._trials:
            known.setdefault(name, f"{stamp}-{len(known)}")
        with _writing(self.rollout.folder):
            _write(path, _json(known))
        return {name: known[name] for name in self._trials}

    def _run_of(self, trial: Trial) -> RunOfTask:
        run_id = self._ids[trial.name]
        return RunOfTask(
            run_id=run_id, run_dir=str(self.rollout.run_dir(run_id)), trial=self._trials[trial.name]
        )

    def _of_record(self, trial_record: TrialRecord) -> RunOfTask:
        trial = self._trials[trial_record.name]
        return replace(self._run_of(trial), attempt=trial_record.attempt)

    def _put(self, run: RunOfTask) -> None:
        """Keep *run*, and write its files."""
        self._entries[run.run_id] = record.manifest_entry(run)
        folder = Path(run.run_dir)
        with _writing(folder):
            files = dict(self._files(run))
            for path, text in files.items():
                _write(folder / path, text)
            if run.attempt is None:
                return
            for stale in _STALE:
                if stale not in files:  # of a verdict that no longer holds
                    (folder / stale).unlink(missing_ok=True)
            _write(
                self.rollout.folder / "task_results" / f"{run.run_id}.json",
                _json(record.results(run)),
            )

    def _files(self, run: RunOfTask) -> Iterator[tuple[str, str]]:
        about = record.metadata(run, rollout_dir=str(self.rollout.folder), config=self.config)
        yield "metadata.json", _json(about)
        yield "artifacts/repo_info.json", _json(record.repo_info(run))
        attempt = run.attempt
        if attempt is None:
            return
        yield "results.json", _json(record.results(run))
        yield "scoring_results.md", scoring_page(run)
        yield "logs/eval.log", _eval_log(run)
        if attempt.scores:
            yield "evaluation_results.json", _json(record.evaluation_results(run))
        outcome = attempt.outcome
        if outcome is None:
            return
        yield "artifacts/notes.md", f"{outcome.answer}\n"
        if run.whole_patch is not None:
            for name, text in patch_files(run.task, run.whole_patch):
                yield f"artifacts/{name}", text
        if outcome.transcript:
            lines = (msgspec.json.encode(message).decode() for message in outcome.transcript)
            yield "artifacts/transcript.jsonl", "\n".join(lines) + "\n"
        if outcome.log:
            yield "logs/agent.log", outcome.log

    def _write_soon(self) -> None:
        """Write the manifest now, or soon: many trials that end at once make one version of it."""
        due = self._written + self._pause_s - monotonic()
        if due <= 0:
            self._write_manifest()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(due, self._write_late)

    def _write_late(self) -> None:
        try:
            self._write_manifest()
        except LedgerError:
            self._later = None  # the next event tries again, where somebody hears of it

    def _write_manifest(self) -> None:
        began = monotonic()
        with _writing(self.rollout.folder):
            _write(self.rollout.folder / MANIFEST, _json(self._manifest()))
            dirs = (f"{entry['run_dir']}\n" for entry in self._in_order())
            _write(self.rollout.folder / "runs.txt", "".join(dirs))
        self._later = None
        self._written = monotonic()
        self._pause_s = max(_LEAST_S, _SHARE * (self._written - began))

    def _in_order(self) -> Iterator[dict[str, Json]]:
        return (self._entries[i] for i in self._ids.values() if i in self._entries)

    def _manifest(self) -> dict[str, Json]:
        return {
            "config": self.config,
            "name": self.name,
            "created_at": self.rollout.stamp,
            "parallel": self.parallel,
            "planned": len(self._ids),
            "results": list(self._in_order()),
        }

    def _eval_manifest(self) -> dict[str, Json]:
        keys = ("run_id", "run_dir", "task_dir", "model", "status")
        return {
            "name": self.name,
            "rollout_dir": str(self.rollout.folder),
            "evaluated_at": now().isoformat(),
            "results": [
                {**{key: entry[key] for key in keys}, "total_score": entry["score"]}
                for entry in self._in_order()
                if entry["status"] != record.LAUNCHED
            ],
        }

    def _index(self) -> dict[str, Json]:
        dirs: dict[str, Json] = {}
        for trial in self._trials.values():
            dirs[str(trial.task.metadata.get("task_dir", trial.task.id))] = None
        return {
            "created_at": self.rollout.stamp,
            "rollout_dir": str(self.rollout.folder),
            "runs": [str(self.rollout.run_dir(run_id)) for run_id in self._ids.values()],
            "tasks": list(dirs),
        }


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise an error that names *folder* where it cannot be written; the ledger has the trials."""
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"{folder} cannot be written: {error.strerror}; the trials are kept: make "
            "room there, then resume the rollout"
        ) from error


def _write(path: Path, text: str) -> None:
    """Write *text* atomically, unless the file holds it already."""
    data = well_formed(text).encode()
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        private.make_folder(path.parent)
    write_atomic(path, data, durable=False)  # the ledger has it


def _json(data: Mapping[str, Json]) -> str:
    return pretty_json(data).decode()


def _eval_log(run: RunOfTask) -> str:
    """Return what happened when the work was graded, and why it was not."""
    attempt = run.attempt
    lines = [f"run {run.run_id}: {run.trial.name}", f"status: {run.status}"]
    if attempt is not None:
        took = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in attempt.phases.items())
        lines += [f"attempt: {attempt.number}", f"phases: {took or 'none'}"]
        if attempt.fault is not None:
            lines.append(f"fault ({attempt.fault.boundary}): {attempt.fault.message}")
        for score in attempt.scores:
            lines.append(f"scorer {score.label}: {score.value}")
            if score.explanation:
                lines.append(score.explanation)
            if isinstance(output := score.details.get("output"), str):
                lines.append(output)
    for path, test in run.test_results.items():
        how = "passed" if test.get("success") else "failed"
        lines += [f"--- {path}: {how}", str(test.get("output") or "").rstrip("\n")]
    return "\n".join(lines) + "\n"


def _ids_before(path: Path) -> dict[str, str]:
    """Read the run ids by trial; none where there is no file yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}; delete it to number the runs again"
        ) from error


QUIET, PROGRESS, EVERYTHING = range(3)
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_S = 0.1
_CLEAR = "\r\x1b[K"


class Console(View):
    """Writes to *out*; with a spinner where *out* is a terminal and nothing else is asked for."""

    def __init__(self, view: RolloutView, out: TextIO, *, verbosity: int) -> None:
        self._view = view
        self._out = out
        self._verbosity = verbosity
        self._spins = verbosity == QUIET and out.isatty()
        self._frame = 0
        self._timer: asyncio.TimerHandle | None = None
        self.planned = self.done = 0
        self._first_with: dict[str, str] = {}  # fault message -> the first run that had it

    def say(self, text: str) -> None:
        """Write one line, without terminal control sequences."""
        start = _CLEAR if self._timer is not None else ""
        self._out.write(f"{start}{for_terminal(text)}\n")
        self._out.flush()

    def __call__(self, event: Event) -> None:
        """Write what a person should know of *event*."""
        if isinstance(event, RunStarted):
            self._started(event)
        elif isinstance(event, TrialStarted) and self._verbosity >= PROGRESS:
            self.say(f"[rollouts] launched {self._view.run_id(event.trial)}: {_what(event.trial)}")
        elif isinstance(event, TrialOutput):
            self._print_output(event.trial, event.text)
        elif isinstance(event, TrialEnded):
            for score in event.attempt.scores:
                self._print_output(event.trial, "\n".join(_printed(score.details)))
            self._ended(event.trial, event.attempt, last=event.last)
        elif isinstance(event, Notice):
            self.say(f"[rollouts] {one_line(event.text, width=500)}")
        elif isinstance(event, RunEnded):
            self.close()
            self._print_counts()

    def close(self) -> None:
        """Stop the spinner and leave the line clean."""
        if self._timer is not None:
            self._timer.cancel()
            self._out.write(_CLEAR)
            self._out.flush()
            self._timer = None

    def _started(self, event: RunStarted) -> None:
        self.planned, self.done = event.planned, event.finished_before
        due = event.planned - event.finished_before
        before = f" ({event.finished_before} are done)" if event.finished_before else ""
        self.say(f"[rollouts] Starting {due} tasks with parallel={self._view.parallel}{before}")
        if self._spins:
            self._spin()

    def _spin(self) -> None:
        frame = _FRAMES[self._frame % len(_FRAMES)]
        self._frame += 1
        self._out.write(f"{_CLEAR}{frame} Running tasks... {self.done}/{self.planned} completed")
        self._out.flush()
        self._timer = asyncio.get_running_loop().call_later(_FRAME_S, self._spin)

    def _print_output(self, trial: Trial, text: str) -> None:
        if self._verbosity >= EVERYTHING:
            for line in text.splitlines():
                self.say(f"[{self._view.run_id(trial)}] {line}")

    def _ended(self, trial: Trial, attempt: Attempt, *, last: bool) -> None:
        if not last:
            if self._verbosity >= PROGRESS:
                why = one_line(attempt.fault.message if attempt.fault else "", width=300)
                self.say(f"[rollouts] {self._view.run_id(trial)} is tried again: {why}")
            return
        self.done += attempt.status.final
        run_id, status = self._view.run_id(trial), status_of(attempt)
        score = "" if attempt.score is None else f", score {attempt.score:.3f}"
        rule = pass_rule([trial.task])
        about = f" ({rule})" if rule and attempt.score is not None else ""
        if self._verbosity >= PROGRESS:
            took = f"{attempt.elapsed_s:.1f} s"
            self.say(
                f"[rollouts] {self.done}/{self.planned} completed: {run_id} "
                f"{status}{score}{about}, {took}{self._why(run_id, attempt)}"
            )
            return
        mark = "✓" if attempt.passed else "✗"
        self.say(
            f"{mark} Task {run_id} {status}: {_what(trial)}{score}{about}"
            f"{self._why(run_id, attempt)}"
        )

    def _why(self, run_id: str, attempt: Attempt) -> str:
        """Return why an attempt has no result; a repeated reason refers to the first run that had it."""
        if attempt.fault is None:
            return ""
        first = self._first_with.setdefault(attempt.fault.message, run_id)
        if first != run_id:
            return f": the same as {first}"
        return f": {one_line(attempt.fault.message, width=500)}"

    def _print_counts(self) -> None:
        counts = self._view.counts()
        listed = ", ".join(f"{count} {status}" for status, count in counts.items())
        all_passed = counts.get("passed") == self.planned
        icon = "[rollouts] " if self._verbosity >= PROGRESS else "✓ " if all_passed else "✗ "
        self.say(f"{icon}{self.done} of {self.planned} tasks completed: {listed or 'none was run'}")


class GradingConsole(Console):
    """Shows how stored work is graded again."""

    def __call__(self, event: Event) -> None:
        """Write what a person should know of *event*."""
        if isinstance(event, RunStarted):
            self.planned = event.planned
            self.say(f"[rollouts] Grading {event.planned} runs again")
        elif isinstance(event, TrialEnded):
            self.done += 1
            if self._verbosity >= PROGRESS or event.attempt.fault is not None:
                run_id, status = self._view.run_id(event.trial), status_of(event.attempt)
                self.say(f"[rollouts] {run_id} {status}{self._why(run_id, event.attempt)}")
        elif isinstance(event, Notice | TrialOutput):
            super().__call__(event)


def _printed(details: Mapping[str, Json]) -> Iterator[str]:
    """Yield what the tests behind a verdict printed."""
    if isinstance(output := details.get("output"), str):
        yield output
    tests = details.get("test_results")
    for path, test in tests.items() if isinstance(tests, Mapping) else ():
        if isinstance(test, Mapping):
            how = "passed" if test.get("success") else "failed"
            yield f"test {path} {how}\n{test.get('output') or ''}"


def _what(trial: Trial) -> str:
    return f"{trial.task.id} with {trial.candidate.id}, rollout {trial.rollout}"
