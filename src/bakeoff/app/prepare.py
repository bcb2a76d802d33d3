"""From what a person asked for to a plan: the steps of a run before anything is started."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from bakeoff import registry
from bakeoff._lib.digest import digest
from bakeoff._lib.value_object import value_object
from bakeoff.app.model_names import OWN, how_understood, resolve, where_asked, with_alias
from bakeoff.app.options import OwnFunction, RunOptions
from bakeoff.app.pairings import (
    Terms,
    changed_pairings,
    default_agent_notice,
    models_of,
    paired,
    refuse_misfits,
    with_version_and_needs,
)
from bakeoff.app.pricing import read_prices
from bakeoff.app.run_results import (
    Run,
    changed_tasks,
    failed_tasks,
    folders_of,
    load_run,
    refuse_a_plan_with_holes,
)
from bakeoff.app.workspaces import VARIABLE, check_name, named
from bakeoff.core.budget import Cap
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import StreamedTasks, at_hand, mapped
from bakeoff.core.plan import Plan
from bakeoff.core.ports import Agent, Model, Scorer
from bakeoff.core.run_spec import Adaptive, AdaptiveGoal, RunSpec, Shard
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.tools import TaskTools
from bakeoff.formats.detect import RunSource, read_source
from bakeoff.formats.prompts import check_prompts, distinct_prompts, is_named, prompt_given
from bakeoff.formats.text.locate import about, about_scorer
from bakeoff.formats.text.problems import Problems
from bakeoff.models.limits.settings import check_endpoints
from bakeoff.planning.expand import expand, ordered, select_part
from bakeoff.planning.selection import Selection, select
from bakeoff.planning.shards import Places

_REFUSED = (
    "the {} {!r} is Python that would run on this machine, with your rights; a suite may not "
    "name any by itself: read the code, then add --trust, or write `trust = true` into the run file "
    "that names the suite"
)
_REFUSED_SERVER = (
    "the MCP server {!r} is a program or an address that a suite names; a suite may not name any by "
    "itself: see what it is, then add --trust, or write `trust = true` into the run file that names "
    "the suite"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_trust(run_spec: RunSpec, options: RunOptions) -> RunSpec:
    """Return *run_spec* with what its suites may do; raise where one names Python without `trust`."""
    trust, folders = options.trust or run_spec.trust, options.source_folders
    allowed = (*run_spec.allow_env, *options.allow_env)
    _check_names(allowed)
    tasks = run_spec.tasks
    if not isinstance(tasks, StreamedTasks):  # rows of a data set name nothing
        tasks = _trusted(tasks, folders, trust=trust)

    def allow(spec: ModelSpec) -> ModelSpec:
        if spec.may_read is None:
            return spec
        return replace(spec, may_read=(*spec.may_read, *allowed))

    roles = {name: allow(spec) for name, spec in run_spec.conditions.roles.items()}
    for spec in () if trust else own_models(run_spec, folders):
        with about(spec):
            raise UsageError(_REFUSED.format("model", spec.name))
    pairings = changed_pairings(run_spec.pairings, model=allow)
    if pairings:
        by_digest = {old.digest: new for old, new in zip(run_spec.tasks, tasks, strict=True)}
        pairings = tuple(replace(p, task=by_digest.get(p.task.digest, p.task)) for p in pairings)
    return replace(
        run_spec,
        tasks=tasks,
        models=tuple(map(allow, run_spec.models)),
        pairings=pairings,
        conditions=replace(run_spec.conditions, roles=roles),
    )


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--allow-env {name}: it takes the name of an environment variable, such as MY_API_KEY"
            )


def own_python(run_spec: RunSpec) -> list[ScorerSpec]:
    """Return the scorers that a suite of *run_spec* names as Python, each once."""
    specs = [spec for task in run_spec.tasks for spec in task.scorers if _is_doubtful(spec)]
    return list({spec.name: spec for spec in specs}.values())


def own_models(run_spec: RunSpec, folders: Sequence[Path]) -> list[ModelSpec]:
    """Return the models of roles that a suite of *run_spec* names as Python."""
    return [
        spec
        for spec in run_spec.conditions.roles.values()
        if spec.may_read is not None
        and not (spec.provider or spec.base_url)
        and registry.is_own(spec.name, folders=folders)
    ]


def _is_doubtful(spec: ScorerSpec) -> bool:
    return not spec.trusted and registry.is_reference(spec.name)


def _trusted(tasks: Sequence[Task], folders: Sequence[Path], *, trust: bool) -> tuple[Task, ...]:
    """Return *tasks* with all that they name trusted; raise where Python is named without *trust*."""
    problems = Problems()
    checked = []
    for task in tasks:
        scorers, tools = task.scorers, task.tools
        for spec in filter(_is_doubtful, scorers):
            with problems.gathered(), about_scorer(spec, task):
                registry.refuse_standard(spec.name, folders)
                if not trust:
                    raise UsageError(_REFUSED.format("scorer", spec.name))
        if any(map(_is_doubtful, scorers)):
            scorers = tuple(replace(spec, trusted=True) for spec in scorers)
        if tools is not None:
            with problems.gathered():
                tools = _trusted_tools(task, tools, folders, trust=trust)
        changed = scorers is not task.scorers or tools is not None
        checked.append(replace(task, scorers=scorers, tools=tools) if changed else task)
    problems.raise_any()
    return tuple(checked)


def _trusted_tools(
    task: Task, tools: TaskTools, folders: Sequence[Path], *, trust: bool
) -> TaskTools:
    """Return *tools*, all trusted; raise where they run Python or a program without *trust*."""
    for tool in tools.tools:
        if tool.function is not None and not tool.trusted:
            with about_scorer(tool, task):
                registry.refuse_standard(tool.function, folders)
                if not trust:
                    raise UsageError(_REFUSED.format("tool", tool.function))
    for server in tools.servers:
        if not (trust or server.trusted):
            with about_scorer(server, task):
                raise UsageError(_REFUSED_SERVER.format(server.address))
    return replace(
        tools,
        tools=tuple(replace(tool, trusted=True) for tool in tools.tools),
        servers=tuple(replace(server, trusted=True) for server in tools.servers),
    )


_CHOSEN_BY_RESULTS = "these tasks are chosen by their results in an earlier run: their scores say nothing about the others"
_SHAPE_THE_PLAN = (
    "models", "agents", "prompts", "scorers", "base_url", "rollouts", "categories", "tests", "tags", "where",
    "failed_in", "changed_in", "sample", "limit", "columns", "expected", "overrides",
)  # fmt: skip
_SELECT_A_PART = frozenset(_SHAPE_THE_PLAN) - {
    "prompts", "scorers", "base_url", "columns", "expected", "overrides",
}  # fmt: skip
_WITHOUT_IMAGES = frozenset({"bubblewrap", "local"})
_NO_MODEL_NAMED = (
    "no model is named: add --model provider/name, for example --model embedded, or "
    "--model NAME --base-url http://localhost:8000/v1"
)


@value_object
class PreparedRun:
    """A plan, ready to run, with the live objects it was given and where it came from.

    `shard` is which part of a larger plan it is; `places` say where its tasks stand in that; its
    ledger knows them where there are none.
    """

    spec: RunSpec
    plan: Plan
    own: Mapping[str, object]
    folders: tuple[Path, ...]
    shard: Shard | None = None
    places: Places | None = None

    @property
    def shares(self) -> int:
        """How many runs share the limits of an endpoint."""
        return 1 if self.shard is None else self.shard.count

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person should read before the run, each line once."""
        return tuple(dict.fromkeys(self.spec.notices))


