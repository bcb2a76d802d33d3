"""Reading a folder that a stranger left: nothing in it is followed, run or waited for.

Folders are entered one name at a time, through descriptors; regular files and links are told,
anything else (a FIFO, a socket, a device) is named and left alone. Git's own folders are not
entered at all.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bakeoff._lib.unlock import unlock
from bakeoff.core.errors import ChangeTooLargeError, SandboxError

_DOWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_FOUND = 500_000
_DEEPEST = 100  # each level holds a descriptor
_LONGEST = 3_900  # git takes no path of 4096 bytes
_MOST_NAMED = 200
_MOST_IGNORED = 50


@dataclass(frozen=True, slots=True)
class Found:
    """A file or a link, open to be read while the scan stands at it."""

    path: bytes
    status: os.stat_result
    _name: bytes
    _parent: int

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link, whose content is where it points."""
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def mode(self) -> bytes:
        """What git calls its mode."""
        if self.is_link:
            return b"120000"
        return b"100755" if self.status.st_mode & stat.S_IXUSR else b"100644"

    @property
    def stamp(self) -> tuple[int, int, int, int, int]:
        """What stays equal only as long as nobody touches the file: the kernel keeps its ctime."""
        status = self.status
        return (
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_mode,
        )

    def content(self, most: int) -> bytes:
        """Return its bytes; SandboxError where it has grown beyond *most* meanwhile."""
        if self.is_link:
            return os.readlink(self._name, dir_fd=self._parent)
        with _opened(self._name, self._parent, _READ) as file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise SandboxError(f"{os.fsdecode(self.path)!r} changes while it is read")
            with os.fdopen(os.dup(file), "rb") as stream:
                content = stream.read(most + 1)
        if len(content) > most:
            raise SandboxError(f"{os.fsdecode(self.path)!r} is larger than {most} bytes")
        return content


@dataclass(kw_only=True)
class Scan:
    """One walk through *folder*; `enters` says of a folder's path whether to look into it."""

    folder: Path
    enters: Callable[[bytes], bool]
    go_on: Callable[[], None]
    left_out: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    _ignored_more: int = 0
    unread: list[bytes] = field(default_factory=list)
    _found: int = 0

    def __iter__(self) -> Iterator[Found]:
        """Yield every file and link."""
        with _opened(os.fsencode(self.folder), None, _DOWN) as top:
            yield from self._inside(top, b"", 0)

    def _inside(self, folder: int, under: bytes, depth: int) -> Iterator[Found]:
        entries = []
        with os.scandir(folder) as listing:
            for entry in listing:
                self._count()
                entries.append((os.fsencode(entry.name), entry))
        for name, entry in entries:
            path = under + name
            if name.lower() == b".git":  # in any spelling: git would not take it either
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(status.st_mode):
                yield from self._folder(name, folder, path, depth)
            elif not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                self.leave_out(path, _kind(status.st_mode))
            elif len(path) > _LONGEST:
                self.leave_out(path, "its path is too long")
            elif name == b".gitmodules" and stat.S_ISLNK(status.st_mode):
                self.leave_out(path, "git takes no link of this name")
            else:
                yield Found(path, status, name, folder)

    def _folder(self, name: bytes, parent: int, path: bytes, depth: int) -> Iterator[Found]:
        if not self.enters(path):
            return
        if depth >= _DEEPEST or len(path) > _LONGEST:
            self.leave_out(path, "a folder too deep inside others")
            return
        try:
            with _opened(name, parent, _DOWN) as folder:
                yield from self._inside(folder, path + b"/", depth + 1)
        except PermissionError:
            self.unread.append(path)
            self.leave_out(path, "it cannot be read")

    def leave_out(self, path: bytes, why: str) -> None:
        """Note that a path is not part of what was found."""
        if len(self.left_out) < _MOST_NAMED:
            name = path.decode("utf-8", "backslashreplace")
            self.left_out.append(f"{name} ({why})")

    def ignore(self, path: bytes, why: str) -> None:
        """Note that a path is left out because nobody wants to keep its like."""
        if len(self.ignored) < _MOST_IGNORED:
            self.ignored.append(f"{path.decode('utf-8', 'backslashreplace')} ({why})")
        else:
            self._ignored_more += 1

    @property
    def all_left_out(self) -> tuple[str, ...]:
        """What is not part of what was found, with the reasons; of what is ignored the first few."""
        more = [f"and {self._ignored_more:,} more that are ignored"] if self._ignored_more else []
        return (*self.left_out, *self.ignored, *more)

    def _count(self) -> None:
        self.go_on()
        self._found += 1
        if self._found > _MOST_FOUND:
            raise ChangeTooLargeError(f"the workspace holds more than {_MOST_FOUND:,} files")


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


@contextmanager
def _opened(name: bytes, parent: int | None, flags: int) -> Iterator[int]:
    """Open a path, after its owner has been let in again where it was shut out."""
    try:
        opened = os.open(name, flags, dir_fd=parent)
    except PermissionError:
        unlock(name, parent)
        opened = os.open(name, flags, dir_fd=parent)
    try:
        yield opened
    finally:
        os.close(opened)
