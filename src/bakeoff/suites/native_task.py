"""Bakeoff's own task folder: instruction.md, files/, tests/, solution/, and maybe task.toml."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bakeoff._lib.digest import digest
from bakeoff._lib.tree_digest import tree_digest
from bakeoff.config.convert import KeyPath, convert, dotted
from bakeoff.config.entries import scorer_specs
from bakeoff.config.task_file import BoxTable, RepoTable, RubricTable, TaskFile
from bakeoff.config.toml_file import line_of
from bakeoff.core.allowed_hosts import Network, parse_allowed_host
from bakeoff.core.errors import UsageError
from bakeoff.core.place import Place
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import BoxLimits, Image, Reference, Tree, Workspace
from bakeoff.suites.hidden_tests import tests_settings
from bakeoff.suites.instruction import read_instruction

SETTINGS = "task.toml"

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def read_native_task(folder: Path, data: Mapping[str, Json], text: str) -> Task:
    """Return the task in *folder*, whose settings are *data*, written as *text*."""
    settings = Settings(source=str(folder / SETTINGS), data=data, line_of=partial(line_of, text))
    return native_task(folder, settings, instruction=read_instruction(folder))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a task as they were written: where, and on which line a key is."""

    source: str
    data: Mapping[str, Json]
    line_of: Callable[[KeyPath], int | None]


def native_task(
    folder: Path, written: Settings, *, instruction: str, unchecked: bool = False
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
    written: Settings
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
            yield self._place_of_tests()  # what is planted beside the hidden tests would be run with them
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
            raise self.wrong(("repo", key), f"{where} is not there")
        if repo.commit is not None and not _COMMIT.fullmatch(repo.commit):
            why = f"{repo.commit!r} may come to mean other files; give all 40 digits of a commit"
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
            raise self.wrong(("box", "dockerfile"), f"{file} is not there")
        if file.parent == self.folder or file.parent in self.folder.parents:
            raise self.wrong(
                ("box", "dockerfile"),
                "what lies beside it may get into the image, and here these are the hidden tests; "
                "put it into a folder of its own, such as box/Dockerfile",
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
        settings, at, specs = self.settings, Place(file=self.written.source), []
        rubric_tests = {name for rubric in settings.rubrics for name in rubric.tests}
        if run := tests_settings(self.folder, settings.tests, aside=rubric_tests):
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
                raise self.wrong(("rubrics", number, "id"), f"{rubric.id!r} is there twice")
            seen.add(rubric.id)
            scripts += self._rubric_scripts(number, rubric)
        entries: list[Json] = [_rubric(rubric) for rubric in self.settings.rubrics]
        return ScorerSpec(
            name="rubrics",
            settings={"rubrics": entries, "test_scripts": scripts},
            weight=self.settings.rubrics_weight,
            origin=Place(file=self.written.source, key=("rubrics",)),
        )

    def _rubric_scripts(self, number: int, rubric: RubricTable) -> Iterator[Json]:
        for name in rubric.tests:
            inside = self._inside(("rubrics", number, "tests"), name)
            file = self.folder / "tests" / inside
            if not file.is_file():
                raise self.wrong(("rubrics", number, "tests"), f"tests/{inside} is not there")
            try:
                content = file.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(f"{file} is not UTF-8 text (byte {error.start})") from error
            yield {"path": f"tests/{inside}", "rubric_id": rubric.id, "content": content}


def _rubric(rubric: RubricTable) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "id": rubric.id,
        "criterion": rubric.criterion,
        "weight": rubric.weight,
    }
    if rubric.evaluation_criteria is not None:
        entry["evaluation_criteria"] = rubric.evaluation_criteria
    return entry


def _limits(box: BoxTable) -> BoxLimits:
    return BoxLimits(
        memory_mb=box.memory_mb or None,
        processes=box.processes or None,
        disk_mb=box.disk_mb or None,
        cpus=box.cpus or None,
        setup_s=box.setup_s,
    )
