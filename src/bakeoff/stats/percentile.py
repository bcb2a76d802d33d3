"""Quantiles of durations, costs and token counts."""

import math
from collections.abc import Sequence


def quantile(sorted_values: Sequence[float], q: float) -> float | None:
    """Give the q-quantile of ascending values by linear interpolation; None where there are none.

    The same convention as numpy's default: the quantiles 0 and 1 are the least and greatest value.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q must lie between 0 and 1, got {q!r}")
    if not sorted_values:
        return None
    position = (len(sorted_values) - 1) * q
    below = sorted_values[math.floor(position)]
    above = sorted_values[math.ceil(position)]
    return below + (above - below) * (position - math.floor(position))
