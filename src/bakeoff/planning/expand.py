"""Select the tasks and candidates of a run specification and expand them into a plan."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase

from bakeoff._lib.digest import digest
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import NO_MODEL, AgentSpec, Candidate, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Block, Plan
from bakeoff.core.run_spec import Adaptive, Pairing, RunSpec
from bakeoff.core.task import Task

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
        return blocks(pairings, _candidates(seats(pairings)))
    pairs = (
        (agent, model)
        for agent in run_spec.agents or (AgentSpec(),)
        for model in (run_spec.models if agent.needs_model else (NO_MODEL,))
    )
    block = Block(tasks=run_spec.tasks, candidates=_candidates(pairs), rollouts=run_spec.rollouts)
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
        c if uses[c.id] == 1 else Candidate(id=_distinct_id(c), model=c.model, agent=c.agent)
        for c in pairs.values()
    )


def _label(agent: AgentSpec, model: ModelSpec) -> str:
    if not agent.needs_model:
        return agent.label or agent.name
    name = model.label or model.full_name
    if agent.name == "direct" and not agent.label:
        return name
    return f"{agent.label or agent.name}+{name}"


def _distinct_id(candidate: Candidate) -> str:
    """Return an id for one of several candidates with the same label."""
    differs = {**candidate.model.parameters, **candidate.agent.environment}
    what = ",".join(f"{k}={v}" for k, v in sorted(differs.items()) if v is not None)
    short = digest(candidate.identity())[:4]
    return f"{candidate.id}({what or 'default'})~{short}"


@value_object
class Selection:
    """By category, by id (wildcards allowed), and at most so many; empty is everything."""

    categories: Collection[str] = field(default_factory=tuple)
    tests: Collection[str] = field(default_factory=tuple)
    limit: int | None = None


def select(tasks: Sequence[Task], selection: Selection) -> tuple[Task, ...]:
    """Return the selected tasks in their order; a name that matches nothing is an error."""
    if not tasks:
        raise UsageError("there are no tests to run: add at least one")
    known = {t.category for t in tasks if t.category}
    for category in selection.categories:
        if category not in known:
            raise UsageError(f"no category {category!r}: {did_you_mean(category, known)}")
    named = _named(tasks, selection.tests)
    chosen = [
        task
        for task in tasks
        if (not selection.categories or task.category in selection.categories)
        and (not selection.tests or task.id in named)
    ]
    if selection.limit is not None:
        if selection.limit < 1:
            raise UsageError(f"limit must be 1 or more, not {selection.limit}")
        chosen = chosen[: selection.limit]
    if not chosen:
        raise UsageError("no test matches all of --category and --test; change one of them")
    return tuple(chosen)


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


def _named(tasks: Sequence[Task], patterns: Collection[str]) -> set[str]:
    """Return the ids that *patterns* mean: the one that is just so, else all that match."""
    ids = {task.id for task in tasks}
    named: set[str] = set()
    for pattern in patterns:
        matches = {pattern} if pattern in ids else {i for i in ids if fnmatchcase(i, pattern)}
        if not matches:
            hint = did_you_mean(pattern, [task.id for task in tasks[:1000]])
            raise UsageError(f"no test {pattern!r}: {hint}")
        named |= matches
    return named
