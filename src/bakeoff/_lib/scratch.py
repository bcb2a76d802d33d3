"""Private folders for what a run needs for a while, named so that a dead run's can be found.

Nothing else makes temporary folders: each lies in one base folder of the user, and carries the mark
of the process that made it.
"""

import atexit
import errno
import os
import secrets
import stat
import tempfile
import threading
from collections import deque
from pathlib import Path

from bakeoff._lib import process_identity

_PRIVATE = 0o700
_MAX_WAITING = 64  # more folders than that to be removed would fill the disk of a busy run
_EXIT_S = 10.0


def unlock(name: str | bytes, parent: int | None) -> None:
    """Let the owner into what is called *name* in the open folder *parent*; no link is followed."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, _PRIVATE, dir_fd=parent, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", _PRIVATE)  # noqa: PTH101 -- the only way to change just this
    finally:
        os.close(handle)


_AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def base() -> Path:
    """Return the folder in which all others lie, private to this user."""
    path = Path(tempfile.gettempdir()) / f"bakeoff-{os.getuid()}"
    path.mkdir(mode=_PRIVATE, exist_ok=True)
    status = path.lstat()
    # in a temp folder that all users share, another user may have made it first
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{path} is not a folder of this user; remove it, or set TMPDIR")
    if stat.S_IMODE(status.st_mode) != _PRIVATE:
        path.chmod(_PRIVATE)
    return path


def new_folder(kind: str) -> Path:
    """Return a new empty folder that only this user can enter; `remove` takes it away."""
    path = base() / f"{process_identity.current()}-{kind}-{secrets.token_hex(6)}"
    path.mkdir(mode=_PRIVATE)
    return path


def orphans() -> list[Path]:
    """Return the folders whose makers are gone."""
    marked = ((path, process_identity.find(path.name)) for path in base().iterdir())
    return sorted(
        path for path, mark in marked if mark is not None and process_identity.is_dead(mark)
    )


def reap() -> list[Path]:
    """Take away the folders whose makers are gone, and return which; they are emptied in the background.

    Each is made our own first: of two who come at once, one takes it, and what that one leaves if it
    dies on the way has its mark.
    """
    taken = []
    for path in orphans():
        renamed = base() / f"{process_identity.current()}-reaped-{secrets.token_hex(6)}"
        try:
            path.rename(renamed)
        except FileNotFoundError:
            continue
        _remove_soon(renamed, is_orphan=True)
        taken.append(path)
    return taken


def remove(path: Path) -> None:
    """Take a folder away with all that is in it, however it was left; no link is followed.

    Folders inside are moved up to the top before they are emptied: what is nested a hundred
    thousand deep takes no more open files, and no longer paths, than what is nested once.
    """
    try:
        top = _open_folder(path.name, os.open(path.parent, _AS_FOLDER), close=True)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        path.unlink(missing_ok=True)
        return
    try:
        waiting = _empty(top, into=top)
        while waiting:
            name = waiting.pop()
            inner = _open_folder(name, top)
            try:
                waiting += _empty(inner, into=top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    path.rmdir()


class _Remover:
    """Removes folders in a daemon thread, one after the other."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Path, bool]] = deque()
        self._working = False
        self._error: OSError | None = None

    def add(self, path: Path, *, is_orphan: bool) -> bool:
        """Take *path* over; False where too many are waiting, or after a fork, which has no thread.

        A leftover that cannot be removed is not an error: the next process tries again.
        """
        with self._changed:
            if self._owner != os.getpid() or len(self._waiting) >= _MAX_WAITING:
                return False
            self._waiting.append((path, is_orphan))
            if not self._working:
                self._working = True
                threading.Thread(target=self._work, daemon=True, name="remover").start()
        return True

    def wait(self, time_s: float | None) -> None:
        """Wait until nothing is left to remove; raise what could not be removed."""
        if self._owner != os.getpid():
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._working, time_s)
            error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        while (waiting := self._next()) is not None:
            path, is_orphan = waiting
            try:
                remove(path)
            except OSError as error:
                if not is_orphan:
                    with self._changed:
                        self._error = self._error or error

    def _next(self) -> tuple[Path, bool] | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._working = False
            self._changed.notify_all()
            return None


_remover = _Remover()


def remove_later(path: Path) -> None:
    """Take a folder out of the way now, and remove it in the background.

    It is renamed first, with the mark of this process: where that is killed, `reap` finds the folder.
    `wait_removed` waits for the removal, and so does the exit of the process, for a while.
    """
    renamed = path.with_name(f"{process_identity.current()}-removed-{secrets.token_hex(6)}")
    try:
        path.rename(renamed)
    except FileNotFoundError:
        return
    _remove_soon(renamed)


def _remove_soon(path: Path, *, is_orphan: bool = False) -> None:
    if not _remover.add(path, is_orphan=is_orphan):
        remove(path)


def wait_removed(time_s: float | None = None) -> None:
    """Wait until all that is removed in the background is gone; OSError where that cannot be."""
    _remover.wait(time_s)


atexit.register(wait_removed, _EXIT_S)


def _empty(folder: int, *, into: int) -> list[str]:
    """Unlink what *folder* holds, move its folders up, and return the new names of these."""
    moved = []
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
        elif not _removed(name, folder):
            os.close(_open_folder(name, folder))  # a folder moves only where it may be written to
            moved.append(secrets.token_hex(16))  # no other process can have taken this name
            os.rename(name, moved[-1], src_dir_fd=folder, dst_dir_fd=into)
    return moved


def _removed(name: str, folder: int) -> bool:
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES):
            return False
        raise
    return True


def _open_folder(name: str, parent: int, *, close: bool = False) -> int:
    """Open a folder, made readable and writable first where its owner was shut out."""
    try:
        try:
            opened = os.open(name, _AS_FOLDER, dir_fd=parent)
        except PermissionError:
            unlock(name, parent)
            opened = os.open(name, _AS_FOLDER, dir_fd=parent)
    finally:
        if close:
            os.close(parent)
    if stat.S_IMODE(os.fstat(opened).st_mode) & _PRIVATE != _PRIVATE:
        os.fchmod(opened, _PRIVATE)
    return opened
