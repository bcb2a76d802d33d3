"""The files of one room on the host: copied from the pristine ones, taken as a change, graded."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from bakeoff._lib.digest import LEFT_OUT
from bakeoff._lib.phrasing import noun
from bakeoff.core.sandbox import Mount
from bakeoff.core.workspace import Change
from bakeoff.workspaces.folder import Folder
from bakeoff.workspaces.git import git, make_repository
from bakeoff.workspaces.globs import plain_path
from bakeoff.workspaces.patch import Edit, between, edits
from bakeoff.workspaces.pristine import Pristine, copied, lay
from bakeoff.workspaces.protection import Protection
from bakeoff.workspaces.snapshot import LINK, Caps, Snapshot, restamped, take
from bakeoff.workspaces.threads import ThreadWork

_AGENTS_CAPS = Caps(who="the agent", files=20_000, size=64_000_000)
_TEST_FILE = re.compile(r"test.*\.py|.*_test\.py")
_MOST_MOUNTS = 256  # each makes every command a little slower
_CODE = frozenset({".py", ".sh", ".bash", ".js", ".mjs", ".ts", ".rb", ".pl", ".php"})
_SETUPS_CAPS = Caps(who="the set-up", files=200_000, size=2_000_000_000)


@noun
class WorkspaceFiles:
    """A private copy of a workspace in `place`, with a trusted repository beside the files.

    `base` is what was there before anybody worked on it; `undone` names what of a change that was
    made to it was left as it was. `texts` are hidden files beyond those of the workspace.
    `new_modules` are those that the change brought.
    """

    place: Path
    pristine: Pristine
    base: Snapshot
    undone: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    new_modules: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """What the box shows at its root."""
        return self.place / "files"

    @property
    def git_dir(self) -> Path:
        """The trusted repository, which the box does not show."""
        return self.place / "git"


def furnish(work: ThreadWork, place: Path, pristine: Pristine) -> WorkspaceFiles:
    """Return a copy of the pristine files in the folder *place*."""
    files = WorkspaceFiles(place=place, pristine=pristine, base=pristine.snapshot)
    make_repository(files.git_dir, borrowing=(pristine.git_dir,))
    copied(work, pristine.tree, files.folder)
    base = restamped(work, files.folder, pristine.snapshot, git_dir=files.git_dir)
    return replace(files, base=base)


def after_set_up(work: ThreadWork, files: WorkspaceFiles) -> WorkspaceFiles:
    """Return *files* with what the set-up has made counted among what was there before."""
    return replace(files, base=_now(work, files, _SETUPS_CAPS))


def change(work: ThreadWork, files: WorkspaceFiles) -> Change:
    """Return what was changed since the room was furnished and set up."""
    now = _now(work, files, _AGENTS_CAPS)
    return between(work, files.base, now, git_dir=files.git_dir)


def _now(work: ThreadWork, files: WorkspaceFiles, caps: Caps) -> Snapshot:
    return take(
        work,
        files.folder,
        since=files.base,
        git_dir=files.git_dir,
        rules=files.pristine.rules,
        caps=caps,
    )


def prepare_grading(
    work: ThreadWork, files: WorkspaceFiles, made: Change | None, protection: Protection
) -> WorkspaceFiles:
    """Return *files* with the change in place, what is protected as it was, and what was hidden."""
    folder = Folder(files.folder)
    undone: list[bytes] = []
    new_modules: tuple[str, ...] = ()
    if made is not None and made.patch:

        def read(path: bytes) -> bytes:
            return git(work, files.git_dir, "cat-file", "blob", files.base.entries[path].blob)

        wanted = edits(work, files.base, made.patch, git_dir=files.git_dir)
        counting, undone = protection.split(wanted, files.base.entries, read)
        new_modules = protection.new_modules(counting, files.base.entries)
        _apply(work, counting, folder)
    for tree, brought in files.pristine.hidden:
        if not tree.at.startswith("/"):
            lay(work, brought, folder, at=tree.at)
    for name, text in files.texts.items():
        data = text.encode("utf-8", "surrogateescape")
        folder.put_file(os.fsencode(plain_path(name)), data, executable=True)
    names = tuple(path.decode("utf-8", "backslashreplace") for path in undone)
    return replace(files, undone=names, new_modules=new_modules)


def _apply(work: ThreadWork, made: list[Edit], folder: Folder) -> None:
    # what is gone goes first: a folder may have come in the place of a file, or the other way
    for edit in made:
        if edit.content is None:
            folder.remove(edit.path)
    for edit in made:
        work.go_on()
        if edit.content is None:
            continue
        if edit.mode == LINK:
            folder.put_link(edit.path, edit.content)
        else:
            folder.put_file(edit.path, edit.content, executable=edit.mode == b"100755")


def pinned(
    work: ThreadWork, files: WorkspaceFiles, root: str, read_once: Sequence[str] = ()
) -> tuple[Mount, ...]:
    """Return the hidden files inside the workspace as mounts, so that what is graded cannot write.

    Each file is mounted read-only, and not its folder: tests may write beside themselves. The
    folders are mounted as they are, so that nobody moves them away. Beyond `_MOST_MOUNTS` files,
    code and scripts come first. Test files at the paths *read_once* are left as they are: who reads
    them takes them away, which a mount would not allow.
    """
    hidden = {PurePosixPath(plain_path(name)) for name in files.texts}
    for tree, brought in files.pristine.hidden:
        if not tree.at.startswith("/"):
            work.go_on()
            hidden |= {PurePosixPath(plain_path(tree.at), name) for name in _files_in(brought)}
    hidden = {path for path in hidden if not _is_test_of(path, read_once)}
    first = sorted(hidden, key=lambda path: (path.suffix not in _CODE, path))[:_MOST_MOUNTS]
    folders = sorted({above for path in first for above in path.parents if above.name})
    return tuple(
        Mount(
            source=str(files.folder / path),
            target=str(PurePosixPath(root, path)),
            writable=path in folders,
        )
        for path in (*folders, *first)
    )


def _is_test_of(path: PurePosixPath, places: Sequence[str]) -> bool:
    """Whether *path* is one of *places*, or a test file in one that is a folder."""
    for place in places:
        if path == PurePosixPath(place):
            return True
        if PurePosixPath(place) in path.parents and _TEST_FILE.fullmatch(path.name):
            return True
    return False


def _files_in(brought: Path) -> list[str]:
    """Return the plain files of a hidden tree that were laid, by names that can be mounted."""
    names = []
    for folder, _, entries in os.walk(brought):
        for entry in entries:
            place = Path(folder, entry)
            inside = place.relative_to(brought)
            ours = not LEFT_OUT.intersection(inside.parts) and not place.is_symlink()
            if ours and place.is_file() and inside.as_posix().isprintable():
                names.append(inside.as_posix())
    return names


def hidden_elsewhere(pristine: Pristine) -> list[tuple[str, Path]]:
    """Return the hidden files that have a place of their own in the box, with where they lie."""
    return [(tree.at, brought) for tree, brought in pristine.hidden if tree.at.startswith("/")]
