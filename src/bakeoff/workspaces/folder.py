"""Writes into an untrusted folder without ever leaving it.

Each path component is opened without following links, so a link that an agent left is replaced and
never followed.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DOWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 1 << 26


class Folder:
    """A folder on the host; names in it are bytes, relative to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put_file(self, name: bytes, content: bytes, *, executable: bool = False) -> None:
        """Write a file; whatever is at its path is replaced."""
        with self._prepared_parent(name) as (parent, last):
            target = os.open(last, _NEW, 0o666, dir_fd=parent)
            try:
                _write(target, content)
                os.fchmod(target, 0o755 if executable else 0o644)
            finally:
                os.close(target)

    def put_link(self, name: bytes, to: bytes) -> None:
        """Write a symbolic link; whatever is at its path is replaced."""
        with self._prepared_parent(name) as (parent, last):
            os.symlink(to, last, dir_fd=parent)

    def copy_file(self, name: bytes, source: bytes) -> None:
        """Copy a file of the host with its permissions; whatever is at its path is replaced."""
        origin = os.open(source, _READ)
        try:
            with self._prepared_parent(name) as (parent, last):
                target = os.open(last, _NEW, 0o600, dir_fd=parent)
                try:
                    _copy(origin, target)
                    mode = stat.S_IMODE(os.fstat(origin).st_mode) & 0o777
                    os.fchmod(target, mode | 0o600)
                finally:
                    os.close(target)
        finally:
            os.close(origin)

    def make_folder(self, name: bytes) -> None:
        """Create a folder if there is none; anything else at its path is replaced."""
        with self._down(name.split(b"/") if name else []):
            pass

    def remove(self, name: bytes) -> None:
        """Remove a path recursively, and the parent folders that are empty then."""
        parts = name.split(b"/")
        while parts:
            try:
                with self._down(parts[:-1], make=False) as parent:
                    _clear(parts[-1], parent)
            except (FileNotFoundError, NotADirectoryError):
                return
            parts.pop()
            if not parts or not self._is_empty(parts):
                return

    def _is_empty(self, parts: list[bytes]) -> bool:
        with self._down(parts, make=False) as folder, os.scandir(folder) as entries:
            return next(entries, None) is None

    @contextmanager
    def _prepared_parent(self, name: bytes) -> Iterator[tuple[int, bytes]]:
        """Open the parent folder of *name*, with nothing at its path."""
        parts = name.split(b"/")
        if not name or any(part in (b"", b".", b"..") for part in parts):
            raise ValueError(f"{name!r} is not a path inside a folder")
        with self._down(parts[:-1]) as parent:
            _clear(parts[-1], parent)
            yield parent, parts[-1]

    @contextmanager
    def _down(self, parts: list[bytes], *, make: bool = True) -> Iterator[int]:
        here = os.open(self.path, _DOWN)
        try:
            for part in parts:
                below = _step(part, here, make=make)
                os.close(here)
                here = below
            yield here
        finally:
            os.close(here)


def _step(name: bytes, parent: int, *, make: bool) -> int:
    try:
        return os.open(name, _DOWN, dir_fd=parent)
    except OSError:
        if not make:
            raise
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)  # a link or a file is in the way; a folder would be open
    os.mkdir(name, 0o755, dir_fd=parent)
    return os.open(name, _DOWN, dir_fd=parent)


def _clear(name: bytes, parent: int) -> None:
    """Remove whatever has this name; a link is removed itself, not its target."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):  # unlink of a folder: EISDIR, elsewhere EPERM
        _clear_folder(name, parent)


def _clear_folder(name: bytes, parent: int) -> None:
    folder = os.open(name, _DOWN, dir_fd=parent)
    try:
        with os.scandir(folder) as entries:
            names = [os.fsencode(entry.name) for entry in entries]
        for inner in names:
            _clear(inner, folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=parent)


def _write(target: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(target, rest) :]


def _copy(origin: int, target: int) -> None:
    """Copy a file, sharing blocks where the file system can."""
    if hasattr(os, "copy_file_range"):
        try:
            while os.copy_file_range(origin, target, _AT_ONCE):
                pass
        except OSError:  # not between these two file systems
            os.lseek(origin, 0, os.SEEK_SET)
            os.ftruncate(target, 0)
            os.lseek(target, 0, os.SEEK_SET)
        else:
            return
    while piece := os.read(origin, 1 << 20):
        _write(target, piece)
