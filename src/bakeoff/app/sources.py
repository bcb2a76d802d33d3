"""What a person brings, made into a brief."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakeoff._lib.digest import digest
from bakeoff._lib.suggest import near_file
from bakeoff.app.agent_specs import known, refuse_misfits
from bakeoff.app.model_names import OWN, how_understood, resolve, where_asked, with_alias
from bakeoff.app.pairings import Terms, changed_pairings, default_said, models_of, paired
from bakeoff.app.suite_trust import with_trust
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.ports import Agent, Model, Scorer
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import ScorerSpec, Suite, Task
from bakeoff.formats.detect import (
    read_folder_by_content,
    read_json_by_content,
    read_toml_by_content,
)
from bakeoff.formats.markdown_task import read_markdown_task
from bakeoff.models.limits.settings import check_endpoints
from bakeoff.planning.expand import expand
from bakeoff.planning.select import Selection, select

Given = str | Path | Suite | Sequence[Task] | RunSpec
OwnFunction = Callable[..., object]

_READERS = {".toml": read_toml_by_content, ".json": read_json_by_content, ".md": read_markdown_task}
_NO_MODEL_NAMED = (
    "no model is named: add --model provider/name, for example --model embedded, or "
    "--model NAME --base-url http://localhost:8000/v1"
)


@dataclass(frozen=True, kw_only=True)
class RunChoices:
    """What was asked for beyond the files; whatever is set here wins over them."""

    models: Sequence[str | ModelSpec | Model | OwnFunction] = ()
    agents: Sequence[str | AgentSpec | Agent | OwnFunction] = ()
    scorers: Sequence[str | ScorerSpec | Scorer | OwnFunction] = ()
    base_url: str | None = None
    rollouts: int | None = None
    parallel: int | None = None
    selection: Selection = field(default_factory=Selection)
    overrides: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] | None = None
    trust: bool = False
    allow_env: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A plan, ready to run, with the live objects it was given and where it came from."""

    brief: RunSpec
    plan: Plan
    own: Mapping[str, object]
    folders: tuple[Path, ...]
    notices: tuple[str, ...] = ()


def prepare(given: Given, wishes: RunChoices) -> PreparedRun:
    """Return the plan for what was *given* under these *wishes*."""
    own: dict[str, object] = {}
    folders = _folders(given)
    found = read(given, wishes.overrides)
    refuse_nothing(found, given)
    named = _wished(found, wishes, own, folders)
    named = with_trust(named, trust=wishes.trust, allow_env=wishes.allow_env, folders=folders)
    named = _with_known_roles(named, models_of(found), folders)
    brief = _resolved(named, wishes, folders)
    understood = [
        *map(how_understood, models_of(named), models_of(brief)),
        *_roles_understood(named, brief),
    ]
    asked_at = map(where_asked, (*models_of(brief), *brief.conditions.roles.values()))
    said = default_said(found.pairings) if not wishes.agents else None
    models = brief.models or [_model(model, own) for model in wishes.models]
    agents = [_agent(agent, own) for agent in wishes.agents] or brief.agents
    twice = _repeated(models, agents)
    plan = expand(brief)
    refuse_misfits(plan, own)
    return PreparedRun(
        brief=brief,
        plan=plan,
        own=own,
        folders=folders,
        notices=tuple(
            dict.fromkeys(n for n in (*found.notices, *understood, *asked_at, said, *twice) if n)
        ),
    )


def refuse_nothing(brief: RunSpec, given: Given) -> None:
    """Raise where the file that was *given* names no task."""
    if not brief.tasks and isinstance(given, str | Path):
        raise UsageError(f"{given}: it has nothing to run; add `suites` or [[tasks]]")


def _folders(given: Given) -> tuple[Path, ...]:
    """Return where a person's own Python may lie: beside the files that were read."""
    if isinstance(given, str | Path):
        return (Path(given).resolve().parent,)
    if isinstance(given, RunSpec):
        return tuple(dict.fromkeys(Path(s.path).resolve().parent for s in given.sources))
    return ()


def read(given: Given, overrides: Mapping[str, str]) -> RunSpec:
    """Return what was *given* as a brief: a file by its ending, tasks as they are."""
    if isinstance(given, RunSpec):
        return given
    if isinstance(given, Suite):
        return RunSpec(name=given.name, tasks=given.tasks)
    if not isinstance(given, str | Path):
        return RunSpec(name="tasks", tasks=tuple(given))
    path = Path(given)
    if path.is_dir():
        return read_folder_by_content(path, overrides)
    reader = _READERS.get(path.suffix.lower())
    meant = None if path.exists() else near_file(path)
    if meant is not None:
        raise UsageError(f"{path} cannot be read: there is no such file; did you mean {meant}?")
    if reader is None:
        what = "what kind of file is this?" if path.exists() else "there is no such file or folder."
        raise UsageError(
            f"{path}: {what} A suite ends in .json, a run file in .toml, a task in Markdown in "
            ".md; any other coding task is a folder"
        )
    return reader(path, overrides)


