"""Reads agent benchmarks: a base file, a folder of agents, a folder of cases."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bakeoff._lib.digest import digest, digest_bytes
from bakeoff.core.budget import Cap
from bakeoff.core.candidate import NO_MODEL, AgentSpec, ModelSpec, Origin
from bakeoff.core.dialogue import INSTRUCTOR, SUPERVISOR
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Pairing, RunSpec, Source
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.formats.agent_bench_cases import (
    BARE_MODEL,
    SAMPLE_AGENT,
    STORAGE,
    AgentFile,
    BaseFile,
    Cases,
    Prompts,
    RoleTable,
    own_cases,
)
from bakeoff.formats.detect import Format, format_of, is_benchmark_agent
from bakeoff.formats.dialogue import PREDICTION
from bakeoff.formats.run_file import conditions_of, sandbox_spec
from bakeoff.formats.text.convert import KeyPath, convert
from bakeoff.formats.text.entries import endpoint_limits
from bakeoff.formats.text.locate import shown
from bakeoff.formats.text.toml import line_of, read_toml, with_overrides

CODE_SESSION = "code-session"
_TEMPERATURE, _MAX_RETRIES, _RETRY_DELAY_S = 0.4, 3, 2.0
_LOCAL = ("embedded", "scripted")
_TAKES_A_PROMPT = ("direct", CODE_SESSION, "shell")
_BY_A_FILE = "evaluation"
_OTHER_NAMES = {INSTRUCTOR: "user", SUPERVISOR: "gatekeeper"}
_OWN = re.compile(r"([\w./-]+):[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class BenchAgent:
    """One agent as its file describes it."""

    id: str
    agent: AgentSpec
    model: ModelSpec
    source: Source
    path: Path
    file: AgentFile

    @property
    def needs_box(self) -> bool:
        """Whether it needs a box with files."""
        return self.agent.name != "direct"

    @property
    def checkpoints(self) -> Path | None:
        """Where its conversations are saved, if its file says so."""
        if not self.file.checkpoint_path:
            return None
        path = Path(self.file.checkpoint_path)
        return path.parent if path.suffix == ".json" else path


@dataclass(frozen=True, kw_only=True)
class AgentBench:
    """A base file and its agents, read; `run_spec` is what they ask for."""

    base: BaseFile
    agents: tuple[BenchAgent, ...]
    run_spec: RunSpec


def read_agent_bench(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what the base file at *path* asks for, with the agents it names."""
    return read_bench(path, overrides=overrides).run_spec


def read_bench(
    path: Path, agents: Path | None = None, overrides: Mapping[str, str] | None = None
) -> AgentBench:
    """Return the base file at *path* and the *agents*: a file, or a folder with one for each."""
    base, source = _read_base(path, overrides or {})
    bench_agents = read_agents(
        agents or _resolved(base.benchmark.agent_config, path), base, path.parent
    )
    tasks, read = _cases(base, path, boxed=any(agent.needs_box for agent in bench_agents))
    notices = tuple(_without_files(bench_agents, tasks, path))
    sources = (source, *(agent.source for agent in bench_agents), *read)
    spec = replace(_run_spec(base, path, bench_agents, tasks), sources=sources, notices=notices)
    return AgentBench(base=base, agents=bench_agents, run_spec=spec)


def _without_files(
    agents: Sequence[BenchAgent], tasks: Sequence[Task], base: Path
) -> Iterator[str]:
    """Refuse agents that can only score 0: the bare model, in cases scored by a file it writes.

    One whose file says `run_code = false` has chosen that, and is only told.
    """
    cases = [task.id for task in tasks if any(s.name == _BY_A_FILE for s in task.scorers)]
    bare = [agent for agent in agents if not agent.needs_box]
    if not cases or not bare:
        return
    many = f"{len(cases)} of {len(tasks)} case{'' if len(tasks) == 1 else 's'} ({_listed(cases)})"
    silent = [agent for agent in bare if agent.file.run_code is None]
    if silent:
        files = _listed([str(agent.path) for agent in silent])
        raise UsageError(
            f"{files}: `run_code` is missing. The agent's score in {many} comes from a file that it "
            f"writes, {PREDICTION}; a bare model writes none and would score 0.\n"
            f"Write `run_code = true` there, or in [llm] of {base} for all agents; or name a "
            '`framework` that works with files, such as "shell". (`run_code = false` in an agent\'s '
            "file says that the zeros are intended.)"
        )
    yield (
        f"{_listed([agent.id for agent in bare])}: `run_code = false`, so no file is written, and "
        f"{many} will score 0"
    )


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _cases(base: BaseFile, path: Path, *, boxed: bool) -> tuple[Sequence[Task], Iterable[Source]]:
    """Return the cases that the base file names: folders of a benchmark, or our own files."""
    table = base.benchmark
    named = table.benchmark_dir or table.benchmark_path
    if named is None:
        raise UsageError(f"{path}: [benchmark] does not say where the cases are: `benchmark_dir`")
    folder = _resolved(named, path)
    if not folder.is_dir():
        key = "benchmark_dir" if table.benchmark_dir else "benchmark_path"
        raise UsageError(
            f"{path}: key 'benchmark.{key}': {folder}: there is no such folder of cases"
        )
    prompts = Prompts(
        instructor=_role(base, INSTRUCTOR).system_prompt or base.llm.system_prompt or None,
        supervisor=_role(base, SUPERVISOR).system_prompt or None,
    )
    if not (folder / STORAGE).is_dir() and format_of(folder) is Format.DIALOGUE:
        return own_cases(folder, table, prompts, boxed=boxed)
    cases = Cases(
        folder=folder,
        datasets=_resolved(table.dataset_dir, path) if table.dataset_dir else None,
        settings=table,
        boxed=boxed,
        prompts=prompts,
    )
    return cases.tasks(), cases.sources()


