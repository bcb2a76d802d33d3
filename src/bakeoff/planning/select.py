"""Which of the tasks, or of the trials of a plan, are meant."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from bakeoff._lib.suggest import did_you_mean
from bakeoff.core.candidate import Candidate
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
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