def read_for_scoring(given: Given, wishes: RunChoices) -> RunSpec:
    """Return what was *given* with its roles understood; who solves it does not matter here."""
    found, folders = read(given, wishes.overrides), _folders(given)
    found = with_trust(found, trust=wishes.trust, allow_env=wishes.allow_env, folders=folders)
    brief = _with_known_roles(found, models_of(found), folders)
    brief = replace(brief, models=(), pairings=())
    return _resolved(brief, RunChoices(environ=wishes.environ), folders)


def _wished(
    brief: RunSpec, wishes: RunChoices, own: dict[str, object], folders: tuple[Path, ...]
) -> RunSpec:
    tasks = chosen = select(brief.tasks, wishes.selection)
    if wishes.scorers:
        scorers = tuple(_scorer(s, own) for s in wishes.scorers)
        tasks = tuple(t if t.trouble else replace(t, scorers=scorers) for t in tasks)
    models = tuple(_model(m, own) for m in wishes.models) or brief.models
    agents = tuple(_agent(a, own) for a in wishes.agents) or brief.agents
    if brief.pairings:
        pairs = paired(
            brief.pairings,
            Terms(
                tasks={old.digest: new for old, new in zip(chosen, tasks, strict=True)},
                models=models if wishes.models else (),
                agents=agents if wishes.agents else (),
                rollouts=wishes.rollouts,
            ),
        )
        pairs = changed_pairings(pairs, agent=lambda agent: known(agent, own, folders))
        parallel = wishes.parallel or brief.parallel
        return replace(brief, tasks=tasks, pairings=pairs, models=(), parallel=parallel)
    agents = agents or _default_agents(tasks)
    agents = tuple(known(agent, own, folders) for agent in agents)
    if not models and any(agent.needs_model for agent in agents or (AgentSpec(),)):
        raise UsageError(_NO_MODEL_NAMED)
    return replace(
        brief,
        tasks=tasks,
        models=models,
        agents=agents,
        rollouts=brief.rollouts if wishes.rollouts is None else wishes.rollouts,
        parallel=wishes.parallel or brief.parallel,
    )


def _default_agents(tasks: Sequence[Task]) -> tuple[AgentSpec, ...]:
    """Return who solves *tasks* where no agent is named: the bare model cannot work on files."""
    with_files = [task.id for task in tasks if task.workspace is not None]
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


def _with_known_roles(
    brief: RunSpec, models: Sequence[ModelSpec], folders: tuple[Path, ...]
) -> RunSpec:
    """Return *brief* with the roles that are named after one of its *models* played by it."""
    known = [*models, *models_of(brief)]
    roles = {
        role: with_alias(spec, known, key=f"roles.{role}", folders=folders)
        for role, spec in brief.conditions.roles.items()
    }
    return replace(brief, conditions=replace(brief.conditions, roles=roles))


def _roles_understood(named: RunSpec, brief: RunSpec) -> Iterator[str | None]:
    for role, spec in named.conditions.roles.items():
        yield how_understood(spec, brief.conditions.roles[role], what=f"role {role!r}: model")


def _resolved(brief: RunSpec, wishes: RunChoices, folders: tuple[Path, ...]) -> RunSpec:
    """Return *brief* with every model's name understood."""
    roles = brief.conditions.roles
    check_endpoints(brief.endpoints)

    def understood(spec: ModelSpec) -> ModelSpec:
        return resolve(spec, base_url=wishes.base_url, folders=folders, environ=wishes.environ)

    return replace(
        brief,
        models=tuple(understood(model) for model in brief.models),
        pairings=changed_pairings(brief.pairings, model=understood),
        conditions=replace(
            brief.conditions,
            roles={
                name: resolve(spec, folders=folders, environ=wishes.environ)
                for name, spec in roles.items()
            },
        ),
    )


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


def _model(given: str | ModelSpec | Model | OwnFunction, own: dict[str, object]) -> ModelSpec:
    if isinstance(given, ModelSpec):
        return given
    if isinstance(given, str):
        return ModelSpec(provider="", name=given)
    name = _adopt(given, own)
    return ModelSpec(provider=OWN, name=name, label=name.rpartition(":")[2])


def _agent(given: str | AgentSpec | Agent | OwnFunction, own: dict[str, object]) -> AgentSpec:
    if isinstance(given, AgentSpec):
        return given
    if isinstance(given, str):
        return AgentSpec(name=given)
    name = _adopt(given, own)
    return AgentSpec(name=name, label=name.rpartition(":")[2])


def _scorer(given: str | ScorerSpec | Scorer | OwnFunction, own: dict[str, object]) -> ScorerSpec:
    if isinstance(given, ScorerSpec):
        return given
    return ScorerSpec(name=given if isinstance(given, str) else _adopt(given, own))


def _adopt(part: object, own: dict[str, object]) -> str:
    """Keep a live object under the name that stands for it in the plan."""
    named = part if hasattr(part, "__qualname__") else type(part)
    name = f"{named.__module__}:{named.__qualname__}"
    if named is not part and isinstance(own_name := getattr(part, "name", None), str):
        name += f":{own_name}"
    if own.setdefault(name, part) is not part:
        raise UsageError(
            f"two different parts are called {name!r}; give each a `name` attribute of its own"
        )
    return name
