"""Replay a recording, keep answers in a cache, and open what a run asked for of both."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from time import sleep
from typing import Protocol

import msgspec

from bakeoff._lib import files
from bakeoff._lib.clock import monotonic, now
from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.redact import Redactor
from bakeoff._lib.sanitize import one_line
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import LimitReached, ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import Model, close_model
from bakeoff.core.stop import Stop
from bakeoff.core.values import Json
from bakeoff.models.recording.recorder import (
    SESSIONS,
    Exchange,
    ExchangeKeeper,
    Question,
    RecordedModel,
    Recorder,
    Requester,
    encoded,
    exchange_in,
    key_of,
    question_of,
)

_SHOWN = 3
_WIDTH = 40
_BEFORE = 10  # so much of what is still equal is shown before the first difference


def differences(recorded: Question, asked: Question) -> list[str]:
    """Return where the two differ, in words: `parameters.temperature`, `message 2`."""
    found: list[str] = []
    for name in dict.fromkeys((*recorded, *asked)):
        before, after = recorded.get(name), asked.get(name)
        if before == after:
            continue
        if name == "messages":
            found += _messages(_list(before), _list(after))
        elif isinstance(before or {}, Mapping) and isinstance(after or {}, Mapping):
            found += _entries(name, _mapping(before), _mapping(after))
        else:
            found.append(_changed(name, before, after))
    return found


def distance(recorded: Question, asked: Question) -> tuple[int, int]:
    """Return how far the two are apart: the fewer differences, and the later, the nearer."""
    before, after = _list(recorded.get("messages")), _list(asked.get("messages"))
    pairs = enumerate(zip_longest(before, after))
    equal = next((number for number, (old, new) in pairs if old != new), len(before))
    return len(differences(recorded, asked)), -equal


def described(found: Sequence[str]) -> str:
    """Return the first few differences as one text."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def _entries(name: str, before: Mapping[str, Json], after: Mapping[str, Json]) -> Iterator[str]:
    for key in dict.fromkeys((*before, *after)):
        if before.get(key) != after.get(key):
            yield _changed(f"{name}.{key}", before.get(key), after.get(key))


def _messages(before: Sequence[Json], after: Sequence[Json]) -> Iterator[str]:
    for number, (old, new) in enumerate(zip_longest(before, after), 1):
        if old == new:
            continue
        if old is None or new is None:
            yield f"message {number} ({'recorded' if new is None else 'asked'} only)"
            continue
        old_text, new_text = _content(old), _content(new)
        if old_text == new_text:
            yield f"message {number}"
            continue
        at = next(
            (i for i, (a, b) in enumerate(zip(old_text, new_text, strict=False)) if a != b),
            min(len(old_text), len(new_text)),
        )
        start = max(at - _BEFORE, 0)
        yield _changed(
            f"message {number} from character {at + 1}", old_text[start:], new_text[start:]
        )


def _content(message: Json) -> str:
    return str(message.get("content", "")) if isinstance(message, Mapping) else ""


def _changed(what: str, before: Json, after: Json) -> str:
    return f"{what} (recorded {_short(before)}, asked {_short(after)})"


def _short(value: Json) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(one_line(value, width=_WIDTH))
    return one_line(str(value), width=_WIDTH)


def _list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


_DIVERGED, _ASKED, _REUSED, _FAILED = "diverged", "asked", "reused", "failed"  # what is counted
_COMPARED = 50  # exchanges that are looked at to find the nearest one


def sessions_in(folder: Path) -> list[Path]:
    """Return the files of the recording in *folder*, the newest last."""
    return sorted(folder.glob(SESSIONS))


