"""Reading a folder that a stranger left: nothing in it is followed, run or waited for.

Folders are entered one name at a time, through descriptors; regular files and links are told,
anything else (a FIFO, a socket, a device) is named and left alone. Git's own folders are not
entered at all.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bakeoff._lib.scratch import unlock
from bakeoff.core.errors import ChangeTooLargeError, SandboxError
from bakeoff.workspaces.globs import compiled

_DOWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_FOUND = 500_000
_DEEPEST = 100  # each level holds a descriptor
_LONGEST = 3_900  # git takes no path of 4096 bytes
_MOST_NAMED = 200
_MOST_IGNORED = 50


@dataclass(frozen=True, slots=True)
class FoundFile:
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

    def __iter__(self) -> Iterator[FoundFile]:
        """Yield every file and link."""
        with _opened(os.fsencode(self.folder), None, _DOWN) as top:
            yield from self._inside(top, b"", 0)

    def _inside(self, folder: int, under: bytes, depth: int) -> Iterator[FoundFile]:
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
                yield FoundFile(path, status, name, folder)

    def _folder(self, name: bytes, parent: int, path: bytes, depth: int) -> Iterator[FoundFile]:
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


NAME = b".gitignore"
_ALWAYS = frozenset({b"__pycache__", b".pytest_cache", b"node_modules"})
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    matches: re.Pattern[bytes]
    by_name: bool
    folders_only: bool
    kept: bool


@dataclass(frozen=True, kw_only=True)
class IgnoreRules:
    """The rules of one tree, by the folder in which they stand; the root is `b""`."""

    rules: Mapping[bytes, tuple[_Rule, ...]]

    @classmethod
    def of(cls, files: Iterable[tuple[bytes, bytes]]) -> "IgnoreRules":
        """Return the rules of .gitignore files, each with the folder it lies in and its content."""
        read = {folder: _rules(content) for folder, content in files}
        return cls(rules={folder: rules for folder, rules in read.items() if rules})

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether *path* is ignored by its own name; whoever asks has asked for its parents."""
        folder, _, name = path.rpartition(b"/")
        if not self.rules:
            return False
        while True:
            inside = path[len(folder) + 1 :] if folder else path
            for rule in reversed(self.rules.get(folder, ())):
                if rule.folders_only and not is_folder:
                    continue
                if rule.matches.fullmatch(name if rule.by_name else inside):
                    return not rule.kept
            if not folder:
                return False
            folder = folder.rpartition(b"/")[0]


def is_refuse(path: bytes) -> bool:
    """Whether *path* is what tools leave behind wherever they run, whatever the rules say."""
    name = path.rpartition(b"/")[2]
    return name in _ALWAYS or name.endswith(b".pyc")


def _rules(content: bytes) -> tuple[_Rule, ...]:
    lines = content.removeprefix(_BOM).split(b"\n")
    return tuple(rule for line in lines if (rule := _rule(line.removesuffix(b"\r"))))


def _rule(line: bytes) -> _Rule | None:
    if line.startswith(b"#"):
        return None
    pattern = _without_trailing_spaces(line)
    kept = pattern.startswith(b"!")
    pattern = pattern[kept:]
    folders_only = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if not pattern:
        return None
    by_name = b"/" not in pattern
    return _Rule(
        matches=compiled(pattern.removeprefix(b"/")),
        by_name=by_name,
        folders_only=folders_only,
        kept=kept,
    )


def _without_trailing_spaces(line: bytes) -> bytes:
    bare = line.rstrip(b" ")
    escapes = len(bare) - len(bare.rstrip(b"\\"))
    escaped_space = escapes % 2 and len(bare) < len(line)
    return line[: len(bare) + 1] if escaped_space else bare
