"""Alpha spending: looks at a run, each with its share of the error (Lan & DeMets, 1983).

If neither of two candidates is better, each difference might as well have the other sign. So the
sum of the differences is a walk whose steps have a known size and the direction of a coin. At each
look the sums that are as far out as the error spent by then allows are ruled out; what is left of
the walk goes on. Its distribution is counted out step by step, so the error is exact, not one of a
normal approximation. For that, sizes are rounded to a grid, which no test of signs minds.

After a share t of the tasks, t² of the error may be spent (Kim & DeMets, 1987): little at first,
when only what is clear should be decided.
"""

import math
from typing import TYPE_CHECKING

from bakeoff._lib.value_object import value_object

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEGLIGIBLE = 1e-18  # a chance that no longer counts
_GRID = 120  # holds the means of 2, 3, 4, 5, 6, 8, 10 and 12 rollouts of 0 or 1 exactly


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
