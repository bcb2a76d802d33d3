"""Checkpoints as files in a run's folder: one for each trial that saves its steps, a line each."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bakeoff._lib import files
from bakeoff._lib.files import safe_name
from bakeoff._lib.redact import Redactor
from bakeoff.core.errors import LedgerError
from bakeoff.core.plan import Trial
from bakeoff.core.ports import Checkpoint, Entry
from bakeoff.core.values import Json

CHECKPOINTS = "checkpoints"


class _Line(msgspec.Struct, frozen=True):
    """One step as it is kept: number `at` of the trial with identity `trial`."""

    trial: str
    at: int
    entry: dict[str, Json]


class FileCheckpoints:
    """Keeps the checkpoints of the run in *folder*, without secrets."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder = folder / CHECKPOINTS
        self._redactor = redactor

    def of(self, trial: Trial) -> Checkpoint:
        """Return the checkpoint of *trial*."""
        return _FileCheckpoint(checkpoint_file(self._folder, trial.name), trial.id, self._redactor)


def checkpoint_file(folder: Path, trial: str) -> Path:
    """Return where the steps of the trial called *trial* are."""
    return folder / f"{safe_name(trial)}.jsonl"


def steps_in(path: Path, trial: str | None = None) -> list[dict[str, Json]]:
    """Return the steps that are kept in *path*, of one trial by its identity, or of whichever is last.

    A line that was cut off by a crash was never acknowledged, and is left out with all after it.
    """
    steps: list[dict[str, Json]] = []
    whose = trial
    for line in _lines(path):
        if line.trial != (whose or line.trial):
            if trial is not None:
                continue
            steps.clear()  # another plan went on in this folder: what was saved is not its own
        whose = whose or line.trial
        del steps[line.at :]
        steps.append(line.entry)
    return steps


def _lines(path: Path) -> list[_Line]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error
    lines = []
    for line in data.splitlines():
        try:
            lines.append(msgspec.json.decode(line, type=_Line))
        except msgspec.DecodeError:
            break
    return lines


class _FileCheckpoint:
    """The steps of one trial; each is on the disk when `add` returns."""

    def __init__(self, path: Path, trial: str, redactor: Redactor) -> None:
        self._path = path
        self._trial = trial
        self._redactor = redactor
        self._whole = False  # whether the file ends with a whole line

    def recorded(self) -> Sequence[Entry]:
        """Return the steps that are kept."""
        return steps_in(self._path, self._trial)

    async def add(self, entry: Entry, *, at: int) -> None:
        """Write one more step."""
        line = _Line(trial=self._trial, at=at, entry=dict(entry))
        data = self._redactor.data(msgspec.json.encode(line))
        try:
            await asyncio.to_thread(self._append, data + b"\n")
        except OSError as error:
            raise LedgerError(
                f"{self._path} cannot be written: {error.strerror}; the trials are kept: make room "
                "there, then resume the run"
            ) from error

    def _append(self, data: bytes) -> None:
        files.make_folder(self._path.parent)
        files.make_file(self._path)
        with self._path.open("ab") as file:
            if not self._whole:
                self._mend()
                self._whole = True
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _mend(self) -> None:
        """Cut off what a crash left of a line: what is written next must begin its own."""
        data = self._path.read_bytes()
        if data and not data.endswith(b"\n"):
            os.truncate(self._path, data.rfind(b"\n") + 1)
