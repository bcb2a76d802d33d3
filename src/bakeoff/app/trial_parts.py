"""Live parts for trials: built once, shared by all trials that name them, closed together."""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff import registry
from bakeoff._lib.digest import digest, tree_digest
from bakeoff._lib.phrasing import near
from bakeoff._lib.redact import Redactor
from bakeoff._lib.value_object import value_object
from bakeoff.agents.direct import Direct
from bakeoff.agents.function import BlockingAgent, FunctionAgent, is_blocking
from bakeoff.app.endpoints import check_roles, served, warm_up
from bakeoff.app.known_secrets import learn_agent, learn_literals, refuse_redacted_agent
from bakeoff.app.model_names import OWN, with_secrets
from bakeoff.app.pairings import check_tasks
from bakeoff.app.pricing import Prices
from bakeoff.app.workspaces import WorkspaceServices, chosen
from bakeoff.core.budget import Tariff
from bakeoff.core.candidate import AgentSpec, Conditions, ModelSpec
from bakeoff.core.dialogue import INSTRUCTOR
from bakeoff.core.errors import BakeoffError, NotRun, ProviderError, ScorerError, UsageError
from bakeoff.core.events import Listener
from bakeoff.core.outcome import Request
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import (
    Agent,
    Checkpoints,
    Model,
    Scorer,
    TrialParts,
    WorkspaceAccess,
    close_model,
)
from bakeoff.core.task import ScorerSpec, Task, scored_task
from bakeoff.core.tools import ToolSpec
from bakeoff.core.values import Json
from bakeoff.core.workspace import SandboxSpec
from bakeoff.formats.prompts import asked_by
from bakeoff.formats.text.entries import check_call
from bakeoff.formats.text.locate import about, about_scorer, about_task
from bakeoff.formats.text.problems import Problems
from bakeoff.models.adapters.function import FunctionModel, OwnModel
from bakeoff.models.limits.limiter import UNLIMITED, Limiter
from bakeoff.models.limits.settings import Limiters
from bakeoff.models.providers import PROVIDERS, Provider
from bakeoff.models.recording.recorder import Requester
from bakeoff.models.recording.replay import RecordingModes
from bakeoff.scorers.function import FunctionScorer, ScorerInProcess
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.workers.process import WorkerPool
from bakeoff.workers.wire import Begin

if TYPE_CHECKING:
    from bakeoff.executors.files import WorkerFiles
    from bakeoff.executors.wire import Closed

_WORKER = (sys.executable, "-u", "-m", "bakeoff.worker")  # -u: what it prints is heard in time
_PATIENCE_S = 0.5  # a scorer that takes longer gets company
_UNLIMITED_ADAPTERS = frozenset({"embedded", "scripted"})  # they share no queue
_SLOW_PROVIDERS = frozenset({"ollama"})  # on this machine, with few slots
_PARALLEL, _PARALLEL_PROMPTS = 8, 64
_MOST_KNOWN = 10_000  # tasks whose scorers with settings need not be looked up at each trial


