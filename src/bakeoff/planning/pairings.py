"""Pairings: tasks that a file gives to candidates one by one, and not all to all."""

from collections.abc import Sequence
from dataclasses import replace

from bakeoff.core.brief import Pairing
from bakeoff.core.candidate import NO_MODEL, AgentSpec, Candidate, ModelSpec
from bakeoff.core.plan import Block
from bakeoff.core.task import Task


def told_apart(pairings: Sequence[Pairing]) -> tuple[Pairing, ...]:
    """Return *pairings* with another id for every different task that has the id of an earlier one.

    The first keeps its id, so that what is appended to a file renames nothing.
    """
    first: dict[str, str] = {}
    renamed: dict[str, Task] = {}
    for task in (pairing.task for pairing in pairings):
        if first.setdefault(task.id, task.digest) != task.digest:
            renamed.setdefault(task.digest, replace(task, id=f"{task.id}~{task.digest[:4]}"))
    return tuple(
        replace(p, task=renamed[p.task.digest]) if p.task.digest in renamed else p for p in pairings
    )


def seats(pairings: Sequence[Pairing]) -> list[tuple[AgentSpec, ModelSpec]]:
    """Return who solves each of *pairings*; an agent that asks no model has none."""
    return [(p.agent, p.model if p.agent.needs_model else NO_MODEL) for p in pairings]


def blocks(pairings: Sequence[Pairing], candidates: Sequence[Candidate]) -> tuple[Block, ...]:
    """Return a block for each task and candidate; rollouts that are asked for twice add up."""
    named = {candidate.digest: candidate for candidate in candidates}
    found: dict[tuple[str, str], Block] = {}
    for pairing, (agent, model) in zip(pairings, seats(pairings), strict=True):
        candidate = named[Candidate(id="", model=model, agent=agent).digest]
        key = pairing.task.digest, candidate.digest
        before = found[key].rollouts if key in found else 0
        found[key] = Block(
            tasks=(pairing.task,), candidates=(candidate,), rollouts=before + pairing.rollouts
        )
    return tuple(found.values())
