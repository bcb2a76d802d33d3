"""Reads prepared tasks: a folder with a tb_meta.json, overlays, and its evaluation.

Nothing is ever written there. Overrides change what is understood of it, not the folder.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bakeoff._lib.digest import digest, digest_bytes, tree_digest
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import Image, Reference, Tree, Workspace
from bakeoff.formats.detect import PREPARED_META
from bakeoff.formats.prepared_files import (
    OVERRIDES,
    Overrides,
    PreparedEvaluation,
    PreparedRubric,
    PreparedTestScript,
    Repo,
    TbMeta,
    inside,
    read_meta,
    read_overrides,
    repo_tree,
)
from bakeoff.formats.text.convert import placed_as_given, told_as_given
from bakeoff.formats.text.entries import rubric_entry
from bakeoff.formats.text.locate import shown

_ALL = PreparedRubric(id="tests", criterion="All tests pass.")
ROOT = "/app"
REPO = "repo"
INSTRUCTIONS = "LM_INSTRUCTIONS.md"
TIMEOUT = "TIMEOUT_SEC"
KEPT_OUT = "kept_out"  # in the metadata of a task
_EVALUATION = "evaluation"
_REFERENCE = "diff.patch"
# the tests, the solution and how it was found; the tool that prepares folders also puts copies
# of them into overlay_files/
_SECRET_NAMES = (PREPARED_META, OVERRIDES, _REFERENCE, "repo_info.json", "notes.md")
_OVERLAY, _REPO_OVERLAY = "overlay_files", "overlay_repo_files"
# files of keys; those without values, which a repository shows to people, are none
_ENV_FILE = re.compile(r"\.env(?:\.(?!(?:example|sample|template|dist)$).+)?")
_IN_REPO = re.compile(rb"^(?:---|\+\+\+) [ab]/repo/", re.MULTILINE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def rubrics_scorer(
    folder: Path, evaluation: PreparedEvaluation, *, locate: Callable[[str], SourceLocation]
) -> ScorerSpec:
    """Return the scorer for the task in *folder*; *locate* tells where a key of *evaluation* stands.

    Tests without any rubric count as one rubric.
    """
    scripts = evaluation.test_scripts or []
    rubrics = evaluation.rubrics or ([_ALL] if scripts else [])
    if not rubrics:
        raise UsageError(
            f"{shown(locate('rubrics'))}: nothing says whether the work is right; write `evaluation.rubrics` and "
            "`evaluation.test_scripts`"
        )
    _check(rubrics, scripts, locate)
    only = rubrics[0].id if len(rubrics) == 1 else None
    return ScorerSpec(
        name="rubrics",
        settings={
            "rubrics": [rubric_entry(rubric) for rubric in rubrics],
            "test_scripts": [
                _script(folder, script, only, locate("test_scripts").inside(number, "path"))
                for number, script in enumerate(scripts)
            ],
        },
        origin=locate("rubrics"),
    )


def _check(
    rubrics: list[PreparedRubric],
    scripts: list[PreparedTestScript],
    locate: Callable[[str], SourceLocation],
) -> None:
    ids = [rubric.id for rubric in rubrics]
    for number, name in enumerate(ids):
        if name in ids[:number]:
            where = shown(locate("rubrics").inside(number, "id"))
            raise UsageError(f"{where}: rubric {name!r} is there twice; give each its own `id`")
    for number, script in enumerate(scripts):
        known = script.rubric_id in ids or (script.rubric_id is None and len(ids) == 1)
        if not known:
            where = shown(locate("test_scripts").inside(number, "rubric_id"))
            raise UsageError(
                f"{where}: test script {script.path!r} is for rubric {script.rubric_id!r}; "
                f"there are: {', '.join(ids)}"
            )
    if not any(rubric.weight for rubric in rubrics):
        where = shown(locate("rubrics"))
        raise UsageError(f"{where}: all rubrics have weight 0: nothing would count")


def _script(
    folder: Path, script: PreparedTestScript, only: str | None, at: SourceLocation
) -> dict[str, Json]:
    path = inside(script.path.removeprefix("/app/"), at)
    entry: dict[str, Json] = {"path": path, "rubric_id": script.rubric_id or only}
    content = script.content
    if content is None:
        content = _text(folder, path)
    if content is not None:
        entry["content"] = content
    return entry


def _text(folder: Path, path: str) -> str | None:
    """Return the text of a test that lies in the prepared folder; None for one of the repo's own."""
    for file in (folder / path, folder / "evaluation" / path):
        if file.is_file():
            try:
                return file.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(f"{file} is not UTF-8 text (byte {error.start})") from error
    return None