@value_object
class PartBuilder:
    """Builds live models, agents and scorers from the environment, user code and given objects."""

    redactor: Redactor
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    folders: tuple[Path, ...] = ()
    own: Mapping[str, object] = field(default_factory=dict)
    recording: RecordingModes = field(default_factory=RecordingModes)
    prices: Prices = field(default_factory=Prices)
    limiters: Limiters = field(default_factory=Limiters)

    def find(self, kind: registry.Kind, name: str) -> object:
        """Return the part called *name*: one given as an object, else one that can be imported."""
        if name in self.own:
            return self.own[name]
        return registry.find(kind, name, folders=self.folders)

    def model(self, spec: ModelSpec) -> Model:
        """Return a live model."""
        with about(spec):
            return self._model(spec)

    def _model(self, spec: ModelSpec) -> Model:
        if self.recording.replaying:
            learn_literals(spec, self.redactor)
            return FunctionModel(_refuse_to_answer)  # each trial gets its answers from the tape
        if spec.provider == OWN:
            return _own_model(self.find("models", spec.name), spec)
        provider = PROVIDERS.get(spec.provider, Provider(adapter=spec.provider))
        build = self.find("models", provider.adapter)
        live = self._live(spec, provider)
        if provider.adapter not in registry.BUILT_IN["models"]:
            return _plugin_model(build, live)
        model: Model = _function(build, "model")(live, self._limiter_of(live, provider))
        return model

    def limiter(self, spec: ModelSpec) -> Limiter:
        """Return what the requests to *spec* go through."""
        if self.recording.replaying or spec.provider == OWN:
            return UNLIMITED
        provider = PROVIDERS.get(spec.provider, Provider(adapter=spec.provider))
        return self._limiter_of(self._live(spec, provider), provider)

    def _live(self, spec: ModelSpec, provider: Provider) -> ModelSpec:
        live = with_secrets(spec, self.environ, self.redactor)
        return replace(live, settings={**provider.settings, **live.settings})

    def _limiter_of(self, live: ModelSpec, provider: Provider) -> Limiter:
        plugin = provider.adapter not in registry.BUILT_IN["models"]
        return (
            UNLIMITED
            if plugin or provider.adapter in _UNLIMITED_ADAPTERS
            else self.limiters.of(live)
        )

    def tariff(self, spec: ModelSpec) -> Tariff:
        """Return what *spec* charges; a replayed answer costs nothing."""
        tariff = self.prices.tariff(spec)
        return replace(tariff, billed=False) if self.recording.replaying else tariff

    def located(self, spec: ModelSpec) -> ModelSpec:
        """Return *spec* with the variables in its address replaced, so that servers are distinct."""
        if self.recording.replaying or "${" not in (spec.base_url or ""):
            return spec
        url = with_secrets(spec, self.environ, self.redactor).base_url
        return replace(spec, base_url=url)

    def agent(self, spec: AgentSpec) -> Agent:
        """Return a live agent.

        One that blocks has processes of its own. An object has not: it lives where it was made.
        """
        with about(spec):
            refuse_redacted_agent(spec)
            learn_agent(spec, self.redactor)
            return self._agent(spec)

    def _agent(self, spec: AgentSpec) -> Agent:
        what = f"agent {spec.name!r}"
        built = registry.build(self.find("agents", spec.name), spec.settings, what=what)
        agent: Agent
        if hasattr(built, "solve"):
            agent = built  # it has the one method of the port
        else:
            function = _function(built, what)
            check_call(function, spec.settings, gets=("task", "model"), what=what)
            agent = FunctionAgent(function, spec.settings)
        if self._is_named_code("agents", spec.name) and is_blocking(built):
            return BlockingAgent(_WORKER, self._begin(spec))
        return agent

    def _begin(self, spec: AgentSpec) -> Begin:
        return Begin(
            agent=spec.name,
            settings=dict(spec.settings),
            folders=tuple(map(str, self.folders)),
            path=tuple(sys.path),
        )

    def scorer(self, spec: ScorerSpec) -> Scorer:
        """Return a live scorer."""
        part = self.find("scorers", spec.name)
        built = registry.build(part, spec.settings, what=f"scorer {spec.name!r}")
        if hasattr(built, "score"):
            return built  # it has the one method of the port
        return FunctionScorer(
            _function(built, f"scorer {spec.name!r}"), settings=spec.settings, in_thread=True
        )

    def functions(self, tools: Iterable[ToolSpec]) -> dict[str, Callable[..., object]]:
        """Return the Python functions that *tools* name."""
        names = [tool.function for tool in tools if tool.function is not None]
        return {name: registry.load_function(name, folders=self.folders) for name in names}

    def is_own_scorer(self, spec: ScorerSpec) -> bool:
        """Whether the scorer is user code, which a process of its own can import."""
        return self._is_named_code("scorers", spec.name)

    def _is_named_code(self, kind: registry.Kind, name: str) -> bool:
        """Whether a part is neither built in nor an object: user code that a process can import."""
        return name not in self.own and name not in registry.BUILT_IN[kind]

    def scorer_pool(self) -> WorkerPool:
        """Return where the own scorers of a run grade; nothing is started yet."""
        begin = Begin(folders=tuple(map(str, self.folders)), path=tuple(sys.path))
        return WorkerPool(_WORKER, begin, fault=ScorerError, patience_s=_PATIENCE_S)


