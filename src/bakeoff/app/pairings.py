"""Who gets which task: pairings of tasks, models and agents, and whether each agent can do its tasks."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from bakeoff import registry
from bakeoff._lib.value_object import value_object
from bakeoff.agents.task_fit import ChecksTasks
from bakeoff.core.candidate import AgentSpec, Candidate, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import at_hand
from bakeoff.core.plan import Block, Plan
from bakeoff.core.run_spec import Pairing, RunSpec
from bakeoff.core.task import Task
from bakeoff.formats.text.locate import about

T = TypeVar("T")

PREFERRED, FALLBACK = "codex", "shell"


@value_object
class Terms:
    """What takes the place of what the pairings say; `tasks` are the chosen ones, by digest."""

    tasks: Mapping[str, Task]
    models: Sequence[ModelSpec] = ()
    agents: Sequence[AgentSpec] = field(default_factory=tuple)
    rollouts: int | None = None


def default_agent() -> str:
    """Return the agent for a prepared task that names none: codex where it is installed."""
    return PREFERRED if shutil.which(PREFERRED) else FALLBACK


def default_agent_notice(pairings: Sequence[Pairing]) -> str | None:
    """Return a notice of which agent was chosen, if one had to be."""
    if all(pairing.agent.name for pairing in pairings):
        return None
    if default_agent() == PREFERRED:
        return f"agent: {PREFERRED}, since it is installed and the file names none"
    return f"agent: {FALLBACK}, the built-in one, since {PREFERRED} is not installed"


def paired(pairings: Sequence[Pairing], terms: Terms) -> tuple[Pairing, ...]:
    """Return *pairings* under *terms*; those that become equal by it are one, the longest."""
    changed: dict[tuple[str, str], Pairing] = {}
    added: list[Pairing] = []
    for pairing in pairings:
        if pairing.task.digest not in terms.tasks:
            continue
        for again in _under(pairing, terms):
            if not (terms.models or terms.agents):
                added.append(again)
                continue
            key = again.task.digest, Candidate(id="", model=again.model, agent=again.agent).digest
            if key not in changed or changed[key].rollouts < again.rollouts:
                changed[key] = again
    return (*added, *changed.values())


def _under(pairing: Pairing, terms: Terms) -> Sequence[Pairing]:
    own = pairing.agent
    agents = [replace(a, environment=own.environment, time_s=own.time_s) for a in terms.agents]
    return [
        replace(
            pairing,
            task=terms.tasks[pairing.task.digest],
            model=model,
            agent=agent if agent.name else replace(agent, name=default_agent()),
            rollouts=terms.rollouts or pairing.rollouts,
        )
        for agent in agents or [own]
        for model in terms.models or [pairing.model]
    ]


def changed_pairings(
    pairings: Sequence[Pairing],
    *,
    model: Callable[[ModelSpec], ModelSpec] = lambda spec: spec,
    agent: Callable[[AgentSpec], AgentSpec] = lambda spec: spec,
) -> tuple[Pairing, ...]:
    """Return *pairings* with every model and agent mapped by *model* and *agent*, each once."""
    model, agent = _once(model), _once(agent)

    def understood(spec: AgentSpec) -> AgentSpec:
        plain = agent(replace(spec, environment={}, time_s=None))
        return replace(plain, environment=spec.environment, time_s=spec.time_s)

    return tuple(replace(p, model=model(p.model), agent=understood(p.agent)) for p in pairings)


def _once(understand: Callable[[T], T]) -> Callable[[T], T]:
    """Return *understand* for values that have no hash: asking again for an equal one is cheap."""
    results: list[tuple[T, T]] = []

    def remembered(given: T) -> T:
        for argument, result in results:
            if argument == given:
                return result
        results.append((given, understand(given)))
        return results[-1][1]

    return remembered


def models_of(run_spec: RunSpec) -> list[ModelSpec]:
    """Return the models that *run_spec* names, wherever it does."""
    return [*run_spec.models, *(pairing.model for pairing in run_spec.pairings)]


# --- agents and their tasks -----------------------------------------------------------------------


_PLAIN = frozenset({"direct", "shell"})  # part of this package: its version is that of the run


_HOLD_CONVERSATIONS = frozenset({"direct", "nop", "oracle"})  # or need none


@runtime_checkable
class Versioned(Protocol):
    """An agent that knows which version it is."""

    def version(self) -> str | None:
        """Return the version, or None where it is unknown."""


def with_version_and_needs(
    spec: AgentSpec, own: Mapping[str, object] | None = None, folders: Iterable[Path] = ()
) -> AgentSpec:
    """Return *spec* with the version and needs of its agent; user code is not imported for it."""
    if spec.name in _PLAIN or spec.name in (own or {}) or registry.is_reference(spec.name):
        return spec
    agent = _built(spec, folders)
    version = spec.version
    if version is None and isinstance(agent, Versioned):
        version = agent.version()
    return replace(spec, version=version, needs_model=getattr(agent, "needs_model", True))


def _built(spec: AgentSpec, folders: Iterable[Path] = ()) -> object:
    with about(spec):
        part = registry.find("agents", spec.name, folders=folders)
        return registry.build(part, spec.settings, what=f"agent {spec.name!r}")


def refuse_misfits(plan: Plan, own: Mapping[str, object]) -> None:
    """Raise where an agent of *plan* cannot work on a task that it is given.

    Agents that are user code are checked when they are imported, just before the run.
    """

    def agent_of(spec: AgentSpec) -> object:
        if spec.name in own or registry.is_reference(spec.name):
            return own.get(spec.name)
        return _built(spec)

    check_tasks(plan, lambda candidate: agent_of(candidate.agent))


def check_tasks(plan: Plan, agent_of: Callable[[Candidate], object]) -> None:
    """Raise where the live agent of a candidate refuses some of the candidate's tasks."""
    blocks: dict[str, list[Block]] = {}
    candidates = {candidate.digest: candidate for candidate in plan.candidates}
    for block in plan.blocks:
        for candidate in block.candidates:
            blocks.setdefault(candidate.digest, []).append(block)
    for key, candidate in candidates.items():
        if candidate.agent.name in registry.BUILT_IN["agents"].keys() - _HOLD_CONVERSATIONS:
            _refuse_tools(candidate, _tasks_of(blocks[key]))
        agent = agent_of(candidate)
        if isinstance(agent, ChecksTasks):
            with about(candidate.agent):
                _check_all(agent, _tasks_of(blocks[key]))


def _tasks_of(blocks: Iterable[Block]) -> Iterable[Task]:
    return chain.from_iterable(at_hand(block.tasks) for block in blocks)


def _refuse_tools(candidate: Candidate, tasks: Iterable[Task]) -> None:
    for task in tasks:
        if task.tools or task.turns:
            what = "offers tools" if task.tools else "is a scripted conversation"
            with about(candidate.agent):
                raise UsageError(
                    f"task {task.id!r} {what}, which agent {candidate.agent.name!r} knows nothing of; "
                    "leave the agent out, so that the model is asked"
                )


def _check_all(agent: ChecksTasks, tasks: Iterable[Task]) -> None:
    refusals, fitting = [], 0
    for task in tasks:
        if task.trouble is not None:
            continue
        try:
            agent.check(task)
            fitting += 1
        except UsageError as error:
            refusals.append(str(error))
    if not refusals:
        return
    several = f"{len(refusals)} tasks do not fit; the first: " if len(refusals) > 1 else ""
    apart = "; tasks of different kinds are run apart: choose some with --test or --category"
    raise UsageError(f"{several}{refusals[0]}{apart if fitting else ''}")
