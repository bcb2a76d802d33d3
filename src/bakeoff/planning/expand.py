"""From a brief to a plan."""

from collections import Counter
from collections.abc import Iterable

from bakeoff._lib.digest import digest
from bakeoff.core.brief import Brief
from bakeoff.core.candidate import NO_MODEL, AgentSpec, Candidate, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Block, Plan
from bakeoff.planning.order import ordered
from bakeoff.planning.pairings import blocks, seats, told_apart


def expand(brief: Brief) -> Plan:
    """Return every trial that *brief* asks for."""
    if not brief.tasks:
        raise UsageError(f"{brief.name!r} has no tasks to run")
    if brief.rollouts < 1:
        raise UsageError(f"rollouts must be 1 or more, not {brief.rollouts}")
    return ordered(Plan(blocks=_blocks(brief), conditions=brief.conditions), brief.adaptive)


def _blocks(brief: Brief) -> tuple[Block, ...]:
    if brief.pairings:
        pairings = told_apart(brief.pairings)
        return blocks(pairings, _candidates(seats(pairings)))
    pairs = (
        (agent, model)
        for agent in brief.agents or (AgentSpec(),)
        for model in (brief.models if agent.needs_model else (NO_MODEL,))
    )
    block = Block(tasks=brief.tasks, candidates=_candidates(pairs), rollouts=brief.rollouts)
    return (block,)


def _candidates(given: Iterable[tuple[AgentSpec, ModelSpec]]) -> tuple[Candidate, ...]:
    pairs: dict[str, Candidate] = {}
    for agent, model in given:
        candidate = Candidate(id=_label(agent, model), model=model, agent=agent)
        twin = pairs.setdefault(candidate.digest, candidate)  # the same one twice is one
        if twin.id != candidate.id:
            raise UsageError(
                f"candidates {twin.id!r} and {candidate.id!r} are the same model with the same "
                "settings: leave one out, or give them different parameters"
            )
    uses = Counter(c.id for c in pairs.values())
    return tuple(
        c if uses[c.id] == 1 else Candidate(id=_told_apart(c), model=c.model, agent=c.agent)
        for c in pairs.values()
    )


def _label(agent: AgentSpec, model: ModelSpec) -> str:
    if not agent.needs_model:
        return agent.label or agent.name
    name = model.label or model.full_name
    if agent.name == "direct" and not agent.label:
        return name
    return f"{agent.label or agent.name}+{name}"


def _told_apart(candidate: Candidate) -> str:
    """Return an id for one of several candidates with the same label."""
    differs = {**candidate.model.parameters, **candidate.agent.environment}
    what = ",".join(f"{k}={v}" for k, v in sorted(differs.items()) if v is not None)
    short = digest(candidate.identity())[:4]
    return f"{candidate.id}({what or 'default'})~{short}"