@dataclass(frozen=True, kw_only=True)
class PreparedDir:
    """A prepared folder as a run asks for it; `shown` is how the person wrote its path.

    `overrides` is a separate file; without it, the one in the folder is used, if there is one.
    """

    folder: Path
    shown: str
    apply_overrides: bool = True
    overrides: Path | None = None


def read_prepared(given: PreparedDir) -> Task:
    """Return the prepared task; one that cannot be understood is a task with that trouble."""
    try:
        meta, unknown = read_meta(given.folder)
    except UsageError as error:
        return _broken(given, given.folder.name, error)
    name = meta.task_id or given.folder.name
    try:
        read = _Prepared(given=given, meta=meta, unknown=unknown, changed=_overrides(given))
        return placed_as_given(read.task(), given.shown)
    except UsageError as error:
        return _broken(given, name, error)


def environment(given: Mapping[str, str | int | float]) -> tuple[dict[str, str], float | None]:
    """Return variables as a program gets them, and how long TIMEOUT_SEC lets an agent take."""
    for name, value in given.items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of an environment variable")
        if "\0" in str(value):
            raise UsageError(f"{name!r} has a NUL in it, which no variable may have")
    variables = {name: str(value) for name, value in given.items()}
    return variables, _seconds(variables.get(TIMEOUT))


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{TIMEOUT} must be a number of seconds over 0, not {text!r}")
    return seconds


def _broken(given: PreparedDir, name: str, error: UsageError) -> Task:
    return Task(
        id=name,
        messages=(Message(role="user", content=""),),
        metadata={"task_dir": given.shown},
        trouble=told_as_given(str(error), given.shown),
    )


