"""Private folders, atomic and durable file writes, and safe file names."""

import glob
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bakeoff._lib.digest import digest_bytes

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_folder(folder: Path, *, exist_ok: bool = True, durable: bool = False) -> None:
    """Make *folder*, with all above it that is missing; what is there already stays as it is.

    One that is *durable* is still there after a power loss.
    """
    missing = []
    above = folder
    while not above.exists() and above != above.parent:
        missing.append(above)
        above = above.parent
    if not missing and not exist_ok:
        raise FileExistsError(17, "File exists", str(folder))
    for made in reversed(missing):
        made.mkdir(mode=FOLDER_MODE, exist_ok=exist_ok or made != folder)
        if durable:
            sync_folder(made.parent)


def remove_empty(*folders: Path) -> None:
    """Remove those of *folders* that are empty, in this order."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def make_file(path: Path) -> None:
    """Make sure that there is a file at *path*; one that is made is empty and private."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace *path* with *data*; a crash leaves the old file or the new one.

    What can be made again need not be *durable*: a power loss may then leave an empty file.
    """
    with replacing(path, durable=durable) as file:
        file.write(data)


def remove_partial_files(path: Path) -> None:
    """Remove the temporary files of a process that was killed while it wrote *path*.

    Only where no other process is writing it now.
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


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 80
_DIGITS = 16  # enough that a million ids do not meet
_DIGESTED = re.compile(rf"-[0-9a-f]{{{_DIGITS}}}$")


def safe_name(text: str) -> str:
    """Return a file name for *text*: readable, never a path, and different for different texts.

    A text that is already a plain name stays as it is; any other gets a digest of itself, and so
    does one that looks as if it had one.
    """
    plain = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST]
    if plain and plain == text and not _DIGESTED.search(plain):
        return plain
    return digested_name(text)


def digested_name(text: str) -> str:
    """Return a file name for *text* with a digest of it, also where it is a plain name already."""
    plain = _UNSAFE.sub("_", text).lstrip(".")[:_LONGEST]
    digest = digest_bytes(text.encode("utf-8", "surrogatepass"))[:_DIGITS]
    return f"{plain.strip('._') or 'id'}-{digest}"
