"""What a folder holds at one moment, kept as a commit in a repository of our own."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bakeoff.core.errors import ChangeTooLargeError
from bakeoff.workspaces.git import WHEN, WHO, git, quoted
from bakeoff.workspaces.scan import FoundFile, IgnoreRules, Scan, is_refuse
from bakeoff.workspaces.threads import ThreadWork

Stamp = tuple[int, int, int, int, int]
LINK = b"120000"
_GROWTH = 1 << 20  # a file may be longer than it was a moment ago only where nothing isolates
_INSTEAD = "so much is not kept. Let a .gitignore of the workspace name what is no part of the work"


class SnapshotEntry(NamedTuple):
    """A file or link as git knows it; `is_text` where a patch can show it as lines."""

    mode: bytes
    blob: str
    size: int
    is_text: bool


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Every file of a folder. `stamps` tell, without reading it, that a file is still the same."""

    commit: str | None = None
    entries: Mapping[bytes, SnapshotEntry] = field(default_factory=dict)
    stamps: Mapping[bytes, Stamp] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Caps:
    """How much may have changed since the last snapshot; `who` did it."""

    who: str
    files: int
    size: int


NO_CAPS = Caps(who="the task", files=2_000_000, size=1 << 40)


def take(
    work: ThreadWork,
    folder: Path,
    *,
    since: Snapshot,
    git_dir: Path,
    rules: IgnoreRules | None,
    caps: Caps,
) -> Snapshot:
    """Return what *folder* holds now; what is new since the last snapshot goes into *git_dir*.

    New files that *rules* ignore, or that tools leave everywhere, are not part of it; where there
    are no rules everything is.
    """
    taking = _Taking(folder=folder, since=since, rules=rules, caps=caps, go_on=work.go_on)
    settled = _now(git_dir)
    argv = ("fast-import", "--quiet", "--force", "--done", "--date-format=raw")
    said = b""
    changes = taking.stream()
    first = next(changes)  # most folders are as they were, and then no git is needed
    if first:
        said = git(work, git_dir, *argv, stdin=_chain(first, changes))
    stamps = {path: stamp for path, stamp in taking.stamps.items() if stamp[3] < settled}
    return Snapshot(
        commit=said.decode().strip() if first else since.commit,
        entries=taking.entries,
        stamps=stamps,
        left_out=taking.scan.all_left_out,
    )


def restamped(work: ThreadWork, folder: Path, snapshot: Snapshot, *, git_dir: Path) -> Snapshot:
    """Return *snapshot* as that of a faithful copy of its files in *folder*."""
    settled = _now(git_dir)
    wanted = snapshot.entries
    scan = Scan(folder=folder, enters=lambda _: True, go_on=work.go_on)
    stamps = {
        found.path: found.stamp
        for found in scan
        if found.path in wanted and found.status.st_ctime_ns < settled
    }
    return Snapshot(commit=snapshot.commit, entries=wanted, stamps=stamps)


def _now(folder: Path) -> int:
    """Return the time of the file system, in its own steps: what is older cannot look like new."""
    mark = folder / "settled"
    mark.unlink(missing_ok=True)
    mark.touch()
    return mark.stat().st_ctime_ns


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


