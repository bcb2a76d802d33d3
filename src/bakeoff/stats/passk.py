"""The chance that k rollouts of a task hold a pass: at least one (pass@k), or only passes (pass^k).

Both are unbiased estimates from n scored rollouts with c passes, and None where k > n. They are
ratios of whole numbers rounded once, so pass@k never falls and pass^k never rises with k, exactly.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

PassMeasure: TypeAlias = Callable[[int, int, int], float | None]
"""`pass_at_k` or `pass_hat_k`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEstimate:
    """One measure averaged over tasks; `reason` says why `value` is None."""

    k: int
    value: float | None
    tasks: int
    reason: str | None


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Estimate the chance that at least one of k rollouts passes; None where k > n."""
    _check(n, c, k)
    if k > n:
        return None
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Estimate the chance that all of k rollouts pass (pass^k); None where k > n."""
    _check(n, c, k)
    if k > n:
        return None
    return math.comb(c, k) / math.comb(n, k)


def mean_pass(tasks: Iterable[tuple[int, int]], k: int, *, measure: PassMeasure) -> PassEstimate:
    """Average `measure` over tasks given as (n, c); None with a reason unless all have n >= k.

    A mean over only the tasks with enough scored rollouts would be a mean over another set of
    tasks for each k: faults would choose the tasks, and pass@k could fall as k grows.
    """
    # Many tasks share few (n, c) pairs: each pair is computed once.
    pairs = Counter(tasks)
    count = pairs.total()
    if not count:
        return PassEstimate(k=k, value=None, tasks=0, reason="no task has a score")
    values = {pair: measure(*pair, k) for pair in pairs}
    known = [pairs[pair] * value for pair, value in values.items() if value is not None]
    short = sum(pairs[pair] for pair, value in values.items() if value is None)
    if short:
        reason = f"{short} of {count} tasks have fewer than {k} scored rollouts"
        return PassEstimate(k=k, value=None, tasks=count, reason=reason)
    return PassEstimate(k=k, value=math.fsum(known) / count, tasks=count, reason=None)


def _check(n: int, c: int, k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k!r}")
    if not 0 <= c <= n:
        raise ValueError(f"passes must lie between 0 and n = {n!r}, got {c!r}")