def _read_base(path: Path, overrides: Mapping[str, str]) -> tuple[BaseFile, Source]:
    data, text = read_toml(path)
    if is_benchmark_agent(data):
        raise UsageError(
            f"{path}: this is an agent, not a base file: name the base file with --base_config and "
            "this one with --agent_config"
        )
    base = convert(data, BaseFile, source=str(path), line_of=partial(line_of, text))
    if overrides:
        changed = with_overrides(data, overrides)
        base = convert(changed, BaseFile, source="--set", line_of=lambda _: None)
    table = base.benchmark
    for name, alias, a, b in (
        ("[benchmark] benchmark_dir", "benchmark_path", table.benchmark_dir, table.benchmark_path),
        ("[benchmark] results", "result_path", table.results, table.result_path),
        ("[instructor]", "[user]", base.instructor, base.user),
        ("[supervisor]", "[gatekeeper]", base.supervisor, base.gatekeeper),
    ):
        if a is not None and b is not None:
            raise UsageError(f"{path}: {name} and {alias} are the same: write one of them")
    return base, Source(path=str(path.resolve()), digest=digest_bytes(text.encode()))


def _resolved(name: str, base: Path) -> Path:
    """Return a path named in a file: relative to the file, else to the working folder."""
    sibling = base.parent / name
    path = sibling if sibling.exists() else Path(name)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def read_agents(path: Path, base: BaseFile, base_folder: Path) -> tuple[BenchAgent, ...]:
    """Return the agent in the file *path*, or those in the folder, in the order of their names.

    User code may be next to the agents, or in *base_folder*.
    """
    if path.is_dir():
        files = sorted(f for f in path.glob("*.toml") if f.name != SAMPLE_AGENT)
        if not files:
            raise UsageError(
                f"{path}: there are no agents in this folder; copy {SAMPLE_AGENT} to a new name "
                "for each agent"
            )
    elif path.is_file():
        files = [path]
    else:
        raise UsageError(f"{path}: there is no such file or folder of agents")
    agents: dict[str, BenchAgent] = {}
    for file in files:
        agent = _read_agent(file, base, (file.parent, base_folder))
        if agent.id in agents:
            raise UsageError(f"{file}: agent {agent.id!r} is defined twice; give each its own `id`")
        agents[agent.id] = agent
    return _with_distinct_identities(tuple(agents.values()))


def _read_agent(path: Path, base: BaseFile, places: tuple[Path, ...]) -> BenchAgent:
    data, text = read_toml(path)
    file = convert(data, AgentFile, source=str(path), line_of=partial(line_of, text))
    name = file.framework
    if name in BARE_MODEL:
        runs_code = base.llm.run_code if file.run_code is None else file.run_code
        name = CODE_SESSION if runs_code else "direct"
    agent_id = file.id or path.stem
    if file.system_prompt and name not in _TAKES_A_PROMPT:
        where = shown(SourceLocation(file=str(path), key=("system_prompt",)))
        raise UsageError(
            f"{where}: the framework {name!r} has its own system prompt and takes no other; "
            "leave it out"
        )
    if file.model is None and name in ("direct", CODE_SESSION, "shell"):
        raise UsageError(f"{path}: `model` is missing: which model is this agent?")
    model = NO_MODEL
    if file.model is not None:
        model = _model(file, base, places=places, label=agent_id)
        model = replace(model, origin=_origin(path, text, ("model",)))
    return BenchAgent(
        id=agent_id,
        agent=AgentSpec(
            name=name,
            settings={**_prompted(file), **file.settings},
            label=None if file.model else agent_id,
            origin=_origin(path, text, ("framework",)),
        ),
        model=model,
        source=Source(path=str(path.resolve()), digest=digest_bytes(text.encode())),
        path=path,
        file=file,
    )


def _prompted(file: AgentFile) -> dict[str, Json]:
    return {"system_prompt": file.system_prompt} if file.system_prompt else {}


def _origin(path: Path, text: str, key: KeyPath) -> Origin:
    return Origin.at(path, line_of(text, key), address="api_base")


