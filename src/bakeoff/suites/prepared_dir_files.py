"""The files of a prepared task, as they are written: tb_meta.json and overrides.json."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from bakeoff.config.convert import convert
from bakeoff.config.json_file import read_json
from bakeoff.config.lines import line_in, shown
from bakeoff.core.errors import UsageError
from bakeoff.core.place import Place
from bakeoff.core.values import Json

META = "tb_meta.json"
OVERRIDES = "overrides.json"

S = TypeVar("S", bound=msgspec.Struct)


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
    """What the agent is told."""

    instructions: str | None = None


class Sensitivity(msgspec.Struct, kw_only=True):
    """How carefully a task is to be handled."""

    level: str | None = None


class Rubric(msgspec.Struct, kw_only=True):
    """One criterion of the grade; without tests it is judged."""

    id: str
    criterion: str = ""
    weight: Annotated[float, Meta(ge=0)] = 1.0
    evaluation_criteria: Json = None


class TestScript(msgspec.Struct, kw_only=True):
    """A test of a rubric: its text, or a file that lies in the prepared folder or in the repo."""

    path: str
    rubric_id: str | None = None
    content: str | None = None


class Evaluation(msgspec.Struct, kw_only=True):
    """How the work is graded; what is None is not said."""

    rubrics: list[Rubric] | None = None
    test_scripts: list[TestScript] | None = None
    pass_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None


class TbMeta(msgspec.Struct, kw_only=True):
    """A prepared task; keys that are not here are kept as its metadata."""

    task_id: str | None = None
    metadata: dict[str, Json] = {}
    repo: Repo | None = None
    lm: Instructions = msgspec.field(default_factory=Instructions)
    sensitivity: Sensitivity | None = None
    evaluation: Evaluation = msgspec.field(default_factory=Evaluation)


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
    evaluation: Evaluation | None = None
    rubrics: list[Rubric] | None = None
    test_scripts: list[TestScript] | None = None
    repo: Repo | None = None
    environment_variables: dict[str, str | int | float] = {}


def read_meta(folder: Path) -> tuple[TbMeta, dict[str, Json]]:
    """Return the tb_meta.json in *folder*, and the keys of it that mean nothing here."""
    path = folder / META
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    if not path.is_file():
        raise UsageError(f"{path} is not there: a prepared task is a folder with a {META}")
    data = _object(path)
    known = TbMeta.__struct_fields__
    meta = _converted(data, TbMeta, path)
    return meta, {key: value for key, value in data.items() if key not in known}


def read_overrides(path: Path) -> Overrides:
    """Return the overrides at *path*."""
    overrides = _converted(_object(path), Overrides, path)
    if overrides.prompt is not None and overrides.lm_instructions is not None:
        where = shown(Place(file=str(path), key=("lm_instructions",)))
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
