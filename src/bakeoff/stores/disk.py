"""What a disk refuses, said as one error."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bakeoff.core.errors import LedgerError


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
