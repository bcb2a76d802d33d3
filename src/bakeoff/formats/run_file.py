"""Run files, Bakeoff's own TOML: their tables, and how they become a run."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.phrasing import near_file
from bakeoff.core.budget import Cap
from bakeoff.core.candidate import AgentSpec, Conditions, Limits, ModelSpec, Origin, Patience
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import StreamedTasks, joined, mapped, streamed
from bakeoff.core.run_spec import Adaptive, AdaptiveGoal, RunSpec, Source
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import SandboxSpec
from bakeoff.formats.data.columns import DataOptions
from bakeoff.formats.data.data_set import DataTable, Reading, read_data_set
from bakeoff.formats.data.duckdb_rows import sql_filtered
from bakeoff.formats.detect import (
    HUB,
    NO_DATA_OPTIONS,
    Format,
    format_of,
    is_data_set,
    open_data_set,
    read_path,
)
from bakeoff.formats.prompts import PromptTable, prompts_of_file
from bakeoff.formats.suite import Scoring, read_suite
from bakeoff.formats.text.convert import KeyPath, convert
from bakeoff.formats.text.entries import (
    Endpoints,
    MessageTable,
    ScorerEntry,
    check_parameters,
    default_scorers,
    endpoint_limits,
    filled_in,
    placeholder_notes,
    prompt_beside,
    prompts_that_differ,
    scorer_specs,
)
from bakeoff.formats.text.locate import shown
from bakeoff.formats.text.problems import Problems
from bakeoff.formats.text.toml import line_of, read_toml, with_overrides
from bakeoff.formats.tools import Rounds, ToolTable, refuse_tools_twice, task_tools
from bakeoff.formats.turns import TurnTable, messages_of, scripted_turns, turn_scorers
from bakeoff.planning.selection import matching, sampled
from bakeoff.planning.where import parse_where

Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
_NO_RUN_FILE = "a run file cannot name another one; copy its entries here, or run it separately"
_WHAT_KIND = (
    "unknown kind of file. A suite ends in .json, a task in Markdown in .md; any other coding "
    "task is a folder"
)


class ModelTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A model: `model = "provider/name"`, and where it is reached.

    `base_url`, `api_key` and `headers` may refer to the environment as `${NAME}`.
    """

    model: str
    name: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = {}
    parameters: dict[str, Json] = {}
    settings: dict[str, Json] = {}


class AgentTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An agent: `agent = "direct"`, or `module:attr` of your own."""

    agent: str
    name: str | None = None
    version: str | None = None
    settings: dict[str, Json] = {}


class TaskTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A task written into the run file itself."""

    id: str
    prompt: str | None = None
    messages: list[MessageTable] | None = None
    files: list[str] = []
    vars: dict[str, Json] = {}
    literal: bool = False
    name: str | None = None
    category: str | None = None
    group: str | int | None = None
    parameters: dict[str, Json] = {}
    expected: Json = None
    scorers: list[ScorerEntry] | None = None
    pass_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    time_s: Positive | None = None
    metadata: dict[str, Json] = {}
    tools: list[ToolTable] | None = None
    tool_rounds: Rounds | None = None
    turns: Annotated[list[TurnTable], Meta(min_length=1)] | None = None


class LimitsTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What one attempt at a trial may spend, and how many attempts a transient fault may cost."""

    time_s: Positive | None = None
    requests: Count | None = None
    output_tokens: Count | None = None
    tokens: Count | None = None
    cost_usd: Positive | None = None
    scoring_s: Positive = 1800.0
    attempts: Count = 2
    interventions: Annotated[int, Meta(ge=0)] = 0


class BudgetTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the whole run may spend, with roles, retries and failed attempts; then it stops."""

    max_cost_usd: Positive | None = None
    max_tokens: Count | None = None


class AdaptiveTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A run that ends when its candidates are separated, or their difference is known precisely enough."""

    precision: Annotated[float, Meta(gt=0, lt=1)] | None = None
    seed: int = 0
    goal: AdaptiveGoal = "pairs"
    looks: Annotated[int, Meta(ge=1, le=100)] | None = None


class SandboxTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Where the commands of workspace tasks run; without a name, the best that is there."""

    name: str | None = None
    settings: dict[str, Json] = {}


class RunFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A run: tasks, models and agents, rollouts, and scoring."""

    name: str | None = None
    description: str | None = None
    suites: list[str] = []
    data: list[DataTable] = []
    tasks: list[TaskTable] = []
    models: list[str | ModelTable] = []
    agents: list[str | AgentTable] = []
    prompts: list[PromptTable] = []
    rollouts: Count = 1
    parallel: Count | None = None
    executor: Literal["local", "processes", "ray"] = "local"
    workers: Count | None = None
    ray_address: str | None = None
    pause_s: Annotated[float, Meta(ge=0)] | None = None
    warm_up: bool = False
    parameters: dict[str, Json] = {}
    scorers: list[ScorerEntry] = []
    pass_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    limits: LimitsTable = msgspec.field(default_factory=LimitsTable)
    budget: BudgetTable = msgspec.field(default_factory=BudgetTable)
    prices: str | None = None
    roles: dict[str, str | ModelTable] = {}
    sandbox: str | SandboxTable = msgspec.field(default_factory=SandboxTable)
    endpoints: Endpoints = {}
    adaptive: AdaptiveTable | None = None
    give_up_after_s: Annotated[float, Meta(ge=0)] = 900.0
    keep_going: bool = False
    trust: bool = False
    allow_env: list[str] = []


def read_run_file(
    path: Path,
    overrides: Mapping[str, str] | None = None,
    data_options: DataOptions = NO_DATA_OPTIONS,
) -> RunSpec:
    """Return what the run file at *path* asks for, with `key=value` *overrides* applied."""
    data, text = read_toml(path)
    run = convert(data, RunFile, source=str(path), line_of=partial(line_of, text))
    if overrides:
        run = _overridden(data, overrides)
    source = Source(path=str(path.resolve()), digest=digest_bytes(text.encode()))
    places = _Places(path, overrides or ())
    if not data_options.variables:
        texts = [table.file is not None or table.text is not None for table in run.prompts]
        data_options = DataOptions.for_prompts(texts, {})
    run_spec = _run_spec(run, path, source, places, data_options)
    return run_spec if overrides else _with_origins(run_spec, run, partial(origin_in, path, text))


def origin_in(path: Path, text: str, key: KeyPath) -> Origin:
    """Return where *key* stands in the file at *path*."""
    return Origin.at(path, line_of(text, key))


class _Places:
    """Where the keys of a run file stand: in it, or on the command line."""

    def __init__(self, path: Path | None, overrides: Iterable[str]) -> None:
        self._path = path
        self._said = {name.partition(".")[0] for name in overrides}

    def __call__(self, key: str) -> SourceLocation:
        """Return where *key* stands, one of those at the top."""
        on_line = self._path is None or key in self._said
        return SourceLocation(file="--set" if on_line else str(self._path), key=(key,))


def _with_origins(run_spec: RunSpec, run: RunFile, at: Callable[[KeyPath], Origin]) -> RunSpec:
    """Return *run_spec* with the places at which its own file names models and agents."""
    roles = run_spec.conditions.roles
    return replace(
        run_spec,
        models=tuple(
            replace(spec, origin=at(("models", n)) if run.models else spec.origin)
            for n, spec in enumerate(run_spec.models)
        ),
        agents=tuple(replace(a, origin=at(("agents", n))) for n, a in enumerate(run_spec.agents)),
        conditions=replace(
            run_spec.conditions,
            roles={
                name: replace(spec, origin=at(("roles", name))) if name in run.roles else spec
                for name, spec in roles.items()
            },
        ),
    )


def read_suite_with(path: Path, overrides: Mapping[str, str]) -> RunSpec:
    """Return what the suite at *path* asks for, as if a run file of *overrides* had named only it."""
    run = _overridden({}, overrides)
    return _under(run, read_suite(path, scoring=_scoring(run, _Places(None, overrides))))


def read_data_file(
    source: str | Path, overrides: Mapping[str, str] | None, options: DataOptions
) -> RunSpec:
    """Return what the data set *source* asks for, as if a run file had named only it."""
    run = _overridden({}, overrides or {})
    scoring = _scoring(run, _Places(None, overrides or ()))
    reading = Reading(options=options, scoring=scoring)
    run_spec = read_data_set(open_data_set(source), reading)
    return _under(run, run_spec) if overrides else run_spec


def _data_set(table: DataTable, folder: Path, reading: Reading, at: SourceLocation) -> RunSpec:
    """Return the rows that *table* names, which stands *at* a place; paths start at *folder*."""
    source = table.path if table.path.startswith(HUB) else folder / table.path
    if isinstance(source, Path) and not source.exists():
        raise UsageError(f"{shown(at)}: key 'path': {_no_such_file(source)}")
    if not is_data_set(source):
        raise UsageError(
            f"{shown(at)}: key 'path': {source} is not a data set; name it in `suites`"
        )
    file = open_data_set(source)
    if table.sql is not None:
        file = sql_filtered(file, table.sql, f"{shown(at.inside('sql'))}: `sql`")
    run_spec = read_data_set(file, reading)
    if table.where is None and table.sample is None:
        return run_spec
    label = f"{shown(at.inside('where'))}: `where`"
    where = None if table.where is None else parse_where(table.where, label)

    def part() -> Iterator[Task]:
        tasks = (
            run_spec.tasks if where is None else matching(run_spec.tasks, where, run_spec.columns)
        )
        yield from tasks if table.sample is None else sampled(tasks, table.sample, seed=table.seed)

    tasks = streamed(part) if isinstance(run_spec.tasks, StreamedTasks) else tuple(part())
    if not tasks:
        raise UsageError(f"{label} matches none of the rows")
    return replace(run_spec, tasks=tasks)


def _no_such_file(path: Path) -> str:
    meant = near_file(path)
    hint = f"; did you mean {meant.name!r}?" if meant else ""
    return f"{path} does not exist{hint}"


def read_task_folders(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what the task folders at *path* ask for, as if a run file had named only them."""
    from bakeoff.formats.detect import read_tasks

    run_spec = read_tasks(path)
    return with_settings(run_spec, overrides) if overrides else run_spec


