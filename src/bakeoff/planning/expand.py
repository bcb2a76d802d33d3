"""Expand a run specification into a plan, and take a part of a plan."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from bakeoff._lib.digest import digest
from bakeoff._lib.phrasing import did_you_mean
from bakeoff.core.candidate import NO_MODEL, AgentSpec, Candidate, ModelSpec, PromptSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Block, Plan
from bakeoff.core.run_spec import Adaptive, Pairing, RunSpec
from bakeoff.core.task import Task
from bakeoff.planning.selection import Selection, select

_SWAPS_MODELS = frozenset({"ollama", "lmstudio"})


def ordered(plan: Plan, adaptive: Adaptive | None = None) -> Plan:
    """Return *plan* in the order that spares a local server from loading models again and again.

    A run that may end early takes its tasks as they are drawn.
    """
    swapped = {
        candidate.model.full_name
        for candidate in plan.candidates
        if candidate.model.provider in _SWAPS_MODELS
    }
    return replace(
        plan, one_after_another=len(swapped) > 1, drawn=None if adaptive is None else adaptive.seed
    )


def with_distinct_ids(pairings: Sequence[Pairing]) -> tuple[Pairing, ...]:
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
    grouped: dict[tuple[str, str], Block] = {}
    for pairing, (agent, model) in zip(pairings, seats(pairings), strict=True):
        candidate = named[Candidate(id="", model=model, agent=agent).digest]
        key = pairing.task.digest, candidate.digest
        before = grouped[key].rollouts if key in grouped else 0
        grouped[key] = Block(
            tasks=(pairing.task,), candidates=(candidate,), rollouts=before + pairing.rollouts
        )
    return tuple(grouped.values())


def expand(run_spec: RunSpec) -> Plan:
    """Return every trial that *run_spec* asks for."""
    if not run_spec.tasks:
        raise UsageError(f"{run_spec.name!r} has no tasks to run")
    if run_spec.rollouts < 1:
        raise UsageError(f"rollouts must be 1 or more, not {run_spec.rollouts}")
    return ordered(
        Plan(blocks=_blocks(run_spec), conditions=run_spec.conditions), run_spec.adaptive
    )


def _blocks(run_spec: RunSpec) -> tuple[Block, ...]:
    if run_spec.pairings:
        pairings = with_distinct_ids(run_spec.pairings)
        candidates = _candidates(_candidate(model, agent) for agent, model in seats(pairings))
        return blocks(pairings, candidates)
    candidates = _candidates(
        _candidate(model, agent, prompt)
        for prompt in _in_order(run_spec.prompts) or (None,)
        for agent in run_spec.agents or (AgentSpec(),)
        for model in (run_spec.models if agent.needs_model else (NO_MODEL,))
    )
    return (Block(tasks=run_spec.tasks, candidates=candidates, rollouts=run_spec.rollouts),)


def _in_order(prompts: Sequence[PromptSpec]) -> list[PromptSpec]:
    """Return *prompts* in an order of their own: the one in which they are given changes nothing."""
    return sorted(prompts, key=lambda prompt: (prompt.name, digest(prompt.identity())))


def _candidate(model: ModelSpec, agent: AgentSpec, prompt: PromptSpec | None = None) -> Candidate:
    solver = Candidate(id="", model=model, agent=agent).solver
    name = solver if prompt is None or not prompt.name else f"{prompt.name} · {solver}"
    return Candidate(id=name, model=model, agent=agent, prompt=prompt)


def _candidates(given: Iterable[Candidate]) -> tuple[Candidate, ...]:
    pairs: dict[str, Candidate] = {}
    for candidate in given:
        twin = pairs.setdefault(candidate.digest, candidate)  # the same one twice is one
        if twin.id != candidate.id:
            raise UsageError(
                f"candidates {twin.id!r} and {candidate.id!r} are the same model with the same "
                f"{'prompt and ' if candidate.prompt else ''}settings: leave one out, or give them "
                "different parameters"
            )
    uses = Counter(c.id for c in pairs.values())
    return tuple(c if uses[c.id] == 1 else replace(c, id=_distinct_id(c)) for c in pairs.values())


def _distinct_id(candidate: Candidate) -> str:
    """Return an id for one of several candidates with the same label."""
    differs = {**candidate.model.parameters, **candidate.agent.environment}
    what = ",".join(f"{k}={v}" for k, v in sorted(differs.items()) if v is not None)
    short = digest(candidate.identity())[:4]
    return f"{candidate.id}({what or 'default'})~{short}"


def select_part(
    plan: Plan,
    selection: Selection,
    *,
    models: Collection[str] = (),
    agents: Collection[str] = (),
    rollouts: int | None = None,
) -> Plan:
    """Return the selected trials of *plan*: of these tasks, models and agents, the first rollouts."""
    tasks = {task.digest for task in select(tuple(plan.tasks), selection)}
    candidates = _of_models(_of_agents(list(plan.candidates), agents), models)
    kept = {candidate.digest for candidate in candidates}
    blocks = (
        replace(
            block,
            tasks=tuple(task for task in block.tasks if task.digest in tasks),
            candidates=tuple(
                candidate for candidate in block.candidates if candidate.digest in kept
            ),
            rollouts=min(block.rollouts, rollouts or block.rollouts),
        )
        for block in plan.blocks
    )
    return replace(plan, blocks=tuple(block for block in blocks if len(block)))


def _of_models(candidates: list[Candidate], names: Collection[str]) -> list[Candidate]:
    known = {
        name
        for candidate in candidates
        for name in (candidate.id, candidate.model.full_name, candidate.model.name)
    }
    _refuse_unknown("model", names, known)
    return [
        candidate
        for candidate in candidates
        if not names or {candidate.id, candidate.model.full_name, candidate.model.name} & set(names)
    ]


def _of_agents(candidates: list[Candidate], names: Collection[str]) -> list[Candidate]:
    _refuse_unknown("agent", names, {candidate.agent.name for candidate in candidates})
    return [candidate for candidate in candidates if not names or candidate.agent.name in names]


def _refuse_unknown(kind: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"no {kind} {name!r} in the run: {did_you_mean(name, known)}")
