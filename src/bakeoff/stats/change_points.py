"""Whether the scores of a candidate changed from one run to the next, over any number of runs.

Runs are looked at one after another, as a person would who looks after each. With every new run, each way to
cut the runs since the last change in two is tested: of every task, the mean over the runs after the cut -
that before it, by t over tasks (over groups, where tasks share one). Comparing each task with itself takes out
how hard it is, as in a comparison of two runs. The cut with the largest t is the candidate, and is a change
where its p is under

    alpha / (m (m - 1)) / (m - 1)      with m runs since the last change

The first part is what is spent at this look: over all looks there will ever be it adds up to alpha. The second
divides it among the m - 1 cuts. So the chance that a series which never changes is *ever* said to have changed is
at most alpha, however often it is looked at. A change that was found stays found, whatever comes after.

No p is less than 2^(1 - tasks that moved): that of as many coins which all fall on one side. Few tasks cannot
be as sure as t would have it.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bakeoff._lib.value_object import value_object
from bakeoff.stats.distributions import student_two_sided
from bakeoff.stats.estimate import Interval
from bakeoff.stats.paired_interval import paired_t

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.01
_ROUNDING = 1e-12


@value_object
class ChangePoint:
    """A change between two runs, by their numbers: `at` is the first run after it.

    It came to light with run `found`. The means are those of the tasks that both sides share, over all runs
    of a side. The interval is as strict as the test: it never holds 0. `p` allows for all looks and cuts.
    """

    at: int
    found: int
    before: float
    after: float
    difference: float
    interval: Interval
    p: float
    tasks: int


def changes(
    means: "NDArray[np.float64]", *, groups: Sequence[str | None] = (), alpha: float = ALPHA
) -> tuple[ChangePoint, ...]:
    """Return the changes in *means*, a row for each task and a column for each run; NaN is no score."""
    import numpy as np

    if not means.size:
        return ()
    order, starts = _by_group(means.shape[0], groups)
    ordered = means[order]
    there = np.isfinite(ordered)
    sums = _Sums(
        scores=_cumulated(np.where(there, ordered, 0.0)),
        counts=_cumulated(there.astype(float)),
        starts=starts,
    )
    found: list[ChangePoint] = []
    first = 0
    for last in range(1, means.shape[1]):
        change = _change(sums, first, last, alpha=alpha)
        if change is not None:
            found.append(change)
            first = change.at
    return tuple(found)


class _Sums(NamedTuple):
    """Sums over the runs up to each one, by task; tasks of a group stand together, from `starts` on."""

    scores: "NDArray[np.float64]"
    counts: "NDArray[np.float64]"
    starts: "NDArray[np.intp]"


def _cumulated(values: "NDArray[np.float64]") -> "NDArray[np.float64]":
    import numpy as np

    return np.concatenate([np.zeros((values.shape[0], 1)), np.cumsum(values, axis=1)], axis=1)


def _by_group(
    tasks: int, groups: Sequence[str | None]
) -> "tuple[NDArray[np.intp], NDArray[np.intp]]":
    """Return the order in which tasks of a group stand together, and where each group starts."""
    import numpy as np

    if not groups:
        return np.arange(tasks), np.arange(tasks)
    names = [f"task {n}" if group is None else f"group {group}" for n, group in enumerate(groups)]
    _, members = np.unique(names, return_inverse=True)
    order = np.argsort(members, kind="stable")
    starts = np.flatnonzero(np.diff(members[order], prepend=-1))
    return order, starts


def _change(sums: _Sums, first: int, last: int, *, alpha: float) -> ChangePoint | None:
    """Return the change between the runs *first* to *last*, if there surely is one."""
    runs = last - first + 1
    tested = _cuts(sums, first, last)
    n = tested.largest
    if n is None:
        return None
    cuts = runs - 1
    level = alpha / (runs * cuts) / cuts
    p = max(tested.p(n), 2.0 ** (1 - int(tested.moved[n])))
    if p >= level:
        return None
    difference, se = float(tested.mean[n]), float(tested.se[n])
    units, tasks = int(tested.units[n]), int(tested.tasks[n])
    return ChangePoint(
        at=first + 1 + n,
        found=last,
        before=float(tested.before[n]),
        after=float(tested.before[n]) + difference,
        difference=difference,
        interval=paired_t(difference, se, df=units - 1, level=1 - level, grouped=units < tasks),
        p=min(p * alpha / level, 1.0),
        tasks=tasks,
    )


class _Cuts(NamedTuple):
    """Each way to cut some runs in two: the mean difference, its error and t, and over how many tasks."""

    before: "NDArray[np.float64]"
    mean: "NDArray[np.float64]"
    se: "NDArray[np.float64]"
    t: "NDArray[np.float64]"
    units: "NDArray[np.float64]"
    tasks: "NDArray[np.float64]"
    moved: "NDArray[np.float64]"

    @property
    def largest(self) -> int | None:
        """The cut with the largest t, of equal ones that with the largest difference; None where nothing moved."""
        import numpy as np

        size = np.abs(np.nan_to_num(self.t, posinf=np.inf, neginf=-np.inf))
        if not size.size or not size.max():
            return None
        # without any noise, every cut near a change has the same t
        level = size >= size.max() * (1 - _ROUNDING)
        return int(np.where(level, np.abs(self.mean), -1.0).argmax())

    def p(self, n: int) -> float:
        """Return the p of the t of one cut."""
        t = float(self.t[n])
        return 0.0 if math.isinf(t) else student_two_sided(t, int(self.units[n]) - 1)


def _cuts(sums: _Sums, first: int, last: int) -> _Cuts:
    import numpy as np

    cut = np.arange(first + 1, last + 1)
    before_n = sums.counts[:, cut] - sums.counts[:, [first]]
    after_n = sums.counts[:, [last + 1]] - sums.counts[:, cut]
    both = (before_n > 0) & (after_n > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        before = (sums.scores[:, cut] - sums.scores[:, [first]]) / before_n
        after = (sums.scores[:, [last + 1]] - sums.scores[:, cut]) / after_n
        difference = np.where(both, after - before, 0.0)
        tasks = both.sum(axis=0).astype(float)
        mean = difference.sum(axis=0) / tasks
        apart = np.where(both, difference - mean, 0.0)
        totals = np.add.reduceat(apart, sums.starts, axis=0)
        units = (np.add.reduceat(both, sums.starts, axis=0) > 0).sum(axis=0).astype(float)
        se = np.sqrt((totals**2).sum(axis=0) * units / (units - 1)) / tasks
        se = np.where(se > _ROUNDING, se, 0.0)
        mean = np.where(np.abs(mean) > _ROUNDING, mean, 0.0)
        t = np.where((units > 1) & (mean != 0), mean / se, 0.0)
        old = np.where(both, before, 0.0).sum(axis=0) / tasks
    return _Cuts(
        before=old,
        mean=mean,
        se=se,
        t=t,
        units=units,
        tasks=tasks,
        moved=(np.abs(difference) > _ROUNDING).sum(axis=0),
    )