def with_settings(run_spec: RunSpec, overrides: Mapping[str, str]) -> RunSpec:
    """Return *run_spec* as if a run file had named only it, with these settings."""
    return _under(_overridden({}, overrides), run_spec)


def _overridden(data: Mapping[str, Json], overrides: Mapping[str, str]) -> RunFile:
    return convert(with_overrides(data, overrides), RunFile, source="--set", line_of=lambda _: None)


def model_spec(entry: str | ModelTable) -> ModelSpec:
    """Return the model as it is named; the name is resolved later."""
    if isinstance(entry, str):
        return ModelSpec(provider="", name=entry)
    return ModelSpec(
        provider="",
        name=entry.model,
        base_url=entry.base_url,
        api_key=entry.api_key,
        headers=entry.headers,
        parameters=entry.parameters,
        settings=entry.settings,
        label=entry.name,
    )


def _run_spec(
    run: RunFile, path: Path, source: Source, at: _Places, data_options: DataOptions
) -> RunSpec:
    scoring = _scoring(run, at)
    reading = Reading(options=data_options, scoring=scoring)
    run_spec = RunSpec(name=path.stem, tasks=(), sources=(source,))
    roles: dict[str, ModelSpec] = {}
    suites = [
        _suite(path.parent / name, run, reading, at("suites").inside(number))
        for number, name in enumerate(run.suites)
    ]
    for number, table in enumerate(run.data):
        mapped = replace(
            reading,
            options=replace(data_options, columns=table.map),
            files=None if table.files is None else path.parent / table.files,
        )
        suites.append(_data_set(table, path.parent, mapped, at("data").inside(number)))
    for suite in suites:
        roles |= suite.conditions.roles
        run_spec = replace(
            run_spec,
            tasks=joined(run_spec.tasks, suite.tasks),
            models=run_spec.models or suite.models,
            parallel=run_spec.parallel or suite.parallel,
            pause_s=run_spec.pause_s or suite.pause_s,
            sources=run_spec.sources + suite.sources,
            notices=run_spec.notices + suite.notices,
            columns={**suite.columns, **run_spec.columns},
        )
    _check_all_parameters(run, at)
    tasks_at = at("tasks")
    own = _tasks(run.tasks, tasks_at, scoring)
    if not isinstance(run_spec.tasks, StreamedTasks):  # its reader has seen to that
        _refuse_twins(run_spec.tasks, at("suites"))
    if own:
        _refuse_twins(own, tasks_at, known={task.id for task in run_spec.tasks})
    literal = {entry.id for entry in run.tasks if entry.literal}
    notices = (
        *run_spec.notices,
        *prompts_that_differ(own, tasks_at),
        *placeholder_notes(own, literal, tasks_at),
    )
    run_spec = replace(run_spec, tasks=joined(run_spec.tasks, own), notices=notices)
    run_spec = replace(_under(run, run_spec), prompts=prompts_of_file(run.prompts, at("prompts")))
    roles |= run_spec.conditions.roles
    run_spec = replace(run_spec, conditions=replace(run_spec.conditions, roles=roles))
    return (
        replace(run_spec, prices=str(path.parent / run_spec.prices))
        if run_spec.prices
        else run_spec
    )


