"""Snapshots of a folder, stored as commits in a private repository."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bakeoff.core.errors import ChangeTooLargeError
from bakeoff.workspaces.git import COMMIT_AUTHOR, COMMIT_DATE, git, quoted
from bakeoff.workspaces.scan import IgnoreRules, Scan, ScannedFile, is_build_artifact
from bakeoff.workspaces.threads import ThreadWork

Stamp = tuple[int, int, int, int, int]
LINK = b"120000"
_GROWTH = 1 << 20  # a file can grow between stat and read only in a sandbox that does not isolate
_ADVICE = "so much is not kept. Let a .gitignore of the workspace name what is no part of the work"


class SnapshotEntry(NamedTuple):
    """A file or link as git stores it; `is_text` where a patch can show it as text."""

    mode: bytes
    blob: str
    size: int
    is_text: bool


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Every file of a folder; `stamps` show without reading a file that it has not changed."""

    commit: str | None = None
    entries: Mapping[bytes, SnapshotEntry] = field(default_factory=dict)
    stamps: Mapping[bytes, Stamp] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChangeLimits:
    """How much may change from one snapshot to the next; `who` is named in the error."""

    who: str
    files: int
    size: int


NO_LIMITS = ChangeLimits(who="the task", files=2_000_000, size=1 << 40)


def take_snapshot(
    work: ThreadWork,
    folder: Path,
    *,
    since: Snapshot,
    git_dir: Path,
    rules: IgnoreRules | None,
    limits: ChangeLimits,
) -> Snapshot:
    """Return a snapshot of *folder*; what is new since the last one is written to *git_dir*.

    New files that *rules* ignore, and build artifacts, are left out; without rules everything is in.
    """
    builder = _SnapshotBuilder(
        folder=folder, since=since, rules=rules, limits=limits, check_cancelled=work.check_cancelled
    )
    cutoff = _filesystem_time(git_dir)
    argv = ("fast-import", "--quiet", "--force", "--done", "--date-format=raw")
    output = b""
    changes = builder.stream()
    first = next(changes)  # most folders have not changed, and need no git
    if first:
        output = git(work, git_dir, *argv, stdin=_chain(first, changes))
    stamps = {path: stamp for path, stamp in builder.stamps.items() if stamp[3] < cutoff}
    return Snapshot(
        commit=output.decode().strip() if first else since.commit,
        entries=builder.entries,
        stamps=stamps,
        left_out=builder.scan.all_left_out,
    )


def restamp(work: ThreadWork, folder: Path, snapshot: Snapshot, *, git_dir: Path) -> Snapshot:
    """Return *snapshot* with the stamps of an exact copy of its files in *folder*."""
    cutoff = _filesystem_time(git_dir)
    wanted = snapshot.entries
    scan = Scan(folder=folder, enters=lambda _: True, check_cancelled=work.check_cancelled)
    stamps = {
        file.path: file.stamp
        for file in scan
        if file.path in wanted and file.status.st_ctime_ns < cutoff
    }
    return Snapshot(commit=snapshot.commit, entries=wanted, stamps=stamps)


def _filesystem_time(folder: Path) -> int:
    """Return the current time of the file system, in its own resolution."""
    probe = folder / "settled"
    probe.unlink(missing_ok=True)
    probe.touch()
    return probe.stat().st_ctime_ns


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