def refuse_empty(spec: RunSpec, source: RunSource | None) -> None:
    """Raise where the file *source* names no task."""
    if not spec.tasks and isinstance(source, str | Path):
        raise UsageError(f"{source}: it has nothing to run; add `suites` or [[tasks]]")


def choose_tasks_and_candidates(spec: RunSpec, options: RunOptions) -> RunSpec:
    """Return *spec* with the tasks, models, agents and scorers that the options choose."""
    refuse_empty(spec, options.source)
    own, folders = own_parts(options), options.source_folders
    tasks = selected = select(spec.tasks, replace(_selection(options), columns=spec.columns))
    if scorers := scorers_of(options):
        tasks = mapped(lambda t: t if t.trouble else replace(t, scorers=scorers), tasks)
    models = tuple(map(_model_spec, options.models)) or spec.models
    agents = tuple(map(_agent_spec, options.agents)) or spec.agents
    if options.failed_in or options.changed_in:
        spec = _with_notices(spec, _CHOSEN_BY_RESULTS)
    spec = replace(
        spec,
        tasks=tasks,
        parallel=options.parallel or spec.parallel,
        executor=options.executor or spec.executor,
        workers=options.workers or spec.workers,
        ray_address=options.ray_address or spec.ray_address,
    )
    spec = _with_prompts(spec, options)
    if spec.pairings:
        default_agent = default_agent_notice(spec.pairings) if not options.agents else None
        pairs = paired(
            spec.pairings,
            Terms(
                tasks={old.digest: new for old, new in zip(selected, tasks, strict=True)},
                models=models if options.models else (),
                agents=agents if options.agents else (),
                rollouts=options.rollouts,
            ),
        )
        pairs = changed_pairings(
            pairs, agent=lambda agent: with_version_and_needs(agent, own, folders)
        )
        return _with_notices(replace(spec, pairings=pairs, models=()), default_agent)
    agents = agents or _default_agents(tasks)
    agents = tuple(with_version_and_needs(agent, own, folders) for agent in agents)
    if not models and any(agent.needs_model for agent in agents or (AgentSpec(),)):
        raise UsageError(_NO_MODEL_NAMED)
    rollouts = spec.rollouts if options.rollouts is None else options.rollouts
    return replace(spec, models=models, agents=agents, rollouts=rollouts)