def _plugin_model(build: object, spec: ModelSpec) -> Model:
    """Return what the factory of a plug-in makes of *spec*."""
    what = f"model {spec.full_name!r}"
    try:
        model = _function(build, f"model provider {spec.provider!r}")(spec)
    except BakeoffError:
        raise
    except Exception as error:
        raise UsageError(f"{what} cannot be made: {type(error).__name__}: {error}") from error
    if not hasattr(model, "complete"):
        made = type(model).__name__
        raise UsageError(f"{what}: its plug-in made a {made}; make an object with `complete`")
    return OwnModel(model, spec.parameters)


def _own_model(part: object, spec: ModelSpec) -> Model:
    what = f"model {spec.name!r}"
    built = registry.build(part, spec.settings, what=what)
    if not hasattr(built, "complete"):
        function = _function(built, what)
        check_call(function, spec.settings, gets=("request",), what=what)
        built = FunctionModel(function, spec.settings)
    model: Model = built  # it has the method of the port
    return OwnModel(model, spec.parameters)


def _function(part: object, what: str) -> Callable[..., Any]:
    if not callable(part):
        raise UsageError(f"{what} is a {type(part).__name__}; give a function or an object")
    return part


def asked_roles(scorer: object, task: Task) -> frozenset[str]:
    """Return the roles of the run that *scorer* may ask about *task*."""
    asks = getattr(scorer, "asks_roles", None)
    return needed_roles(scorer, task) | frozenset(asks(task) if asks else ())


def needed_roles(scorer: object, task: Task) -> frozenset[str]:
    """Return the roles that *scorer* cannot score *task* without."""
    needs = getattr(scorer, "needs_roles", None)
    return frozenset(needs(task) if needs else ())


def unstarted_scorer(spec: ScorerSpec) -> object:
    """Return what *spec* names; None for the user's own code, which is imported only to run it."""
    if registry.is_reference(spec.name):
        return None
    part = registry.find("scorers", spec.name)
    return registry.build(part, spec.settings, what=f"scorer {spec.name!r}")


def check_scorer(scorer: Scorer, task: Task, roles: Collection[str]) -> None:
    """Raise where *scorer* could not judge *task*: better now than after the first answer."""
    check = getattr(scorer, "check", None)
    if check is not None:
        check(task)
    for role in sorted(needed_roles(scorer, task) - {*roles}):
        raise UsageError(
            f"it is scored by {_article(role)} {role}: say which model with [roles.{role}] in the "
            f"run file, or --set roles.{role}=PROVIDER/NAME"
            f"{_misnamed(role, roles)}"
        )


def _article(noun: str) -> str:
    return "an" if noun.startswith(tuple("aeiou")) else "a"


def _misnamed(role: str, roles: Collection[str]) -> str:
    meant = near(role, roles)
    return f"; is [roles.{meant}] a misspelling of it?" if meant else ""


def _check_shown(task: Task) -> None:
    """Raise where a folder is not there any more as it was planned: boxes show it as it is."""
    for tree in task.workspace.shown if task.workspace else ():
        folder = Path(tree.path)
        if not folder.is_dir() or tree_digest(folder, without=tree.left_out) != tree.digest:
            raise UsageError(
                f"{tree.path} is not what it was when the plan was made; put it back as it was, or "
                "plan a new run with it"
            )


def _with_instructor(agent: Agent, conditions: Conditions, roles: Collection[str]) -> Agent:
    """Return *agent* with an instructor that may intervene, where the limits allow that."""
    interventions = conditions.limits.interventions
    if interventions and "instructor" not in roles:
        raise UsageError(
            "limits.interventions needs a model that steps in: say which with "
            f"[roles.instructor] in the run file{_misnamed(INSTRUCTOR, roles)}"
        )
    if not interventions:
        return agent
    from bakeoff.agents.interventions import add_interventions

    return add_interventions(agent, interventions)


