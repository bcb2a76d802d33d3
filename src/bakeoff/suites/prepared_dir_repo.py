"""The repository of a prepared task: a path, a bundle or a URL, at a commit."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bakeoff._lib.digest import digest
from bakeoff._lib.tree_digest import tree_digest
from bakeoff.config.convert import dotted
from bakeoff.config.lines import shown
from bakeoff.core.errors import UsageError
from bakeoff.core.place import Place
from bakeoff.core.workspace import Tree
from bakeoff.suites.prepared_dir_files import Repo

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", re.IGNORECASE)


def repo_tree(repo: Repo, folder: Path, *, at: str, said: Callable[[str], Place]) -> Tree | None:
    """Return the files of *repo* for the task in *folder*; None where it has no repository.

    *said* tells where a key of it stands.
    """
    if not repo.git_url:
        return None
    where = repo.git_url
    if not _REMOTE.match(where):
        path = _local(where, folder, said)
        if path.is_dir() and not _is_repository(path):
            if path == folder or path in folder.parents:
                raise _wrong(
                    said("git_url"),
                    f"{path} holds the prepared folder with its tests and its solution; name a "
                    "folder that does not",
                )
            return _plain_folder(path, repo, at=at, said=said)
        where = str(path)
    commit = (repo.start_commit_sha or "").lower()
    if not _COMMIT.fullmatch(commit):
        given = f", not {repo.start_commit_sha!r}" if repo.start_commit_sha else ""
        raise _wrong(
            said("start_commit_sha"),
            f"write the whole commit{given}; git -C REPO rev-parse {repo.branch or 'HEAD'} prints it",
        )
    return Tree(
        path=where,
        digest=digest(commit),  # git's own digest of all there is
        at=at,
        commit=commit,
        subdir=inside(repo.subdir, said("subdir")) if repo.subdir else None,
        sparse=repo.sparse,
    )


def _wrong(at: Place, why: str) -> UsageError:
    return UsageError(f"{shown(at)}: key {dotted(at.key)!r}: {why}")


def inside(path: str, at: Place) -> str:
    """Return *path* plainly written; raise where it leads out of its folder, as it stands *at*."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or "\0" in path:
        raise UsageError(f"{shown(at)}: {path!r} must be a path inside its folder")
    return "/".join(parts)


def _local(text: str, folder: Path, said: Callable[[str], Place]) -> Path:
    """Return a path on this machine: from the task's folder, else from where we are."""
    written = Path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    for path in (folder / written.expanduser(), written.expanduser()):
        if path.exists():
            return path.resolve()
    raise _wrong(said("git_url"), f"{text!r} is not there")


def _is_repository(path: Path) -> bool:
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir()
    return bare or (path / ".git").exists()


def _plain_folder(path: Path, repo: Repo, *, at: str, said: Callable[[str], Place]) -> Tree:
    """Return a folder without a history as it is."""
    for key, given in (
        ("start_commit_sha", repo.start_commit_sha),
        ("sparse_checkout", repo.sparse),
    ):
        if given:
            raise _wrong(said(key), f"{path} is not a git repository")
    if repo.subdir:
        path = path / inside(repo.subdir, said("subdir"))
        if not path.is_dir():
            raise _wrong(said("subdir"), f"{path} is not there")
    return Tree(path=str(path), digest=tree_digest(path), at=at)
