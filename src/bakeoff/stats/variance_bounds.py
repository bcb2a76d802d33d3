"""Where a variance lies that is a sum, or a difference, of variances that were measured.

After Graybill and Wang (1980) for sums, and Ting and others (1990) where a part is taken away: each
part is as unsure as normal numbers would make it, and those of all parts are added in squares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

_LEAST_DF = 5  # with less, a variance is not known within any useful factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A variance that was measured, with its degrees of freedom; negative where it is taken away."""

    value: float
    df: float


def bounds(parts: Sequence[Part], *, level: float = 0.95) -> tuple[float, float] | None:
    """Return where the sum of *parts* lies; None where one is known too badly to say."""
    if any(part.df < _LEAST_DF for part in parts):
        return None
    z = NormalDist().inv_cdf(0.5 + level / 2)
    middle = math.fsum(part.value for part in parts)
    down, up = [], []
    for part in parts:
        less = part.value * (1 - 1 / chi_squared_over_df(z, part.df))
        more = part.value * (1 / chi_squared_over_df(-z, part.df) - 1)
        down.append(less if part.value > 0 else more)
        up.append(more if part.value > 0 else less)
    return max(middle - math.hypot(*down), 0.0), max(middle + math.hypot(*up), 0.0)


def chi_squared_over_df(z: float, df: float) -> float:
    """Return the quantile of chi-squared at the normal quantile *z* (Wilson and Hilferty, 1931)."""
    return (1 - 2 / (9 * df) + z * math.sqrt(2 / (9 * df))) ** 3
