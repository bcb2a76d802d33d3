"""Whether somebody is writing to a run folder right now."""

import fcntl
import json
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bakeoff.core.errors import LedgerError
from bakeoff.stores.lock import LOCK


def being_written(folder: Path) -> bool:
    """Return whether a process holds the lock of *folder*.

    The lock is tried only where its owner may be alive: a try that succeeds holds it for a moment,
    in which a run that starts would be refused.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False  # never written to, or not ours to look into
    try:
        if not _may_be_alive(os.read(descriptor, 4096)):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _may_be_alive(told: bytes) -> bool:
    try:
        owner = json.loads(told)
        if owner["host"] != socket.gethostname():
            return True
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return False
    except (ValueError, KeyError, TypeError, OSError):
        return True
    return True


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turn whatever keeps *path* from being written into a `LedgerError` that says what to do."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: Exception) -> LedgerError:
    """Return *error* as the one a person should read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return LedgerError(
        f"{path} cannot be written: {reason}; what was shown as done is kept: "
        "make room there, then resume the run"
    )
