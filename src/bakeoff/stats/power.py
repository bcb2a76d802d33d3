"""How many tasks a comparison needs, and what it can see with those it has (Miller, 2024).

`variance` is that of a task's difference between two candidates, ω² + σ²_A/K_A + σ²_B/K_B: the
spread between tasks, and the noise of K rollouts on either side. The spread that was observed
between differences of task means is just this sum.
"""

import math
from statistics import NormalDist


def tasks_needed(
    difference: float, *, variance: float, level: float = 0.95, power: float = 0.8
) -> float:
    """Return how many tasks show *difference* with a chance of *power*, in a test at *level*."""
    if not difference:
        raise ValueError("no number of tasks shows a difference of 0")
    return _quantiles(level, power) ** 2 * variance / difference**2


def detectable(tasks: int, *, variance: float, level: float = 0.95, power: float = 0.8) -> float:
    """Return the least difference that *tasks* tasks show with a chance of *power*."""
    if tasks < 1:
        raise ValueError(f"need at least one task, got {tasks!r}")
    return _quantiles(level, power) * math.sqrt(variance / tasks)


def _quantiles(level: float, power: float) -> float:
    if not (0 < level < 1 and 0 < power < 1):
        raise ValueError(f"level and power lie between 0 and 1, got {level!r} and {power!r}")
    normal = NormalDist()
    return normal.inv_cdf(0.5 + level / 2) + normal.inv_cdf(power)