class _SnapshotBuilder:
    """Compares a folder with a snapshot and writes the differences for git."""

    def __init__(
        self,
        *,
        folder: Path,
        since: Snapshot,
        rules: IgnoreRules | None,
        limits: ChangeLimits,
        check_cancelled: Callable[[], None],
    ) -> None:
        self.entries: dict[bytes, SnapshotEntry] = {}
        self.stamps: dict[bytes, Stamp] = {}
        self.scan = Scan(folder=folder, enters=self._enters, check_cancelled=check_cancelled)
        self._since = since
        self._rules = rules
        self._limits = limits
        self._check_cancelled = check_cancelled
        self._known_folders = _folders_of(since.entries)
        self._marks: dict[bytes, int] = {}
        self._changed = 0
        self._size = 0

    def stream(self) -> Iterator[bytes]:
        """Yield the input of `git fast-import`; one empty chunk where nothing is new."""
        for file in self.scan:
            content = self._changed_content(file)
            if content is not None:
                self._marks[file.path] = mark = len(self._marks) + 2
                yield b"blob\nmark :%d\ndata %d\n" % (mark, len(content))
                yield content
                yield b"\n"
        deleted = self._deleted()
        modes = {
            path
            for path, entry in self.entries.items()
            if path in self._since.entries
            and path not in self._marks
            and entry.mode != self._since.entries[path].mode
        }
        if not (deleted or self._marks or modes) and self._since.commit is not None:
            yield b""
            return
        yield self._commit_header()
        for path in deleted:
            yield b"D %s\n" % quoted(path)
        for path, mark in self._marks.items():
            yield b"M %s :%d %s\n" % (self.entries[path].mode, mark, quoted(path))
        for path in modes:
            entry = self.entries[path]
            yield b"M %s %s %s\n" % (entry.mode, entry.blob.encode(), quoted(path))
        yield b"\nget-mark :1\ndone\n"

    def _commit_header(self) -> bytes:
        who = f"{COMMIT_AUTHOR} {COMMIT_DATE}"
        before = f"from {self._since.commit}\n" if self._since.commit else ""
        return (
            f"commit refs/bakeoff/snapshot\nmark :1\nauthor {who}\ncommitter {who}\n"
            f"data 6\nfiles\n{before}"
        ).encode()

    def _changed_content(self, file: ScannedFile) -> bytes | None:
        """Record *file*; return its content where it has changed."""
        path, before = file.path, self._since.entries.get(file.path)
        if before is None and self._is_ignored(path):
            self._note_ignored(path)
            return None
        if before is not None and self._since.stamps.get(path) == file.stamp:
            self._record(file, before)
            return None
        size = file.status.st_size
        if before is None or before.size != size:
            self._check(size)
        try:
            content = file.content(size + _GROWTH)
        except PermissionError:
            self.scan.leave_out(path, "it cannot be read")
            self.scan.unread.append(path)
            return None
        is_text = _is_text(content)
        if file.is_link and not is_text:
            self.scan.leave_out(path, "a link whose goal is no text")
            return None
        entry = SnapshotEntry(file.mode, _blob(content), len(content), is_text)
        self._record(file, entry)
        if before is not None and before.blob == entry.blob:
            return None
        self._count(len(content))
        return content

    def _record(self, file: ScannedFile, entry: SnapshotEntry) -> None:
        self.entries[file.path] = (
            entry if entry.mode == file.mode else entry._replace(mode=file.mode)
        )
        self.stamps[file.path] = file.stamp

    def _deleted(self) -> list[bytes]:
        """Return deleted paths; what could not be read counts as unchanged."""
        deleted = []
        unread = tuple(self.scan.unread)
        for path, entry in self._since.entries.items():
            if path in self.entries:
                continue
            if any(path == top or path.startswith(top + b"/") for top in unread):
                self.entries[path] = entry
                continue
            self._count(entry.size)
            deleted.append(path)
        return deleted

    def _enters(self, path: bytes) -> bool:
        if path in self._known_folders or not self._is_ignored(path, is_folder=True):
            return True
        self._note_ignored(path + b"/")
        return False

    def _note_ignored(self, path: bytes) -> None:
        refuse = is_build_artifact(path.rstrip(b"/"))
        self.scan.ignore(path, "tools leave it" if refuse else "a .gitignore names it")

    def _is_ignored(self, path: bytes, *, is_folder: bool = False) -> bool:
        if self._rules is None or path in self._since.entries or path in self._known_folders:
            return False
        if is_build_artifact(path) or self._rules.ignores(path, is_folder=is_folder):
            return True
        # an ignored folder is scanned only for files of the last snapshot
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
        self._check_cancelled()
        limits = self._limits
        if self._changed > limits.files:
            raise ChangeTooLargeError(
                f"{limits.who} changed more than {limits.files:,} files; {_ADVICE}"
            )
        if self._size + more > limits.size:
            raise ChangeTooLargeError(
                f"{limits.who} changed files of more than {limits.size / 1e6:,.0f} MB; {_ADVICE}"
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