def _check_all_parameters(run: RunFile, at: _Places) -> None:
    """Raise where the run, a task, a model or a role of it has a parameter of the wrong kind."""
    tables: list[tuple[Mapping[str, Json], SourceLocation]] = [(run.parameters, at("parameters"))]
    named: list[tuple[SourceLocation, object]] = [
        *((at("tasks").inside(n), entry) for n, entry in enumerate(run.tasks)),
        *((at("models").inside(n), entry) for n, entry in enumerate(run.models)),
        *((at("roles").inside(name), entry) for name, entry in run.roles.items()),
    ]
    for place, entry in named:
        if isinstance(entry, TaskTable | ModelTable):
            tables.append((entry.parameters, place.inside("parameters")))
    problems = Problems()
    for parameters, place in tables:
        with problems.gathered():
            check_parameters(parameters, at=place)
    problems.raise_any()


def _suite(place: Path, run: RunFile, reading: Reading, at: SourceLocation) -> RunSpec:
    """Return what *place* asks for, as it does on the command line; it is named *at* a key."""
    if not place.exists():
        raise UsageError(f"{shown(at)}: key 'suites': {_no_such_file(place)}")
    if is_data_set(place):
        return read_data_set(open_data_set(place), reading)
    match format_of(place):
        case Format.SUITE:
            return read_suite(place, scoring=reading.scoring)
        case Format.DIALOGUE | Format.TASK_FOLDER:
            return read_path(place)
        case Format.MARKDOWN_TASK:
            from bakeoff.formats.markdown_task import judged, read_markdown  # it needs ours

            conditions = conditions_of(run.limits, run.roles)
            return judged(replace(read_markdown(place), conditions=conditions))
        case Format.UNKNOWN:
            raise UsageError(f"{shown(at)}: key 'suites': {place}: {_WHAT_KIND}")
    raise UsageError(f"{shown(at)}: key 'suites': {place}: {_NO_RUN_FILE}")


def _scoring(run: RunFile, at: _Places) -> Scoring:
    return Scoring(
        scorers=scorer_specs(run.scorers, at=at("scorers")) or None,
        pass_threshold=1.0 if run.pass_threshold is None else run.pass_threshold,
    )


def _under(run: RunFile, run_spec: RunSpec) -> RunSpec:
    """Return *run_spec* with everything that *run* says beyond the tasks."""
    return replace(
        run_spec,
        name=run.name or run_spec.name,
        tasks=_with_parameters(run_spec.tasks, run.parameters),
        models=tuple(model_spec(m) for m in run.models) or run_spec.models,
        agents=tuple(agent_spec(a) for a in run.agents) or run_spec.agents,
        rollouts=run.rollouts,
        parallel=run.parallel or run_spec.parallel,
        executor=run.executor,
        workers=run.workers,
        ray_address=run.ray_address,
        pause_s=run_spec.pause_s if run.pause_s is None else run.pause_s,
        warm_up=run.warm_up,
        conditions=conditions_of(run.limits, run.roles),
        cap=Cap(cost_usd=run.budget.max_cost_usd, tokens=run.budget.max_tokens),
        prices=run.prices or run_spec.prices,
        sandbox=sandbox_spec(run.sandbox),
        endpoints=endpoint_limits(run.endpoints),
        adaptive=_adaptive(run.adaptive),
        trust=run.trust,
        allow_env=tuple(run.allow_env),
        patience=Patience(give_up_after_s=run.give_up_after_s, keep_going=run.keep_going),
    )


