"""Record, replay and cache modes of a run."""

from dataclasses import dataclass
from pathlib import Path

from bakeoff._lib.redact import Redactor
from bakeoff.core.errors import UsageError
from bakeoff.core.ports import Model
from bakeoff.core.stop import Stop
from bakeoff.models.recording.cache import Cache, CachedModel
from bakeoff.models.recording.recorder import RecordedModel, Recorder, Requester
from bakeoff.models.recording.replay import Recording, ReplayedModel


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
