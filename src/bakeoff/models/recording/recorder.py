"""Keeps every exchange with a model as it happens, so that a run can be replayed.

A recording is a folder with one file per session. A session only ever appends to its own file,
one exchange at a time and each in one write, so that a crash can cut the last line and nothing
else, and several processes never write into each other's lines.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import structs

from bakeoff._lib import files
from bakeoff._lib.clock import monotonic
from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.redact import Redactor
from bakeoff._lib.sanitize import well_formed
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError, boundary
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import Model, close_model
from bakeoff.core.stop import Stop
from bakeoff.core.values import Json

Question = Mapping[str, Json]

_STORED_SEPARATELY = frozenset(
    {"parameters", "rollout"}
)  # they stand there under names of their own


@value_object
class Requester:
    """Who asks: a trial, for its candidate or (`role`) on behalf of one of its roles."""

    model: ModelSpec
    trial: str
    rollout: int
    role: str = ""


class RecordedRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the endpoint instead of an answer."""

    message: str
    transient: bool = False
    billable: bool = True
    status: int | None = None

    @classmethod
    def of(cls, error: ProviderError) -> "RecordedRefusal":
        """Return *error* as data."""
        return cls(
            message=str(error),
            transient=error.transient,
            billable=error.billable,
            status=error.status,
        )

    def error(self) -> ProviderError:
        """Return the error that this is the data of."""
        return ProviderError(
            self.message, transient=self.transient, billable=self.billable, status=self.status
        )


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """No answer: the caller stopped waiting, and `trouble` says why it took so long."""

    after_s: float
    trouble: str | None = None


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A question, what it is found by, and how it ended: one of the last three is there.

    `nth` is how often the same asker had asked just that before, `lost` how many tries may have
    been billed though they brought nothing.
    """

    key: str
    trial: str
    role: str = ""
    nth: int = 0
    lost: int = 0
    question: dict[str, Json]
    completion: Completion | None = None
    refusal: RecordedRefusal | None = None
    cut: Cut | None = None


def question_of(request: Request, requester: Requester) -> Question:
    """Return *request* as data: what decides its answer, and nothing about where it is sent."""
    spec = requester.model
    return {
        "model": spec.full_name,
        "rollout": requester.rollout,
        "sample": request.rollout,
        "parameters": {**request.parameters, **spec.parameters},
        "settings": spec.identity()["settings"],
        **{
            name: part
            for name, part in without_defaults(request).items()
            if name not in _STORED_SEPARATELY
        },
    }


def key_of(question: Question, redactor: Redactor) -> str:
    """Return the key of *question*; a secret in it counts as what is kept of it."""
    return digest_bytes(redactor.data(encoded(question, sort_keys=True)))


def with_result(
    begun: Exchange, how: Completion | RecordedRefusal | Cut, *, lost: int = 0
) -> Exchange:
    """Return *begun* with its end."""
    match how:
        case Completion():
            return structs.replace(begun, lost=lost, completion=how)
        case RecordedRefusal():
            return structs.replace(begun, lost=lost, refusal=how)
        case Cut():
            return structs.replace(begun, lost=lost, cut=how)


def line_of(exchange: Exchange, redactor: Redactor) -> bytes:
    """Return *exchange* as one line without secrets."""
    return redactor.data(encoded(exchange)) + b"\n"


def exchange_in(line: bytes) -> Exchange:
    """Return the exchange in *line*, or raise ValueError where there is no whole one."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        # a user's own model may return NaN, which only the lenient reader takes
        return msgspec.convert(json.loads(line), Exchange)


def encoded(value: object, *, sort_keys: bool = False) -> bytes:
    """Return *value* as compact JSON; what is no plain data is kept as its text."""
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys, default=_plain
    )
    return well_formed(text).encode()


def without_defaults(record: object) -> dict[str, Json]:
    """Return a dataclass as data, without the fields that say nothing beyond their default."""
    return {
        each.name: getattr(record, each.name)
        for each in fields(record)  # type: ignore[arg-type]  # callers pass dataclasses only
        if each.compare and getattr(record, each.name) != _default(each)
    }


