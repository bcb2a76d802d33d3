"""The files of one workspace on the host: copied, read as a change, prepared for grading."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from bakeoff._lib.digest import LEFT_OUT
from bakeoff._lib.value_object import value_object
from bakeoff.core.sandbox import Mount
from bakeoff.core.workspace import Change
from bakeoff.workspaces.folder import Folder
from bakeoff.workspaces.git import git, make_repository
from bakeoff.workspaces.globs import normalize_path
from bakeoff.workspaces.patch import Edit, diff, parse_edits
from bakeoff.workspaces.pristine import Pristine, copy_folder, overlay
from bakeoff.workspaces.protection import Protection
from bakeoff.workspaces.snapshot import LINK, ChangeLimits, Snapshot, restamp, take_snapshot
from bakeoff.workspaces.threads import ThreadWork

_AGENT_LIMITS = ChangeLimits(who="the agent", files=20_000, size=64_000_000)
_TEST_FILE = re.compile(r"test.*\.py|.*_test\.py")
_MAX_MOUNTS = 256  # each mount makes every command slower
_CODE_SUFFIXES = frozenset({".py", ".sh", ".bash", ".js", ".mjs", ".ts", ".rb", ".pl", ".php"})
_SETUP_LIMITS = ChangeLimits(who="the set-up", files=200_000, size=2_000_000_000)


@value_object
class WorkspaceFiles:
    """A copy of a workspace in the folder `private`, with a trusted repository beside the files.

    `base` is the state before any work; `undone` names the paths of a change that were reverted.
    `texts` are hidden files beyond those of the workspace. `new_modules` are Python modules that the
    change adds.
    """

    private: Path
    pristine: Pristine
    base: Snapshot
    undone: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    new_modules: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder that the box shows at its root."""
        return self.private / "files"

    @property
    def git_dir(self) -> Path:
        """The trusted repository, which the box does not show."""
        return self.private / "git"

    @property
    def is_pristine(self) -> bool:
        """Whether no set-up has changed the base."""
        return self.base.commit == self.pristine.snapshot.commit


def copy_pristine(
    work: ThreadWork, private: Path, pristine: Pristine, *, will_be_read: bool
) -> WorkspaceFiles:
    """Copy the pristine files into the folder *private*.

    Where what changes in them *will_be_read*, that later reads no file that has not changed.
    """
    files = WorkspaceFiles(private=private, pristine=pristine, base=pristine.snapshot)
    make_repository(files.git_dir, alternates=(pristine.git_dir,))
    copy_folder(work, pristine.tree, files.folder)
    if not will_be_read:
        return replace(files, base=replace(files.base, stamps={}))
    base = restamp(work, files.folder, pristine.snapshot, git_dir=files.git_dir)
    return replace(files, base=base)


def after_set_up(work: ThreadWork, files: WorkspaceFiles) -> WorkspaceFiles:
    """Return *files* with the results of the set-up as part of the base."""
    return replace(files, base=_snapshot(work, files, _SETUP_LIMITS))


def change(work: ThreadWork, files: WorkspaceFiles) -> Change:
    """Return what was changed since the workspace was copied and set up."""
    now = _snapshot(work, files, _AGENT_LIMITS)
    return diff(work, files.base, now, git_dir=files.git_dir)


def _snapshot(work: ThreadWork, files: WorkspaceFiles, limits: ChangeLimits) -> Snapshot:
    return take_snapshot(
        work,
        files.folder,
        since=files.base,
        git_dir=files.git_dir,
        rules=files.pristine.rules,
        limits=limits,
    )


def prepare_grading(
    work: ThreadWork, files: WorkspaceFiles, change: Change | None, protection: Protection
) -> WorkspaceFiles:
    """Apply the change except for protected paths, then write the hidden files."""
    folder = Folder(files.folder)
    undone: list[bytes] = []
    new_modules: tuple[str, ...] = ()
    if change is not None and change.patch:

        def read(path: bytes) -> bytes:
            return git(work, files.git_dir, "cat-file", "blob", files.base.entries[path].blob)

        edits = parse_edits(
            work,
            files.base,
            change.patch,
            git_dir=files.git_dir,
            base_index=files.pristine.index if files.is_pristine else None,
        )
        accepted, undone = protection.split(edits, files.base.entries, read)
        new_modules = protection.new_modules(accepted, files.base.entries)
        _apply(work, accepted, folder)
    for tree, source in files.pristine.hidden:
        if not tree.at.startswith("/"):
            overlay(work, source, folder, at=tree.at)
    for name, text in files.texts.items():
        data = text.encode("utf-8", "surrogateescape")
        folder.put_file(os.fsencode(normalize_path(name)), data, executable=True)
    names = tuple(path.decode("utf-8", "backslashreplace") for path in undone)
    return replace(files, undone=names, new_modules=new_modules)


def _apply(work: ThreadWork, edits: list[Edit], folder: Folder) -> None:
    # deletions first: a folder may replace a file, or the other way round
    for edit in edits:
        if edit.content is None:
            folder.remove(edit.path)
    for edit in edits:
        work.check_cancelled()
        if edit.content is None:
            continue
        if edit.mode == LINK:
            folder.put_link(edit.path, edit.content)
        else:
            folder.put_file(edit.path, edit.content, executable=edit.mode == b"100755")


def pinned_mounts(
    work: ThreadWork, files: WorkspaceFiles, root: str, read_once: Sequence[str] = ()
) -> tuple[Mount, ...]:
    """Return mounts for the hidden files in the workspace, so that the graded code cannot change them.

    Each file is mounted read-only, but not its folder: tests may write beside themselves. Folders
    are mounted writable, so that they cannot be moved. Beyond `_MAX_MOUNTS` files, code and scripts
    come first. Test files at the paths *read_once* are not mounted, because their reader removes
    them.
    """
    hidden = {PurePosixPath(normalize_path(name)) for name in files.texts}
    for tree, source in files.pristine.hidden:
        if not tree.at.startswith("/"):
            work.check_cancelled()
            hidden |= {PurePosixPath(normalize_path(tree.at), name) for name in _files_in(source)}
    hidden = {path for path in hidden if not _is_test_of(path, read_once)}
    first = sorted(hidden, key=lambda path: (path.suffix not in _CODE_SUFFIXES, path))[:_MAX_MOUNTS]
    folders = sorted({above for path in first for above in path.parents if above.name})
    return tuple(
        Mount(
            source=str(files.folder / path),
            target=str(PurePosixPath(root, path)),
            writable=path in folders,
        )
        for path in (*folders, *first)
    )


def _is_test_of(path: PurePosixPath, paths: Sequence[str]) -> bool:
    """Whether *path* is one of *paths*, or a test file in one that is a folder."""
    for candidate in paths:
        if path == PurePosixPath(candidate):
            return True
        if PurePosixPath(candidate) in path.parents and _TEST_FILE.fullmatch(path.name):
            return True
    return False


def _files_in(source: Path) -> list[str]:
    """Return the regular files of a hidden tree whose names can be mounted."""
    names = []
    for folder, _, entries in os.walk(source):
        for entry in entries:
            file = Path(folder, entry)
            inside = file.relative_to(source)
            included = not LEFT_OUT.intersection(inside.parts) and not file.is_symlink()
            if included and file.is_file() and inside.as_posix().isprintable():
                names.append(inside.as_posix())
    return names


def hidden_outside_root(pristine: Pristine) -> list[tuple[str, Path]]:
    """Return the hidden trees outside the workspace's root: path in the box, and folder here."""
    return [(tree.at, source) for tree, source in pristine.hidden if tree.at.startswith("/")]
