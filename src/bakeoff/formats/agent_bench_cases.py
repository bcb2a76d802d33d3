"""The cases of an agent benchmark: a folder each, with what the instructor knows and what is hidden."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import tree_digest
from bakeoff._lib.phrasing import did_you_mean
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Source
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.formats.dialogue import (
    BETTER_THAN_THE_BASELINE,
    EVALUATION,
    GROUND_TRUTH,
    DataWorkspace,
    read_cases,
)
from bakeoff.formats.run_file import BudgetTable, Count, LimitsTable, Positive, SandboxTable
from bakeoff.formats.text.convert import as_given, convert
from bakeoff.formats.text.entries import Endpoints
from bakeoff.formats.text.json import read_json
from bakeoff.formats.text.locate import line_in, shown
from bakeoff.formats.text.problems import Problems

Text = Annotated[str, Meta(min_length=1)]
NotNegative = Annotated[float, Meta(ge=0)]

DEFAULT_AGENTS = "agent_configs/"
DEFAULT_CHECKPOINTS = "checkpoints"
SAMPLE_AGENT = "sample_agent_config.toml"
BARE_MODEL = ("base-agent", "pure-model", "direct")
LIST = Path("meta_info", "benchmark_list.json")
STORAGE = "storage"
_BASELINE = Path("evaluation", "numeric_baseline.json")
_NUMBERED = re.compile(r"^\s*\d+[.)]\s+")
_HEADING = re.compile(
    r"^[ \t]*(?:#+[ \t]*)?\*\*(Objective|Your Knowledge):?\*\*:?[ \t]*", re.MULTILINE
)


class RoleTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The model of one role; missing keys are inherited from `[llm]`, or have their default."""

    model: Text | None = None
    api_key: Text | None = None
    api_base: Text | None = None
    temperature: NotNegative | None = None
    max_tokens: Count | None = None
    max_retries: Annotated[int, Meta(ge=0)] | None = None
    retry_delay: NotNegative | None = None
    rpm: Positive | None = None
    adaptive_rate_limit: bool | None = None
    run_code: bool | None = None
    system_prompt: str | None = None
    checkpoint_path: str | None = None


class BenchmarkTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which cases are run, how, and where everything goes."""

    benchmark_dir: Text | None = None
    benchmark_path: Text | None = None
    dataset_dir: Text | None = None
    checkpoint_path: Text | None = None
    results: Text | None = None
    result_path: Text | None = None
    log_path: Text = "logs"
    max_workers: Count = 8
    test_cases: list[Text] | None = None
    max_turns: Count = 20
    user_type: Literal["user", "shard_user"] = "user"
    interaction_type: Literal["default"] = "default"
    rollouts: Count = 1
    agent_config: Text = DEFAULT_AGENTS


class BaseFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The base configuration of an agent benchmark.

    `[user]` and `[gatekeeper]` are other names of `[instructor]` and `[supervisor]`. A
    `system_prompt` in `[llm]` is the instructor's; the supervisor has its own or none.
    """

    benchmark: BenchmarkTable
    llm: RoleTable = msgspec.field(default_factory=RoleTable)
    instructor: RoleTable | None = None
    user: RoleTable | None = None
    supervisor: RoleTable | None = None
    gatekeeper: RoleTable | None = None
    rpm_per_model: dict[str, Positive] = {}
    endpoints: Endpoints = {}
    limits: LimitsTable = msgspec.field(default_factory=LimitsTable)
    budget: BudgetTable = msgspec.field(default_factory=BudgetTable)
    prices: Text | None = None
    sandbox: str | SandboxTable = msgspec.field(default_factory=SandboxTable)

    @property
    def checkpoints(self) -> str:
        """Where conversations are saved: as `[benchmark]` says, else as another table does."""
        seats = (self.llm, self.instructor, self.user, self.supervisor, self.gatekeeper)
        named = (seat.checkpoint_path for seat in seats if seat is not None)
        return self.benchmark.checkpoint_path or next(filter(None, named), DEFAULT_CHECKPOINTS)


class AgentFile(RoleTable, kw_only=True):
    """One agent: a model, and the framework that it works in."""

    id: Text | None = None
    framework: Text = BARE_MODEL[0]
    settings: dict[str, Json] = {}


