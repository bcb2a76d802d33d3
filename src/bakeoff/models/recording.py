"""Keeps every exchange with a model as it happens, so that a run can be replayed.

A recording is a folder with one file per session. A session only ever appends to its own file,
one exchange at a time and each in one write, so that a crash can cut the last line and nothing
else, and several processes never write into each other's lines.
"""

import asyncio
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

from bakeoff._lib import private
from bakeoff._lib.clock import monotonic
from bakeoff._lib.redact import Redactor
from bakeoff.core.errors import ProviderError, UsageError, boundary
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import Model, close_model
from bakeoff.core.stop import Stop
from bakeoff.models.tape import Asker, Cut, Exchange, Refusal, ended, key_of, line_of, question_of

SESSIONS = "*.jsonl"


class Recorder:
    """One session of a recording; memory does not grow with it."""

    def __init__(self, folder: Path, redactor: Redactor, stop: Stop | None = None) -> None:
        self.redactor = redactor
        self._stop = stop or Stop()
        self._lost = 0
        self._reason = ""
        self._torn = False
        try:
            private.make_folder(folder)
            self._path, self._file = _new_session(folder)
        except OSError as error:
            raise UsageError(f"nothing can be recorded in {folder}: {error.strerror}") from error

    @property
    def ending(self) -> bool:
        """Whether what is cut now is cut by the end of the run, not by a trial's own limit."""
        return self._stop.requested

    def keep(self, exchange: Exchange) -> None:
        """Write *exchange*; a disk that is full costs the recording, never the answer."""
        line = line_of(exchange, self.redactor)
        if self._torn:
            line = b"\n" + line
        try:
            self._torn = os.write(self._file, line) != len(line)
            self._lost += self._torn
        except OSError as error:
            self._lost += 1
            self._reason = f" ({error.strerror})"

    def words(self) -> list[str]:
        """Return what a person should know at the end."""
        if not self._lost:
            return []
        return [f"exchanges that could not be recorded{self._reason}: {self._lost}"]

    def close(self) -> None:
        """End the session; one in which nothing was said leaves no file."""
        empty = os.fstat(self._file).st_size == 0
        os.close(self._file)
        if empty:
            self._path.unlink(missing_ok=True)


def _new_session(folder: Path) -> tuple[Path, int]:
    """Return a file that nobody else writes, the last in the order of names."""
    number = max((int(p.stem) for p in folder.glob(SESSIONS) if p.stem.isdecimal()), default=0)
    while True:
        number += 1
        path = folder / f"{number:06}.jsonl"
        try:
            return path, os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, private.FILE_MODE
            )
        except FileExistsError:
            continue


class _Ear:
    """Hears what a request went through, and passes it on."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._began = monotonic()
        self._trouble: str | None = None
        self.lost = 0

    def on_retry(self, why: str) -> None:
        self._trouble = why
        if self._request.on_retry:
            self._request.on_retry(why)

    def on_lost(self) -> None:
        self.lost += 1
        if self._request.on_lost:
            self._request.on_lost()

    def cut(self) -> Cut:
        return Cut(after_s=monotonic() - self._began, trouble=self._trouble)


class RecordedModel:
    """A model whose every answer to one asker is kept, and every fault too."""

    def __init__(self, model: Model, asker: Asker, recorder: Recorder) -> None:
        self._model = model
        self._asker = asker
        self._recorder = recorder
        self._asked: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        """Ask the model and keep what came of it."""
        exchange, ear = self._begun(request), _Ear(request)
        request = replace(request, on_retry=ear.on_retry, on_lost=ear.on_lost)

        def keep(how: Completion | Refusal | Cut) -> None:
            self._recorder.keep(ended(exchange, how, lost=ear.lost))

        try:
            with boundary(ProviderError, "model"):
                completion = await self._model.complete(request)
        except ProviderError as error:
            keep(Refusal.of(error))
            raise
        except asyncio.CancelledError:
            if not self._recorder.ending:
                keep(ear.cut())
            raise
        keep(completion)
        return completion

    async def close(self) -> None:
        """Close the model."""
        await close_model(self._model)

    def _begun(self, request: Request) -> Exchange:
        question = question_of(request, self._asker)
        key = key_of(question, self._recorder.redactor)
        nth = self._asked[key]
        self._asked[key] += 1
        asker = self._asker
        return Exchange(
            key=key, trial=asker.trial, role=asker.role, nth=nth, question=dict(question)
        )
