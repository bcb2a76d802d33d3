"""The TOML of rollouts: prepared tasks, each paired with a model, and how often."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.phrasing import near
from bakeoff.core.budget import Cap
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Pairing, RunSpec, Source
from bakeoff.core.task import Task
from bakeoff.formats.detect import PREPARED_META
from bakeoff.formats.prepared import KEPT_OUT, PreparedDir, environment, read_prepared
from bakeoff.formats.run_file import (
    AgentTable,
    BudgetTable,
    Count,
    LimitsTable,
    ModelTable,
    SandboxTable,
    agent_spec,
    conditions_of,
    model_spec,
    origin_in,
    sandbox_spec,
)
from bakeoff.formats.text.convert import KeyPath, convert, dotted
from bakeoff.formats.text.entries import Endpoints, endpoint_limits
from bakeoff.formats.text.toml import line_of, read_toml, with_overrides
from bakeoff.planning.expand import with_distinct_ids

Text = Annotated[str, Meta(min_length=1)]
_GLOB = re.compile(r"[*?\[]")


class PreparedTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A prepared task for one model; `prepared_dir` may be a glob, and then it is many.

    `environment_variables` are shown to the agent in its box and are part of the candidate;
    `TIMEOUT_SEC` among them is also how long the agent may take.
    """

    prepared_dir: Text
    model: Text | ModelTable
    rollouts: Count | None = None
    apply_overrides: bool = True
    overrides: Text | None = None
    environment_variables: dict[str, str | int | float] = {}
    agent: Text | AgentTable | None = None


class RolloutsFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Rollouts: prepared tasks, models, number of rollouts, and concurrency.

    `models` says what a name in `model` stands for, where that needs more than the name.
    """

    tasks: list[PreparedTable]
    name: Text | None = None
    description: str | None = None
    parallel: Count = 1
    rollouts: Count = 1
    models: dict[str, str | ModelTable] = {}
    agent: Text | AgentTable | None = None
    limits: LimitsTable = msgspec.field(default_factory=LimitsTable)
    budget: BudgetTable = msgspec.field(default_factory=BudgetTable)
    prices: str | None = None
    roles: dict[str, str | ModelTable] = {}
    endpoints: Endpoints = {}
    sandbox: str | SandboxTable = msgspec.field(default_factory=SandboxTable)


def read_rollouts_file(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what the rollouts in the TOML file *path* ask for."""
    data, text = read_toml(path)
    file = convert(data, RolloutsFile, source=str(path), line_of=partial(line_of, text))
    if overrides:
        changed = with_overrides(data, overrides)
        file = convert(changed, RolloutsFile, source="--set", line_of=lambda _: None)
    reader = _Reader(path=path, text=text, file=file)
    pairings = with_distinct_ids(tuple(reader.pairings()))
    conditions = conditions_of(file.limits, file.roles)
    tasks = {pairing.task.digest: pairing.task for pairing in pairings}
    return RunSpec(
        name=file.name or path.stem,
        tasks=tuple(tasks.values()),
        pairings=pairings,
        parallel=file.parallel,
        conditions=replace(conditions, roles=reader.roles()),
        sources=(Source(path=str(path.resolve()), digest=digest_bytes(text.encode())),),
        cap=Cap(cost_usd=file.budget.max_cost_usd, tokens=file.budget.max_tokens),
        prices=str(path.parent / file.prices) if file.prices else None,
        sandbox=sandbox_spec(file.sandbox),
        endpoints=endpoint_limits(file.endpoints),
        notices=tuple(_kept_out(task) for task in tasks.values() if KEPT_OUT in task.metadata),
    )