def _with_parameters(tasks: Sequence[Task], parameters: Mapping[str, Json]) -> Sequence[Task]:
    if not parameters:
        return tasks
    return mapped(lambda t: replace(t, parameters={**parameters, **t.parameters}), tasks)


def _tasks(entries: Sequence[TaskTable], at: SourceLocation, scoring: Scoring) -> tuple[Task, ...]:
    """Return the tasks that stand in the run file itself."""
    tasks: list[Task] = []
    problems = Problems()
    for number, entry in enumerate(entries):
        with problems.gathered():
            tasks.append(_task(entry, at.inside(number), scoring))
    problems.raise_any()
    return tuple(tasks)


def _task(entry: TaskTable, at: SourceLocation, scoring: Scoring) -> Task:
    what = f"task {entry.id!r}"
    threshold = entry.pass_threshold
    turns = scripted_turns(entry.turns or (), what=what, at=at)
    messages = messages_of(entry, turns, what=what, at=at, values=entry.vars)
    tools = task_tools(entry.tools, entry.tool_rounds, at=at, what=what)
    refuse_tools_twice(tools, entry.parameters, at=at, what=what)
    task = Task(
        id=entry.id,
        messages=messages,
        prompt=prompt_beside(entry.prompt, messages),
        parameters=entry.parameters,
        target=entry.expected,
        scorers=_scorers(entry, scoring, at),
        pass_threshold=scoring.pass_threshold if threshold is None else threshold,
        time_s=entry.time_s,
        name=entry.name,
        category=entry.category,
        group=None if entry.group is None else str(entry.group),
        metadata=entry.metadata,
        vars=entry.vars,
        tools=tools,
        turns=turns,
    )
    return task if entry.literal else filled_in(task, at)


def _scorers(entry: TaskTable, scoring: Scoring, at: SourceLocation) -> tuple[ScorerSpec, ...]:
    turns = turn_scorers(entry.turns or (), at=at.inside("turns"))
    return (*turns, *_whole_scorers(entry, scoring, at))


def _whole_scorers(
    entry: TaskTable, scoring: Scoring, at: SourceLocation
) -> tuple[ScorerSpec, ...]:
    if entry.scorers is not None:
        return scorer_specs(entry.scorers, at=at.inside("scorers"))
    if scoring.scorers is not None:
        return scoring.scorers
    return default_scorers(entry.expected, at=at.inside("expected"))


def _refuse_twins(
    tasks: Iterable[Task], at: SourceLocation, *, known: Collection[str] = ()
) -> None:
    """Raise where two tasks have one id, or one has an id that is *known* already."""
    seen = set(known)
    problems = Problems()
    for number, task in enumerate(tasks):
        with problems.gathered():
            if task.id in seen:
                where, what = shown(at.inside(number, "id")), f"task {task.id!r} is defined twice"
                raise UsageError(f"{where}: {what}; give each its own `id`")
        seen.add(task.id)
    problems.raise_any()


def agent_spec(entry: str | AgentTable) -> AgentSpec:
    """Return the agent as it is named."""
    if isinstance(entry, str):
        return AgentSpec(name=entry)
    return AgentSpec(
        name=entry.agent, version=entry.version, settings=entry.settings, label=entry.name
    )


def sandbox_spec(entry: str | SandboxTable) -> SandboxSpec:
    """Return the sandbox as it is named."""
    if isinstance(entry, str):
        return SandboxSpec(name=entry)
    return SandboxSpec(name=entry.name, settings=entry.settings)


def conditions_of(limits: LimitsTable, roles: Mapping[str, str | ModelTable]) -> Conditions:
    """Return the conditions that the tables of a file make."""
    return Conditions(
        limits=Limits(
            time_s=limits.time_s,
            requests=limits.requests,
            output_tokens=limits.output_tokens,
            tokens=limits.tokens,
            cost_usd=limits.cost_usd,
            scoring_s=limits.scoring_s,
            interventions=limits.interventions,
        ),
        roles={name: model_spec(entry) for name, entry in roles.items()},
        attempts=limits.attempts,
    )


def _adaptive(table: AdaptiveTable | None) -> Adaptive | None:
    if table is None:
        return None
    return Adaptive(precision=table.precision, seed=table.seed, goal=table.goal, looks=table.looks)
