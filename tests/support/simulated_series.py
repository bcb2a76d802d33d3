"""Series of runs of one suite, drawn by chance."""

import numpy as np
from numpy.typing import NDArray

Means = NDArray[np.float64]


def series(
    seed: int, *, runs: int, tasks: int, rollouts: int = 1, jumps: dict[int, float] | None = None
) -> Means:
    """Task means of runs whose tasks are of all difficulties; from a run on, each is easier or harder."""
    chance = np.random.default_rng(seed)
    difficulty = chance.beta(1.5, 1.0, size=(tasks, 1))
    shift = np.zeros(runs)
    for run, jump in (jumps or {}).items():
        shift[run:] += jump
    p = np.clip(difficulty + shift, 0, 1)
    return chance.binomial(rollouts, p) / rollouts
