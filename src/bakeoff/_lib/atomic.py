"""Files that are there whole or not at all."""

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from bakeoff._lib.private import FILE_MODE


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace *path* with *data*; a crash leaves the old file or the new one.

    What can be made again need not be *durable*: a power loss may then leave an empty file.
    """
    with replacing(path, durable=durable) as file:
        file.write(data)


def clear_halves(path: Path) -> None:
    """Remove what a process that was killed while it wrote *path* left beside it.

    Only for somebody who knows that nobody else is writing it now.
    """
    for half in path.parent.glob(f"{glob.escape(_prefix(path))}*"):
        half.unlink(missing_ok=True)


def _prefix(path: Path) -> str:
    return f".{path.name[:40]}."


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Give a file to write to that takes the place of *path* once it is whole."""
    descriptor, name = tempfile.mkstemp(prefix=_prefix(path), dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(name).chmod(FILE_MODE)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
