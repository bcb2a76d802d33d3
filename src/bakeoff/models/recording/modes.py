"""Record, replay and cache modes of a run, and the cache."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep

import msgspec

from bakeoff._lib import files
from bakeoff._lib.clock import monotonic, now
from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.redact import Redactor
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import Model, close_model
from bakeoff.core.stop import Stop
from bakeoff.core.values import Json
from bakeoff.models.recording.recorder import (
    RecordedModel,
    Recorder,
    Requester,
    encoded,
    question_of,
)
from bakeoff.models.recording.replay import Recording, ReplayedModel

CACHED = "cached"  # the flag on an answer that came from here

_FILE = "answers.sqlite"
_WAIT_S = 10.0
_AGAIN_S = 0.005
_TABLE = """
CREATE TABLE IF NOT EXISTS answer (
  key TEXT PRIMARY KEY, model TEXT NOT NULL, kept_at TEXT NOT NULL, completion BLOB NOT NULL
) WITHOUT ROWID
"""


class Cache:
    """The answers in one folder; a failure of the cache costs a request, never an answer."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._redactor = redactor
        self._path = folder / _FILE
        self._asked = self._reused = self._failed = 0
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
        whole: dict[str, Json] = {
            "question": question_of(request, requester),
            "base_url": requester.model.base_url,
        }
        return digest_bytes(self._redactor.data(encoded(whole, sort_keys=True)))

    def get(self, key: str) -> Completion | None:
        """Return the answer that is kept under *key*."""
        self._asked += 1
        try:
            with closing(
                self._db.execute("SELECT completion FROM answer WHERE key = ?", (key,))
            ) as found:
                row = found.fetchone()
            completion = row and msgspec.json.decode(row[0], type=Completion)
        except (sqlite3.Error, msgspec.DecodeError):
            self._failed += 1
            return None
        if completion is None:
            return None
        self._reused += 1
        return replace(completion, flags=(*completion.flags, CACHED))

    def put(self, key: str, model: str, completion: Completion) -> None:
        """Keep an answer, unless there is one."""
        body = self._redactor.data(encoded(completion))
        try:
            self._db.execute(
                "INSERT OR IGNORE INTO answer VALUES (?, ?, ?, ?)",
                (key, model, now().isoformat(), body),
            )
        except sqlite3.Error:
            self._failed += 1

    def words(self) -> list[str]:
        """Return what a person should know at the end."""
        lines = [f"cache: {self._reused} of {self._asked} answers came from {self._path.parent}"]
        if self._failed:
            lines.append(f"cache: {self._failed} times it could not be read or written")
        return lines

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class CachedModel:
    """A model that is asked only what is not kept yet."""

    def __init__(self, model: Model, requester: Requester, cache: Cache) -> None:
        self._model = model
        self._requester = requester
        self._cache = cache

    async def complete(self, request: Request) -> Completion:
        """Return the answer that is kept, else ask and keep it."""
        key = self._cache.key_of(request, self._requester)
        kept = self._cache.get(key)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingFolders:
    """What a person asked for: where to record, what to replay, where the cache is."""

    record: Path | None = None
    replay: Path | None = None
    cache: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingModes:
    """The open recorder, recording and cache of one run; without any, models are called directly."""

    recorder: Recorder | None = None
    recording: Recording | None = None
    cache: Cache | None = None

    def __bool__(self) -> bool:
        return bool(self._open())

    @property
    def replaying(self) -> bool:
        """Whether nobody is asked, so that no model has to be there."""
        return self.recording is not None

    def model(self, model: Model, requester: Requester) -> Model:
        """Return *model* as *requester* is to see it."""
        if self.recording is not None:
            return ReplayedModel(requester, self.recording)
        if self.cache is not None:
            model = CachedModel(model, requester, self.cache)
        if self.recorder is not None:
            model = RecordedModel(model, requester, self.recorder)
        return model

    def words(self) -> list[str]:
        """Return what a person should know at the end."""
        return [line for source in self._open() for line in source.words()]

    def close(self) -> None:
        """Close them all."""
        for source in self._open():
            source.close()

    def _open(self) -> list[Recorder | Recording | Cache]:
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
