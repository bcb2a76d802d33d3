"""Dialogues as TOML or JSON files; only `objective` is required."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import tree_digest
from bakeoff.core.candidate import Conditions, ModelSpec, Origin
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec, Source
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import Tree, Workspace
from bakeoff.formats.detect import dialogue_files
from bakeoff.formats.run_file import Count, ModelTable, Positive, model_spec, with_settings
from bakeoff.formats.text.convert import KeyPath, convert
from bakeoff.formats.text.entries import (
    ScorerEntry,
    check_parameters,
    default_scorers,
    scorer_specs,
)
from bakeoff.formats.text.json import read_json
from bakeoff.formats.text.locate import line_in
from bakeoff.formats.text.toml import line_of, read_toml

ROOT = "/app"
DATASETS = f"{ROOT}/datasets"
GROUND_TRUTH = "/bakeoff/ground_truth"
EVALUATION = "/bakeoff/evaluation"
PREDICTION = "submission.csv"
BETTER_THAN_THE_BASELINE = 1e-6
"""The least skill that passes."""

Text = Annotated[str, Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class DataWorkspace:
    """The folders of a case; without any, and if no agent needs a box, there is no workspace.

    `files` are the agent's to change. The truth and the evaluation are only in the clean room.
    """

    datasets: Path | None = None
    truth: Path | None = None
    evaluation: Path | None = None
    files: Path | None = None
    tests: Path | None = None
    boxed: bool = False

    def workspace(self) -> Workspace | None:
        """Return the workspace, if there is to be one."""
        if not (self.datasets or self.evaluation or self.files or self.boxed):
            return None
        hidden = ((self.truth, GROUND_TRUTH), (self.evaluation, EVALUATION), (self.tests, "tests"))
        return Workspace(
            root=ROOT,
            files=tuple(_tree(path, at) for path, at in ((self.files, ""),) if path),
            shown=tuple(_tree(path, at) for path, at in ((self.datasets, DATASETS),) if path),
            hidden=tuple(_tree(path, at) for path, at in hidden if path),
            protected=("tests",) if self.tests else (),
            environment={"DATASETS": DATASETS} if self.datasets else {},
        )

    def messages(self) -> tuple[Message, ...]:
        """Return the system message that describes the workspace."""
        if self.workspace() is None:
            return ()
        sentences = [f"You work in the folder {ROOT}."]
        if self.datasets is not None:
            names = sorted(f.name for f in self.datasets.iterdir())
            sentences.append(
                f"The data is in {DATASETS} (also in the variable DATASETS) and can only be read: "
                f"{', '.join(names)}."
            )
        if self.evaluation is not None:
            sentences.append(f"Predictions that you are asked for go to {ROOT}/{PREDICTION}.")
        return (Message(role="system", content=" ".join(sentences)),)


def _tree(path: Path, at: str) -> Tree:
    return Tree(path=str(path.resolve()), digest=tree_digest(path), at=at)


class EvaluationTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The metric of a prediction: a folder with the code, a folder with the truth, a baseline."""

    metrics: Text
    truth: Text
    prediction: Text = "submission.csv"
    baseline: float | None = None
    best: float | None = None
    higher_is_better: bool = True


class DialogueFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One case: objective, knowledge, opening, and how the result is checked.

    With `shards` the instructor reveals them one by one. `datasets` can be read in the box, `files`
        changed there; `tests` are hidden until the work is graded.
    """

    objective: Text
    id: Text | None = None
    name: str | None = None
    category: str | None = None
    group: str | int | None = None
    knowledge: str = ""
    reference: str = ""
    supervision: str = ""
    shards: list[Text] = []
    opening: Text | None = None
    max_turns: Count = 20
    answer: Literal["last", "all"] = "last"
    instructor_prompt: Text | None = None
    supervisor_prompt: Text | None = None
    system: Text | None = None
    parameters: dict[str, Json] = {}
    expected: Json = None
    scorers: list[ScorerEntry] | None = None
    pass_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    time_s: Positive | None = None
    metadata: dict[str, Json] = {}
    datasets: Text | None = None
    files: Text | None = None
    tests: Text | None = None
    evaluation: EvaluationTable | None = None
    run_code: bool = False
    roles: dict[str, str | ModelTable] = {}


_LineOf = Callable[[KeyPath], int | None]


def read_cases(
    path: Path, overrides: Mapping[str, str] | None = None, *, boxed: bool = False
) -> RunSpec:
    """Return the dialogue in the file *path*, or those in the folder; *boxed*, each has a box."""
    files = dialogue_files(path) if path.is_dir() else [path]
    tasks: dict[str, Task] = {}
    roles: dict[str, ModelSpec] = {}
    sources = []
    for file in files:
        case, line = _read(file)
        task = _Case(file=file, case=case, line_of=line, boxed=boxed or case.run_code).task()
        if task.id in tasks:
            raise UsageError(f"{file}: case {task.id!r} is defined twice; give each its own `id`")
        tasks[task.id] = task
        roles |= {
            name: replace(
                model_spec(entry), origin=Origin.at(file, line(("roles", name))), may_read=()
            )
            for name, entry in case.roles.items()
        }
        sources.append(Source(path=str(file.resolve()), digest=task.digest))
    spec = RunSpec(
        name=path.stem,
        tasks=tuple(tasks.values()),
        conditions=Conditions(roles=roles),
        sources=tuple(sources),
    )
    if not overrides:
        return spec
    changed = with_settings(spec, overrides)
    both = {**roles, **changed.conditions.roles}
    return replace(changed, conditions=replace(changed.conditions, roles=both))


def _data(path: Path) -> tuple[Json, _LineOf]:
    if path.suffix.lower() == ".json":
        data, _ = read_json(path)
        return data, partial(line_in, path)
    table, text = read_toml(path)
    return table, partial(line_of, text)


def _read(path: Path) -> tuple[DialogueFile, _LineOf]:
    data, line = _data(path)
    case = convert(data, DialogueFile, source=str(path), line_of=line)
    check_parameters(case.parameters, at=SourceLocation(file=str(path), key=("parameters",)))
    return case, line


class _Case:
    """One dialogue file."""

    def __init__(self, *, file: Path, case: DialogueFile, line_of: _LineOf, boxed: bool) -> None:
        self._file = file
        self._case = case
        self._line_of = line_of
        self._boxed = boxed

    def task(self) -> Task:
        """Return the case as a task."""
        case = self._case
        data = self._data_workspace()
        system = () if case.system is None else (Message(role="system", content=case.system),)
        threshold = case.pass_threshold
        if threshold is None:
            threshold = BETTER_THAN_THE_BASELINE if case.evaluation else 1.0
        return Task(
            id=case.id or self._file.stem,
            messages=(*system, *data.messages()),
            parameters=case.parameters,
            target=case.expected,
            scorers=self._scorers(),
            pass_threshold=threshold,
            time_s=case.time_s,
            name=case.name,
            category=case.category,
            group=None if case.group is None else str(case.group),
            metadata=case.metadata,
            workspace=data.workspace(),
            dialogue=self._dialogue(),
        )

    def _dialogue(self) -> Dialogue:
        case = self._case
        if case.shards and (case.reference or case.supervision):
            raise self._wrong(
                "shards", "a dialogue with shards has no reference; leave one of them out"
            )
        return Dialogue(
            objective=case.objective.strip(),
            knowledge=case.knowledge.strip(),
            reference=case.reference.strip(),
            supervision=case.supervision.strip(),
            shards=tuple(case.shards),
            opening=case.opening,
            max_turns=case.max_turns,
            mode="shard_user" if case.shards else "user",
            answer=case.answer,
            instructor_prompt=case.instructor_prompt,
            supervisor_prompt=case.supervisor_prompt,
        )

    def _data_workspace(self) -> DataWorkspace:
        case, evaluation = self._case, self._case.evaluation
        return DataWorkspace(
            datasets=self._folder("datasets", case.datasets),
            files=self._folder("files", case.files),
            tests=self._folder("tests", case.tests),
            evaluation=self._parent("evaluation", evaluation.metrics) if evaluation else None,
            truth=self._parent("evaluation", evaluation.truth) if evaluation else None,
            boxed=self._boxed,
        )

    def _scorers(self) -> tuple[ScorerSpec, ...]:
        evaluation = self._case.evaluation
        if evaluation is None:
            return self._own_scorers()
        settings: dict[str, Json] = {
            "module": f"{EVALUATION}/{Path(evaluation.metrics).name}",
            "truth": f"{GROUND_TRUTH}/{Path(evaluation.truth).name}",
            "prediction": evaluation.prediction,
            "baseline": evaluation.baseline,
            "best": evaluation.best,
            "higher_is_better": evaluation.higher_is_better,
        }
        origin = SourceLocation(file=str(self._file), key=("evaluation",))
        grade = ScorerSpec(name="evaluation", settings=settings, origin=origin)
        return (grade, *self._own_scorers())

    def _own_scorers(self) -> tuple[ScorerSpec, ...]:
        case, at = self._case, SourceLocation(file=str(self._file))
        if case.scorers is None:
            return default_scorers(case.expected, at=at.inside("expected"))
        return scorer_specs(case.scorers, at=at.inside("scorers"), trusted=False)

    def _folder(self, key: str, name: str | None) -> Path | None:
        if name is None:
            return None
        path = self._file.parent / name
        if not path.is_dir():
            raise self._wrong(key, f"{path} is not a folder")
        return path

    def _parent(self, key: str, name: str) -> Path:
        """Return the folder of a file, which goes into the clean room with all that is in it."""
        path = self._file.parent / name
        if not path.is_file():
            raise self._wrong(key, f"{path} is not a file")
        if path.parent.resolve() == self._file.parent.resolve():
            raise self._wrong(key, f"{name!r} needs a separate folder: all of it becomes readable")
        return path.parent

    def _wrong(self, key: str, why: str) -> UsageError:
        line = self._line_of((key,))
        return UsageError(f"{self._file}{f':{line}' if line else ''}: key {key!r}: {why}")
