"""Sequential tests: anytime-valid intervals, and alpha spending. They hold although a run may stop early.

A run that ends when the answer is clear has looked at its numbers all along. Ordinary intervals
are made for one look: with a look at every tenth of 500 tasks, one in three would be wrong at some
point. These hold at all looks together.

Anytime-valid, after every task. A gambler bets against "the mean is m" with fair bets on each value before it is seen. If m is the
mean, the capital hardly ever grows twentyfold; so where it has, m is refuted for good. Bets and
their sizes: Waudby-Smith & Ramdas (2024), hedged capital with the empirical-Bernstein bets. For
values that are 0 or 1 a mixture of all bets has a closed form, and is tighter.

Alpha spending (Lan & DeMets, 1983), at given looks. If neither of two candidates is better, each
difference might as well have the other sign. So the sum of the differences is a walk whose steps
have a known size and the direction of a coin. At each look the sums that are as far out as the error
spent by then allows are ruled out; what is left of the walk goes on. Its distribution is counted out
step by step, so the error is exact, not one of a normal approximation. For that, sizes are rounded
to a grid, which no test of signs minds. After a share t of the tasks, t² of the error may be spent
(Kim & DeMets, 1987): little at first, when only what is clear should be decided.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from bakeoff._lib.value_object import value_object
from bakeoff.stats.estimate import Estimate, Interval, TaskScores, estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BETTING, MIXTURE = "betting, anytime-valid", "beta mixture, anytime-valid"

_MOST_STAKE = 0.5  # the share of the capital that a single value may cost
_CLOSE = 1e-7  # how near a bound is found
_SIDES = 2
_NEGLIGIBLE = 1e-18  # a chance that no longer counts
_GRID = 120  # holds the means of 2, 3, 4, 5, 6, 8, 10 and 12 rollouts of 0 or 1 exactly


class BetSizing:
    """Sizes the bets on values from 0 to 1, each from the values before it."""

    def __init__(self, *, level: float) -> None:
        self._sure = math.log(_SIDES / (1 - level))
        self._n = 0
        self._sum = 0.5
        self._squares = 0.25

    def next_bet(self) -> float:
        """Return how much to bet on the next value: more, the less the values have varied."""
        n = self._n + 1
        variance = self._squares / n
        return math.sqrt(2 * self._sure / (variance * n * math.log(n + 1)))

    def see(self, value: float) -> None:
        """Learn from *value*."""
        self._n += 1
        self._sum += value
        self._squares += (value - self._sum / (self._n + 1)) ** 2


class DifferenceMixture:
    """The capital of many gamblers who each bet a fixed share λ on differences from -1 to 1.

    Half of the money is spread evenly over λ from -1 to 1, half as a normal with a deviation of 0.3.
    If there is no difference, the whole hardly ever grows far: p = 1 / (the most there ever was).
    """

    def __init__(self) -> None:
        import numpy as np

        self._shares, self._log_weights = _gamblers()
        self._logs = np.zeros(len(self._shares))
        self._above = self._shares > 0
        self._most = self._most_above = self._most_below = 1.0

    def see(self, difference: float) -> None:
        """Settle all bets on *difference*."""
        import numpy as np

        if difference:
            self._logs += np.log1p(self._shares * difference)
        money = np.exp(np.minimum(self._logs + self._log_weights, _MOST_LOG))
        above = 2 * float(money[self._above].sum())
        below = 2 * float(money[~self._above].sum())
        self._most = max(self._most, (above + below) / 2)
        self._most_above = max(self._most_above, above)
        self._most_below = max(self._most_below, below)

    @property
    def p(self) -> float:
        """A p-value that holds whenever one stops."""
        return 1 / self._most

    @property
    def p_above(self) -> float:
        """The p-value of the side of a difference over 0, of two that are tested."""
        return min(1.0, _SIDES / self._most_above)

    @property
    def p_below(self) -> float:
        """The p-value of the side of a difference under 0, of two that are tested."""
        return min(1.0, _SIDES / self._most_below)


_GAMBLERS, _DEVIATION, _MOST_LOG = 100, 0.3, 600.0


@lru_cache(maxsize=1)
def _gamblers() -> "tuple[NDArray[np.float64], NDArray[np.float64]]":
    """Return the share that each gambler bets, and the logarithm of the money that each begins with."""
    import numpy as np

    shares = (2 * np.arange(_GAMBLERS) + 1) / _GAMBLERS - 1
    normal = np.exp(-((shares / _DEVIATION) ** 2) / 2)
    weights = 0.5 / _GAMBLERS + 0.5 * normal / normal.sum()
    return shares, np.log(weights)


def anytime_interval(values: Sequence[float], *, level: float = 0.95) -> Interval | None:
    """Return where the mean of *values* from 0 to 1 is, in the order they came.

    None where every mean is refuted, which happens in at most 1 - *level* of all runs.
    """
    import numpy as np

    seen, bets = np.array(values, dtype=float), np.array(list(_bets(values, level=level)))
    enough = math.log(_SIDES / (1 - level))

    def too_low(mean: float) -> bool:
        return _wins(seen, bets, mean, enough)

    def too_high(mean: float) -> bool:
        return _wins(1 - seen, bets, 1 - mean, enough)

    low = _last(too_low, 0.0, 1.0)
    high = _last(too_high, 1.0, 0.0)
    if low > high:
        return None
    return Interval(low=low, high=high, level=level, method=BETTING)


def anytime_difference(differences: Sequence[float], *, level: float = 0.95) -> Interval | None:
    """Return where the mean of *differences* from -1 to 1 is."""
    interval = anytime_interval([to_unit(difference) for difference in differences], level=level)
    if interval is None:
        return None
    low, high = 2 * interval.low - 1, 2 * interval.high - 1
    return Interval(low=low, high=high, level=level, method=interval.method)


def mixture_interval(successes: int, n: int, *, level: float = 0.95) -> Interval:
    """Return where the chance of a success is, after *successes* in *n*, at whatever look."""
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"need 0 <= successes <= n and n >= 1, got {successes!r} of {n!r}")
    failures = n - successes
    sure = -math.log(1 - level)
    mixed = _log_beta(0.5 + successes, 0.5 + failures) - _log_beta(0.5, 0.5)

    def refuted(p: float) -> bool:
        return mixed - _log_power(p, successes) - _log_power(1 - p, failures) >= sure

    best = successes / n
    return Interval(
        low=_last(refuted, 0.0, best),
        high=_last(refuted, 1.0, best),
        level=level,
        method=MIXTURE,
    )


def to_unit(difference: float) -> float:
    """Return a difference from -1 to 1 as a value from 0 to 1."""
    return (difference + 1) / 2


def _bets(values: Iterable[float], *, level: float) -> Iterator[float]:
    betting = BetSizing(level=level)
    for value in values:
        yield betting.next_bet()
        betting.see(value)


def _wins(
    values: "NDArray[np.float64]", bets: "NDArray[np.float64]", mean: float, enough: float
) -> bool:
    """Whether one who bets that the mean of *values* is above *mean* ever had *enough*, as a logarithm."""
    import numpy as np

    # a bet leaves something even where the worst value comes
    stakes = np.minimum(bets, _MOST_STAKE / mean) if mean > 0 else bets
    return bool(np.log1p(stakes * (values - mean)).cumsum().max() >= enough)


def _last(refuted: Callable[[float], bool], start: float, end: float) -> float:
    """Return the last point from *start* towards *end* that is refuted; *start* where none is.

    What is refuted begins at *start* and has no gap.
    """
    if not refuted(start):
        return start
    if refuted(end):
        return end
    while abs(end - start) > _CLOSE:
        middle = (start + end) / 2
        if refuted(middle):
            start = middle
        else:
            end = middle
    return start


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _log_power(base: float, exponent: int) -> float:
    if exponent == 0:
        return 0.0
    return exponent * math.log(base) if base > 0 else -math.inf


def estimate_drawn(tasks: Iterable[TaskScores], *, level: float = 0.95) -> Estimate:
    """Estimate a candidate's mean score over *tasks*, given in the order they were drawn."""
    seen = list(tasks)
    result = estimate(seen, level=level)
    if not seen:
        return result
    if all(task.binary and task.n == 1 for task in seen):
        passed = round(sum(task.total for task in seen))
        return replace(result, interval=mixture_interval(passed, len(seen), level=level))
    return replace(result, interval=anytime_interval([task.mean for task in seen], level=level))


