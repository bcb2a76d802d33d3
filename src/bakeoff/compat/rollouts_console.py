"""What a person sees of rollouts while they run: quiet, with progress, or everything."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import TextIO

from bakeoff._lib.untrusted import for_terminal, one_line
from bakeoff.compat.rollouts_record import status_of
from bakeoff.compat.rollouts_view import RolloutView
from bakeoff.core.events import (
    Event,
    Notice,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialOutput,
    TrialStarted,
)
from bakeoff.core.passing import pass_rule
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt
from bakeoff.core.values import Json

QUIET, PROGRESS, EVERYTHING = range(3)
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_S = 0.1
_CLEAR = "\r\x1b[K"


class Console:
    """Writes to *out*; with a spinner where *out* is a terminal and nothing else is asked for."""

    def __init__(self, view: RolloutView, out: TextIO, *, verbosity: int) -> None:
        self._view = view
        self._out = out
        self._verbosity = verbosity
        self._spins = verbosity == QUIET and out.isatty()
        self._frame = 0
        self._timer: asyncio.TimerHandle | None = None
        self.planned = self.done = 0
        self._told: dict[str, str] = {}  # what was wrong, by the run that was told of first
        self.at_budget = False
        self.given_up: tuple[str, ...] = ()

    def say(self, text: str) -> None:
        """Write one line; whatever a program printed is harmless in it."""
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
            self._heard(event.trial, event.text)
        elif isinstance(event, TrialEnded):
            for score in event.attempt.scores:
                self._heard(event.trial, "\n".join(_printed(score.details)))
            self._ended(event.trial, event.attempt, last=event.last)
        elif isinstance(event, Notice):
            self.say(f"[rollouts] {one_line(event.text, width=500)}")
        elif isinstance(event, RunEnded):
            self.at_budget, self.given_up = event.at_budget, event.given_up
            self.close()
            self._closed()

    def grading(self, event: Event) -> None:
        """Write what a person should know of *event* while stored work is graded again."""
        if isinstance(event, RunStarted):
            self.planned = event.planned
            self.say(f"[rollouts] Grading {event.planned} runs again")
        elif isinstance(event, TrialEnded):
            self.done += 1
            if self._verbosity >= PROGRESS or event.attempt.fault is not None:
                run_id, status = self._view.run_id(event.trial), status_of(event.attempt)
                self.say(f"[rollouts] {run_id} {status}{self._why(run_id, event.attempt)}")
        elif isinstance(event, Notice | TrialOutput):
            self(event)

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

    def _heard(self, trial: Trial, text: str) -> None:
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
        """Return why an attempt has no result; what was said of another run is not said again."""
        if attempt.fault is None:
            return ""
        first = self._told.setdefault(attempt.fault.message, run_id)
        if first != run_id:
            return f": the same as {first}"
        return f": {one_line(attempt.fault.message, width=500)}"

    def _closed(self) -> None:
        counts = self._view.counts()
        told = ", ".join(f"{count} {status}" for status, count in counts.items())
        all_passed = counts.get("passed") == self.planned
        icon = "[rollouts] " if self._verbosity >= PROGRESS else "✓ " if all_passed else "✗ "
        self.say(f"{icon}{self.done} of {self.planned} tasks completed: {told or 'none was run'}")


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