class _Taking:
    """One walk that compares a folder with a snapshot and says to git what differs."""

    def __init__(
        self,
        *,
        folder: Path,
        since: Snapshot,
        rules: IgnoreRules | None,
        caps: Caps,
        go_on: Callable[[], None],
    ) -> None:
        self.entries: dict[bytes, SnapshotEntry] = {}
        self.stamps: dict[bytes, Stamp] = {}
        self.scan = Scan(folder=folder, enters=self._enters, go_on=go_on)
        self._since = since
        self._rules = rules
        self._caps = caps
        self._go_on = go_on
        self._known_folders = _folders_of(since.entries)
        self._marks: dict[bytes, int] = {}
        self._changed = 0
        self._size = 0

    def stream(self) -> Iterator[bytes]:
        """Yield what `git fast-import` is to read; an empty piece where there is nothing new."""
        for found in self.scan:
            content = self._news(found)
            if content is not None:
                self._marks[found.path] = mark = len(self._marks) + 2
                yield b"blob\nmark :%d\ndata %d\n" % (mark, len(content))
                yield content
                yield b"\n"
        gone = self._gone()
        modes = {
            path
            for path, entry in self.entries.items()
            if path in self._since.entries
            and path not in self._marks
            and entry.mode != self._since.entries[path].mode
        }
        if not (gone or self._marks or modes) and self._since.commit is not None:
            yield b""
            return
        yield self._head()
        for path in gone:
            yield b"D %s\n" % quoted(path)
        for path, mark in self._marks.items():
            yield b"M %s :%d %s\n" % (self.entries[path].mode, mark, quoted(path))
        for path in modes:
            entry = self.entries[path]
            yield b"M %s %s %s\n" % (entry.mode, entry.blob.encode(), quoted(path))
        yield b"\nget-mark :1\ndone\n"

    def _head(self) -> bytes:
        who = f"{WHO} {WHEN}"
        before = f"from {self._since.commit}\n" if self._since.commit else ""
        return (
            f"commit refs/bakeoff/snapshot\nmark :1\nauthor {who}\ncommitter {who}\n"
            f"data 6\nfiles\n{before}"
        ).encode()

    def _news(self, found: FoundFile) -> bytes | None:
        """Note *found*; return its content where that is not what it was."""
        path, before = found.path, self._since.entries.get(found.path)
        if before is None and self._is_ignored(path):
            self._note_ignored(path)
            return None
        if before is not None and self._since.stamps.get(path) == found.stamp:
            self._keep(found, before)
            return None
        size = found.status.st_size
        if before is None or before.size != size:
            self._check(size)
        try:
            content = found.content(size + _GROWTH)
        except PermissionError:
            self.scan.leave_out(path, "it cannot be read")
            self.scan.unread.append(path)
            return None
        is_text = _is_text(content)
        if found.is_link and not is_text:
            self.scan.leave_out(path, "a link whose goal is no text")
            return None
        entry = SnapshotEntry(found.mode, _blob(content), len(content), is_text)
        self._keep(found, entry)
        if before is not None and before.blob == entry.blob:
            return None
        self._count(len(content))
        return content

    def _keep(self, found: FoundFile, entry: SnapshotEntry) -> None:
        self.entries[found.path] = (
            entry if entry.mode == found.mode else entry._replace(mode=found.mode)
        )
        self.stamps[found.path] = found.stamp

    def _gone(self) -> list[bytes]:
        """Return what is there no more; what could not be read is taken to be as it was."""
        gone = []
        unread = tuple(self.scan.unread)
        for path, entry in self._since.entries.items():
            if path in self.entries:
                continue
            if any(path == top or path.startswith(top + b"/") for top in unread):
                self.entries[path] = entry
                continue
            self._count(entry.size)
            gone.append(path)
        return gone

    def _enters(self, path: bytes) -> bool:
        if path in self._known_folders or not self._is_ignored(path, is_folder=True):
            return True
        self._note_ignored(path + b"/")
        return False

    def _note_ignored(self, path: bytes) -> None:
        refuse = is_refuse(path.rstrip(b"/"))
        self.scan.ignore(path, "tools leave it" if refuse else "a .gitignore names it")

    def _is_ignored(self, path: bytes, *, is_folder: bool = False) -> bool:
        if self._rules is None or path in self._since.entries or path in self._known_folders:
            return False
        if is_refuse(path) or self._rules.ignores(path, is_folder=is_folder):
            return True
        # a folder that is ignored is entered only for files that were there before
        parent = path.rpartition(b"/")[0]
        while parent in self._known_folders:
            if self._rules.ignores(parent, is_folder=True):
                return True
            parent = parent.rpartition(b"/")[0]
        return False

    def _count(self, size: int) -> None:
        self._changed += 1
        self._check(size)
        self._size += size

    def _check(self, more: int) -> None:
        self._go_on()
        caps = self._caps
        if self._changed > caps.files:
            raise ChangeTooLargeError(
                f"{caps.who} changed more than {caps.files:,} files; {_INSTEAD}"
            )
        if self._size + more > caps.size:
            raise ChangeTooLargeError(
                f"{caps.who} changed files of more than {caps.size / 1e6:,.0f} MB; {_INSTEAD}"
            )


def _folders_of(entries: Mapping[bytes, SnapshotEntry]) -> set[bytes]:
    folders: set[bytes] = set()
    for path in entries:
        parent = path.rpartition(b"/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition(b"/")[0]
    return folders


def _is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _blob(content: bytes) -> str:
    head = b"blob %d\0" % len(content)
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()
