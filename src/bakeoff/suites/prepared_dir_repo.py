"""The repository of a prepared task: a path, a bundle or a URL, at a commit."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bakeoff._lib.digest import digest
from bakeoff._lib.tree_digest import tree_digest
from bakeoff.core.errors import UsageError
from bakeoff.core.workspace import Tree
from bakeoff.suites.prepared_dir_files import Repo

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", re.IGNORECASE)


def repo_tree(repo: Repo, folder: Path, *, at: str, source: str) -> Tree | None:
    """Return the files of *repo* for the task in *folder*; None where it has no repository."""
    if not repo.git_url:
        return None
    where = repo.git_url
    if not _REMOTE.match(where):
        path = _local(where, folder, source)
        if path.is_dir() and not _is_repository(path):
            return _plain_folder(path, repo, at=at, source=source)
        where = str(path)
    commit = (repo.start_commit_sha or "").lower()
    if not _COMMIT.fullmatch(commit):
        given = f", not {repo.start_commit_sha!r}" if repo.start_commit_sha else ""
        raise UsageError(
            f"{source}: key 'repo.start_commit_sha': write the whole commit{given}; "
            f"git -C REPO rev-parse {repo.branch or 'HEAD'} prints it"
        )
    return Tree(
        path=where,
        digest=digest(commit),  # git's own digest of all there is
        at=at,
        commit=commit,
        subdir=inside(repo.subdir, source) if repo.subdir else None,
        sparse=repo.sparse,
    )


def inside(path: str, where: str) -> str:
    """Return *path* plainly written; raise where it leads out of its folder."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or "\0" in path:
        raise UsageError(f"{where}: {path!r} must be a path inside its folder")
    return "/".join(parts)


def _local(text: str, folder: Path, source: str) -> Path:
    """Return a path on this machine: from the task's folder, else from where we are."""
    written = Path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    for path in (folder / written.expanduser(), written.expanduser()):
        if path.exists():
            return path.resolve()
    raise UsageError(f"{source}: key 'repo.git_url': {text!r} is not there")


def _is_repository(path: Path) -> bool:
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir()
    return bare or (path / ".git").exists()


def _plain_folder(path: Path, repo: Repo, *, at: str, source: str) -> Tree:
    """Return a folder without a history as it is."""
    for key, given in (
        ("start_commit_sha", repo.start_commit_sha),
        ("sparse_checkout", repo.sparse),
    ):
        if given:
            raise UsageError(f"{source}: key 'repo.{key}': {path} is not a git repository")
    if repo.subdir:
        path = path / inside(repo.subdir, source)
        if not path.is_dir():
            raise UsageError(f"{source}: key 'repo.subdir': {path} is not there")
    return Tree(path=str(path), digest=tree_digest(path), at=at)