def _kept_out(task: Task) -> str:
    paths = task.metadata[KEPT_OUT]
    names = ", ".join(map(str, paths)) if isinstance(paths, list) else ""
    return (
        f"{task.id}: not copied into the box: {names} (files of these names hold the tests or the "
        "solution of a prepared task)"
    )


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Reads the entries of one file; a folder that several of them name is read once."""

    path: Path
    text: str
    file: RolloutsFile
    known: dict[PreparedDir, Task] = field(default_factory=dict)

    def pairings(self) -> Iterator[Pairing]:
        """Yield each task with its model, in the order of the file."""
        for number, entry in enumerate(self.file.tasks):
            agent, model = (
                self._agent(number, entry),
                self._model(("tasks", number, "model"), entry.model),
            )
            for prepared in self._folders(number, entry):
                yield Pairing(
                    task=self._task(prepared),
                    model=model,
                    agent=agent,
                    rollouts=entry.rollouts or self.file.rollouts,
                )

    def _task(self, prepared: PreparedDir) -> Task:
        if prepared not in self.known:
            self.known[prepared] = read_prepared(prepared)
        return self.known[prepared]

    def roles(self) -> dict[str, ModelSpec]:
        """Return who plays the roles; a name may be one of `[models]`."""
        return {
            role: self._model(("roles", role), entry) for role, entry in self.file.roles.items()
        }

    def _model(self, key: KeyPath, given: str | ModelTable) -> ModelSpec:
        if not isinstance(given, str) or given not in self.file.models:
            if isinstance(given, str):
                self._refuse_misspelt(key, given)
            return replace(model_spec(given), origin=origin_in(self.path, self.text, key))
        named = model_spec(self.file.models[given])
        origin = origin_in(self.path, self.text, ("models", given))
        return replace(named, label=named.label or given, origin=origin)

    def _refuse_misspelt(self, key: KeyPath, name: str) -> None:
        """Refuse a name alone that is nearly one of `[models]`: it would be taken for Ollama's."""
        meant = None if "/" in name else near(name, self.file.models, least=0.75)
        if meant is not None:
            raise UsageError(
                f"{self._where(key)}: [models] has no {name!r}; did you mean {meant!r}? "
                f"there are: {', '.join(self.file.models)}; a model of Ollama is written "
                f"ollama/{name}"
            )

    def _agent(self, number: int, entry: PreparedTable) -> AgentSpec:
        """Return who solves it; an agent without a name is chosen where it is known what is there."""
        given: str | AgentTable | None = entry.agent or self.file.agent
        agent = AgentSpec(name="") if given is None else agent_spec(given)
        key: KeyPath = ("tasks", number, "agent") if entry.agent else ("agent",)
        agent = replace(agent, origin=origin_in(self.path, self.text, key))
        try:
            variables, time_s = environment(entry.environment_variables)
        except UsageError as error:
            where = self._where(("tasks", number, "environment_variables"))
            raise UsageError(f"{where}: {error}") from error
        return replace(agent, environment=variables, time_s=time_s)

    def _folders(self, number: int, entry: PreparedTable) -> Iterator[PreparedDir]:
        folders = self._found(entry.prepared_dir)
        if not folders:
            where = self._where(("tasks", number, "prepared_dir"))
            raise UsageError(
                f"{where}: {entry.prepared_dir!r} matches no folder with a {PREPARED_META}"
            )
        for folder in folders:
            yield PreparedDir(
                folder=folder.resolve(),
                shown=str(folder),
                apply_overrides=entry.apply_overrides,
                overrides=self._overrides(entry),
            )

    def _overrides(self, entry: PreparedTable) -> Path | None:
        if not entry.overrides or not entry.apply_overrides:
            return None
        places = self._places(entry.overrides)
        return next((path for path in places if path.exists()), places[0])

    def _found(self, written: str) -> Sequence[Path]:
        if not _GLOB.search(written):
            places = self._places(written)
            return [next((path for path in places if path.exists()), places[0])]
        if Path(written).is_absolute():
            return _prepared(Path("/"), written.lstrip("/"))
        here = (_prepared(place, written) for place in self._roots())
        return next((matches for matches in here if matches), [])

    def _places(self, written: str) -> list[Path]:
        """Return the candidates for a path: relative to the working folder, else to the file."""
        return [root / Path(written).expanduser() for root in self._roots()]

    def _roots(self) -> tuple[Path, Path]:
        return Path(), self.path.parent

    def _where(self, key: KeyPath) -> str:
        line = line_of(self.text, key)
        return f"{self.path}{f':{line}' if line else ''}: key {dotted(key)!r}"


def _prepared(root: Path, pattern: str) -> list[Path]:
    return sorted(path for path in root.glob(pattern) if (path / PREPARED_META).is_file())