class Baseline(msgspec.Struct, kw_only=True):
    """`numeric_baseline.json`; other keys are for people."""

    score: float
    success: bool = True
    is_higher_better: bool = True
    theoretical_best: float | None = None


@dataclass(frozen=True, kw_only=True)
class Prompts:
    """The system prompts of the roles, if the base file has any."""

    instructor: str | None = None
    supervisor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Cases:
    """The cases in the folder of a benchmark; `boxed` says that some agent needs a box."""

    folder: Path
    datasets: Path | None
    settings: BenchmarkTable
    boxed: bool
    prompts: Prompts

    def ids(self) -> list[str]:
        """Return the cases that are to be run, in the order of the list."""
        return chosen_of(self._listed(), self.settings.test_cases, self.folder)

    def _listed(self) -> list[str]:
        path, storage = self.folder / LIST, self.folder / STORAGE
        if path.is_file():
            data, _ = read_json(path)
            ids = data if isinstance(data, list) else [None]
            if wrong := [number for number, case in enumerate(ids) if not isinstance(case, str)]:
                where = shown(SourceLocation(file=str(path), key=(wrong[0],)))
                raise UsageError(f'{where}: a list of ids is expected, such as ["one", "two"]')
            listed = list(dict.fromkeys(str(case) for case in ids))
        else:
            listed = sorted(f.name for f in storage.glob("*") if f.is_dir())
        if not listed:
            raise UsageError(
                f"{self.folder}: there are no cases in this benchmark: neither {STORAGE}/<id>/ folders nor "
                "files with an `objective`"
            )
        return listed

    def tasks(self) -> list[Task]:
        """Return the cases as tasks; the mistakes of all cases are reported together."""
        tasks, problems = [], Problems()
        for case in self.ids():
            with problems.gathered(), as_given(self.folder):
                tasks.append(self._task(case))
        problems.raise_any()
        return tasks

    def sources(self) -> Iterator[Source]:
        """Return what was read."""
        for case in self.ids():
            folder = (self.folder / STORAGE / case).resolve()
            yield Source(path=str(folder), digest=tree_digest(folder))

    def _task(self, case: str) -> Task:
        folder = (self.folder / STORAGE / case).resolve()
        if Path(case).name != case or not folder.is_dir():
            raise UsageError(f"{folder}: case {case!r} has no folder there")
        data = DataWorkspace(
            datasets=self._datasets(folder, case),
            truth=_some_folder(folder / "ground_truth"),
            evaluation=_some_folder(folder / "evaluation"),
            boxed=self.boxed,
        )
        return Task(
            id=case,
            messages=data.messages(),
            dialogue=self._dialogue(folder),
            scorers=_scorers(folder),
            pass_threshold=BETTER_THAN_THE_BASELINE,
            workspace=data.workspace(),
        )

    def _datasets(self, folder: Path, case: str) -> Path | None:
        own = _some_folder(folder / "datasets")
        if own is not None or self.datasets is None:
            return own
        if not self.datasets.is_dir():
            raise UsageError(f"{self.datasets}: there is no such folder of datasets")
        return _some_folder((self.datasets / case).resolve())

    def _dialogue(self, folder: Path) -> Dialogue:
        instructions = folder / "instructions"
        objective, knowledge = _parts(_read(instructions / "instructions.md"))
        sharded = self.settings.user_type == "shard_user"
        return Dialogue(
            objective=objective,
            knowledge=knowledge,
            reference=""
            if sharded
            else _read(instructions / "reference_insights.md", needed=False),
            supervision=""
            if sharded
            else _read(instructions / "gatekeeper_reference.md", needed=False),
            shards=_shards(instructions / "shards.md") if sharded else (),
            max_turns=self.settings.max_turns,
            mode=self.settings.user_type,
            instructor_prompt=self.prompts.instructor,
            supervisor_prompt=None if sharded else self.prompts.supervisor,
        )


def chosen_of(listed: Sequence[str], chosen: Sequence[str] | None, folder: Path) -> list[str]:
    """Return the cases of *folder* that are to be run: those *chosen*, or all that are *listed*."""
    if chosen is None:
        return list(listed)
    for case in chosen:
        if case not in listed:
            hint = did_you_mean(case, listed)
            raise UsageError(
                f"{folder}: there is no case {case!r}, but `test_cases` names it; {hint}"
            )
    return list(dict.fromkeys(chosen))


