"""`task.toml`, the settings of a coding task: its keys, all of which may be left out."""

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import digest, tree_digest
from bakeoff._lib.tracebacks import imports_module
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import (
    BoxLimits,
    Image,
    Network,
    Reference,
    Tree,
    Workspace,
    parse_allowed_host,
)
from bakeoff.formats.detect import INSTRUCTION, SETTINGS
from bakeoff.formats.text.convert import KeyPath, convert, dotted
from bakeoff.formats.text.entries import ScorerEntry, rubric_entry, scorer_specs
from bakeoff.formats.text.toml import line_of

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]

Runner = Literal["pytest", "unittest", "python", "script"]
_SCRIPT, _PROGRAM = "check.sh", "check.py"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class RepoTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where the files come from: one of `path`, `url` and `bundle`, the latter two at a `commit`."""

    path: Text | None = None
    url: Text | None = None
    bundle: Text | None = None
    commit: Text | None = None
    subdir: Text | None = None
    sparse: list[Text] = []


class BoxTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The box the work is done in; 0 takes a limit away."""

    image: Text | None = None
    dockerfile: Text | None = None
    setup: list[Text] = []
    setup_s: Positive = 600.0
    root: Annotated[str, Meta(pattern="^/")] = "/app"
    workdir: str = ""
    environment: dict[str, str] = {}
    network: bool | list[Text] = False
    memory_mb: Annotated[int, Meta(ge=0)] = 4096
    processes: Annotated[int, Meta(ge=0)] = 512
    disk_mb: Annotated[int, Meta(ge=0)] = 4096
    cpus: Annotated[float, Meta(ge=0)] = 0.0
    trust_system_changes: bool = False


class TestsTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How the hidden tests are run; left out, the files in `tests/` tell."""

    runner: Runner | None = None
    command: Text | None = None
    paths: list[Text] = []
    named: list[Text] = []
    time_s: Positive = 600.0
    partial: bool = False
    readable: bool = False
    environment: dict[str, str] = {}
    weight: Annotated[float, Meta(ge=0)] = 1.0


class RubricTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One criterion: decided by its `tests`, scripts in `tests/`, or else by the judge."""

    id: Text
    criterion: Text
    weight: Positive = 1.0
    evaluation_criteria: Json = None
    tests: list[Text] = []


class TaskFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A coding task, beyond its instruction and its files."""

    id: Text | None = None
    name: str | None = None
    category: str | None = None
    group: str | int | None = None
    tags: list[str] = []
    metadata: dict[str, Json] = {}
    time_s: Positive = 1800.0
    pass_threshold: Share = 1.0
    check: Text | None = None
    protected: list[Text] = []
    repo: RepoTable | None = None
    box: BoxTable = msgspec.field(default_factory=BoxTable)
    tests: TestsTable = msgspec.field(default_factory=TestsTable)
    rubrics: list[RubricTable] = []
    rubrics_weight: Annotated[float, Meta(ge=0)] = 1.0
    scorers: list[ScorerEntry] = []


def tests_settings(
    folder: Path, table: TestsTable, *, excluded: Container[str]
) -> dict[str, Json] | None:
    """Return the settings of the scorer `tests` for the task in *folder*; None where it has none.

    Files named in *excluded* are other scorers' tests.
    """
    tests = folder / "tests"
    files = [path for path in _files(tests) if str(path.relative_to(tests)) not in excluded]
    runner = table.runner or _runner(table, files)
    if runner is None:
        return None
    settings: dict[str, Json] = {
        "runner": runner,
        "time_s": table.time_s,
        "partial": table.partial,
        "readable": table.readable,
        "named": list(table.named),
        "environment": dict(table.environment),
        "command": table.command,
    }
    if runner == "script":
        settings["command"] = table.command or _script(tests, files)
    else:
        programs = _programs(files) if runner == "python" else _test_files(files)
        settings["paths"] = list(table.paths or [f"tests/{p.relative_to(tests)}" for p in programs])
        if not settings["paths"]:
            name = _PROGRAM if runner == "python" else "test_*.py"
            raise UsageError(f"{tests}: no {name} is there for {runner}")
    return {key: value for key, value in settings.items() if value or key == "runner"}


def _files(tests: Path) -> list[Path]:
    return sorted(path for path in tests.rglob("*") if path.is_file()) if tests.is_dir() else []


def _test_files(files: list[Path]) -> list[Path]:
    return [path for path in files if path.match("test_*.py")]


def _programs(files: list[Path]) -> list[Path]:
    return [path for path in files if path.name == _PROGRAM]


def _runner(table: TestsTable, files: list[Path]) -> Runner | None:
    if table.command or any(path.name == _SCRIPT for path in files):
        return "script"
    if _programs(files):
        return "python"
    if tests := _test_files(files):
        # unittest needs nothing in the box; a file that knows nothing of it is meant for pytest
        return "unittest" if all(_is_unittest(file) for file in tests) else "pytest"
    return "pytest" if table.paths or table.named else None


def _is_unittest(file: Path) -> bool:
    text = file.read_text(encoding="utf-8", errors="replace")
    return "unittest" in text and not imports_module(text, "pytest")


def _script(tests: Path, files: list[Path]) -> str:
    scripts = [path for path in files if path.name == _SCRIPT]
    if not scripts:
        raise UsageError(f"{tests}: a {_SCRIPT} is needed there, or a `command` under [tests]")
    return f"sh tests/{scripts[0].relative_to(tests)}"


def read_instruction(folder: Path) -> str:
    """Return the instruction in *folder*."""
    file = folder / INSTRUCTION
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}; write the agent's instructions into it"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text (byte {error.start})") from error
    if not text.strip():
        raise UsageError(f"{file} is empty; write the agent's instructions into it")
    return text


def read_native_task(folder: Path, data: Mapping[str, Json], text: str) -> Task:
    """Return the task in *folder*, whose settings are *data*, written as *text*."""
    settings = TaskSettings(
        source=str(folder / SETTINGS), data=data, line_of=partial(line_of, text)
    )
    return native_task(folder, settings, instruction=read_instruction(folder))


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The settings of a task as they were written: where, and on which line a key is."""

    source: str
    data: Mapping[str, Json]
    line_of: Callable[[KeyPath], int | None]


