"""Main effects: what the prompt changes across all models, and the model across all prompts.

Where candidates are each prompt with each model, a level of one factor is compared with another by
its mean over all levels of the other factor, task by task, with the same paired statistics as two
candidates are. A task counts where every candidate of a level has a result for it: a mean over
fewer of them would compare different sets of models.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bakeoff._lib.digest import digest
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import Candidate
from bakeoff.stats.pairwise import CandidateScores, Pairwise, TaskTally, pairwise


@value_object
class MainEffect:
    """The levels of one `factor` compared, each averaged over the `across` levels of the `other`."""

    factor: str
    other: str
    across: int
    comparison: Pairwise


@dataclass(slots=True, kw_only=True)
class _PooledTally:
    """The scores of one task over all candidates of a level."""

    n: int
    total: float
    passed: int


_Level = tuple[str, str]  # what tells it apart, and its name


def main_effects(
    candidates: Sequence[Candidate], scores: Mapping[str, CandidateScores]
) -> tuple[MainEffect, ...]:
    """Compare prompts across models and models across prompts; nothing without two of each.

    *scores* are those of *candidates*, by their ids.
    """
    prompts = {_prompt(candidate): None for candidate in candidates}
    solvers = {_solver(candidate): None for candidate in candidates}
    crossed = len(candidates) == len(prompts) * len(solvers)
    if len(prompts) < 2 or len(solvers) < 2 or not crossed:
        return ()
    solver = _solver_factor(candidates)
    effects = (
        ("prompt", solver, len(solvers), _prompt),
        (solver, "prompt", len(prompts), _solver),
    )
    return tuple(
        MainEffect(factor=factor, other=other, across=across, comparison=comparison)
        for factor, other, across, level_of in effects
        if (comparison := pairwise(_levels(candidates, scores, level_of))) is not None
    )


def _prompt(candidate: Candidate) -> _Level:
    prompt = candidate.prompt
    return ("", "no prompt") if prompt is None else (digest(prompt.identity()), prompt.name)


def _solver(candidate: Candidate) -> _Level:
    content = digest([candidate.model.identity(), candidate.agent.identity()])
    return content, candidate.solver


def _solver_factor(candidates: Sequence[Candidate]) -> str:
    agents = {digest(candidate.agent.identity()) for candidate in candidates}
    models = {digest(candidate.model.identity()) for candidate in candidates}
    if len(agents) == 1:
        return "model"
    return "agent" if len(models) == 1 else "agent+model"


def _levels(
    candidates: Sequence[Candidate],
    scores: Mapping[str, CandidateScores],
    level_of: Callable[[Candidate], _Level],
) -> list[CandidateScores]:
    members: dict[_Level, list[CandidateScores]] = {}
    for candidate in candidates:
        members.setdefault(level_of(candidate), []).append(scores[candidate.id])
    names = [name for _, name in members]
    return [
        _pooled(name if names.count(name) == 1 else f"{name}~{key[:4]}", group)
        for (key, name), group in members.items()
    ]


def _pooled(name: str, members: Sequence[CandidateScores]) -> CandidateScores:
    """Return the scores of all *members* of a level as if one candidate had them."""
    tasks: dict[str, dict[str, TaskTally]] = {}
    faults: dict[str, int] = {}
    for category, task, tallies in _rows(members):
        broken = [member.faults.get(task, 0) for member in members]
        if not all(tally is not None or n for tally, n in zip(tallies, broken, strict=True)):
            continue
        known = [tally for tally in tallies if tally is not None]
        tasks.setdefault(category, {})[task] = _PooledTally(
            n=sum(tally.n for tally in known),
            total=sum(tally.total for tally in known),
            passed=sum(tally.passed for tally in known),
        )
        if any(broken):
            faults[task] = sum(broken)
    for task in set.intersection(*(set(member.faults) for member in members)):
        faults.setdefault(task, sum(member.faults[task] for member in members))
    groups = members[0].groups  # of the tasks, and so the same for all
    return CandidateScores(candidate=name, tasks=tasks, faults=faults, groups=groups)


def _rows(
    members: Sequence[CandidateScores],
) -> Iterator[tuple[str, str, list[TaskTally | None]]]:
    """Yield each task that has a score, with its category and the tallies of all *members*."""
    nothing: Mapping[str, TaskTally] = {}
    for category in dict.fromkeys(name for member in members for name in member.tasks):
        parts = [member.tasks.get(category, nothing) for member in members]
        for task in dict.fromkeys(task for part in parts for task in part):
            yield category, task, [part.get(task) for part in parts]
