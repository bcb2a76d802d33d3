"""A change as text: the patch between two snapshots, and the files that a patch makes of one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import Change
from bakeoff.workspaces.git import git, last_words, quoted, run_git
from bakeoff.workspaces.snapshot import Snapshot, SnapshotEntry
from bakeoff.workspaces.threads import ThreadWork

_SPECIAL = re.compile(rb"([\\*?\[])")
_LONGEST_LINE = 2000  # git ignores an attribute line of 2048 bytes and more
_NO_DRIVER = b"* !diff\n"
_ALL_BINARY = b"* -diff\n"
_DIFF = (
    "diff-tree -r -p --numstat --binary --full-index --no-ext-diff --no-textconv --no-renames "
    "--no-color --src-prefix=a/ --dst-prefix=b/"
)
_APPLY = "apply --cached --binary --whitespace=nowarn"
_HEADER = re.compile(rb"^diff --git (a/.* b/.*)$", re.MULTILINE)
_ABSENT = b"000000"
_SUBMODULE = b"160000"


class Edit(NamedTuple):
    """A path that a change touches: its mode and content afterwards, None where it is gone."""

    path: bytes
    mode: bytes
    content: bytes | None


def between(work: ThreadWork, before: Snapshot, after: Snapshot, *, git_dir: Path) -> Change:
    """Return how *after* differs from *before*; both are in *git_dir*."""
    if before.commit == after.commit or before.commit is None or after.commit is None:
        return Change(patch="", left_out=after.left_out)
    (git_dir / "info" / "attributes").write_bytes(_attributes(before, after))
    said = git(work, git_dir, *_DIFF.split(), before.commit, after.commit)
    counts, _, patch = said.partition(b"\n\n")
    added, removed = _lines(counts)
    return Change(
        patch=_HEADER.sub(_unmistakable, patch).decode("utf-8"),
        files=counts.count(b"\n") + 1 if counts else 0,
        added=added,
        removed=removed,
        left_out=after.left_out,
    )


def _unmistakable(header: re.Match[bytes]) -> bytes:
    """Return a header with its names in quotes: git cannot read each of those with spaces again."""
    names = header[1]
    half = len(names) // 2
    old, new = names[:half], names[half + 1 :]
    return b"diff --git %s %s" % (quoted(old), quoted(new)) if b" " in old else header[0]


def _attributes(before: Snapshot, after: Snapshot) -> bytes:
    """Return the attributes under which every file that is no text is shown in git's binary form."""
    lines = [_NO_DRIVER]
    for path in before.entries.keys() | after.entries.keys():
        old, new = before.entries.get(path), after.entries.get(path)
        if old == new or (_shows(old) and _shows(new)):
            continue
        lines.append(quoted(b"/" + _SPECIAL.sub(rb"\\\1", path)) + b" -diff\n")
    if any(len(line) > _LONGEST_LINE for line in lines):
        return _ALL_BINARY
    return b"".join(lines)


def _shows(entry: SnapshotEntry | None) -> bool:
    return entry is None or entry.is_text


def _lines(counts: bytes) -> tuple[int, int]:
    added = removed = 0
    for line in counts.splitlines():
        plus, minus, _ = line.split(b"\t", 2)
        if plus != b"-":  # of a binary file no lines are counted
            added += int(plus)
            removed += int(minus)
    return added, removed


def edits(work: ThreadWork, base: Snapshot, patch: str, *, git_dir: Path) -> list[Edit]:
    """Return what *patch* makes of *base*; SandboxError where it does not fit.

    It is applied to an index only: no file is written, and so none outside of a folder.
    """
    if not patch.strip() or base.commit is None:
        return []
    index = {"GIT_INDEX_FILE": str(git_dir / "grading.index")}
    git(work, git_dir, "read-tree", base.commit, more=index)
    data = patch.encode("utf-8", "surrogateescape")
    applied = run_git(work, git_dir, *_APPLY.split(), "-", stdin=data, more=index)
    if applied.returncode:
        raise SandboxError(
            "the change does not fit the files of the task; were they, or what its set-up makes, "
            f"different when it was taken? git says: {one_line(last_words(applied.stderr), width=600)}"
        )
    raw = ("diff-index", "--cached", "-r", "-z", "--no-renames", "--full-index", base.commit)
    touched = list(_touched(git(work, git_dir, *raw, more=index)))
    contents = _contents(work, git_dir, {blob for _, mode, blob in touched if mode != _ABSENT})
    return [
        Edit(path, mode, None if mode == _ABSENT else contents[blob])
        for path, mode, blob in touched
    ]


def _touched(raw: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield path, new mode and new blob of each line, such as `:100644 000000 OLD NEW D`, path."""
    fields = raw.split(b"\0")
    for told, path in zip(fields[::2], fields[1::2], strict=False):
        _, mode, _, blob, _ = told.split(b" ")
        if mode != _SUBMODULE:  # a pointer to another repository; there is nothing to write
            yield path, mode, blob


def _contents(work: ThreadWork, git_dir: Path, blobs: set[bytes]) -> dict[bytes, bytes]:
    if not blobs:
        return {}
    said = git(work, git_dir, "cat-file", "--batch", stdin=b"".join(b + b"\n" for b in blobs))
    contents = {}
    at = 0
    while at < len(said):
        end = said.index(b"\n", at)
        blob, _, size = said[at:end].split(b" ")
        contents[blob] = said[end + 1 : end + 1 + int(size)]
        at = end + 1 + int(size) + 1
    return contents
