"""Every trial of a run, known before it starts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice

from bakeoff._lib.digest import digest, digest_of_parts
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.lazy_tasks import LazyTasks, StreamedTasks, at_hand, digests_of
from bakeoff.core.task import Task

_BETWEEN_SWAPS = 10  # tasks of a drawn order that each model has before the next is loaded


@value_object
class Trial:
    """Task × candidate × rollout: the unit of work. Names and settings only, no live parts."""

    task: Task
    candidate: Candidate
    conditions: Conditions
    rollout: int

    @property
    def id(self) -> str:
        """Identity by content: equal trials have equal ids, wherever and whenever they run."""
        return digest(
            [self.task.digest, self.candidate.digest, self.conditions.digest, self.rollout]
        )

    @property
    def name(self) -> str:
        """How a person refers to this trial within its run."""
        return trial_name(self.task.id, self.candidate.id, self.rollout)


def trial_name(task_id: str, candidate_id: str, rollout: int) -> str:
    """Return the name of a trial, as `show` takes it."""
    return f"{task_id}@{candidate_id}#{rollout}"


@value_object
class Block:
    """Tasks × candidates × rollouts; `tasks` is a tuple, or reads them as they are needed."""

    tasks: Sequence[Task]
    candidates: tuple[Candidate, ...]
    rollouts: int = 1

    def __len__(self) -> int:
        return len(self.tasks) * len(self.candidates) * self.rollouts


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All blocks of a run under one set of conditions.

    The rest is an order, not identity. `one_after_another`: a server that has to swap models is
    asked for all trials of one candidate before those of the next. `drawn`: tasks come in an order
    drawn from this seed, each with all of its rollouts before the next.
    """

    blocks: tuple[Block, ...]
    conditions: Conditions = field(default_factory=Conditions)
    one_after_another: bool = False
    drawn: int | None = None

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks)

    def __iter__(self) -> Iterator[Trial]:
        for blocks in (self.blocks,) if self.drawn is None else self._drawn(self.drawn):
            # rollout-major: a run cut short still covers all tasks
            for rollout in range(max((block.rollouts for block in blocks), default=0)):
                for block in blocks:
                    if rollout < block.rollouts:
                        yield from self._round(block, rollout)

    def _drawn(self, seed: int) -> Iterator[Sequence[Block]]:
        """Yield the blocks of a task at a time; of a few where models are swapped between them."""
        homes: dict[str, list[Block]] = {}
        for block in self.blocks:
            for task in block.tasks:
                homes.setdefault(task.digest, []).append(block)
        tasks = iter(self.drawn_tasks(seed))
        while few := list(islice(tasks, _BETWEEN_SWAPS if self.one_after_another else 1)):
            cut: dict[int, tuple[Block, list[Task]]] = {}
            for task in few:
                for block in homes[task.digest]:
                    cut.setdefault(id(block), (block, []))[1].append(task)
            yield [replace(block, tasks=tuple(mine)) for block, mine in cut.values()]

    def drawn_tasks(self, seed: int) -> list[Task]:
        """Return each task once, in an order that another task or another file does not change."""
        return sorted(self.tasks, key=lambda task: digest([seed, task.id]))

    def _round(self, block: Block, rollout: int) -> Iterator[Trial]:
        pairs = (
            ((task, candidate) for candidate in block.candidates for task in block.tasks)
            if self.one_after_another
            # candidates innermost: what is finished can be compared pair by pair
            else ((task, candidate) for task in block.tasks for candidate in block.candidates)
        )
        for task, candidate in pairs:
            yield Trial(task=task, candidate=candidate, conditions=self.conditions, rollout=rollout)

    @property
    def rollouts(self) -> int:
        """How often a task is given to a candidate at most."""
        return max((block.rollouts for block in self.blocks), default=0)

    @property
    def tasks(self) -> Iterator[Task]:
        """Each task once, in plan order."""
        if any(isinstance(block.tasks, LazyTasks | StreamedTasks) for block in self.blocks):
            yield from self._tasks_as_needed()
            return
        first_of: dict[str, Task] = {}
        digests: set[str] = set()  # of tasks that share an id; elsewhere the id tells them apart
        for block in self.blocks:
            for task in block.tasks:
                first = first_of.get(task.id)
                if first is None:
                    first_of[task.id] = task
                    yield task
                elif first is not task:
                    digests.add(first.digest)
                    if task.digest not in digests:
                        digests.add(task.digest)
                        yield task

    @property
    def tasks_at_hand(self) -> Iterator[Task]:
        """The tasks that are checked before anything is asked: all but those of a stream."""
        if not self.streams:
            return self.tasks
        return chain.from_iterable(at_hand(block.tasks) for block in self.blocks)

    @property
    def streams(self) -> bool:
        """Whether tasks are read while they run, so that their number is an estimate."""
        return any(isinstance(block.tasks, StreamedTasks) for block in self.blocks)

    def _tasks_as_needed(self) -> Iterator[Task]:
        """Yield each task once, and hold none of them."""
        if (only := self._only_distinct) is not None:
            yield from only
            return
        seen: set[bytes] = set()
        for block in self.blocks:
            for task in block.tasks:
                key = bytes.fromhex(task.digest)
                if key not in seen:
                    seen.add(key)
                    yield task

    @property
    def _only_distinct(self) -> LazyTasks | StreamedTasks | None:
        """The tasks of a plan of one block, where they are read as needed and none is there twice."""
        tasks = self.blocks[0].tasks if len(self.blocks) == 1 else ()
        if isinstance(tasks, StreamedTasks):
            return tasks
        return tasks if isinstance(tasks, LazyTasks) and tasks.are_distinct else None

    @property
    def task_count(self) -> int:
        """How many different tasks there are."""
        if (only := self._only_distinct) is not None:
            return len(only)
        return len({digest for block in self.blocks for digest in digests_of(block.tasks)})

    @property
    def candidates(self) -> Iterator[Candidate]:
        """Each candidate once, in plan order."""
        seen: set[str] = set()
        for block in self.blocks:
            for candidate in block.candidates:
                if candidate.digest not in seen:
                    seen.add(candidate.digest)
                    yield candidate

    def trials_by_candidate(self) -> dict[str, int]:
        """Return how many trials each candidate has, in plan order."""
        counts: dict[str, int] = {}
        for block in self.blocks:
            for candidate in block.candidates:
                many = len(block.tasks) * block.rollouts
                counts[candidate.id] = counts.get(candidate.id, 0) + many
        return counts

    @cached_property
    def digest(self) -> str:
        """The digest of everything that is planned."""
        return digest_of_parts(self._identity())

    def _identity(self) -> Iterator[str]:
        """Yield, in parts, canonical JSON of the digests of the conditions and of every block."""
        yield f'["{self.conditions.digest}",['
        for number, block in enumerate(self.blocks):
            yield ",[[" if number else "[["
            yield from _listed(digests_of(block.tasks))
            yield "],["
            yield from _listed(candidate.digest for candidate in block.candidates)
            yield f"],{block.rollouts}]"
        yield "]]"


def _listed(digests: Iterable[str]) -> Iterator[str]:
    for number, one in enumerate(digests):
        yield f',"{one}"' if number else f'"{one}"'
