"""One writer per run folder."""

import fcntl
import json
import os
import socket
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.clock import now
from bakeoff.core.errors import UsageError

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
        return "it has not said which"
    return f"pid {owner.get('pid')} on {owner.get('host')}, for {age_s:.0f} s"
