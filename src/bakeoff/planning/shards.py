"""Shards: the parts of a plan that several runs do by themselves, and `bakeoff merge` puts together.

The tasks of a plan are sorted by their digests and dealt in turn, so a shard has all trials of its
tasks, no two shards share one, and their sizes differ by one task at most.
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import replace

from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import digests_of
from bakeoff.core.plan import Block, Plan
from bakeoff.core.run_spec import Shard

_WRITTEN = re.compile(r"(\d{1,6})/(\d{1,6})")

Places = Sequence[tuple[int, Sequence[int]]]
"""For each block of a shard: its number in the whole plan, and the places of its tasks in that block."""


@value_object
class PlanPart:
    """A shard of a plan; with `places` and the other shards, the whole plan can be put together."""

    shard: Shard
    plan: Plan
    places: Places


def read_shard(text: str) -> tuple[int, int]:
    """Return the number of a shard and how many there are, from `i/n`; counted from 0."""
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise UsageError(f"{text!r} is no shard: write I/N, such as 0/3 for the first of three")
    index, count = map(int, written.groups())
    if index >= count:
        last = f"0/{count} to {count - 1}/{count}" if count else "0/1"
        raise UsageError(f"shard {text} is none: they are counted from 0, so there are {last}")
    return index, count


def cut(plan: Plan, index: int, count: int) -> PlanPart:
    """Return shard *index* of the *count* shards of *plan*."""
    every = sorted({digest for block in plan.blocks for digest in digests_of(block.tasks)})
    mine = set(every[index::count])
    blocks: list[Block] = []
    places: list[tuple[int, Sequence[int]]] = []
    for number, block in enumerate(plan.blocks):
        kept = [(at, task) for at, task in enumerate(block.tasks) if task.digest in mine]
        if kept:
            blocks.append(replace(block, tasks=tuple(task for _, task in kept)))
            places.append((number, array("q", (at for at, _ in kept))))
    part = replace(plan, blocks=tuple(blocks))
    shard = Shard(
        index=index,
        count=count,
        plan=plan.digest,
        part=part.digest,
        tasks=len(every),
        trials=len(plan),
    )
    return PlanPart(shard=shard, plan=part, places=places)