def _with_prompts(spec: RunSpec, options: RunOptions) -> RunSpec:
    """Return *spec* with the prompts of the options, else of the run file, checked on all tasks."""
    given = [prompt_given(prompt) for prompt in options.prompts] or list(spec.prompts)
    if given and spec.pairings:
        raise UsageError(
            f"{spec.name!r} pairs tasks and models by itself, and takes no prompts: name a suite, "
            "task folders or a run file"
        )
    prompts = distinct_prompts(given)
    check_prompts(prompts, spec.tasks, spec.columns)
    if len(prompts) == 1 and not is_named(prompts[0]):
        prompts = (replace(prompts[0], name=""),)  # nothing to tell it apart from
    if len(prompts) < len(given):
        notice = "a prompt that is given twice runs once; to repeat every task: --rollouts 2"
        spec = _with_notices(spec, notice)
    return replace(spec, prompts=prompts)


def _selection(options: RunOptions) -> Selection:
    """Return which tasks are run, with those that earlier runs leave to choose from."""
    within: set[str] | None = None
    if options.failed_in is not None:
        run = load_run(options.failed_in, output=options.output)
        within = failed_tasks(run)
        if not within:
            raise UsageError(f"--failed-in {options.failed_in}: no task failed in {run.id}")
    if options.changed_in is not None:
        before, after = (load_run(name, output=options.output) for name in options.changed_in)
        changed = changed_tasks(before, after)
        if not changed:
            names = ",".join(options.changed_in)
            raise UsageError(f"--changed-in {names}: {_why_unchanged(before, after)}")
        within = changed if within is None else within & changed
    return replace(options.selection, within=within)


def _why_unchanged(before: Run, after: Run) -> str:
    first, second = ([candidate.id for candidate in run.plan.candidates] for run in (before, after))
    if set(first).isdisjoint(second):
        return (
            f"no candidate is in both: {', '.join(first)} in {before.id}, {', '.join(second)} in "
            f"{after.id}; to set different ones side by side: bakeoff compare {before.id} {after.id}"
        )
    return "no score of a candidate that is in both runs has changed"


