"""The interval of a paired difference, and that it says what its test says.

    scores 0 or 1, one rollout of each task    Newcombe (1998, method 10, with his correction)
    otherwise                                  t of the differences, over tasks or groups

The deciding test is exact at a difference of 0, where these are approximate: what it does not
refute is let in, and what it refutes is left out. So a verdict and its interval never disagree.
"""

import math
from statistics import NormalDist

from bakeoff.stats.distributions import student_quantile
from bakeoff.stats.estimate import Interval

_HARDLY = 1e-9  # what 0 is left out by


def newcombe(
    only_first: int, only_second: int, *, both: int, neither: int, level: float = 0.95
) -> Interval:
    """Return where the difference of two shares of the same tasks lies."""
    n = only_first + only_second + both + neither
    z = NormalDist().inv_cdf(0.5 + level / 2)
    first, second = both + only_first, both + only_second
    down_first, up_first = _wilson_arms(first / n, n, z)
    down_second, up_second = _wilson_arms(second / n, n, z)
    phi = _correlation(only_first, only_second, both=both, neither=neither)
    difference = (only_first - only_second) / n
    below = down_first**2 - 2 * phi * down_first * up_second + up_second**2
    above = up_first**2 - 2 * phi * up_first * down_second + down_second**2
    return Interval(
        low=max(difference - math.sqrt(max(below, 0.0)), -1.0),
        high=min(difference + math.sqrt(max(above, 0.0)), 1.0),
        level=level,
        method="Newcombe",
    )


def _wilson_arms(share: float, n: int, z: float) -> tuple[float, float]:
    """Return how far Wilson's interval reaches below and above *share*."""
    shrink = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / shrink
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / shrink
    return max(share - (centre - half), 0.0), max(centre + half - share, 0.0)


def _correlation(only_first: int, only_second: int, *, both: int, neither: int) -> float:
    first, second = both + only_first, both + only_second
    n = first + only_second + neither
    most = first * (n - first) * second * (n - second)
    if not most:
        return 0.0
    together = float(both * neither - only_first * only_second)
    if together > 0:  # less correlated than it looks: a wider interval
        together = max(together - n / 2, 0.0)
    return together / math.sqrt(most)


def paired_t(difference: float, se: float, *, df: int, level: float, grouped: bool) -> Interval:
    """Return where a mean of differences lies that has this standard error."""
    half = student_quantile(0.5 + level / 2, df) * se
    return Interval(
        low=max(difference - half, -1.0),
        high=min(difference + half, 1.0),
        level=level,
        method="clustered paired t" if grouped else "paired t",
    )


def as_tested(interval: Interval, difference: float, *, refuted: bool) -> Interval:
    """Return *interval* with 0 in it unless the test *refuted* that there is no difference."""
    low, high = interval.low, interval.high
    if not refuted or not difference:
        low, high = min(low, 0.0), max(high, 0.0)
    elif low <= 0 <= high:
        low, high = (_HARDLY, high) if difference > 0 else (low, -_HARDLY)
    return Interval(low=low, high=high, level=interval.level, method=interval.method)
