"""Writing to a run folder: the lock of the one writer, and a disk that is full."""

import fcntl
import json
import os
import socket
import sqlite3
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.clock import now
from bakeoff.core.errors import LedgerError, UsageError

LOCK = "writer.lock"


class FolderLock:
    """Held while this process writes to a folder; the system releases it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, files.FILE_MODE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._descriptor, 4096).decode("utf-8", "replace")
            os.close(self._descriptor)
            raise UsageError(
                f"{folder} is being written by another process ({_describe(holder)}); "
                "wait until it ends, or stop it"
            ) from error
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": now().isoformat()}
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(owner).encode(), 0)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Let others write."""
        os.close(self._descriptor)


def _describe(holder: str) -> str:
    try:
        owner = json.loads(holder)
        from datetime import datetime

        age_s = (now() - datetime.fromisoformat(owner["since"])).total_seconds()
    except (ValueError, KeyError, TypeError):
        return "it left no process id"
    return f"pid {owner.get('pid')} on {owner.get('host')}, for {age_s:.0f} s"


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


def writer_of(folder: Path) -> int | None:
    """Return the id of the process on this machine that holds the lock of *folder*; None if there is none."""
    try:
        owner = json.loads((folder / LOCK).read_bytes())
        is_here = owner["host"] == socket.gethostname() and being_written(folder)
        return int(owner["pid"]) if is_here else None
    except (ValueError, KeyError, TypeError, OSError):
        return None


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


class writing_to:  # noqa: N801 -- reads as a word at its place: `with writing_to(path)`
    """Turn whatever keeps *path* from being written into a `LedgerError` that says what to do."""

    __slots__ = ("_path",)  # a class: a generator costs three times as much, each trial

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None and isinstance(error, sqlite3.Error | OSError):
            raise not_written(self._path, error) from error


def not_written(path: Path, error: Exception) -> LedgerError:
    """Return *error* as a message for the user."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return LedgerError(
        f"{path} cannot be written: {reason}; what was shown as done is kept: "
        "make room there, then resume the run"
    )
