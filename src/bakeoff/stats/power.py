"""Power analysis: how many tasks a comparison needs, and what it can detect (Miller, 2024).

`variance` is that of a task's difference between two candidates, ω² + σ²_A/K_A + σ²_B/K_B: the
spread between tasks, and the noise of K rollouts on either side. The spread that was observed
between differences of task means is just this sum.

The formula knows normal sums and a known variance. A test that counts must be passed by half of a
`step` of the sum, and one that estimates the variance takes z²/2 tasks more: `to_decide` and
`decided_with` allow for that. A step is 1 for one rollout of 0 or 1, and 1 / K for K of them.
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


def to_decide(
    difference: float, *, variance: float, step: float, level: float = 0.95, power: float = 0.8
) -> int:
    """Return how many tasks the deciding test needs to detect *difference*."""
    if not difference > 0:
        raise ValueError(f"need a difference of more than 0, got {difference!r}")
    spread = _quantiles(level, power) * math.sqrt(variance)
    root = (spread + math.sqrt(spread**2 + 4 * difference * step)) / (2 * difference)
    return max(math.ceil(root**2 + _for_the_variance(level)), least_tasks(level))


def decided_with(
    tasks: int, *, variance: float, step: float, level: float = 0.95, power: float = 0.8
) -> float | None:
    """Return the smallest difference that the deciding test detects with *tasks*.

    None where so few tasks decide nothing, whatever they are.
    """
    if tasks < least_tasks(level):
        return None
    left = tasks - _for_the_variance(level)
    return _quantiles(level, power) * math.sqrt(variance / left) + step / left


def least_tasks(level: float) -> int:
    """Return the fewest tasks that can decide at *level* if all of them speak for the same one.

    The exact p of n such tasks is 2 / 2^n.
    """
    return 1 + math.ceil(-math.log2(1 - level))


def _for_the_variance(level: float) -> float:
    """Return how many tasks it costs not to know the variance (Guenther, 1981)."""
    return NormalDist().inv_cdf(0.5 + level / 2) ** 2 / 2


def _quantiles(level: float, power: float) -> float:
    if not (0 < level < 1 and 0 < power < 1):
        raise ValueError(f"level and power lie between 0 and 1, got {level!r} and {power!r}")
    normal = NormalDist()
    return normal.inv_cdf(0.5 + level / 2) + normal.inv_cdf(power)
