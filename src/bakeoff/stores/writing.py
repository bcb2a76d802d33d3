"""Whether somebody is writing to a run folder right now."""

import fcntl
import json
import os
import socket
from pathlib import Path

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