def resolve_models(
    spec: RunSpec, options: RunOptions, *, aliases: Sequence[ModelSpec] = ()
) -> RunSpec:
    """Return *spec* with every model's provider, address and key known; *aliases* may be roles."""
    check_endpoints(spec.endpoints)
    folders, environ = options.source_folders, options.environment().values
    named = _with_role_aliases(spec, [*aliases, *models_of(spec)], folders)

    def resolved_model(model: ModelSpec) -> ModelSpec:
        return resolve(model, base_url=options.base_url, folders=folders, environ=environ)

    roles = {
        role: resolve(model, folders=folders, environ=environ)
        for role, model in named.conditions.roles.items()
    }
    resolved = replace(
        named,
        models=tuple(map(resolved_model, named.models)),
        pairings=changed_pairings(named.pairings, model=resolved_model),
        conditions=replace(named.conditions, roles=roles),
    )
    return _with_notices(
        resolved,
        *map(how_understood, models_of(named), models_of(resolved)),
        *_roles_understood(named, resolved),
        *map(where_asked, (*models_of(resolved), *roles.values())),
        *_repeated(
            resolved.models or list(map(_model_spec, options.models)),
            list(map(_agent_spec, options.agents)) or resolved.agents,
        ),
    )


def apply_limits(spec: RunSpec, options: RunOptions) -> RunSpec:
    """Return *spec* with the budget, the patience, the sandbox and the early end of the options."""
    cap = Cap(
        cost_usd=spec.cap.cost_usd if options.max_cost is None else options.max_cost,
        tokens=spec.cap.tokens if options.max_tokens is None else options.max_tokens,
    )
    prices = spec.prices
    if options.prices is not None:
        read_prices(Path(options.prices))  # an error names the path as it was given
        prices = str(Path(options.prices).resolve())
    patience = spec.patience
    if options.give_up_after is not None:
        patience = replace(patience, give_up_after_s=options.give_up_after)
    if options.keep_going:
        patience = replace(patience, keep_going=True)
    spec = replace(
        spec, cap=cap, prices=prices, patience=patience, adaptive=_adaptive_rule(spec, options)
    )
    return _without_images(_in_sandbox(spec, options.sandbox))


def _adaptive_rule(spec: RunSpec, options: RunOptions) -> Adaptive | None:
    rule, goal = spec.adaptive, options.adaptive
    if goal and rule is None:
        rule = Adaptive()
    if isinstance(goal, str):
        if goal not in get_args(AdaptiveGoal):
            raise UsageError(
                f"adaptive is {goal!r}; there are: {', '.join(get_args(AdaptiveGoal))}"
            )
        rule = replace(rule or Adaptive(), goal=goal)
    if options.precision is not None:
        rule = replace(rule or Adaptive(), precision=options.precision)
    if options.looks is not None:
        rule = replace(rule or Adaptive(), looks=options.looks)
    return rule


def _in_sandbox(spec: RunSpec, name: str | None) -> RunSpec:
    before, sandbox = spec.sandbox, named(spec.sandbox, name)
    notice = None
    if before.settings and not sandbox.settings:
        notice = (
            f"sandbox {sandbox.name!r}: the settings for {before.name!r} in the run file are not "
            f"used: {', '.join(before.settings)}"
        )
    if sandbox.name:
        check_name(sandbox.name)
    return _with_notices(replace(spec, sandbox=sandbox), notice)


def _without_images(spec: RunSpec) -> RunSpec:
    """Return *spec* without the Dockerfiles of prepared tasks, for a sandbox that builds no images.

    A prepared task brings a Dockerfile for those who use containers. A sandbox
    without images that is chosen by name runs the task with the programs of this machine.
    """
    sandbox = spec.sandbox.name or os.environ.get(VARIABLE)
    with_image = [p.task for p in spec.pairings if _has_image(p.task)]
    if sandbox not in _WITHOUT_IMAGES or not with_image:
        return spec
    pairings = tuple(replace(p, task=_without_image(p.task)) for p in spec.pairings)
    tasks = mapped(_without_image, spec.tasks)
    names = ", ".join(dict.fromkeys(task.id for task in with_image))
    notice = f"sandbox {sandbox!r} builds no images: no Dockerfile is used for {names}"
    return _with_notices(replace(spec, pairings=pairings, tasks=tasks), notice)


def _has_image(task: Task) -> bool:
    return task.workspace is not None and task.workspace.image is not None


