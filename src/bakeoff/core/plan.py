"""Every trial of a run, known before it starts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from bakeoff._lib.digest import digest
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.lazy_tasks import digests_of
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


@dataclass(frozen=True, kw_only=True)
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
    def task_count(self) -> int:
        """How many different tasks there are."""
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
        return digest(
            [
                self.conditions.digest,
                [
                    [list(digests_of(b.tasks)), [c.digest for c in b.candidates], b.rollouts]
                    for b in self.blocks
                ],
            ]
        )
