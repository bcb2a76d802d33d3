"""The live status of a run, for other processes: a small file in its folder."""

from contextlib import suppress
from pathlib import Path

import msgspec

from bakeoff._lib.clock import timestamp
from bakeoff._lib.files import remove_partial_files, write_atomic
from bakeoff._lib.redact import Redactor
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import EndpointState

LIVE = "live.json"
_STALE_S = 15.0


@value_object
class LiveStatus:
    """What the limiters of a run's endpoints do, at a moment in seconds since the epoch."""

    at: float
    endpoints: tuple[EndpointState, ...] = ()


class LivePublisher:
    """Writes the live status of the run in *folder*, without secrets, and takes it away at the end."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._path = folder / LIVE
        self._redactor = redactor

    def publish(self, endpoints: tuple[EndpointState, ...]) -> None:
        """Say what the endpoints do now."""
        data = msgspec.json.encode(LiveStatus(at=timestamp(), endpoints=endpoints))
        with suppress(OSError):  # nobody needs it: a full disk shows where something is kept
            write_atomic(self._path, self._redactor.data(data), durable=False)

    def close(self) -> None:
        """Say nothing more."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
            remove_partial_files(self._path)


def read_live_status(folder: Path) -> LiveStatus | None:
    """Return what the run in *folder* says of itself; None where it says nothing, or said it long ago."""
    try:
        status = msgspec.json.decode((folder / LIVE).read_bytes(), type=LiveStatus)
    except (OSError, msgspec.MsgspecError):
        return None
    return status if timestamp() - status.at < _STALE_S else None