class Recording:
    """Every exchange in a folder, by where it stands; bodies stay on the disk.

    Where several sessions hold the same exchange, the newest counts. `tally` is what it counted.
    """

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self.redactor = redactor
        self.folder = folder
        self.tally: Counter[str] = Counter()
        self._damaged = 0
        self._of_asker: dict[int, int] = {}
        self._of_anybody: dict[int, int] = {}
        self._neighbours: dict[str, list[int]] | None = None
        paths = sessions_in(folder)
        if not paths:
            raise UsageError(f"there is no recording in {folder}; make one with --record {folder}")
        self._files = [path.open("rb") for path in paths]
        for number in range(len(self._files)):
            self._index(number)

    def find(self, key: str, requester: Requester, nth: int) -> Exchange | None:
        """Return the recorded answer to *requester*, else another requester's answer to the same question."""
        place = self._of_asker.get(_number(key, requester.trial, requester.role, nth))
        if place is None:
            place = self._of_anybody.get(_number(key, nth))
        return None if place is None else self._read(place)

    def explain(self, question: Question, requester: Requester) -> str:
        """Return where *question* differs from the recording."""
        self.tally[_DIVERGED] += 1
        who = f" for the role {requester.role!r}" if requester.role else ""
        start = f"replay: diverged: no recorded answer of {requester.model.full_name}{who}"
        near = [self._read(place) for place in self._near(requester)]
        if not near:
            return f"{start}; no request to it is in {self.folder}"
        now = json.loads(encoded(question))
        nearest = min(near, key=lambda exchange: distance(exchange.question, now))
        found = differences(nearest.question, now)
        if not found:
            return f"{start}; it asked the same question more often than was recorded"
        return (
            f"{start}; the nearest recorded request ({nearest.trial}) differs in {described(found)}"
        )

    def words(self) -> list[str]:
        """Return the notes to print at the end."""
        lines = []
        if self._damaged:
            lines.append(
                f"{self.folder}: damaged lines, cut by a crash perhaps, were left out: "
                f"{self._damaged}"
            )
        if diverged := self.tally[_DIVERGED]:
            lines.append(
                f"replay: requests that diverged from {self.folder}, and are faults: {diverged}"
            )
        return lines

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _index(self, number: int) -> None:
        first: dict[int, int] = {}
        for place, exchange in self._lines(number):
            if exchange is None:
                self._damaged += 1
                continue
            own = _number(exchange.key, exchange.trial, exchange.role, exchange.nth)
            self._of_asker[own] = place
            first.setdefault(_number(exchange.key, exchange.nth), place)
        self._of_anybody |= first

    def _lines(self, number: int) -> Iterator[tuple[int, Exchange | None]]:
        """Yield where each line stands, and what is in it where that is whole."""
        offset, count = 0, len(self._files)
        self._files[number].seek(0)
        for line in self._files[number]:
            exchange = None
            with suppress(ValueError, RecursionError):
                exchange = exchange_in(line)
            if line.strip():
                yield offset * count + number, exchange
            offset += len(line)

    def _read(self, place: int) -> Exchange:
        offset, number = divmod(place, len(self._files))
        file = self._files[number]
        file.seek(offset)
        return exchange_in(file.readline())

    def _near(self, requester: Requester) -> list[int]:
        """Return what to compare with: the same asker's exchanges, else some of the same model."""
        if self._neighbours is None:
            self._neighbours = self._by_name()
        own = self._neighbours.get(_name(requester.trial, requester.role))
        return own or self._neighbours.get(_name(requester.model.full_name), [])

    def _by_name(self) -> dict[str, list[int]]:
        # only once something diverged: a replay that fits needs none of it
        found: dict[str, list[int]] = {}
        for number in range(len(self._files)):
            for place, exchange in self._lines(number):
                if exchange is None:
                    continue
                model = str(exchange.question.get("model"))
                for name in (_name(exchange.trial, exchange.role), _name(model)):
                    places = found.setdefault(name, [])
                    if len(places) < _COMPARED:
                        places.append(place)
        return found


def _number(*parts: str | int) -> int:
    """Return a small number for what is looked up: a million of them must fit."""
    return int(digest_bytes(repr(parts).encode("utf-8", "surrogatepass"))[:16], 16)