# --- alpha spending -------------------------------------------------------------------------------


@value_object
class Looks:
    """How often a run of so many `tasks` is looked at: `count` times, equally far apart."""

    count: int
    tasks: int

    def due_after(self, tasks: int) -> bool:
        """Whether there is a look after so many *tasks*, the last one left out."""
        return tasks < self.tasks and self._passed(tasks) > self._passed(tasks - 1)

    def _passed(self, tasks: int) -> int:
        return tasks * self.count // self.tasks


def spent_by(share: float, *, alpha: float) -> float:
    """Return how much of *alpha* may be spent once this *share* of the tasks was seen."""
    return alpha * min(share, 1.0) ** 2


class SignWalk:
    """Whether the sum of differences is further from 0 than coins in the place of their signs would go.

    `p_above` is the chance of coins to be as far above 0 at this look, or out on that side at an
    earlier one, `p_below` the same below 0. `crossed` says that a look found one of them small
    enough; then nothing changes any more.
    """

    def __init__(self) -> None:
        import numpy as np

        # of the sums that are not ruled out above; those below are their mirror image
        self._chances: NDArray[np.float64] = np.ones(1)
        self._first = 0  # the first of these sums, counted in steps
        self._step = _GRID
        self._sum = 0
        self._spent = 0.0
        self.p_above = self.p_below = 1.0
        self.crossed = False

    def add(self, difference: float) -> None:
        """Take a step of this size, in the direction of its sign."""
        import numpy as np

        size = round(abs(difference) * _GRID)
        if not size:
            return
        self._sum += size if difference > 0 else -size
        self._refine(math.gcd(self._step, size))
        steps, half = size // self._step, self._chances / 2
        self._first -= steps
        self._chances = np.zeros(len(half) + 2 * steps)
        self._chances[: len(half)] += half
        self._chances[2 * steps :] += half

    def look(self, allowed: float) -> None:
        """Look at the sum; on each side up to *allowed* may have been spent then, this look included."""
        import numpy as np

        if self.crossed:
            return
        tails = np.cumsum(self._chances[::-1])[::-1]
        out = int(np.searchsorted(-tails, self._spent - allowed))  # the first that may be ruled out
        above, below = (
            max(side // self._step - self._first, 0) for side in (self._sum, -self._sum)
        )
        self.p_above, self.p_below = (
            min(1.0, self._spent + float(tails[place])) for place in (above, below)
        )
        self.crossed = max(above, below) >= out
        if out < len(tails):
            self._spent += float(tails[out])
        hardly = int(np.searchsorted(np.cumsum(self._chances[:out]), _NEGLIGIBLE))
        self._chances = self._chances[hardly:out]
        self._first += hardly

    def _refine(self, step: int) -> None:
        """Count in finer steps from now on."""
        import numpy as np

        if step == self._step:
            return
        finer = self._step // step
        chances = np.zeros((len(self._chances) - 1) * finer + 1)
        chances[::finer] = self._chances
        self._chances, self._first, self._step = chances, self._first * finer, step
