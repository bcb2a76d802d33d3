"""Patches: the diff between two snapshots, and the edits that a patch makes."""

import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import Change
from bakeoff.workspaces.git import git, last_lines, quoted, run_git
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
    """A path that a change touches, with its new mode and content; None where it is deleted."""

    path: bytes
    mode: bytes
    content: bytes | None


def diff(work: ThreadWork, before: Snapshot, after: Snapshot, *, git_dir: Path) -> Change:
    """Return the change from *before* to *after*, which are both in *git_dir*."""
    if before.commit == after.commit or before.commit is None or after.commit is None:
        return Change(patch="", left_out=after.left_out)
    (git_dir / "info" / "attributes").write_bytes(_attributes(before, after))
    output = git(work, git_dir, *_DIFF.split(), before.commit, after.commit)
    counts, _, patch = output.partition(b"\n\n")
    added, removed = _lines(counts)
    return Change(
        patch=_HEADER.sub(_quote_header, patch).decode("utf-8"),
        files=counts.count(b"\n") + 1 if counts else 0,
        added=added,
        removed=removed,
        left_out=after.left_out,
    )


def _quote_header(header: re.Match[bytes]) -> bytes:
    """Quote the names in a header: git cannot parse all names with spaces otherwise."""
    names = header[1]
    half = len(names) // 2
    old, new = names[:half], names[half + 1 :]
    return b"diff --git %s %s" % (quoted(old), quoted(new)) if b" " in old else header[0]


def _attributes(before: Snapshot, after: Snapshot) -> bytes:
    """Return git attributes that mark every non-text file as binary."""
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
        if plus != b"-":  # git counts no lines of binary files
            added += int(plus)
            removed += int(minus)
    return added, removed


def parse_edits(
    work: ThreadWork,
    base: Snapshot,
    patch: str,
    *,
    git_dir: Path,
    base_index: Path | None = None,
) -> list[Edit]:
    """Return the edits of *patch* to *base*; SandboxError where it does not apply.

    The patch is applied to an index only, so that no file is written. *base_index* keeps the index
    of *base* for the next call; the first one writes it.
    """
    if not patch.strip() or base.commit is None:
        return []
    index_file = git_dir / "grading.index"
    index = {"GIT_INDEX_FILE": str(index_file)}
    if base_index is not None and base_index.exists():
        shutil.copyfile(base_index, index_file)
    else:
        git(work, git_dir, "read-tree", base.commit, more=index)
        if base_index is not None:
            partial = base_index.with_name(f"{base_index.name}-{secrets.token_hex(4)}")
            shutil.copyfile(index_file, partial)
            partial.replace(base_index)  # others may do the same at this moment
    data = patch.encode("utf-8", "surrogateescape")
    applied = run_git(work, git_dir, *_APPLY.split(), "-", stdin=data, more=index)
    if applied.returncode:
        raise SandboxError(
            "the change does not fit the files of the task; were they, or what its set-up makes, "
            f"different when it was taken? git says: {one_line(last_lines(applied.stderr), width=600)}"
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
    for header, path in zip(fields[::2], fields[1::2], strict=False):
        _, mode, _, blob, _ = header.split(b" ")
        if mode != _SUBMODULE:  # a submodule: there is nothing to write
            yield path, mode, blob


def _contents(work: ThreadWork, git_dir: Path, blobs: set[bytes]) -> dict[bytes, bytes]:
    if not blobs:
        return {}
    output = git(work, git_dir, "cat-file", "--batch", stdin=b"".join(b + b"\n" for b in blobs))
    contents = {}
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        blob, _, size = output[at:end].split(b" ")
        contents[blob] = output[end + 1 : end + 1 + int(size)]
        at = end + 1 + int(size) + 1
    return contents