def _without_image(task: Task) -> Task:
    if task.workspace is None or task.workspace.image is None:
        return task
    return replace(task, workspace=replace(task.workspace, image=None))


def expand_plan(spec: RunSpec, options: RunOptions) -> PreparedRun:
    """Return every trial that *spec* asks for; raise where an agent cannot do one of its tasks."""
    if spec.adaptive is not None or options.only:  # both choose among all tasks
        spec = replace(spec, tasks=tuple(spec.tasks))
    own, plan = own_parts(options), expand(spec)
    _refuse_unasked(plan)
    refuse_misfits(plan, own)
    _check_adaptive(spec, plan)
    return PreparedRun(spec=spec, plan=plan, own=own, folders=options.source_folders)


def _refuse_unasked(plan: Plan) -> None:
    if any(candidate.prompt is not None for candidate in plan.candidates):
        return
    for task in plan.tasks_at_hand:
        if task.vars and not task.messages:
            raise UsageError(
                f"task {task.id!r} has no text of its own: give a prompt, such as "
                f"--prompt '{{{{{next(iter(task.vars))}}}}}'"
            )


def read_stored_plan(options: RunOptions) -> PreparedRun:
    """Return the plan of the run that is resumed, from its ledger: its files are not needed."""
    run = load_run(str(options.resume), output=options.output)
    plan, manifest = run.plan, run.manifest
    refuse_a_plan_with_holes(run)
    _refuse_an_open_plan(run)
    spec = RunSpec(
        name=manifest.name,
        tasks=(),
        parallel=options.parallel,
        executor=options.executor or "local",
        workers=options.workers,
        ray_address=options.ray_address,
        conditions=plan.conditions,
        sources=manifest.sources,
        cap=manifest.cap if manifest.shard is None else manifest.shard.cap,
        prices=manifest.prices,
        sandbox=manifest.sandbox,
        endpoints=manifest.endpoints,
        adaptive=manifest.adaptive,
        patience=manifest.patience,
    )
    part = _part(ordered(plan, manifest.adaptive), options)
    spec = apply_limits(spec, options)
    _check_adaptive(spec, part)
    part = part if spec.adaptive is None else ordered(part, spec.adaptive)
    shard = manifest.shard and replace(manifest.shard, cap=spec.cap)
    return PreparedRun(spec=spec, plan=part, own={}, folders=folders_of(manifest), shard=shard)


def _refuse_an_open_plan(run: Run) -> None:
    """Raise where the rest of the plan is known to its data set alone."""
    if not run.plan_is_open:
        return
    words = [word for word in run.manifest.command if word not in {"--resume", run.id}]
    again = shlex.join(["bakeoff", *words, "--resume", run.id]) if words else "give it again"
    raise UsageError(
        f"{run.id} was stopped while the rows of its data set were still being read: to resume it, name "
        f"that too: {again}"
    )


def _part(plan: Plan, options: RunOptions) -> Plan:
    """Return the part of a run's own *plan* that the options select; all of it without `only`."""
    shaping = [name for name in _SHAPE_THE_PLAN if getattr(options, name)]
    if options.only:
        shaping = [name for name in shaping if name not in _SELECT_A_PART]
    if shaping:
        raise UsageError(
            f"without a source the plan is that of the run: {', '.join(shaping)} cannot change "
            "it; name the source as well"
        )
    if not options.only:
        return plan
    return select_part(
        plan,
        _selection(options),
        models=list(map(str, options.models)),
        agents=list(map(str, options.agents)),
        rollouts=options.rollouts,
    )


def _check_adaptive(spec: RunSpec, plan: Plan) -> None:
    if spec.adaptive is not None and sum(1 for _ in plan.candidates) < 2:
        raise UsageError(
            "an adaptive run ends when it is clear which candidate is better, and there is only one: "
            "name another model or agent"
        )


def read_for_scoring(options: RunOptions) -> RunSpec | None:
    """Return the source with its roles resolved, if there is one; who solves it does not matter."""
    if options.source is None:
        return None
    spec = check_trust(read_source(options.source, options.overrides, options.data), options)
    without_models = replace(spec, models=(), pairings=())
    return resolve_models(without_models, options, aliases=models_of(spec))


