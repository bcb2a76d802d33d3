"""Distributions that intervals and tests are read from: Student's t, the beta and the binomial.

By hand, because they are all that is needed of a library that takes a third of a second to import.
Right to ten digits or better against scipy, which the tests compare them with.
"""

import math
from collections.abc import Iterator
from itertools import count
from statistics import NormalDist

_ENOUGH = 1e-15
_MANY = 100.0


def student_quantile(p: float, df: int) -> float:
    """Return what a t variable with *df* degrees of freedom stays below with probability *p*."""
    if not 0 < p < 1 or df < 1:
        raise ValueError(f"need 0 < p < 1 and df >= 1, got p = {p!r} and df = {df!r}")
    if p < 0.5:
        return -student_quantile(1 - p, df)
    # Above the middle the distribution function is concave, and the normal quantile lies below the one
    # sought: every step of Newton's method comes closer from below, none goes too far.
    t = NormalDist().inv_cdf(p)
    while (step := (_above(t, df) - (1 - p)) / _density(t, df)) > _ENOUGH * t:
        t += step
    return t


def student_two_sided(t: float, df: int) -> float:
    """Return how likely a t variable with *df* degrees of freedom is as far from 0 as *t*."""
    if not math.isfinite(t) or df < 1:
        raise ValueError(f"need a finite t and df >= 1, got t = {t!r} and df = {df!r}")
    return min(2 * _above(abs(t), df), 1.0)


def _density(t: float, df: int) -> float:
    return math.exp(-(df + 1) / 2 * math.log1p(t * t / df) - _log_beta(df)) / math.sqrt(df)


def _above(t: float, df: int) -> float:
    """Return how likely a value above *t* is, for *t* >= 0: half an incomplete beta integral."""
    if t * t / df == 0:
        return 0.5
    a, b = df / 2, 0.5
    x, rest = df / (df + t * t), t * t / (df + t * t)
    grown = math.log1p(t * t / df)
    front = math.exp(b * math.log(t * t / df) - (a + b) * grown - _log_beta(df))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast
        return front / a * _fraction(a, b, x) / 2
    return (1 - front / b * _fraction(b, a, rest)) / 2


def _log_beta(df: int) -> float:
    """Return the logarithm of the beta function at (df/2, 1/2)."""
    a = df / 2
    if a < _MANY:
        return math.lgamma(a) + math.log(math.pi) / 2 - math.lgamma(a + 0.5)
    # two large numbers would be taken from each other: the series of their difference instead
    return math.log(math.pi / a) / 2 + 1 / (8 * a) - 1 / (192 * a**3) + 1 / (640 * a**5)


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta integral (DLMF 8.17.22)."""
    # Lentz's method: a product of quotients of successive numerators and denominators
    value = above = 1.0
    below = 0.0
    for term in _terms(a, b, x):
        below = 1 / (1 + term * below)
        above = 1 + term / above
        value *= above * below
        if abs(above * below - 1) < _ENOUGH:
            break
    return 1 / value


def _terms(a: float, b: float, x: float) -> Iterator[float]:
    for m in count():
        yield -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        yield (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2))


def beta_below(x: float, a: float, b: float) -> float:
    """Return how likely a beta variable with shapes *a* and *b* is to be at most *x*."""
    if not (a > 0 and b > 0):
        raise ValueError(f"shapes are more than 0, got {a!r} and {b!r}")
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    size = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(size + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast
        return front / a * _fraction(a, b, x)
    return 1 - front / b * _fraction(b, a, 1 - x)


def beta_quantile(p: float, a: float, b: float) -> float:
    """Return what a beta variable with shapes *a* and *b* stays below with probability *p*."""
    if not 0 < p < 1:
        raise ValueError(f"need 0 < p < 1, got {p!r}")
    low, high = 0.0, 1.0
    while high - low > _ENOUGH * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if beta_below(middle, a, b) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def binomial_at_most(k: int, n: int, p: float) -> float:
    """Return how likely at most *k* of *n* trials succeed, each with probability *p*."""
    if k < 0 or k >= n:
        return 0.0 if k < 0 else 1.0
    return 1 - beta_below(p, k + 1, n - k)


def chi_squared_above(x: float) -> float:
    """Return how likely a chi-squared variable with one degree of freedom is above *x*."""
    return math.erfc(math.sqrt(x / 2))
