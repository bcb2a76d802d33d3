"""A run that is resumed: which trials are due, and what a new plan must keep of the old one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from bakeoff._lib.digest import digest
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Block, Plan, Trial
from bakeoff.core.ports import Job
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json

_CHUNK = 500  # trials looked up at once: few queries, and memory that does not grow
_MOST_NAMED = 5

_Pair = tuple[str, str]  # the digests of a task and a candidate


class _Named(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def digest(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


def remaining(
    trials: Iterable[Trial],
    next_attempts: Callable[[Sequence[Trial]], Sequence[int | None]],
) -> Iterator[Job]:
    """Yield what is not finished, lazily and in plan order."""
    source = iter(trials)
    while chunk := list(islice(source, _CHUNK)):
        for trial, number in zip(chunk, next_attempts(chunk), strict=True):
            if number is not None:
                yield Job(trial, number)


def missing_from(after: Plan, before: Plan) -> list[str]:
    """Return what *before* plans and *after* does not, one line for each kind of difference.

    A task or candidate is matched by its content, else by its id: one that was edited is run again,
    and is not missing.
    """
    if after.streams:  # its tasks are compared with those that are there as they are read
        return _absent(
            "candidate", before.candidates, _partners(before.candidates, after.candidates)
        )
    if before.digest == after.digest:
        return []
    tasks = _partners(before.tasks, after.tasks)
    candidates = _partners(before.candidates, after.candidates)
    lines = [
        *_absent("candidate", before.candidates, candidates),
        *_absent("task", before.tasks, tasks),
    ]
    planned = _rollouts(after)
    fewer: dict[tuple[int, int], list[str]] = {}
    for block in before.blocks:
        for task in block.tasks:
            for candidate in block.candidates:
                new_task, new_candidate = tasks[task.digest], candidates[candidate.digest]
                if new_task is None or new_candidate is None:
                    continue
                count = planned.get((new_task.digest, new_candidate.digest), 0)
                if count < block.rollouts:
                    pair = f"{task.id}@{candidate.id}"
                    fewer.setdefault((count, block.rollouts), []).append(pair)
    for (count, was), pairs in fewer.items():
        lines.append(f"{count} instead of {was} rollouts of {_listed(pairs)}")
    return lines


def merged(before: Plan, part: Plan) -> Plan:
    """Return the plan that holds every trial of *before* and of *part*, each once."""
    rollouts = _rollouts(before)
    for pair, count in _rollouts(part).items():
        rollouts[pair] = max(count, rollouts.get(pair, 0))
    tasks = {task.digest: task for plan in (before, part) for task in plan.tasks}
    candidates = {one.digest: one for plan in (part, before) for one in plan.candidates}
    profiles: dict[tuple[tuple[str, int], ...], list[Task]] = {}
    for task, profile in _by_task(rollouts).items():
        profiles.setdefault(tuple(profile), []).append(tasks[task])
    blocks = [
        Block(
            tasks=tuple(alike),
            candidates=tuple(candidates[c] for c, count in profile if count == rollout),
            rollouts=rollout,
        )
        for profile, alike in profiles.items()
        for rollout in dict.fromkeys(count for _, count in profile)
    ]
    return replace(before, blocks=tuple(blocks))


def _rollouts(plan: Plan) -> dict[_Pair, int]:
    """Return how often each task is given to each candidate."""
    return {
        (task.digest, candidate.digest): block.rollouts
        for block in plan.blocks
        for task in block.tasks
        for candidate in block.candidates
    }


def _by_task(rollouts: Mapping[_Pair, int]) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for (task, candidate), count in rollouts.items():
        found.setdefault(task, []).append((candidate, count))
    return found


def _partners(before: Iterable[_T], after: Iterable[_T]) -> dict[str, _T | None]:
    """Return who stands for each of *before* in *after*, by digest: the same content, else the same id."""
    new = list(after)
    by_digest, by_id = {one.digest: one for one in new}, {one.id: one for one in new}
    return {old.digest: by_digest.get(old.digest, by_id.get(old.id)) for old in before}


def _absent(kind: str, before: Iterable[_T], partners: Mapping[str, _T | None]) -> list[str]:
    names = [repr(old.id) for old in before if partners[old.digest] is None]
    return [f"no {kind} {_listed(names)}"] if names else []


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


_MOST_SHOWN = 5


def differences(
    plan: Plan, tasks: Mapping[str, Task], seats: Mapping[str, Mapping[str, Json]]
) -> list[str]:
    """Return one line for each task or candidate that has the name of a known one but not its content.

    *tasks* and *seats* are what the ledger knows, by id; a seat is a candidate's identity with
    that of its conditions.
    """
    lines = []
    changed = [
        (f"task {task.id!r}", fields_apart(tasks[task.id].identity(), task.identity()))
        for task in plan.tasks
        if task.id in tasks and tasks[task.id].digest != task.digest
    ]
    for candidate in plan.candidates:
        known = seats.get(candidate.id)
        today = {**candidate.identity(), **plan.conditions.identity()}
        if known is not None and known != today:
            changed.append((f"candidate {candidate.id!r}", fields_apart(known, today)))
    lines = [f"{what} differs in {', '.join(fields)}" for what, fields in changed[:_MOST_SHOWN]]
    if len(changed) > _MOST_SHOWN:
        lines.append(f"and {len(changed) - _MOST_SHOWN} more")
    return lines


def fields_apart(old: Mapping[str, Json], new: Mapping[str, Json], prefix: str = "") -> list[str]:
    """Return the keys whose values are not equal, those of tables with dots."""
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += fields_apart(before, after, f"{prefix}{key}.")
        else:
            found.append(prefix + key)
    return found


_SCORING = frozenset({"target", "turn_targets", "scorers", "pass_threshold"})


class Rescored(NamedTuple):
    """A plan with new scoring, and how many of its tasks have it from elsewhere."""

    plan: Plan
    found: int


def rescored(plan: Plan, tasks: Iterable[Task], scorers: Sequence[ScorerSpec] = ()) -> Rescored:
    """Return *plan* with the scoring of *tasks*, by id; what is asked must be the same.

    A row without an id is named by its content, the expected answer with it: where no id fits, what
    is asked does. *scorers* take the place of those of every task.
    """
    by_id = {task.id: task for task in tasks}
    by_question = {digest(_asked(task)): task for task in by_id.values()}
    found = 0

    def scored_anew(task: Task) -> Task:
        nonlocal found
        new = by_id.get(task.id)
        if new is not None:
            _refuse_another_question(task, new)
        elif by_question:
            new = by_question.get(digest(_asked(task)))
        if new is not None:
            found += 1
            task = replace(
                task,
                target=new.target,
                turns=new.turns,
                scorers=new.scorers,
                pass_threshold=new.pass_threshold,
            )
        return replace(task, scorers=tuple(scorers)) if scorers else task

    blocks = [
        Block(
            tasks=tuple(scored_anew(task) for task in block.tasks),
            candidates=block.candidates,
            rollouts=block.rollouts,
        )
        for block in plan.blocks
    ]
    return Rescored(Plan(blocks=tuple(blocks), conditions=plan.conditions), found)


def _asked(task: Task) -> dict[str, Json]:
    """Return what *task* asks, whatever it is called."""
    identity = task.identity()
    return {key: identity[key] for key in identity if key not in _SCORING and key != "id"}


def _refuse_another_question(before: Task, after: Task) -> None:
    old, new = before.identity(), after.identity()
    changed = [key for key in new if key not in _SCORING and old.get(key) != new[key]]
    if changed:
        raise UsageError(
            f"task {before.id!r} asks something else now ({', '.join(changed)} differ): "
            "its stored answers cannot be scored again; start a new run"
            + (
                "; columns must be named as they were: --expected, --map"
                if "vars" in changed
                else ""
            )
        )
