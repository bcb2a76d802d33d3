"""Pairings of tasks, models and agents, changed by the options of a run."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bakeoff.core.candidate import AgentSpec, Candidate, ModelSpec
from bakeoff.core.run_spec import Pairing, RunSpec
from bakeoff.core.task import Task

T = TypeVar("T")

PREFERRED, FALLBACK = "codex", "shell"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What takes the place of what the pairings say; `tasks` are the chosen ones, by digest."""

    tasks: Mapping[str, Task]
    models: Sequence[ModelSpec] = ()
    agents: Sequence[AgentSpec] = field(default_factory=tuple)
    rollouts: int | None = None


def default_agent() -> str:
    """Return the agent for a prepared task that names none: codex where it is installed."""
    return PREFERRED if shutil.which(PREFERRED) else FALLBACK


def default_said(pairings: Sequence[Pairing]) -> str | None:
    """Return a line that says which agent was chosen, if one had to be."""
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
    known: list[tuple[T, T]] = []

    def remembered(given: T) -> T:
        for before, after in known:
            if before == given:
                return after
        known.append((given, understand(given)))
        return known[-1][1]

    return remembered


def models_of(run_spec: RunSpec) -> list[ModelSpec]:
    """Return the models that *run_spec* names, wherever it does."""
    return [*run_spec.models, *(pairing.model for pairing in run_spec.pairings)]
