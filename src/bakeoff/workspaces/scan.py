"""Scans an untrusted folder, without following links or blocking, by .gitignore rules.

Folders are opened one name at a time through descriptors. Regular files and links are yielded;
anything else (a FIFO, a socket, a device) is listed as left out. Git's own folders are skipped.
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
from bakeoff.workspaces.globs import compile_glob

_DOWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_FILES = 500_000
_MAX_DEPTH = 100  # each level holds a descriptor
_MAX_PATH = 3_900  # git takes no path of 4096 bytes
_MAX_LEFT_OUT = 200
_MAX_IGNORED = 50


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file or link that can be read while the scan is at it."""

    path: bytes
    status: os.stat_result
    _name: bytes
    _parent: int

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link; its content is its target."""
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def mode(self) -> bytes:
        """The file mode as git writes it."""
        if self.is_link:
            return b"120000"
        return b"100755" if self.status.st_mode & stat.S_IXUSR else b"100644"

    @property
    def stamp(self) -> tuple[int, int, int, int, int]:
        """A stamp that changes whenever the file is touched, because the kernel sets the ctime."""
        status = self.status
        return (
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_mode,
        )

    def content(self, max_bytes: int) -> bytes:
        """Return its bytes; SandboxError where it has grown beyond *max_bytes*."""
        if self.is_link:
            return os.readlink(self._name, dir_fd=self._parent)
        with _opened(self._name, self._parent, _READ) as file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise SandboxError(f"{os.fsdecode(self.path)!r} changes while it is read")
            with os.fdopen(os.dup(file), "rb") as stream:
                content = stream.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise SandboxError(f"{os.fsdecode(self.path)!r} is larger than {max_bytes} bytes")
        return content


@dataclass(kw_only=True)
class Scan:
    """One walk through *folder*; `enters` decides for each subfolder whether to scan it."""

    folder: Path
    enters: Callable[[bytes], bool]
    check_cancelled: Callable[[], None]
    left_out: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    _ignored_more: int = 0
    unread: list[bytes] = field(default_factory=list)
    _count_seen: int = 0

    def __iter__(self) -> Iterator[ScannedFile]:
        """Yield every file and link."""
        with _opened(os.fsencode(self.folder), None, _DOWN) as top:
            yield from self._inside(top, b"", 0)

    def _inside(self, folder: int, under: bytes, depth: int) -> Iterator[ScannedFile]:
        entries = []
        with os.scandir(folder) as listing:
            for entry in listing:
                self._count()
                entries.append((os.fsencode(entry.name), entry))
        for name, entry in entries:
            path = under + name
            if name.lower() == b".git":  # in any case: git does not accept it either
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(status.st_mode):
                yield from self._folder(name, folder, path, depth)
            elif not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                self.leave_out(path, _kind(status.st_mode))
            elif len(path) > _MAX_PATH:
                self.leave_out(path, "its path is too long")
            elif name == b".gitmodules" and stat.S_ISLNK(status.st_mode):
                self.leave_out(path, "git takes no link of this name")
            else:
                yield ScannedFile(path, status, name, folder)

    def _folder(self, name: bytes, parent: int, path: bytes, depth: int) -> Iterator[ScannedFile]:
        if not self.enters(path):
            return
        if depth >= _MAX_DEPTH or len(path) > _MAX_PATH:
            self.leave_out(path, "a folder too deep inside others")
            return
        try:
            with _opened(name, parent, _DOWN) as folder:
                yield from self._inside(folder, path + b"/", depth + 1)
        except PermissionError:
            self.unread.append(path)
            self.leave_out(path, "it cannot be read")

    def leave_out(self, path: bytes, why: str) -> None:
        """Record that a path is left out, and why."""
        if len(self.left_out) < _MAX_LEFT_OUT:
            name = path.decode("utf-8", "backslashreplace")
            self.left_out.append(f"{name} ({why})")

    def ignore(self, path: bytes, why: str) -> None:
        """Record that a path is ignored, and why."""
        if len(self.ignored) < _MAX_IGNORED:
            self.ignored.append(f"{path.decode('utf-8', 'backslashreplace')} ({why})")
        else:
            self._ignored_more += 1

    @property
    def all_left_out(self) -> tuple[str, ...]:
        """The paths that were left out, with reasons; of ignored paths only the first."""
        more = [f"and {self._ignored_more:,} more that are ignored"] if self._ignored_more else []
        return (*self.left_out, *self.ignored, *more)

    def _count(self) -> None:
        self.check_cancelled()
        self._count_seen += 1
        if self._count_seen > _MAX_FILES:
            raise ChangeTooLargeError(f"the workspace holds more than {_MAX_FILES:,} files")


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


@contextmanager
def _opened(name: bytes, parent: int | None, flags: int) -> Iterator[int]:
    """Open a path; where permissions forbid it, they are restored first."""
    try:
        opened = os.open(name, flags, dir_fd=parent)
    except PermissionError:
        unlock(name, parent)
        opened = os.open(name, flags, dir_fd=parent)
    try:
        yield opened
    finally:
        os.close(opened)


GITIGNORE = b".gitignore"
_BUILD_ARTIFACTS = frozenset({b"__pycache__", b".pytest_cache", b"node_modules"})
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    matches: re.Pattern[bytes]
    by_name: bool
    folders_only: bool
    negated: bool


@dataclass(frozen=True, kw_only=True)
class IgnoreRules:
    """The .gitignore rules of one tree, by folder; the root is `b""`."""

    rules: Mapping[bytes, tuple[_Rule, ...]]

    @classmethod
    def of(cls, files: Iterable[tuple[bytes, bytes]]) -> "IgnoreRules":
        """Parse .gitignore files, each given by its folder and its content."""
        read = {folder: _rules(content) for folder, content in files}
        return cls(rules={folder: rules for folder, rules in read.items() if rules})

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether a rule ignores *path* itself; its parents must be checked separately."""
        folder, _, name = path.rpartition(b"/")
        if not self.rules:
            return False
        while True:
            inside = path[len(folder) + 1 :] if folder else path
            for rule in reversed(self.rules.get(folder, ())):
                if rule.folders_only and not is_folder:
                    continue
                if rule.matches.fullmatch(name if rule.by_name else inside):
                    return not rule.negated
            if not folder:
                return False
            folder = folder.rpartition(b"/")[0]


def is_build_artifact(path: bytes) -> bool:
    """Whether *path* is an artifact of tools, such as bytecode, whatever the rules say."""
    name = path.rpartition(b"/")[2]
    return name in _BUILD_ARTIFACTS or name.endswith(b".pyc")


def _rules(content: bytes) -> tuple[_Rule, ...]:
    lines = content.removeprefix(_BOM).split(b"\n")
    return tuple(rule for line in lines if (rule := _rule(line.removesuffix(b"\r"))))


def _rule(line: bytes) -> _Rule | None:
    if line.startswith(b"#"):
        return None
    pattern = _without_trailing_spaces(line)
    negated = pattern.startswith(b"!")
    pattern = pattern[negated:]
    folders_only = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if not pattern:
        return None
    by_name = b"/" not in pattern
    return _Rule(
        matches=compile_glob(pattern.removeprefix(b"/")),
        by_name=by_name,
        folders_only=folders_only,
        negated=negated,
    )


def _without_trailing_spaces(line: bytes) -> bytes:
    bare = line.rstrip(b" ")
    escapes = len(bare) - len(bare.rstrip(b"\\"))
    escaped_space = escapes % 2 and len(bare) < len(line)
    return line[: len(bare) + 1] if escaped_space else bare
