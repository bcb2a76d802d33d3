"""Git repositories at a commit, fetched once and kept in a folder that runs share.

A repository is fetched aside and put in its place by one rename: whoever finds it finds it whole,
whatever was killed on the way, and of two who fetch it at the same time one wins.
"""

import re
import secrets
from pathlib import Path

from bakeoff._lib import owner, scratch
from bakeoff._lib.digest import digest
from bakeoff._lib.untrusted import one_line
from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import Tree
from bakeoff.workspaces.aside import Work
from bakeoff.workspaces.git import git, last_words, make_repository, program
from bakeoff.workspaces.paths import parts_of

_TIME_S = 1800.0
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_OWN = (
    "-c core.hooksPath=/dev/null -c core.fsmonitor=false -c fetch.recurseSubmodules=false "
    "-c gc.auto=0 -c maintenance.auto=false -c protocol.ext.allow=never"
)
_KEPT = "refs/bakeoff/kept"


def fetched(work: Work, tree: Tree, cache: Path) -> Path:
    """Return a repository of our own that holds *tree*'s commit."""
    commit = tree.commit or ""
    if not _COMMIT.fullmatch(commit):
        raise SandboxError(f"{tree.path}: {commit!r} is not a commit; give all 40 digits of it")
    place = cache / f"{digest([tree.path, commit])}.git"
    if place.is_dir():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    _remove_dead(cache)
    fresh = cache / f"new-{owner.mine()}-{secrets.token_hex(4)}"
    try:
        make_repository(fresh, sha256=len(commit) == 64)
        _fetch(work, tree.path, commit, fresh)
        try:
            fresh.rename(place)
        except OSError:
            if not place.is_dir():
                raise  # nobody was faster; something else is wrong
    finally:
        scratch.remove(fresh)
    return place


def _fetch(work: Work, source: str, commit: str, into: Path) -> None:
    """Fetch one commit without its history; all of it where the other side gives no single one."""
    said = _try(work, into, source, f"{commit}:{_KEPT}", options=("--depth=1",))
    if said is None:
        return
    every = _try(work, into, source, "+refs/*:refs/fetched/*")
    if every is not None:
        raise SandboxError(f"{source} cannot be fetched: {one_line(every or said, width=600)}")
    try:
        git(work, into, "update-ref", _KEPT, f"{commit}^{{commit}}")
    except SandboxError as error:
        raise SandboxError(f"{source} has no commit {commit}") from error


def _try(
    work: Work, into: Path, source: str, what: str, *, options: tuple[str, ...] = ()
) -> str | None:
    """Return None where the fetch worked, else what git said.

    The user's own settings are heard here, and only here: they say how a server is reached and who
    asks. `env` takes away what would point git elsewhere.
    """
    clean = ("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE")
    settings = ("GIT_TERMINAL_PROMPT=0", "LC_ALL=C", f"GIT_DIR={into}")
    fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *options)
    # a source that looks like an option is still a source
    argv = (
        *(*clean, *settings, program(), *_OWN.split()),
        *(*fetch, "--end-of-options", source, what),
    )
    done = work.run(argv, time_s=_TIME_S)
    return None if done.returncode == 0 else last_words(done.stderr)


def _remove_dead(cache: Path) -> None:
    for path in cache.glob("new-*"):
        mark = owner.find(path.name)
        if mark is not None and owner.is_dead(mark):
            scratch.remove(path)


def check_out(work: Work, tree: Tree, repository: Path, into: Path) -> None:
    """Write the files of *tree* into the new folder *into*, without any of git's own.

    `sparse` patterns are those of git's sparse checkout, from the top of the repository.
    """
    aside = into.with_name(f"{into.name}.checkout")
    git_dir, files = aside / "git", aside / "files"
    files.mkdir(parents=True)
    try:
        make_repository(git_dir, borrowing=(repository,), sha256=len(str(tree.commit)) == 64)
        subdir = "/".join(parts_of(tree.subdir or ""))
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
        scratch.remove(aside)