def _name(*parts: str) -> str:
    return "\0".join(parts)


class ReplayedModel:
    """A model as it answered one asker when it was recorded."""

    def __init__(self, requester: Requester, recording: Recording) -> None:
        self._requester = requester
        self._recording = recording
        self._asked: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        """Return the recorded answer, or raise what was raised then."""
        question = question_of(request, self._requester)
        key = key_of(question, self._recording.redactor)
        exchange = self._recording.find(key, self._requester, self._asked[key])
        self._asked[key] += 1
        if exchange is None:
            raise ProviderError(self._recording.explain(question, self._requester), billable=False)
        for _ in range(exchange.lost):
            if request.on_lost:
                await request.on_lost()
        if exchange.completion is not None:
            return exchange.completion
        if exchange.refusal is not None:
            raise exchange.refusal.error()
        if exchange.cut is not None and exchange.cut.trouble and request.on_retry:
            request.on_retry(exchange.cut.trouble)
        raise LimitReached(_cut(exchange))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _cut(exchange: Exchange) -> str:
    after = f" after {exchange.cut.after_s:.1f} s" if exchange.cut else ""
    return f"as recorded, the request was cut{after}"


CACHED = "cached"  # the flag on an answer that came from here

_FILE = "answers.sqlite"
_WAIT_S = 10.0
_AGAIN_S = 0.005
_TABLE = """
CREATE TABLE IF NOT EXISTS answer (
  key TEXT PRIMARY KEY, model TEXT NOT NULL, kept_at TEXT NOT NULL, completion BLOB NOT NULL
) WITHOUT ROWID
"""


def cache_key(request: Request, requester: Requester, redactor: Redactor) -> str:
    """Return the key of a request; another server may be another model of the same name."""
    whole: dict[str, Json] = {
        "question": question_of(request, requester),
        "base_url": requester.model.base_url,
    }
    return digest_bytes(redactor.data(encoded(whole, sort_keys=True)))


class AnswerCache(Protocol):
    """Keeps answers under keys; `tally` is what it counted."""

    tally: Counter[str]

    def key_of(self, request: Request, requester: Requester) -> str:
        """Return the key of a request."""

    async def get(self, key: str) -> Completion | None:
        """Return the answer cached under *key*."""

    def put(self, key: str, model: str, completion: Completion) -> None:
        """Cache an answer, unless there is one."""

    def words(self) -> list[str]:
        """Return the notes to print at the end."""

    def close(self) -> None:
        """Close what it has open."""


