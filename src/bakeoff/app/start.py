"""How and where a run is started: its place, who listens, what its models may read."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from bakeoff._lib.redact import Redactor
from bakeoff.app.run_results import DEFAULT_OUTPUT
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Listener, Notice, TrialEnded, TrialOutput, ignore
from bakeoff.core.record import Attempt
from bakeoff.core.stop import Stop
from bakeoff.core.values import Json
from bakeoff.formats.text.env import environment
from bakeoff.models.recording.modes import RecordingFolders
from bakeoff.reports.artifacts import write_artifacts

DEFAULT_PARALLEL = 8
VERSION = version("bakeoff")


@dataclass(frozen=True, kw_only=True)
class Start:
    """How and where a plan is run: in a new folder in `output`, or in exactly this `folder`.

    With `only`, the plan is a part of the run that is resumed, and the rest of the run stays planned.
    """

    output: Path = DEFAULT_OUTPUT
    folder: Path | None = None
    resume: str | None = None
    only: bool = False
    name: str | None = None
    listener: Listener = ignore
    stop: Stop = field(default_factory=Stop)
    command: Sequence[str] = ()
    selection: Mapping[str, Json] = field(default_factory=dict)
    tapes: RecordingFolders = field(default_factory=RecordingFolders)
    env_file: Path | None = None


def environ_of(start: Start) -> Mapping[str, str]:
    """Return what the models of a run may read: the shell's variables, then those of a file."""
    found = environment(os.environ, named=start.env_file, here=Path())
    if found.said:
        start.listener(Notice(found.said))
    return found.values


def discreet(listener: Listener, redactor: Redactor) -> Listener:
    """Return a listener that is told what went wrong, and what to note, without the secrets in it."""

    def tell(event: Event) -> None:
        if isinstance(event, Notice | TrialOutput):
            event = replace(event, text=redactor.text(event.text))
        elif isinstance(event, TrialEnded):
            attempt = _discreet_attempt(event.attempt, redactor)
            event = event if attempt is event.attempt else replace(event, attempt=attempt)
        listener(event)

    return tell


def _discreet_attempt(attempt: Attempt, redactor: Redactor) -> Attempt:
    """Return *attempt* as it may be printed: its fault and its verdicts without secrets."""
    if attempt.fault is not None:
        fault, trace = attempt.fault, attempt.fault.traceback
        trace = None if trace is None else redactor.text(trace)
        fault = replace(fault, message=redactor.text(fault.message), traceback=trace)
        attempt = replace(attempt, fault=fault)
    words = [score.explanation for score in attempt.scores]
    clean = [redactor.text(text) if text else text for text in words]
    if words == clean:
        return attempt
    told = zip(attempt.scores, clean, strict=True)
    return replace(attempt, scores=tuple(replace(s, explanation=text) for s, text in told))


@contextmanager
def discreet_errors(redactor: Redactor) -> Iterator[None]:
    """Let a mistake of the user's be told without the secrets in it, such as those of a URL."""
    try:
        yield
    except UsageError as error:
        clean = redactor.text(str(error))
        if clean == str(error):
            raise
        raise UsageError(clean) from None  # the cause would tell what was taken out


def filed(listener: Listener, folder: Path, redactor: Redactor) -> Listener:
    """Return a listener before which the files of each workspace trial are written."""

    def tell(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.trial.task.workspace is not None:
            write_artifacts(folder, event.trial, event.attempt, redactor)
        listener(event)

    return tell
