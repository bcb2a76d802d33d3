"""Scores of tasks that were repeated, as tests of the statistics write them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass
class Scores:
    """The scores of a task as a store could sum them up."""

    n: int
    total: float
    squares: float

    @classmethod
    def of(cls, scores: Sequence[float]) -> Self:
        return cls(n=len(scores), total=math.fsum(scores), squares=math.fsum(x * x for x in scores))


def marks(*rows: str) -> list[list[float]]:
    """Rollouts as letters, a word for each task: `1101`."""
    return [[float(mark) for mark in told] for told in rows]
