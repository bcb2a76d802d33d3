"""The pristine files of a task: fetched, checked out, combined once and copied for every trial."""

import asyncio
import os
import re
import secrets
import shutil
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bakeoff._lib import process_identity, scratch
from bakeoff._lib.digest import LEFT_OUT, digest, tree_digest
from bakeoff._lib.process import run_to_completion
from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import Tree, Workspace
from bakeoff.workspaces.folder import Folder
from bakeoff.workspaces.git import COMMIT_DATE, git, last_lines, make_repository, program
from bakeoff.workspaces.globs import compile_tree_glob, normalize_path, path_parts
from bakeoff.workspaces.scan import GITIGNORE as IGNORE_FILE
from bakeoff.workspaces.scan import IgnoreRules, Scan
from bakeoff.workspaces.snapshot import LINK, NO_LIMITS, Snapshot, take_snapshot
from bakeoff.workspaces.threads import ThreadWork

_TIME_S = 1800.0
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_GIT_SETTINGS = (
    "-c core.hooksPath=/dev/null -c core.fsmonitor=false -c fetch.recurseSubmodules=false "
    "-c gc.auto=0 -c maintenance.auto=false -c protocol.ext.allow=never"
)
_KEPT_REF = "refs/bakeoff/kept"


def repository_folder(tree: Tree, cache: Path) -> Path:
    """Return where in *cache* the repository with the commit of *tree* is, once it was fetched."""
    return cache / f"{digest([tree.path, tree.commit or ''])}.git"


def fetch_repository(work: ThreadWork, tree: Tree, cache: Path) -> Path:
    """Return a private repository that contains the commit of *tree*."""
    commit = tree.commit or ""
    if not _COMMIT.fullmatch(commit):
        raise SandboxError(f"{tree.path}: {commit!r} is not a commit; give all 40 digits of it")
    repository = repository_folder(tree, cache)
    if repository.is_dir():
        return repository
    cache.mkdir(parents=True, exist_ok=True)
    _remove_orphans(cache)
    partial = cache / f"new-{process_identity.current()}-{secrets.token_hex(4)}"
    try:
        make_repository(partial, sha256=len(commit) == 64)
        _fetch(work, tree.path, commit, partial)
        try:
            partial.rename(repository)
        except OSError:
            if not repository.is_dir():
                raise  # not lost to another process, so something else is wrong
    finally:
        scratch.remove(partial)
    return repository


def _fetch(work: ThreadWork, source: str, commit: str, into: Path) -> None:
    """Fetch one commit without its history; everything where the server serves no single commit."""
    shallow_failure = _try_fetch(
        work, into, source, f"{commit}:{_KEPT_REF}", options=("--depth=1",)
    )
    if shallow_failure is None:
        return
    full_failure = _try_fetch(work, into, source, "+refs/*:refs/fetched/*")
    if full_failure is not None:
        raise SandboxError(
            f"{source} cannot be fetched: {one_line(full_failure or shallow_failure, width=600)}"
        )
    try:
        git(work, into, "update-ref", _KEPT_REF, f"{commit}^{{commit}}")
    except SandboxError as error:
        raise SandboxError(f"{source} has no commit {commit}") from error


def _try_fetch(
    work: ThreadWork, into: Path, source: str, what: str, *, options: tuple[str, ...] = ()
) -> str | None:
    """Return None where the fetch worked, else git's error.

    Only here the user's own git configuration applies: it says how to reach and authenticate with
    a server. `env` removes variables that would point git to another repository.
    """
    clean = ("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE")
    settings = ("GIT_TERMINAL_PROMPT=0", "LC_ALL=C", f"GIT_DIR={into}")
    fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *options)
    # a source may look like an option
    argv = (
        *(*clean, *settings, program(), *_GIT_SETTINGS.split()),
        *(*fetch, "--end-of-options", source, what),
    )
    done = work.run(argv, time_s=_TIME_S)
    return None if done.returncode == 0 else last_lines(done.stderr)


def _remove_orphans(cache: Path) -> None:
    for path in cache.glob("new-*"):
        owner = process_identity.find(path.name)
        if owner is not None and process_identity.is_dead(owner):
            scratch.remove(path)