class Cache:
    """The answers in one folder; a failure of the cache costs a request, never an answer.

    `tally` is what it counted.
    """

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._redactor = redactor
        self._path = folder / _FILE
        self.tally: Counter[str] = Counter()
        try:
            files.make_folder(folder)
            files.make_file(self._path)
            self._db = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)
            _write_ahead(self._db)
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise UsageError(
                f"{self._path} cannot be used as a cache: {error}; name another folder, or delete it"
            ) from error

    def key_of(self, request: Request, requester: Requester) -> str:
        """Return the key of a request; another server may be another model of the same name."""
        return cache_key(request, requester, self._redactor)

    async def get(self, key: str) -> Completion | None:
        """Return the answer cached under *key*."""
        self.tally[_ASKED] += 1
        try:
            with closing(
                self._db.execute("SELECT completion FROM answer WHERE key = ?", (key,))
            ) as found:
                row = found.fetchone()
            completion = row and msgspec.json.decode(row[0], type=Completion)
        except (sqlite3.Error, msgspec.DecodeError):
            self.tally[_FAILED] += 1
            return None
        if completion is None:
            return None
        self.tally[_REUSED] += 1
        return replace(completion, flags=(*completion.flags, CACHED))

    def put(self, key: str, model: str, completion: Completion) -> None:
        """Cache an answer, unless there is one."""
        body = self._redactor.data(encoded(completion))
        try:
            self._db.execute(
                "INSERT OR IGNORE INTO answer VALUES (?, ?, ?, ?)",
                (key, model, now().isoformat(), body),
            )
        except sqlite3.Error:
            self.tally[_FAILED] += 1

    def words(self) -> list[str]:
        """Return the notes to print at the end."""
        reused, asked = self.tally[_REUSED], self.tally[_ASKED]
        lines = [f"cache: {reused} of {asked} answers came from {self._path.parent}"]
        if failed := self.tally[_FAILED]:
            lines.append(f"cache: {failed} times it could not be read or written")
        return lines

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class CachedModel:
    """A model that is asked only what is not in the cache."""

    def __init__(self, model: Model, requester: Requester, cache: AnswerCache) -> None:
        self._model = model
        self._requester = requester
        self._cache = cache

    async def complete(self, request: Request) -> Completion:
        """Return the cached answer, else ask and cache it."""
        key = self._cache.key_of(request, self._requester)
        kept = await self._cache.get(key)
        if kept is not None:
            return kept
        completion = await self._model.complete(request)
        self._cache.put(key, self._requester.model.full_name, completion)
        return completion

    async def close(self) -> None:
        """Close the model."""
        await close_model(self._model)


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch to WAL mode; where several begin with a new file at once, SQLite refuses some unasked.

    Two who both read the file and both want it alone would wait for each other for ever, so its
    own patience does not count here.
    """
    deadline = monotonic() + _WAIT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # of whatever kind
            if not busy or monotonic() > deadline:
                raise
            sleep(_AGAIN_S)
        else:
            return


@value_object
class RecordingFolders:
    """What a person asked for: where to record, what to replay, where the cache is."""

    record: Path | None = None
    replay: Path | None = None
    cache: Path | None = None


@value_object
class RecordingModes:
    """The open recorder, recording and cache of one run; without any, models are called directly."""

    recorder: ExchangeKeeper | None = None
    recording: Recording | None = None
    cache: AnswerCache | None = None

    def __bool__(self) -> bool:
        return not (self.recorder is None and self.recording is None and self.cache is None)

    @property
    def replaying(self) -> bool:
        """Whether answers come from a recording, so that no model is needed."""
        return self.recording is not None

    def model(self, model: Model, requester: Requester) -> Model:
        """Return *model*, wrapped for recording, replay or the cache."""
        if self.recording is not None:
            return ReplayedModel(requester, self.recording)
        if self.cache is not None:
            model = CachedModel(model, requester, self.cache)
        if self.recorder is not None:
            model = RecordedModel(model, requester, self.recorder)
        return model

    def words(self) -> list[str]:
        """Return the notes to print at the end."""
        return [line for source in self._open() for line in source.words()]

    def tallies(self) -> tuple[dict[str, int], ...]:
        """Return what each of them counted."""
        return tuple(dict(source.tally) for source in self._open())

    def add(self, tallies: Sequence[Mapping[str, int]]) -> None:
        """Add what the same of another process counted."""
        for source, tally in zip(self._open(), tallies, strict=True):
            source.tally.update(tally)

    def close(self) -> None:
        """Close them all."""
        for source in self._open():
            source.close()

    def _open(self) -> list[ExchangeKeeper | Recording | AnswerCache]:
        sources = (self.recorder, self.recording, self.cache)
        return [source for source in sources if source is not None]


def open_recording_modes(
    folders: RecordingFolders, redactor: Redactor, stop: Stop
) -> RecordingModes:
    """Open the recorder, recording and cache that were asked for."""
    if folders.replay and (folders.record or folders.cache):
        raise UsageError(
            "a replay asks no model: there is nothing to record or to cache; "
            "leave --record and --cache out"
        )
    recording = Recording(folders.replay, redactor) if folders.replay else None
    cache = Cache(folders.cache, redactor) if folders.cache else None
    recorder = Recorder(folders.record, redactor, stop) if folders.record else None
    return RecordingModes(recorder=recorder, recording=recording, cache=cache)
