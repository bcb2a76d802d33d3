"""The files that a task names, brought onto this machine as they were when the plan was made."""

import os
from pathlib import Path

from bakeoff._lib.tree_digest import LEFT_OUT, tree_digest
from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import Tree
from bakeoff.workspaces.aside import Work
from bakeoff.workspaces.folder import Folder
from bakeoff.workspaces.paths import plain_path
from bakeoff.workspaces.repositories import check_out, fetched


def bring(work: Work, tree: Tree, into: Path, *, cache: Path) -> None:
    """Write the files of *tree* into the new folder *into*; `at` is left to the caller."""
    if tree.commit is not None:
        check_out(work, tree, fetched(work, tree, cache), into)
        return
    source = Path(tree.path)
    if not source.is_dir():
        raise SandboxError(f"{source} is not there any more; the task needs this folder")
    into.mkdir()
    _lay(work, os.fsencode(source), Folder(into), b"", LEFT_OUT | frozenset(tree.left_out))
    if tree_digest(into) != tree.digest:
        raise SandboxError(
            f"{source} is not what it was when the plan was made; put it back as it was, or plan "
            "a new run with it"
        )


def lay(work: Work, source: Path, folder: Folder, *, at: str = "") -> None:
    """Lay the files in *source* over those in *folder*; links are copied as links.

    What has the same name is replaced, folders are merged. Git's own folders stay behind.
    """
    top = os.fsencode(plain_path(at))
    if top:
        folder.make_folder(top)
    _lay(work, os.fsencode(source), folder, top + b"/" if top else b"", LEFT_OUT)


def _lay(work: Work, source: bytes, folder: Folder, under: bytes, left_out: frozenset[str]) -> None:
    work.go_on()
    with os.scandir(source) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        name = under + entry.name
        if os.fsdecode(entry.name) in left_out:
            continue
        if entry.is_symlink():
            folder.put_link(name, os.readlink(entry.path))  # noqa: PTH115 -- names may be no text
        elif entry.is_dir(follow_symlinks=False):
            folder.make_folder(name)
            _lay(work, entry.path, folder, name + b"/", left_out)
        elif entry.is_file(follow_symlinks=False):
            folder.copy_file(name, entry.path)
