"""The files of a prepared task, as they are written: tb_meta.json and overrides.json."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import digest, tree_digest
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.values import Json
from bakeoff.core.workspace import Tree
from bakeoff.formats.detect import PREPARED_META
from bakeoff.formats.text.convert import convert, dotted
from bakeoff.formats.text.json import read_json
from bakeoff.formats.text.locate import line_in, shown

OVERRIDES = "overrides.json"

S = TypeVar("S", bound=msgspec.Struct)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", re.IGNORECASE)


class Repo(msgspec.Struct, kw_only=True):
    """Where the repository of a task comes from; other keys are for people."""

    git_url: str | None = None
    branch: str | None = None
    start_commit_sha: str | None = None
    end_commit_sha: str | None = None
    subdir: str | None = None
    sparse_checkout: list[str] | str | None = None

    @property
    def sparse(self) -> tuple[str, ...]:
        """The paths of a sparse checkout; none is all of them."""
        given = self.sparse_checkout or ()
        return (given,) if isinstance(given, str) else tuple(given)


class Instructions(msgspec.Struct, kw_only=True):
    """The instruction of the agent."""

    instructions: str | None = None


class Sensitivity(msgspec.Struct, kw_only=True):
    """How carefully a task is to be handled."""

    level: str | None = None


class PreparedRubric(msgspec.Struct, kw_only=True):
    """One criterion of the grade; without tests it is judged."""

    id: str
    criterion: str = ""
    weight: Annotated[float, Meta(ge=0)] = 1.0
    evaluation_criteria: Json = None


class PreparedTestScript(msgspec.Struct, kw_only=True):
    """A test of a rubric: its text, or a file that lies in the prepared folder or in the repo."""

    path: str
    rubric_id: str | None = None
    content: str | None = None


class PreparedEvaluation(msgspec.Struct, kw_only=True):
    """How the work is graded; what is None is not said."""

    rubrics: list[PreparedRubric] | None = None
    test_scripts: list[PreparedTestScript] | None = None
    pass_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None


class TbMeta(msgspec.Struct, kw_only=True):
    """A prepared task; keys that are not here are kept as its metadata."""

    task_id: str | None = None
    metadata: dict[str, Json] = {}
    repo: Repo | None = None
    lm: Instructions = msgspec.field(default_factory=Instructions)
    sensitivity: Sensitivity | None = None
    evaluation: PreparedEvaluation = msgspec.field(default_factory=PreparedEvaluation)


class InjectedFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A file to be written; its path begins at the repository, or with `/app/` at the root."""

    path: str
    content: str


class Overrides(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a run changes about a prepared task; a key that is mistyped would change nothing."""

    prompt: str | None = None
    lm_instructions: str | None = None
    overlay_files: dict[str, str] = {}
    overlay_repo_files: dict[str, str] = {}
    inject_files: list[InjectedFile] = []
    remove_repo_paths: list[str] = []
    evaluation: PreparedEvaluation | None = None
    rubrics: list[PreparedRubric] | None = None
    test_scripts: list[PreparedTestScript] | None = None
    repo: Repo | None = None
    environment_variables: dict[str, str | int | float] = {}


def read_meta(folder: Path) -> tuple[TbMeta, dict[str, Json]]:
    """Return the tb_meta.json in *folder*, and the keys of it that mean nothing here."""
    path = folder / PREPARED_META
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    if not path.is_file():
        raise UsageError(f"{path} is not there: a prepared task is a folder with a {PREPARED_META}")
    data = _object(path)
    known = TbMeta.__struct_fields__
    meta = _converted(data, TbMeta, path)
    return meta, {key: value for key, value in data.items() if key not in known}


def read_overrides(path: Path) -> Overrides:
    """Return the overrides at *path*."""
    overrides = _converted(_object(path), Overrides, path)
    if overrides.prompt is not None and overrides.lm_instructions is not None:
        where = shown(SourceLocation(file=str(path), key=("lm_instructions",)))
        raise UsageError(f"{where}: write `prompt` or `lm_instructions`, not both")
    return overrides


def _object(path: Path) -> dict[str, Json]:
    data, _ = read_json(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a JSON object is expected, not {_kind(data)}")
    return data


def _kind(data: Json) -> str:
    return "a list" if isinstance(data, Sequence) and not isinstance(data, str) else repr(data)


def _converted(data: dict[str, Json], kind: type[S], path: Path) -> S:
    return convert(data, kind, source=str(path), line_of=partial(line_in, path))


def repo_tree(
    repo: Repo, folder: Path, *, at: str, locate: Callable[[str], SourceLocation]
) -> Tree | None:
    """Return the files of *repo* for the task in *folder*; None where it has no repository.

    *locate* tells where a key of it stands.
    """
    if not repo.git_url:
        return None
    where = repo.git_url
    if not _REMOTE.match(where):
        path = _local(where, folder, locate)
        if path.is_dir() and not _is_repository(path):
            if path == folder or path in folder.parents:
                raise _wrong(
                    locate("git_url"),
                    f"{path} holds the prepared folder with its tests and its solution; name a "
                    "folder that does not",
                )
            return _plain_folder(path, repo, at=at, locate=locate)
        where = str(path)
    commit = (repo.start_commit_sha or "").lower()
    if not _COMMIT.fullmatch(commit):
        given = f", not {repo.start_commit_sha!r}" if repo.start_commit_sha else ""
        raise _wrong(
            locate("start_commit_sha"),
            f"write the whole commit{given}; git -C REPO rev-parse {repo.branch or 'HEAD'} prints it",
        )
    return Tree(
        path=where,
        digest=digest(commit),  # git's own digest of all there is
        at=at,
        commit=commit,
        subdir=inside(repo.subdir, locate("subdir")) if repo.subdir else None,
        sparse=repo.sparse,
    )


def _wrong(at: SourceLocation, why: str) -> UsageError:
    return UsageError(f"{shown(at)}: key {dotted(at.key)!r}: {why}")


def inside(path: str, at: SourceLocation) -> str:
    """Return *path* plainly written; raise where it leads out of its folder, as it stands *at*."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or "\0" in path:
        raise UsageError(f"{shown(at)}: {path!r} must be a path inside its folder")
    return "/".join(parts)


def _local(text: str, folder: Path, locate: Callable[[str], SourceLocation]) -> Path:
    """Return a path on this machine: from the task's folder, else from where we are."""
    written = Path(unquote(urlsplit(text).path) if text.startswith("file:") else text)
    for path in (folder / written.expanduser(), written.expanduser()):
        if path.exists():
            return path.resolve()
    raise _wrong(locate("git_url"), f"{text!r} is not there")


def _is_repository(path: Path) -> bool:
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir()
    return bare or (path / ".git").exists()


def _plain_folder(
    path: Path, repo: Repo, *, at: str, locate: Callable[[str], SourceLocation]
) -> Tree:
    """Return a folder without a history as it is."""
    for key, given in (
        ("start_commit_sha", repo.start_commit_sha),
        ("sparse_checkout", repo.sparse),
    ):
        if given:
            raise _wrong(locate(key), f"{path} is not a git repository")
    if repo.subdir:
        path = path / inside(repo.subdir, locate("subdir"))
        if not path.is_dir():
            raise _wrong(locate("subdir"), f"{path} is not there")
    return Tree(path=str(path), digest=tree_digest(path), at=at)