def native_task(
    folder: Path, written: TaskSettings, *, instruction: str, unchecked: bool = False
) -> Task:
    """Return the task whose files are in *folder*; its settings may be written elsewhere.

    With *unchecked*, nothing need say whether the work is right.
    """
    settings = convert(written.data, TaskFile, source=written.source, line_of=written.line_of)
    native = _Native(folder=folder, settings=settings, written=written, unchecked=unchecked)
    return native.task(instruction)


@dataclass(frozen=True, kw_only=True)
class _Native:
    """A task folder of our own, its settings read."""

    folder: Path
    settings: TaskFile
    written: TaskSettings
    unchecked: bool

    def task(self, instruction: str) -> Task:
        """Return the task."""
        settings = self.settings
        tags: dict[str, Json] = {"tags": list(settings.tags)} if settings.tags else {}
        return Task(
            id=settings.id or self.folder.name,
            messages=(Message(role="user", content=instruction),),
            scorers=self._scorers(),
            pass_threshold=settings.pass_threshold,
            time_s=settings.time_s,
            name=settings.name,
            category=settings.category,
            group=None if settings.group is None else str(settings.group),
            metadata={**settings.metadata, **tags},
            workspace=self._workspace(),
        )

    def wrong(self, key: KeyPath, why: str) -> UsageError:
        """Return the error that *key* of the settings is."""
        line = self.written.line_of(key)
        where = f"{self.written.source}{f':{line}' if line else ''}"
        return UsageError(f"{where}: key {dotted(key)!r}: {why}")

    def _workspace(self) -> Workspace:
        box = self.settings.box
        return Workspace(
            files=tuple(self._files()),
            root=box.root.rstrip("/") or "/",
            workdir=self._inside(("box", "workdir"), box.workdir),
            image=self._image(),
            setup=tuple(box.setup),
            environment=box.environment,
            network=self._network(),
            limits=_limits(box),
            check=self.settings.check,
            hidden=tuple(self._hidden()),
            protected=tuple(self._protected()),
            reference=self._reference(),
            trust_system_changes=box.trust_system_changes,
        )

    def _network(self) -> Network:
        """Return what the box may reach; each host of a list is one."""
        network = self.settings.box.network
        if isinstance(network, bool):
            return network
        for host in network:
            try:
                parse_allowed_host(host)
            except ValueError as error:
                raise self.wrong(("box", "network"), str(error)) from None
        return tuple(network) or False

    def _inside(self, key: KeyPath, path: str) -> str:
        """Return a path within the workspace as it is written plainly."""
        parts = Path(path).parts
        if ".." in parts or Path(path).is_absolute():
            raise self.wrong(key, f"{path!r} leads out of the workspace; give a path inside it")
        return "/".join(parts)

    def _files(self) -> Iterator[Tree]:
        if self.settings.repo is not None:
            yield self._repo(self.settings.repo)
        files = self.folder / "files"
        if files.is_dir():
            yield Tree(path=str(files), digest=tree_digest(files))

    def _hidden(self) -> Iterator[Tree]:
        tests = self.folder / "tests"
        if tests.is_dir():
            yield Tree(path=str(tests), digest=tree_digest(tests), at=self._place_of_tests())

    def _place_of_tests(self) -> str:
        """Return where the hidden tests go: into `tests`, where the agent started."""
        return f"{self._inside(('box', 'workdir'), self.settings.box.workdir)}/tests".lstrip("/")

    def _protected(self) -> Iterator[str]:
        if (self.folder / "tests").is_dir():
            yield self._place_of_tests()  # files planted next to the hidden tests would be run with them
        yield from self.settings.protected

    def _repo(self, repo: RepoTable) -> Tree:
        given = [key for key in ("path", "url", "bundle") if getattr(repo, key)]
        if len(given) != 1:
            raise self.wrong(("repo",), "give exactly one of `path`, `url` and `bundle`")
        (key,) = given
        where = repo.url or str((self.folder / str(repo.path or repo.bundle)).resolve())
        if repo.commit is None and key != "path":
            raise self.wrong(("repo",), "a repository needs its `commit`, all 40 digits of it")
        if key != "url" and not Path(where).exists():
            raise self.wrong(("repo", key), f"{where} does not exist")
        if repo.commit is not None and not _COMMIT.fullmatch(repo.commit):
            why = f"{repo.commit!r} may point to other files later; give all 40 digits of a commit"
            raise self.wrong(("repo", "commit"), why)
        if repo.commit is None:
            if repo.sparse:
                raise self.wrong(
                    ("repo", "sparse"), "only a repository at a `commit` can be sparse"
                )
            folder = Path(where) / self._inside(("repo", "subdir"), repo.subdir or "")
            if not folder.is_dir():
                raise self.wrong(("repo", key), f"{folder} is not a folder")
            return Tree(path=str(folder), digest=tree_digest(folder))
        subdir = self._inside(("repo", "subdir"), repo.subdir or "") or None
        return Tree(
            path=where,
            digest=digest(repo.commit),  # git's own digest of all there is
            commit=repo.commit,
            subdir=subdir,
            sparse=tuple(repo.sparse),
        )

    def _image(self) -> Image | None:
        box = self.settings.box
        if box.dockerfile is None:
            return Image(name=box.image) if box.image else None
        if box.image:
            raise self.wrong(("box", "image"), "give `image` or `dockerfile`, not both")
        file = (self.folder / box.dockerfile).resolve()
        if not file.is_file():
            raise self.wrong(("box", "dockerfile"), f"{file} does not exist")
        if file.parent == self.folder or file.parent in self.folder.parents:
            raise self.wrong(
                ("box", "dockerfile"),
                "the files next to it may get into the image, and here these are the hidden tests; "
                "put it into a separate folder, such as box/Dockerfile",
            )
        context = Tree(path=str(file.parent), digest=tree_digest(file.parent))
        return Image(context=context, dockerfile=file.name)

    def _reference(self) -> Reference | None:
        folder, patch = self.folder / "solution", self.folder / "solution.patch"
        if folder.is_dir() and patch.is_file():
            raise UsageError(f"{self.folder}: give solution/ or solution.patch, not both")
        if patch.is_file():
            return Reference(kind="patch", path=str(patch))
        if (folder / "solve.sh").is_file():
            return Reference(kind="script", path=str(folder / "solve.sh"))
        return Reference(kind="files", path=str(folder)) if folder.is_dir() else None

    def _scorers(self) -> tuple[ScorerSpec, ...]:
        settings, at, specs = self.settings, SourceLocation(file=self.written.source), []
        rubric_tests = {name for rubric in settings.rubrics for name in rubric.tests}
        if run := tests_settings(self.folder, settings.tests, excluded=rubric_tests):
            weight, origin = settings.tests.weight, at.inside("tests")
            specs.append(ScorerSpec(name="tests", settings=run, weight=weight, origin=origin))
        if settings.rubrics:
            specs.append(self._rubrics())
        specs += scorer_specs(settings.scorers, at=at.inside("scorers"), trusted=False)
        if not specs and not self.unchecked:
            raise UsageError(
                f"{self.folder}: nothing says whether the work is right; put hidden tests into "
                "tests/ (test_*.py or check.sh), or write `rubrics` or `scorers`"
            )
        return tuple(specs)

    def _rubrics(self) -> ScorerSpec:
        scripts: list[Json] = []
        seen: set[str] = set()
        for number, rubric in enumerate(self.settings.rubrics):
            if rubric.id in seen:
                raise self.wrong(("rubrics", number, "id"), f"{rubric.id!r} is defined twice")
            seen.add(rubric.id)
            scripts += self._rubric_scripts(number, rubric)
        entries: list[Json] = [rubric_entry(rubric) for rubric in self.settings.rubrics]
        return ScorerSpec(
            name="rubrics",
            settings={"rubrics": entries, "test_scripts": scripts},
            weight=self.settings.rubrics_weight,
            origin=SourceLocation(file=self.written.source, key=("rubrics",)),
        )

    def _rubric_scripts(self, number: int, rubric: RubricTable) -> Iterator[Json]:
        for name in rubric.tests:
            inside = self._inside(("rubrics", number, "tests"), name)
            file = self.folder / "tests" / inside
            if not file.is_file():
                raise self.wrong(("rubrics", number, "tests"), f"tests/{inside} does not exist")
            try:
                content = file.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(f"{file} is not UTF-8 text (byte {error.start})") from error
            yield {"path": f"tests/{inside}", "rubric_id": rubric.id, "content": content}


def _limits(box: BoxTable) -> BoxLimits:
    return BoxLimits(
        memory_mb=box.memory_mb or None,
        processes=box.processes or None,
        disk_mb=box.disk_mb or None,
        cpus=box.cpus or None,
        setup_s=box.setup_s,
    )