def _some_folder(path: Path) -> Path | None:
    return path if path.is_dir() and any(path.iterdir()) else None


def _read(path: Path, *, needed: bool = True) -> str:
    if not needed and not path.exists():
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error


def _parts(text: str) -> tuple[str, str]:
    """Return the objective and the knowledge; a text without headings is all objective."""
    headings = list(_HEADING.finditer(text))
    parts = {"Objective": "", "Your Knowledge": ""}
    for number, heading in enumerate(headings):
        end = headings[number + 1].start() if number + 1 < len(headings) else len(text)
        parts[heading[1]] = text[heading.end() : end].strip()
    if not parts["Objective"]:
        parts["Objective"] = text[: headings[0].start()].strip() if headings else text
    return parts["Objective"] or text, parts["Your Knowledge"]


def _shards(path: Path) -> tuple[str, ...]:
    lines = [_NUMBERED.sub("", line).strip() for line in _read(path).splitlines()]
    shards = tuple(line for line in lines if line)
    if not shards:
        raise UsageError(f"{path}: it has no shards; write one per line")
    return shards


def _scorers(folder: Path) -> tuple[ScorerSpec, ...]:
    """Return how the prediction is evaluated, where the case says so."""
    metrics, truth = folder / "evaluation" / "evaluation_metrics.py", folder / "ground_truth"
    if not metrics.is_file():
        return ()
    files = sorted(f.name for f in truth.glob("*") if f.is_file()) if truth.is_dir() else []
    if not files:
        raise UsageError(f"{truth}: the evaluation has no true values to compare with")
    tables = [name for name in files if name.endswith(".csv")]
    settings = {
        "module": f"{EVALUATION}/{metrics.name}",
        "truth": f"{GROUND_TRUTH}/{(tables or files)[0]}",
    }
    return (
        ScorerSpec(
            name="evaluation",
            settings={**settings, **_baseline(folder)},
            origin=SourceLocation(file=str(folder / _BASELINE), key=("score",)),
        ),
    )


def _baseline(folder: Path) -> dict[str, float | bool]:
    path = folder / _BASELINE
    if not path.is_file():
        return {}
    data, _ = read_json(path)
    baseline = convert(data, Baseline, source=str(path), line_of=partial(line_in, path))
    if not baseline.success:
        where = shown(SourceLocation(file=str(path), key=("success",)))
        raise UsageError(f"{where}: the baseline itself failed (`success` is false): run it again")
    best = {} if baseline.theoretical_best is None else {"best": baseline.theoretical_best}
    return {"baseline": baseline.score, "higher_is_better": baseline.is_higher_better, **best}


def own_cases(
    folder: Path, settings: BenchmarkTable, prompts: Prompts, *, boxed: bool
) -> tuple[list[Task], tuple[Source, ...]]:
    """Return the dialogues in *folder* that are to be run, and what was read.

    Each case says whether it has shards, and may have its own prompts. No conversation
    is longer than the base file allows, and only the base file names the models of the roles.
    """
    spec = read_cases(folder, boxed=boxed)
    tasks_by_id = {task.id: task for task in spec.tasks}
    tasks = []
    for case in chosen_of(list(tasks_by_id), settings.test_cases, folder):
        dialogue = tasks_by_id[case].dialogue
        if dialogue is None or (settings.user_type == "shard_user" and not dialogue.shards):
            raise UsageError(
                f"{folder}: case {case!r} has no `shards`, and `user_type` is 'shard_user'"
            )
        tasks.append(replace(tasks_by_id[case], dialogue=_fitted(dialogue, settings, prompts)))
    return tasks, spec.sources


def _fitted(dialogue: Dialogue, settings: BenchmarkTable, prompts: Prompts) -> Dialogue:
    return replace(
        dialogue,
        max_turns=min(dialogue.max_turns, settings.max_turns),
        instructor_prompt=dialogue.instructor_prompt or prompts.instructor,
        supervisor_prompt=dialogue.supervisor_prompt or prompts.supervisor,
    )
