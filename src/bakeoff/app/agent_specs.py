"""What a plan must know of an agent: its version, whether it asks a model, which tasks it can do."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from bakeoff import registry
from bakeoff.agents.task_fit import ChecksTasks
from bakeoff.app.source_locations import about
from bakeoff.core.candidate import AgentSpec, Candidate
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.task import Task

_PLAIN = frozenset({"direct", "shell"})  # part of this package: its version is that of the run


@runtime_checkable
class Versioned(Protocol):
    """An agent that knows which version it is."""

    def version(self) -> str | None:
        """Return the version, or None where it is unknown."""


def known(
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

    Agents that are somebody's own Python are looked at when they are imported, just before the run.
    """

    def agent_of(spec: AgentSpec) -> object:
        if spec.name in own or registry.is_reference(spec.name):
            return own.get(spec.name)
        return _built(spec)

    check_tasks(plan, lambda candidate: agent_of(candidate.agent))


def check_tasks(plan: Plan, agent_of: Callable[[Candidate], object]) -> None:
    """Raise where the live agent of a candidate refuses some of the candidate's tasks."""
    tasks: dict[str, list[Task]] = {}
    candidates = {candidate.digest: candidate for candidate in plan.candidates}
    for block in plan.blocks:
        for candidate in block.candidates:
            tasks.setdefault(candidate.digest, []).extend(block.tasks)
    for key, candidate in candidates.items():
        agent = agent_of(candidate)
        if isinstance(agent, ChecksTasks):
            with about(candidate.agent):
                _check_all(agent, tasks[key])


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
