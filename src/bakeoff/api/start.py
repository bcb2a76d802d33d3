"""How and where a run is started: its place, who listens, what its models may read."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from bakeoff._lib.redact import Redactor
from bakeoff.api.runs import DEFAULT_OUTPUT
from bakeoff.config.env_file import environment
from bakeoff.core.events import (
    Event,
    Listener,
    Notice,
    TrialEnded,
    ignore,
)
from bakeoff.core.stop import Stop
from bakeoff.core.values import Json
from bakeoff.models.tapes import Folders
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
    tapes: Folders = field(default_factory=Folders)
    env_file: Path | None = None


def environ_of(start: Start) -> Mapping[str, str]:
    """Return what the models of a run may read: the shell's variables, then those of a file."""
    found = environment(os.environ, named=start.env_file, here=Path())
    if found.said:
        start.listener(Notice(found.said))
    return found.values


def discreet(listener: Listener, redactor: Redactor) -> Listener:
    """Return a listener that is told what went wrong without the secrets in it."""

    def tell(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.attempt.fault is not None:
            fault = event.attempt.fault
            trace = None if fault.traceback is None else redactor.text(fault.traceback)
            fault = replace(fault, message=redactor.text(fault.message), traceback=trace)
            event = replace(event, attempt=replace(event.attempt, fault=fault))
        listener(event)

    return tell


def filed(listener: Listener, folder: Path, redactor: Redactor) -> Listener:
    """Return a listener before which the files of each workspace trial are written."""

    def tell(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.trial.task.workspace is not None:
            write_artifacts(folder, event.trial, event.attempt, redactor)
        listener(event)

    return tell
