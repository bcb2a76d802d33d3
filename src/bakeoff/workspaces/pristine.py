"""The files of a task before anybody has touched them, made once and copied for every room."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import Tree, Workspace
from bakeoff.workspaces.aside import Work
from bakeoff.workspaces.folder import Folder
from bakeoff.workspaces.git import WHEN, git, last_words, make_repository
from bakeoff.workspaces.globs import inside
from bakeoff.workspaces.ignore import NAME as IGNORE_FILE
from bakeoff.workspaces.ignore import IgnoreRules
from bakeoff.workspaces.paths import plain_path
from bakeoff.workspaces.scan import Scan
from bakeoff.workspaces.snapshot import LINK, NO_CAPS, Snapshot, take
from bakeoff.workspaces.trees import bring, lay

_BRANCH = "refs/heads/main"
_AGENTS_CONFIG = """\
[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = true
[user]
	name = Agent
	email = agent@localhost
"""
_NOBODY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Bakeoff"), ("EMAIL", "bakeoff@localhost"), ("DATE", WHEN))
}


@dataclass(frozen=True, kw_only=True)
class Pristine:
    """The workspace of a task on the disk of this machine.

    `tree` holds the files, with a `.git` of one commit at the place where the agent starts;
    `git_dir` holds the same files as `snapshot`, where no agent can reach it. `hidden` are the
    hidden trees with the folders they were brought to.
    """

    folder: Path
    snapshot: Snapshot
    rules: IgnoreRules
    hidden: tuple[tuple[Tree, Path], ...]

    @property
    def tree(self) -> Path:
        """The files."""
        return self.folder / "tree"

    @property
    def git_dir(self) -> Path:
        """The trusted repository."""
        return self.folder / "git"


def build(work: Work, workspace: Workspace, *, cache: Path) -> Pristine:
    """Return the workspace in a new folder, which belongs to the caller."""
    folder = scratch.new_folder("pristine")
    try:
        return _built(work, workspace, folder, cache)
    except BaseException:
        scratch.remove(folder)
        raise


def _built(work: Work, workspace: Workspace, folder: Path, cache: Path) -> Pristine:
    hidden = tuple(
        (tree, folder / f"hidden-{number}") for number, tree in enumerate(workspace.hidden)
    )
    for tree, place in hidden:
        bring(work, tree, place, cache=cache)
    root = folder / "tree"
    root.mkdir()
    root.chmod(0o755)
    _lay_files(work, workspace, root, cache)
    make_repository(folder / "git")
    snapshot = take(work, root, since=Snapshot(), git_dir=folder / "git", rules=None, caps=NO_CAPS)
    rules = IgnoreRules.of(
        (path.rpartition(b"/")[0], (root / os.fsdecode(path)).read_bytes())
        for path, entry in snapshot.entries.items()
        if path.rpartition(b"/")[2] == IGNORE_FILE and entry.mode != LINK
    )
    if not workspace.whole_box:
        _give_history(work, folder, snapshot, workspace.workdir)
    return Pristine(folder=folder, snapshot=snapshot, rules=rules, hidden=hidden)


def _lay_files(work: Work, workspace: Workspace, root: Path, cache: Path) -> None:
    folder = Folder(root)
    for number, tree in enumerate(workspace.files):
        if tree.at.startswith("/"):
            raise SandboxError(f"{tree.at!r} is not inside the workspace; only hidden files may be")
        brought = root.with_name(f"files-{number}")
        bring(work, tree, brought, cache=cache)
        if number == 0 and not tree.at:
            root.rmdir()
            brought.rename(root)  # nothing lies there yet
            root.chmod(0o755)
        else:
            lay(work, brought, folder, at=tree.at)
            scratch.remove(brought)
    if workspace.removed:
        _remove(work, workspace.removed, folder)
    for name, text in workspace.texts.items():
        try:
            folder.put_file(os.fsencode(name), text.encode("utf-8", "surrogateescape"))
        except ValueError as error:
            raise SandboxError(f"{name!r} is not a path inside the workspace") from error
    if workspace.workdir:
        folder.make_folder(os.fsencode(plain_path(workspace.workdir)))


def _remove(work: Work, patterns: tuple[str, ...], folder: Folder) -> None:
    try:
        matchers = [inside(pattern) for pattern in patterns]
    except ValueError as error:
        raise SandboxError(f"files cannot be removed: {error}") from error
    scan = Scan(folder=folder.path, enters=lambda _: True, go_on=work.go_on)
    paths = [found.path for found in scan]
    for path in paths:
        if any(matcher.fullmatch(path) for matcher in matchers):
            folder.remove(path)


def _give_history(work: Work, folder: Path, snapshot: Snapshot, workdir: str) -> None:
    """Put a `.git` with one commit, and nothing that tells of another, where the agent starts."""
    trusted, start = folder / "git", plain_path(workdir)
    under = os.fsencode(start) + b"/"
    if not start:
        tree = f"{snapshot.commit}^{{tree}}"
    elif any(path.startswith(under) for path in snapshot.entries):
        tree = f"{snapshot.commit}:{start}"
    else:
        tree = git(work, trusted, "mktree").decode().strip()  # an empty one
    message = ("-m", "The task")
    commit = git(work, trusted, "commit-tree", tree, *message, more=_NOBODY).strip()
    pack = git(work, trusted, "pack-objects", "--revs", "--stdout", "-q", stdin=commit + b"\n")
    own = folder / "tree" / start / ".git"
    make_repository(own)
    git(work, own, "index-pack", "--stdin", stdin=pack)
    (own / "objects" / "info" / "alternates").unlink()
    (own / "HEAD").write_text(f"ref: {_BRANCH}\n", encoding="ascii")
    git(work, own, "update-ref", _BRANCH, commit.decode())
    git(work, own, "read-tree", _BRANCH, more={"GIT_INDEX_FILE": str(own / "index")})
    (own / "config").write_text(_AGENTS_CONFIG, encoding="ascii")  # last: until here it is ours


def copied(work: Work, source: Path, into: Path) -> None:
    """Copy a folder with everything in it, sharing blocks where the file system can."""
    program = shutil.which("cp") or "/bin/cp"
    sharing = ("--reflink=auto",) if sys.platform == "linux" else ()
    into.mkdir()
    into.chmod(0o755)
    done = work.run((program, "-a", *sharing, f"{source}/.", str(into)))
    if done.returncode:
        raise SandboxError(f"the workspace could not be copied: {last_words(done.stderr)}")