def _default(field: "Field[object]") -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return {k: v for k, v in structs.asdict(value).items() if v is not None}
    if is_dataclass(value):
        return without_defaults(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


_decoder = msgspec.json.Decoder(Exchange)


SESSIONS = "*.jsonl"
_LOST = "lost"


class ExchangeKeeper(Protocol):
    """Keeps the exchanges with models; `tally` is what it counted."""

    redactor: Redactor
    tally: Counter[str]

    @property
    def ending(self) -> bool:
        """Whether what is cut now is cut by the end of the run, not by a trial's own limit."""

    def keep(self, exchange: Exchange) -> None:
        """Keep *exchange*."""

    def write(self, line: bytes) -> None:
        """Keep the line of an exchange."""

    def words(self) -> list[str]:
        """Return what a person should know at the end."""

    def close(self) -> None:
        """End the session."""


class Recorder:
    """One session of a recording; memory does not grow with it. `tally` is what it counted."""

    def __init__(self, folder: Path, redactor: Redactor, stop: Stop | None = None) -> None:
        self.redactor = redactor
        self._stop = stop or Stop()
        self.tally: Counter[str] = Counter()
        self._reason = ""
        self._torn = False
        try:
            files.make_folder(folder)
            self._path, self._file = _new_session(folder)
        except OSError as error:
            raise UsageError(f"nothing can be recorded in {folder}: {error.strerror}") from error

    @property
    def ending(self) -> bool:
        """Whether what is cut now is cut by the end of the run, not by a trial's own limit."""
        return self._stop.requested

    def keep(self, exchange: Exchange) -> None:
        """Write *exchange*; a disk that is full costs the recording, never the answer."""
        self.write(line_of(exchange, self.redactor))

    def write(self, line: bytes) -> None:
        """Write the line of an exchange."""
        if self._torn:
            line = b"\n" + line
        try:
            self._torn = os.write(self._file, line) != len(line)
            self.tally[_LOST] += self._torn
        except OSError as error:
            self.tally[_LOST] += 1
            self._reason = f" ({error.strerror})"

    def words(self) -> list[str]:
        """Return what a person should know at the end."""
        if not (lost := self.tally[_LOST]):
            return []
        return [f"exchanges that could not be recorded{self._reason}: {lost}"]

    def close(self) -> None:
        """End the session; one in which nothing was said leaves no file."""
        empty = os.fstat(self._file).st_size == 0
        os.close(self._file)
        if empty:
            self._path.unlink(missing_ok=True)


def _new_session(folder: Path) -> tuple[Path, int]:
    """Return a new file that sorts after all others."""
    number = max((int(p.stem) for p in folder.glob(SESSIONS) if p.stem.isdecimal()), default=0)
    while True:
        number += 1
        path = folder / f"{number:06}.jsonl"
        try:
            return path, os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, files.FILE_MODE
            )
        except FileExistsError:
            continue


class _RequestObserver:
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

    async def on_lost(self) -> None:
        self.lost += 1
        if self._request.on_lost:
            await self._request.on_lost()

    def cut(self) -> Cut:
        return Cut(after_s=monotonic() - self._began, trouble=self._trouble)


class RecordedModel:
    """A model whose every answer to one asker is kept, and every fault too."""

    def __init__(self, model: Model, requester: Requester, recorder: ExchangeKeeper) -> None:
        self._model = model
        self._requester = requester
        self._recorder = recorder
        self._asked: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        """Ask the model and keep what came of it."""
        exchange, observer = self._begun(request), _RequestObserver(request)
        request = replace(request, on_retry=observer.on_retry, on_lost=observer.on_lost)

        def keep(how: Completion | RecordedRefusal | Cut) -> None:
            self._recorder.keep(with_result(exchange, how, lost=observer.lost))

        try:
            with boundary(ProviderError, "model"):
                completion = await self._model.complete(request)
        except ProviderError as error:
            keep(RecordedRefusal.of(error))
            raise
        except asyncio.CancelledError:
            if not self._recorder.ending:
                keep(observer.cut())
            raise
        keep(completion)
        return completion

    async def close(self) -> None:
        """Close the model."""
        await close_model(self._model)

    def _begun(self, request: Request) -> Exchange:
        question = question_of(request, self._requester)
        key = key_of(question, self._recorder.redactor)
        nth = self._asked[key]
        self._asked[key] += 1
        requester = self._requester
        return Exchange(
            key=key, trial=requester.trial, role=requester.role, nth=nth, question=dict(question)
        )