def check_out(work: ThreadWork, tree: Tree, repository: Path, into: Path) -> None:
    """Write the files of *tree* into the new folder *into*, without git's own files.

    `sparse` patterns are those of git's sparse checkout, relative to the repository.
    """
    checkout = into.with_name(f"{into.name}.checkout")
    git_dir, files = checkout / "git", checkout / "files"
    files.mkdir(parents=True)
    try:
        make_repository(git_dir, alternates=(repository,), sha256=len(str(tree.commit)) == 64)
        subdir = "/".join(path_parts(tree.subdir or ""))
        patterns = tree.sparse or ((f"/{subdir}/",) if subdir else ())
        more = {"GIT_WORK_TREE": str(files)}
        options = ["-c", "core.bare=false"]
        if patterns:
            lines = "".join(f"{pattern}\n" for pattern in patterns)
            (git_dir / "info" / "sparse-checkout").write_text(lines, encoding="utf-8")
            options += ["-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=false"]
        git(work, git_dir, *options, "read-tree", "-m", "-u", str(tree.commit), more=more)
        chosen = files / subdir
        if not chosen.is_dir() or chosen.is_symlink() or ".." in subdir.split("/"):
            raise SandboxError(f"{tree.path} at {tree.commit}: no folder {subdir!r} is in it")
        chosen.rename(into)
    finally:
        scratch.remove(checkout)


def materialize(work: ThreadWork, tree: Tree, into: Path, *, cache: Path) -> None:
    """Write the files of *tree* into the new folder *into*; the caller handles `at`."""
    if tree.commit is not None:
        check_out(work, tree, fetch_repository(work, tree, cache), into)
        return
    source = Path(tree.path)
    if not source.is_dir():
        raise SandboxError(f"{source} is not there any more; the task needs this folder")
    into.mkdir()
    _overlay(work, os.fsencode(source), Folder(into), b"", LEFT_OUT | frozenset(tree.left_out))
    if tree_digest(into) != tree.digest:
        raise SandboxError(
            f"{source} is not what it was when the plan was made; put it back as it was, or plan "
            "a new run with it"
        )


def overlay(work: ThreadWork, source: Path, folder: Folder, *, at: str = "") -> None:
    """Copy the files of *source* over those in *folder*, links as links.

    Files are replaced, folders are merged, and git's own folders are skipped.
    """
    top = os.fsencode(normalize_path(at))
    if top:
        folder.make_folder(top)
    _overlay(work, os.fsencode(source), folder, top + b"/" if top else b"", LEFT_OUT)


def _overlay(
    work: ThreadWork, source: bytes, folder: Folder, under: bytes, left_out: frozenset[str]
) -> None:
    work.check_cancelled()
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
            _overlay(work, entry.path, folder, name + b"/", left_out)
        elif entry.is_file(follow_symlinks=False):
            folder.copy_file(name, entry.path)


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
_COMMIT_ENVIRONMENT = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Bakeoff"), ("EMAIL", "bakeoff@localhost"), ("DATE", COMMIT_DATE))
}


@dataclass(frozen=True, kw_only=True)
class Pristine:
    """The workspace of a task on the disk of this machine.

    `tree` holds the files, with a `.git` of one commit in the agent's working directory; `git_dir`
    holds the same files as `snapshot`, out of every agent's reach. `hidden` are the hidden trees
    and the folders they are in.
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

    @property
    def index(self) -> Path:
        """Git's index of the snapshot, once a change was graded."""
        return self.git_dir / "base.index"


def build(work: ThreadWork, workspace: Workspace, *, cache: Path) -> Pristine:
    """Build the workspace in a new folder, which belongs to the caller."""
    folder = scratch.new_folder("pristine")
    try:
        return _build(work, workspace, folder, cache)
    except BaseException:
        scratch.remove(folder)
        raise


def _build(work: ThreadWork, workspace: Workspace, folder: Path, cache: Path) -> Pristine:
    hidden = tuple(
        (tree, folder / f"hidden-{number}") for number, tree in enumerate(workspace.hidden)
    )
    for tree, hidden_folder in hidden:
        materialize(work, tree, hidden_folder, cache=cache)
    root = folder / "tree"
    root.mkdir()
    root.chmod(0o755)
    _build_tree(work, workspace, root, cache)
    make_repository(folder / "git")
    snapshot = take_snapshot(
        work, root, since=Snapshot(), git_dir=folder / "git", rules=None, limits=NO_LIMITS
    )
    rules = IgnoreRules.of(
        (path.rpartition(b"/")[0], (root / os.fsdecode(path)).read_bytes())
        for path, entry in snapshot.entries.items()
        if path.rpartition(b"/")[2] == IGNORE_FILE and entry.mode != LINK
    )
    if not workspace.whole_box:
        _write_agent_repository(work, folder, snapshot, workspace.workdir)
    return Pristine(folder=folder, snapshot=snapshot, rules=rules, hidden=hidden)


def _build_tree(work: ThreadWork, workspace: Workspace, root: Path, cache: Path) -> None:
    folder = Folder(root)
    for number, tree in enumerate(workspace.files):
        if tree.at.startswith("/"):
            raise SandboxError(f"{tree.at!r} is not inside the workspace; only hidden files may be")
        source = root.with_name(f"files-{number}")
        materialize(work, tree, source, cache=cache)
        if number == 0 and not tree.at:
            root.rmdir()
            source.rename(root)  # it is still empty
            root.chmod(0o755)
        else:
            overlay(work, source, folder, at=tree.at)
            scratch.remove(source)
    if workspace.removed:
        _remove(work, workspace.removed, folder)
    for name, text in workspace.texts.items():
        try:
            folder.put_file(os.fsencode(name), text.encode("utf-8", "surrogateescape"))
        except ValueError as error:
            raise SandboxError(f"{name!r} is not a path inside the workspace") from error
    if workspace.workdir:
        folder.make_folder(os.fsencode(normalize_path(workspace.workdir)))