def _refuse_to_answer(_: Request) -> str:
    raise ProviderError("no candidate is asked while answers are scored again")


class SharedTrialParts:
    """Builds every part that a plan names before the plan runs, so that mistakes come first."""

    _asked_by_scorers: frozenset[str] = frozenset()
    attachments: "AttachmentStore | WorkerFiles | None" = None
    files: "WorkerFiles | None" = None
    has_attachments = False
    _words: tuple[str, ...] = ()

    def __init__(
        self,
        plan: Plan,
        parts: PartBuilder,
        *,
        roles: Mapping[str, ModelSpec] | None = None,
        ask_candidates: bool = True,
        workspace_services: WorkspaceServices | None = None,
    ) -> None:
        self._parts = parts
        self.limiters = parts.limiters
        self._workspace_access: dict[str, WorkspaceAccess] = {}
        self._sandbox = workspace_services.sandbox if workspace_services else None
        self.checkpoints: Checkpoints | None = None
        self._models: dict[str, Model] = {}
        self._scorers: dict[str, Scorer] = {}
        self._checked: set[str] = set()
        self._of_task: dict[str, tuple[Scorer, ...]] = {}
        self._seats: dict[str, tuple[Agent, Model]] = {}
        self._blocking: list[BlockingAgent] = []
        self._scorer_pool: WorkerPool | None = None
        roles = plan.conditions.roles if roles is None else roles
        self._role_specs = roles
        self._roles = {name: self._model(spec) for name, spec in roles.items()}
        self._role_tariffs = {name: parts.tariff(spec) for name, spec in roles.items()}
        self._tariffs: dict[str, Tariff] = {}
        agents: dict[str, Agent | None] = {}
        self._limiters: dict[str, tuple[Limiter, ...]] = {}
        role_limiters = tuple(map(parts.limiter, roles.values()))
        for candidate in plan.candidates:
            self._tariffs[candidate.digest] = parts.tariff(candidate.model)
            agent: Agent = parts.agent(candidate.agent) if ask_candidates else Direct()
            agents[candidate.digest] = agent if ask_candidates else None
            model = (
                self._model(candidate.model) if ask_candidates else FunctionModel(_refuse_to_answer)
            )
            if isinstance(agent, BlockingAgent):
                self._blocking.append(agent)
            if workspace_services is not None:
                self._workspace_access[candidate.digest] = workspace_services.access_for(agent)
            self._seats[candidate.digest] = (_with_instructor(agent, plan.conditions, roles), model)
            self._limiters[candidate.digest] = (
                *map(parts.limiter, [candidate.model] if ask_candidates else []),
                *role_limiters,
            )
        check_tasks(plan, lambda candidate: agents[candidate.digest])
        self._check_all(plan.tasks_at_hand)

    @property
    def recording(self) -> RecordingModes:
        """The recording, the replay and the cache that are open."""
        return self._parts.recording

    @property
    def sandbox(self) -> str | None:
        """The name of the sandbox in use, where a task has files."""
        return None if self._sandbox is None else self._sandbox.name

    def sandbox_spec(self, spec: SandboxSpec) -> SandboxSpec | None:
        """Return *spec* as a worker finds the sandbox in use by it; None where no task has files."""
        if self._sandbox is None:
            return None
        return chosen(spec, self._sandbox, self._parts.environ)

    async def clean_up(self) -> None:
        """Take away what a worker that was lost left in the sandbox."""
        if self._sandbox is not None:
            await self._sandbox.reap()

    def default_parallel(self, plan: Plan) -> int:
        """Return how many trials run at once by default: for prompts their limiters decide."""
        prompts = self.sandbox is None and all(
            candidate.agent.name == "direct"
            and candidate.model.provider not in _SLOW_PROVIDERS
            and self._limiters[candidate.digest][:1] != (UNLIMITED,)
            for candidate in plan.candidates
        )
        return _PARALLEL_PROMPTS if prompts else _PARALLEL

    async def served(self, plan: Plan) -> dict[str, Json]:
        """Return what local servers say of the models that *plan* names, for the manifest."""
        if self._parts.recording.replaying:
            return {}
        return await served([self._parts.located(c.model) for c in plan.candidates])

    async def check_roles(self, *, only_scorers: bool = False) -> None:
        """Raise where a role that will be asked cannot be played, before any answer is paid for.

        With *only_scorers*, these are the roles that scorers ask.
        """
        if self._parts.recording.replaying:
            return
        asked = {*self._role_specs}
        if only_scorers:
            asked &= self._asked_by_scorers
        await check_roles(
            {role: self._parts.located(s) for role, s in self._role_specs.items() if role in asked}
        )

    async def warm_up(self, plan: Plan, listener: Listener) -> None:
        """Load the local models that *plan* names before anything is timed."""
        models = [(c.model, self._seats[c.digest][1]) for c in plan.candidates]
        await warm_up(models, listener)

    def refuse_given_up(self, trial: Trial) -> None:
        """Raise NotRun where an endpoint that *trial* needs was given up."""
        if self.limiters.given_up and (why := self._given_up(trial.candidate.digest)):
            raise NotRun(why)

    def parts_for(self, trial: Trial) -> TrialParts:
        """Return the parts of *trial*; NotRun where an endpoint that it needs was given up."""
        self.refuse_given_up(trial)
        agent, model = self._seats[trial.candidate.digest]
        if trial.task.dialogue is not None:
            from bakeoff.agents.dialogue.agent import InDialogue
            from bakeoff.agents.interventions import WithInterventions

            # the instructor of the dialogue takes that part
            agent = InDialogue(agent=agent.agent if isinstance(agent, WithInterventions) else agent)
        scorers = self._scorers_of(trial.task)
        if isinstance(agent, Direct) and (trial.task.tools or trial.task.turns):
            agent = self._tool_loop(agent, trial.task)
        roles: Mapping[str, Model] = self._roles
        if self._parts.recording:
            model = self._recorded(model, trial, trial.candidate.model)
            roles = {
                role: self._recorded(asked, trial, self._role_specs[role], role=role)
                for role, asked in roles.items()
            }
        return TrialParts(
            agent=agent,
            model=model,
            scorers=scorers,
            roles=roles,
            tariff=self._tariffs[trial.candidate.digest],
            role_tariffs=self._role_tariffs,
            workspace_access=self._workspace_access.get(trial.candidate.digest),
            checkpoints=self.checkpoints,
            checked=self._checked,
            task=self._asked(trial),
            keep_attachment=self.attachments.keep_said if self.attachments else None,
        )

    def _asked(self, trial: Trial) -> Task:
        """Return the task as the candidate is asked it, with its files as the run keeps them."""
        task = asked_by(trial.candidate.prompt, trial.task)
        if self.attachments is None or not self.has_attachments:
            return task
        return self.attachments.task(task)

    def _tool_loop(self, agent: Direct, task: Task) -> Agent:
        from bakeoff.agents.tools.loop import ToolLoop

        scorers = tuple(zip(task.scorers, self._scorers_of(task), strict=True))
        functions = self._parts.functions(task.tools.tools if task.tools else ())
        environ = self._parts.environ
        return ToolLoop(direct=agent, functions=functions, environ=environ, scorers=scorers)

    def nothing_left(self) -> bool:
        """Return whether every candidate needs an endpoint that was given up."""
        return all(map(self._given_up, self._limiters))

    def _given_up(self, candidate: str) -> str | None:
        return next(
            (limiter.given_up for limiter in self._limiters[candidate] if limiter.given_up), None
        )

    def _recorded(self, model: Model, trial: Trial, spec: ModelSpec, *, role: str = "") -> Model:
        requester = Requester(
            model=self._parts.located(spec), trial=trial.name, rollout=trial.rollout, role=role
        )
        return self._parts.recording.model(model, requester)

    def closing_notes(self) -> list[str]:
        """Return what a person should know of how models were asked, of recording and cache."""
        return [*dict.fromkeys([*self._words, *self._notes()]), *self._parts.recording.words()]

    def _notes(self) -> list[str]:
        return [note for model in self._models.values() for note in getattr(model, "notes", ())]

    def closing_words(self) -> "Closed":
        """Return what `closing_notes` says in a worker, for the run to put together."""
        from bakeoff.executors.wire import Closed

        return Closed(tuple(self._notes()), self._parts.recording.tallies())

    def add_closing_words(self, words: "Closed") -> None:
        """Add what a worker says at its end."""
        self._words += words.notes
        self._parts.recording.add(words.tallies)

    async def close(self) -> None:
        """End every process, and close every model."""
        for agent in self._blocking:
            await agent.close()
        if self._scorer_pool is not None:
            await self._scorer_pool.close()
        for model in self._models.values():
            await close_model(model)

    def _model(self, spec: ModelSpec) -> Model:
        key = digest([spec.identity(), dict(spec.settings), dict(spec.headers), spec.api_key])
        if key not in self._models:
            self._models[key] = self._parts.model(spec)
        return self._models[key]

    def _check_all(self, tasks: Iterable[Task]) -> None:
        problems = Problems()
        for task in tasks:
            with problems.gathered(of=f"task {task.id!r}"):
                scorers = self._check(task)
                self._remember(task, scorers)
        problems.raise_any()

    def check(self, task: Task) -> None:
        """Raise where *task*, one that was just read, could not be scored; keep its files."""
        self._check(task)
        if isinstance(self.attachments, AttachmentStore):
            for attachment in task.attachments:
                self.attachments.keep(attachment)

    def _check(self, task: Task) -> tuple[Scorer, ...]:
        roles = self._roles
        with about_task(task):
            if task.dialogue is not None and INSTRUCTOR not in roles:
                raise UsageError(
                    "it is a dialogue: say which model leads it with [roles.instructor] in the run "
                    f"file, or --set roles.instructor=MODEL{_misnamed(INSTRUCTOR, roles)}"
                )
            _check_shown(task)
        if any(task.attachments):
            self.has_attachments = True
        if task.tools is not None and task.tools.servers:
            from bakeoff.agents.tools.mcp_server import require_mcp

            require_mcp()
        for tool in task.tools.tools if task.tools else ():
            with about_scorer(tool, task):
                self._parts.functions([tool])
        return tuple(self._fitting(s, task, roles) for s in task.scorers)

    def _scorers_of(self, task: Task) -> tuple[Scorer, ...]:
        """Return the scorers of *task*; those without settings are known by their names."""
        scorers = self._of_task.get(task.digest)
        if scorers is None:
            scorers = tuple(map(self._scorer, task.scorers))
            self._remember(task, scorers)
        return scorers

    def _remember(self, task: Task, scorers: tuple[Scorer, ...]) -> None:
        """Keep *scorers* by their task where their settings would have to be looked up at each trial."""
        if any(spec.settings for spec in task.scorers) and len(self._of_task) < _MOST_KNOWN:
            self._of_task[task.digest] = scorers

    def _fitting(self, spec: ScorerSpec, task: Task, roles: Collection[str]) -> Scorer:
        with about_scorer(spec, task):
            scorer = self._scorer(spec)
            judged = scored_task(task, spec)
            check_scorer(scorer, judged, roles)
            self._asked_by_scorers |= asked_roles(scorer, judged)
        return scorer

    def _scorer(self, spec: ScorerSpec) -> Scorer:
        key = digest([spec.name, dict(spec.settings)]) if spec.settings else spec.name
        if key not in self._scorers:
            self._scorers[key] = self._live_scorer(spec)
        return self._scorers[key]

    def _live_scorer(self, spec: ScorerSpec) -> Scorer:
        scorer = self._parts.scorer(spec)
        if not self._parts.is_own_scorer(spec):
            return scorer
        if self._scorer_pool is None:
            self._scorer_pool = self._parts.scorer_pool()
        self._scorer_pool.add_scorer(spec.name)
        return ScorerInProcess(spec, scorer, self._scorer_pool)

    async def start_scorers(self) -> None:
        """Start a process for own scorers, where there are some, before the first answer is there."""
        if self._scorer_pool is not None:
            await self._scorer_pool.warm()
