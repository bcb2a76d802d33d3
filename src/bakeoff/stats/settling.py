"""Two candidates, task by task in a fixed order, until it is settled which is better.

Of many pairs each is held to a stricter level, such that all decisions of a run are right together.
"""

from array import array

from bakeoff.stats.estimate import Interval
from bakeoff.stats.sequential import Doubt, anytime_difference, to_unit

_SHARE = 20  # from here on, precision is looked at after every twentieth of the tasks seen


class Settling:
    """One pair of *pairs*; `differences` are those of its task means, from -1 to 1.

    It is decided only where faults could not turn it: on the way to "the first is better" each
    faulted trial counts against the first, and on the other way against the second.
    """

    def __init__(self, *, pairs: int, precision: float | None = None, level: float = 0.95) -> None:
        self._alpha = (1 - level) / pairs
        self._precision = precision
        self._seen, self._lowest, self._highest = (
            Doubt(to_unit(0.0), level=1 - self._alpha) for _ in range(3)
        )
        self.differences = array("d")
        self.decided = False
        self.precise = False

    def see(self, difference: float) -> None:
        """Learn the difference on the next task."""
        self.see_between(difference, difference, seen=difference)

    def see_between(self, low: float, high: float, *, seen: float | None) -> None:
        """Learn what the difference on the next task could be with its faults, and what was *seen*."""
        self._lowest.see(to_unit(low))
        self._highest.see(to_unit(high))
        self.decided = self.decided or self.worst_p < self._alpha
        if seen is None:
            return
        self.differences.append(seen)
        self._seen.see(to_unit(seen))
        if self._precision is not None and not self.precise and self._is_look():
            found = self.interval(level=1 - self._alpha)
            self.precise = found is None or found.high - found.low <= 2 * self._precision

    @property
    def settled(self) -> bool:
        """Whether it is sure who is better, or known well enough how far they are apart."""
        return self.decided or self.precise

    @property
    def p(self) -> float:
        """The p of "there is no difference"; it holds whenever one stops."""
        return self._seen.p

    @property
    def worst_p(self) -> float:
        """The same with every fault counted against whoever it would have to be."""
        return min(self._lowest.p_above, self._highest.p_below)

    def interval(self, *, level: float) -> Interval | None:
        """Return where the difference is; None where no task was seen, or nothing fits."""
        return anytime_difference(self.differences, level=level) if self.differences else None

    def _is_look(self) -> bool:
        seen = len(self.differences)
        return seen % max(seen // _SHARE, 1) == 0
