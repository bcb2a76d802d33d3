"""Two candidates, task by task in a fixed order, until it is settled which is better.

Of many pairs each is held to a stricter level, such that all decisions of a run are right together.
"""

from array import array

from bakeoff.stats.estimate import Interval
from bakeoff.stats.sequential import Doubt, anytime_difference, to_unit

_SHARE = 20  # from here on, precision is looked at after every twentieth of the tasks seen


class Settling:
    """One pair of *pairs*; `differences` are those of its task means, from -1 to 1."""

    def __init__(self, *, pairs: int, precision: float | None = None, level: float = 0.95) -> None:
        self._alpha = (1 - level) / pairs
        self._precision = precision
        self._doubt = Doubt(to_unit(0.0), level=1 - self._alpha)
        self.differences = array("d")
        self.decided = False
        self.precise = False

    def see(self, difference: float) -> None:
        """Learn the difference on the next task."""
        self.differences.append(difference)
        self._doubt.see(to_unit(difference))
        self.decided = self.decided or self.p < self._alpha
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
        return self._doubt.p

    def interval(self, *, level: float) -> Interval | None:
        """Return where the difference is; None where no task was seen, or nothing fits."""
        return anytime_difference(self.differences, level=level) if self.differences else None

    def _is_look(self) -> bool:
        seen = len(self.differences)
        return seen % max(seen // _SHARE, 1) == 0