def _with_distinct_identities(agents: tuple[BenchAgent, ...]) -> tuple[BenchAgent, ...]:
    """Return *agents* such that agents which differ only in their id get distinct identities."""
    seen: set[str] = set()
    distinct = []
    for given in agents:
        known = digest([given.agent.identity(), given.model.identity()])
        agent = given.agent
        if known in seen:  # the first keeps its identity: a twin that comes later changes nothing
            agent = replace(agent, environment={**agent.environment, "BAKEOFF_AGENT": given.id})
        seen.add(known)
        distinct.append(replace(given, agent=agent))
    return tuple(distinct)


def _table_name(base: BaseFile, role: str) -> str:
    """Return which table of the base file is about *role*."""
    other = _OTHER_NAMES[role]
    return other if getattr(base, role) is None and getattr(base, other) is not None else role


def _role(base: BaseFile, name: str) -> RoleTable:
    table: RoleTable | None = getattr(base, _table_name(base, name))
    return table or RoleTable()


def _model(
    table: RoleTable, base: BaseFile, *, places: tuple[Path, ...], label: str | None
) -> ModelSpec:
    """Return the model of a role as it is named; the name is resolved later."""
    name = table.model or ""
    temperature = _TEMPERATURE if table.temperature is None else table.temperature
    parameters: dict[str, Json] = {"temperature": temperature}
    if table.max_tokens is not None:
        parameters["max_tokens"] = table.max_tokens
    return ModelSpec(
        provider="",
        name=name,
        base_url=table.api_base,
        api_key=table.api_key,
        parameters=parameters,
        settings={} if _is_local(table, places) else _endpoint_settings(table, base.rpm_per_model),
        label=label,
    )


def _is_local(table: RoleTable, places: tuple[Path, ...]) -> bool:
    """Whether the model needs no endpoint: it runs in this process, or is user code."""
    name = table.model or ""
    own = _OWN.fullmatch(name)
    file = own and own[1].removesuffix(".py").replace(".", "/") + ".py"
    if file and any((place / file).is_file() for place in (*places, Path())):
        return True
    return table.api_base is None and name.partition("/")[0] in _LOCAL


def _endpoint_settings(table: RoleTable, rpm_per_model: Mapping[str, float]) -> dict[str, Json]:
    """Return the retry and rate limit settings of an endpoint."""
    settings: dict[str, Json] = {
        "max_retries": _MAX_RETRIES if table.max_retries is None else table.max_retries,
        "retry_delay_s": _RETRY_DELAY_S if table.retry_delay is None else table.retry_delay,
    }
    name = table.model or ""
    named = (rpm_per_model.get(known) for known in (name, name.partition("/")[2]))
    rpm = next((rpm for rpm in (table.rpm, *named) if rpm is not None), None)
    if rpm is not None:
        settings["rpm"] = rpm
    if table.adaptive_rate_limit is not None:
        settings["adaptive"] = table.adaptive_rate_limit
    return settings


def _roles(base: BaseFile, path: Path) -> dict[str, ModelSpec]:
    names = (INSTRUCTOR,) if base.benchmark.user_type == "shard_user" else (INSTRUCTOR, SUPERVISOR)
    roles = {}
    for name in names:
        table = _inherited(_role(base, name), base.llm)
        if table.model is None:
            raise UsageError(
                f"{path}: no model plays the {name}; write `model` in [llm], or in [{name}]"
            )
        model = _model(table, base, places=(path.parent,), label=None)
        table_name = "llm" if _role(base, name).model is None else _table_name(base, name)
        origin = Origin(where=f"{path}: the model of [{table_name}]", address="api_base")
        roles[name] = replace(model, origin=origin)
    return roles


def _inherited(role: RoleTable, llm: RoleTable) -> RoleTable:
    """Return *role* with its gaps filled; a key goes to no other address than its own."""
    names = list(RoleTable.__struct_fields__)
    own = {name: getattr(role, name) for name in names if getattr(role, name) is not None}
    if "api_base" in own:
        names.remove("api_key")
    return RoleTable(**{**{name: getattr(llm, name) for name in names}, **own})


def _run_spec(
    base: BaseFile, path: Path, agents: Sequence[BenchAgent], tasks: Sequence[Task]
) -> RunSpec:
    conditions = conditions_of(base.limits, {})
    return RunSpec(
        name=path.stem,
        tasks=tuple(tasks),
        pairings=tuple(
            Pairing(
                task=task, model=agent.model, agent=agent.agent, rollouts=base.benchmark.rollouts
            )
            for task in tasks
            for agent in agents
        ),
        parallel=base.benchmark.max_workers,
        conditions=replace(conditions, roles=_roles(base, path)),
        cap=Cap(cost_usd=base.budget.max_cost_usd, tokens=base.budget.max_tokens),
        prices=str(path.parent / base.prices) if base.prices else None,
        sandbox=sandbox_spec(base.sandbox),
        endpoints=endpoint_limits(base.endpoints),
    )