def _remove(work: ThreadWork, patterns: tuple[str, ...], folder: Folder) -> None:
    try:
        matchers = [compile_tree_glob(pattern) for pattern in patterns]
    except ValueError as error:
        raise SandboxError(f"files cannot be removed: {error}") from error
    scan = Scan(folder=folder.path, enters=lambda _: True, check_cancelled=work.check_cancelled)
    paths = [file.path for file in scan]
    for path in paths:
        if any(matcher.fullmatch(path) for matcher in matchers):
            folder.remove(path)


def _write_agent_repository(
    work: ThreadWork, folder: Path, snapshot: Snapshot, workdir: str
) -> None:
    """Write a `.git` with exactly one commit into the agent's working directory."""
    trusted, start = folder / "git", normalize_path(workdir)
    under = os.fsencode(start) + b"/"
    if not start:
        tree = f"{snapshot.commit}^{{tree}}"
    elif any(path.startswith(under) for path in snapshot.entries):
        tree = f"{snapshot.commit}:{start}"
    else:
        tree = git(work, trusted, "mktree").decode().strip()  # an empty one
    message = ("-m", "The task")
    commit = git(work, trusted, "commit-tree", tree, *message, more=_COMMIT_ENVIRONMENT).strip()
    pack = git(work, trusted, "pack-objects", "--revs", "--stdout", "-q", stdin=commit + b"\n")
    own = folder / "tree" / start / ".git"
    make_repository(own)
    git(work, own, "index-pack", "--stdin", stdin=pack)
    (own / "objects" / "info" / "alternates").unlink()
    (own / "HEAD").write_text(f"ref: {_BRANCH}\n", encoding="ascii")
    git(work, own, "update-ref", _BRANCH, commit.decode())
    git(work, own, "read-tree", _BRANCH, more={"GIT_INDEX_FILE": str(own / "index")})
    (own / "config").write_text(
        _AGENTS_CONFIG, encoding="ascii"
    )  # last: until here our configuration applies


def copy_folder(work: ThreadWork, source: Path, into: Path) -> None:
    """Copy a folder with everything in it, sharing blocks where the file system can."""
    program = shutil.which("cp") or "/bin/cp"
    sharing = ("--reflink=auto",) if sys.platform == "linux" else ()
    into.mkdir()
    into.chmod(0o755)
    done = work.run((program, "-a", *sharing, f"{source}/.", str(into)))
    if done.returncode:
        raise SandboxError(f"the workspace could not be copied: {last_lines(done.stderr)}")


T = TypeVar("T")


class RefCache(Generic[T]):
    """Creates a value on first use and shares it; keeps at most *max_idle* unused values."""

    def __init__(self, *, max_idle: int, discard: Callable[[T], Awaitable[None]]) -> None:
        self._max_idle = max_idle
        self._discard = discard
        self._entries: OrderedDict[str, asyncio.Task[T]] = OrderedDict()
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def acquire(self, key: str, make: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """Hold the value for *key*; the first caller creates it, and the others wait."""
        task = self._entries.get(key)
        if task is None:
            task = self._entries[key] = asyncio.ensure_future(_await(make))
        self._entries.move_to_end(key)
        self._users[key] = self._users.get(key, 0) + 1
        try:
            # a caller that is cancelled while it waits must not cancel the others
            yield await asyncio.shield(task)
        finally:
            self._users[key] -= 1
            await run_to_completion(self._evict())

    async def close(self) -> None:
        """Discard every value."""
        self._max_idle = 0
        for task in self._entries.values():
            task.cancel()
        await self._evict()

    async def _evict(self) -> None:
        """Discard failed values, and unused ones beyond the idle limit."""
        idle = [key for key in self._entries if not self._users.get(key)]
        failed = [key for key in idle if self._entries[key].done() and _failed(self._entries[key])]
        unused = [key for key in idle if key not in failed]
        for key in (*failed, *unused[: max(0, len(unused) - self._max_idle)]):
            if self._users.get(key) or key not in self._entries:
                continue  # taken or discarded while another one was discarded
            task = self._entries.pop(key)
            self._users.pop(key, None)
            task.cancel()
            await asyncio.wait({task})
            if not _failed(task):
                await self._discard(task.result())


async def _await(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


def _failed(task: "asyncio.Task[T]") -> bool:
    return task.cancelled() or task.exception() is not None