def _overrides(given: PreparedDir) -> Overrides:
    if not given.apply_overrides:
        return Overrides()
    if given.overrides is not None:
        return read_overrides(given.overrides)
    path = given.folder / OVERRIDES
    return read_overrides(path) if path.exists() else Overrides()


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A prepared folder whose files are read, with what the overrides change."""

    given: PreparedDir
    meta: TbMeta
    unknown: Mapping[str, Json]
    changed: Overrides = field(default_factory=Overrides)

    def task(self) -> Task:
        """Return the task."""
        variables, time_s = self._environment()
        title, evaluation = self.meta.metadata.get("title"), self._evaluation()
        threshold = evaluation.pass_threshold
        return Task(
            id=self.meta.task_id or self.folder.name,
            messages=(Message(role="user", content=self._instructions()),),
            scorers=(rubrics_scorer(self.folder, evaluation, locate=self._of_evaluation),),
            pass_threshold=1.0 if threshold is None else threshold,
            time_s=time_s,
            name=title if isinstance(title, str) else None,
            category=self._category(),
            metadata=self._metadata(),
            workspace=self._workspace(variables),
        )

    @property
    def folder(self) -> Path:
        return self.given.folder

    @property
    def _source(self) -> Path:
        return self.folder / PREPARED_META

    def _override(self, *key: str | int) -> SourceLocation:
        """Return where *key* stands in the overrides."""
        return SourceLocation(file=str(self.given.overrides or self.folder / OVERRIDES), key=key)

    def _of_repo(self, key: str) -> SourceLocation:
        """Return where *key* of the repository stands: the overrides go before."""
        if self.changed.repo is not None and getattr(self.changed.repo, key):
            return self._override("repo", key)
        return SourceLocation(file=str(self._source), key=("repo", key))

    def _of_evaluation(self, key: str) -> SourceLocation:
        """Return where *key* of the evaluation stands, in the order of `_evaluation`."""
        if getattr(self.changed, key) is not None:
            return self._override(key)
        if (
            self.changed.evaluation is not None
            and getattr(self.changed.evaluation, key) is not None
        ):
            return self._override("evaluation", key)
        return SourceLocation(file=str(self._source), key=("evaluation", key))

    def _environment(self) -> tuple[dict[str, str], float | None]:
        try:
            return environment(self.changed.environment_variables)
        except UsageError as error:
            where = shown(self._override("environment_variables"))
            raise UsageError(f"{where}: {error}") from error

    def _instructions(self) -> str:
        """Return the instruction of the agent: that of the overrides, else that of the overlay."""
        changed = self.changed.prompt or self.changed.lm_instructions
        text = changed or self.changed.overlay_files.get(INSTRUCTIONS)
        path = self.folder / _OVERLAY / INSTRUCTIONS
        if text is None and path.is_file():
            try:
                text = path.read_text(encoding="utf-8-sig")
            except UnicodeDecodeError as error:
                raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error
        text = self.meta.lm.instructions if text is None else text
        if not text or not text.strip():
            raise UsageError(
                f"{shown(SourceLocation(file=str(self._source), key=('lm',)))}: nothing says what is to be done; write `lm.instructions`, or "
                f"overlay_files/{INSTRUCTIONS}"
            )
        return text

    def _evaluation(self) -> PreparedEvaluation:
        values = msgspec.structs.asdict(self.meta.evaluation)
        for newer in (self.changed.evaluation, self.changed):
            given = {key: getattr(newer, key, None) for key in values}
            values |= {key: value for key, value in given.items() if value is not None}
        return PreparedEvaluation(**values)

    def _repo(self) -> Repo:
        repo, changed = self.meta.repo or Repo(), self.changed.repo or Repo()
        given = {k: v for k, v in msgspec.structs.asdict(changed).items() if v is not None}
        return msgspec.structs.replace(repo, **given)

    def _workspace(self, variables: Mapping[str, str]) -> Workspace:
        files = tuple(self._files())
        texts = {path: text for path, text in self._texts().items() if not _is_secret(path)}
        in_repo = any(tree.at == REPO for tree in files) or any(
            path.startswith(f"{REPO}/") for path in texts
        )
        return Workspace(
            files=files,
            texts=texts,
            removed=tuple(self._removed()),
            root=ROOT,
            workdir=REPO if in_repo else "",
            image=self._image(),
            environment=variables,
            hidden=tuple(self._hidden(REPO if in_repo else "")),
            reference=self._reference(),
        )

    def _files(self) -> Iterator[Tree]:
        repo = repo_tree(self._repo(), self.folder, at=REPO, locate=self._of_repo)
        if repo is not None:
            yield repo
        yield from self._overlay(_OVERLAY, at="", left_out=_SECRET_NAMES)
        yield from self._overlay(_REPO_OVERLAY, at=REPO, left_out=_SECRET_NAMES)

    def _hidden(self, start: str) -> Iterator[Tree]:
        """Yield the evaluation: where its paths lead from the repository, and from the root."""
        for at in dict.fromkeys((f"{start}/{_EVALUATION}".lstrip("/"), _EVALUATION)):
            yield from self._overlay(_EVALUATION, at=at)

    def _overlay(self, name: str, *, at: str, left_out: tuple[str, ...] = ()) -> Iterator[Tree]:
        path = self.folder / name
        if path.is_dir():
            without = tree_digest(path, without=left_out)
            yield Tree(path=str(path), digest=without, at=at, left_out=left_out)

    def _secrets_in(self, name: str) -> Iterator[str]:
        """Yield each path of the folder, below *name*, that no box may show."""
        for path in sorted((self.folder / name).rglob("*")):
            if path.name in _SECRET_NAMES:
                yield str(path.relative_to(self.folder))

    def _kept_out(self) -> list[str]:
        """Return the files that are kept out of the box, as they were written."""
        written = [f"{OVERRIDES}: {path}" for path in self._texts() if _is_secret(path)]
        return [*self._secrets_in(_REPO_OVERLAY), *written]

    def _texts(self) -> dict[str, str]:
        """Return the files that the overrides write, by their path below the root."""
        changed, locate = self.changed, self._override
        overlay = changed.overlay_files.items()
        texts = {inside(path, locate("overlay_files", path)): text for path, text in overlay}
        prompt = changed.prompt or changed.lm_instructions
        if prompt and (self.folder / _OVERLAY / INSTRUCTIONS).is_file():
            texts[INSTRUCTIONS] = prompt  # the file must not say something else than the prompt
        for path, text in changed.overlay_repo_files.items():
            texts[f"{REPO}/{inside(path, locate('overlay_repo_files', path))}"] = text
        for number, file in enumerate(changed.inject_files):
            texts[_below_root(file.path, locate("inject_files", number, "path"))] = file.content
        return texts

    def _removed(self) -> Iterator[str]:
        for number, pattern in enumerate(self.changed.remove_repo_paths):
            relative = pattern.removeprefix(f"{ROOT}/{REPO}/")
            yield f"{REPO}/{inside(relative, self._override('remove_repo_paths', number))}"

    def _image(self) -> Image | None:
        """Return the image that the Dockerfile makes; its build sees no key and nothing of the grade."""
        if not (self.folder / "Dockerfile").is_file():
            return None
        left_out = (_EVALUATION, *_SECRET_NAMES, *self._env_files())
        seen = sorted(path for path in self.folder.iterdir() if path.name not in left_out)
        content = [
            [path.name, _folder_digest(path) if path.is_dir() else digest_bytes(path.read_bytes())]
            for path in seen
            if path.is_dir() or path.is_file()
        ]
        context = Tree(path=str(self.folder), digest=digest(content))
        copies = (*self._secrets_in(_OVERLAY), *self._secrets_in(_REPO_OVERLAY))
        return Image(context=context, left_out=(*left_out, *copies))

    def _env_files(self) -> Iterator[str]:
        """Yield each file of keys, by its path in the folder; those of overlays belong to the task."""
        for path in sorted(self.folder.rglob(".env*")):
            relative = path.relative_to(self.folder)
            if relative.parts[0] not in (_OVERLAY, _REPO_OVERLAY) and _ENV_FILE.fullmatch(
                path.name
            ):
                yield str(relative)

    def _reference(self) -> Reference | None:
        places = (self.folder / _REFERENCE, self.folder / _OVERLAY / _REFERENCE)
        path = next((path for path in places if path.is_file()), None)
        if path is None:
            return None
        at = "" if _IN_REPO.search(path.read_bytes()) else REPO
        return Reference(kind="patch", path=str(path), at=at)

    def _category(self) -> str | None:
        """Return what kind of task it is: as it says, else by its first tag."""
        tags = self.meta.metadata.get("tags")
        first = tags[0] if isinstance(tags, list) and tags else None
        category = self.meta.metadata.get("category", first)
        return category if isinstance(category, str) else None

    def _metadata(self) -> dict[str, Json]:
        level = self.meta.sensitivity.level if self.meta.sensitivity else None
        about: dict[str, Json] = {
            "task_dir": self.given.shown,
            "overrides": self.changed != Overrides(),
            "repo": msgspec.to_builtins(self._repo()),
        }
        if kept_out := self._kept_out():
            about[KEPT_OUT] = list(kept_out)
        sensitivity: dict[str, Json] = {} if level is None else {"sensitivity": level}
        return {**self.unknown, **self.meta.metadata, **sensitivity, **about}


def _is_secret(path: str) -> bool:
    return any(part in _SECRET_NAMES for part in path.split("/"))


def _folder_digest(path: Path) -> str:
    """Return the digest of a folder of the build, as the build sees it."""
    if path.name in (_OVERLAY, _REPO_OVERLAY):
        return tree_digest(path, without=_SECRET_NAMES)
    keys = {file.name for file in path.rglob(".env*") if _ENV_FILE.fullmatch(file.name)}
    return tree_digest(path, without=keys)


def _below_root(path: str, at: SourceLocation) -> str:
    """Return where an injected file goes: below the repository, unless it begins at the root."""
    if path.startswith(f"{ROOT}/"):
        return inside(path.removeprefix(f"{ROOT}/"), at)
    return f"{REPO}/{inside(path, at)}"