def _with_notices(spec: RunSpec, *notices: str | None) -> RunSpec:
    return replace(spec, notices=(*spec.notices, *(line for line in notices if line)))


def _default_agents(tasks: Sequence[Task]) -> tuple[AgentSpec, ...]:
    """Return who solves *tasks* where no agent is named: the bare model cannot work on files."""
    with_files = [task.id for task in at_hand(tasks) if task.workspace is not None]
    if not with_files:
        return ()
    if without := [task.id for task in tasks if task.workspace is None and not task.trouble]:
        raise UsageError(
            f"no agent is named, and no built-in one does all of these tasks: {with_files[0]!r} has "
            f"files to work on, {without[0]!r} has none; run the two kinds apart, for example with "
            "--test or --category"
        )
    talks = all(task.dialogue is not None for task in tasks)
    return (AgentSpec(name="code-session" if talks else "shell"),)


def _with_role_aliases(
    spec: RunSpec, models: Sequence[ModelSpec], folders: tuple[Path, ...]
) -> RunSpec:
    """Return *spec* with the roles that are named after one of the *models* played by it."""
    roles = {
        role: with_alias(model, models, key=f"roles.{role}", folders=folders)
        for role, model in spec.conditions.roles.items()
    }
    return replace(spec, conditions=replace(spec.conditions, roles=roles))


def _roles_understood(named: RunSpec, resolved: RunSpec) -> Iterator[str | None]:
    for role, model in named.conditions.roles.items():
        yield how_understood(model, resolved.conditions.roles[role], what=f"role {role!r}: model")


def _repeated(models: Sequence[ModelSpec], agents: Sequence[AgentSpec]) -> list[str]:
    """Return a line for each model or agent that is named more than once: it runs once."""
    named = [(digest(m.identity()), f"model {m.label or m.full_name.strip('/')!r}") for m in models]
    named += [(digest(a.identity()), f"agent {a.label or a.name!r}") for a in agents]
    names = dict(named)
    return [
        f"{names[key]} is named {n} times and runs once; to repeat every task: --rollouts {n}"
        for key, n in Counter(key for key, _ in named).items()
        if n > 1
    ]


def _model_spec(given: str | ModelSpec | Model | OwnFunction) -> ModelSpec:
    if isinstance(given, ModelSpec):
        return given
    if isinstance(given, str):
        return ModelSpec(provider="", name=given)
    name = _own_name(given)
    return ModelSpec(provider=OWN, name=name, label=name.rpartition(":")[2])


def _agent_spec(given: str | AgentSpec | Agent | OwnFunction) -> AgentSpec:
    if isinstance(given, AgentSpec):
        return given
    if isinstance(given, str):
        return AgentSpec(name=given)
    name = _own_name(given)
    return AgentSpec(name=name, label=name.rpartition(":")[2])


def _scorer_spec(given: str | ScorerSpec | Scorer | OwnFunction) -> ScorerSpec:
    if isinstance(given, ScorerSpec):
        return given
    return ScorerSpec(name=given if isinstance(given, str) else _own_name(given))


def scorers_of(options: RunOptions) -> tuple[ScorerSpec, ...]:
    """Return the scorers that take the place of those of every task."""
    return tuple(map(_scorer_spec, options.scorers))


def own_parts(options: RunOptions) -> dict[str, object]:
    """Return the live objects among the options, by the name that stands for each in the plan."""
    own: dict[str, object] = {}
    for part in (*options.scorers, *options.models, *options.agents):
        if isinstance(part, str | ModelSpec | AgentSpec | ScorerSpec):
            continue
        name = _own_name(part)
        if own.setdefault(name, part) is not part:
            raise UsageError(
                f"two different parts are called {name!r}; give each a `name` attribute of its own"
            )
    return own


def _own_name(part: object) -> str:
    """Return the name that stands for a live object in the plan."""
    named_part = part if hasattr(part, "__qualname__") else type(part)
    name = f"{named_part.__module__}:{named_part.__qualname__}"
    if named_part is not part and isinstance(own_name := getattr(part, "name", None), str):
        name += f":{own_name}"
    return name
