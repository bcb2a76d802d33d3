"""How well candidates classify: a confusion table, and what is computed from it.

Every number is one of the pooled table of scored trials, as scikit-learn computes it from the same
labels. The unit of its interval is the task, or the group of tasks: those are drawn again, with all
their rollouts (bias-corrected and accelerated bootstrap, seeded). Precision and recall of independent
single trials are shares, with the interval of a score. An answer that gives no label is wrong, and a
column of its own; a fault is missing, as everywhere.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

from bakeoff._lib.value_object import value_object
from bakeoff.core.record import TrialRecord
from bakeoff.stats.estimate import Estimate, Interval, TaskScores, estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tables: TypeAlias = NDArray[np.float64]  # ... × expected label × label given, the last: none

MOST_LABELS = 50
LABEL_SCORERS = frozenset({"choice", "label"})
_LEVEL = 0.95
_SEED = 20261118
_DRAWS = 4_000
_AT_ONCE = 4_000_000  # numbers in memory
_CERTAIN = "no other result in any draw: too few mistakes to say how far it may vary"
_RIGHT, _WRONG = TaskScores.of([1.0]), TaskScores.of([0.0])
_ONE_UNIT = "one task or group: no variance to measure"


@value_object
class Measured:
    """A number with its interval; `reason` says why one of them is None."""

    value: float | None
    interval: Interval | None = None
    reason: str | None = None


@value_object
class LabelMetrics:
    """What is known of one label; `trials` are those in which it was right."""

    label: str
    trials: int
    precision: Measured
    recall: Measured
    f1: Measured


@value_object
class Classification:
    """How one candidate classified: a row of `confusion` is a label that was right.

    Its columns are the labels that were given, in the order of `labels`, and at last none.
    """

    candidate: str
    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    accuracy: Estimate
    macro_f1: Measured
    mcc: Measured
    by_label: tuple[LabelMetrics, ...]


_Cell: TypeAlias = tuple[str, str | None]  # the label that was right, and the one that was given


@dataclass(slots=True)
class _Labelled:
    """The labels of one candidate, by task."""

    tasks: dict[str, Counter[_Cell]] = field(default_factory=dict)

    def add(self, task: str, cell: _Cell) -> None:
        self.tasks.setdefault(task, Counter())[cell] += 1


def classifications(
    records: Iterable[TrialRecord], groups: Mapping[str, str]
) -> tuple[Classification, ...]:
    """Return how each candidate classified in *records*; *groups* are those of tasks that have one.

    Nothing where fewer than half of the tasks have labels: those are no test of a classifier.
    Nothing either where there are more labels than a table can show.
    """
    candidates: dict[str, _Labelled] = {}
    tasks: set[str] = set()
    for record in records:
        tasks.add(record.task_id)
        for score in record.attempt.scores:
            if score.labels is not None and score.turn is None:
                labelled = candidates.setdefault(record.candidate_id, _Labelled())
                labelled.add(record.task_id, score.labels)
                break
    labels = sorted({label for each in candidates.values() for label in _labels(each)})
    of_labels = set().union(*(each.tasks for each in candidates.values()))
    if not 2 <= len(labels) <= MOST_LABELS or 2 * len(of_labels) < len(tasks):
        return ()
    return tuple(
        _classification(candidate, labelled, labels, groups)
        for candidate, labelled in candidates.items()
    )


def _labels(labelled: _Labelled) -> Iterator[str]:
    for cells in labelled.tasks.values():
        for meant, given in cells:
            yield meant
            if given is not None:
                yield given


def _classification(
    candidate: str, labelled: _Labelled, labels: Sequence[str], groups: Mapping[str, str]
) -> Classification:
    units = _units(labelled, groups)
    single = len(units) == sum(cells.total() for cells in units)
    sample = _Sample(units, labels)
    table = sample.table
    confusion = tuple(tuple(int(count) for count in row) for row in table)
    return Classification(
        candidate=candidate,
        labels=tuple(labels),
        confusion=confusion,
        accuracy=_accuracy(labelled, groups),
        macro_f1=sample.measured(macro_f1),
        mcc=sample.measured(matthews),
        by_label=tuple(
            _of_label(number, label, confusion, sample, single=single)
            for number, label in enumerate(labels)
        ),
    )


def _units(labelled: _Labelled, groups: Mapping[str, str]) -> list[Counter[_Cell]]:
    """Return the cells of each unit that is independent of the others: a task, or a group of them."""
    units: dict[tuple[str, str], Counter[_Cell]] = {}
    for task, cells in labelled.tasks.items():
        group = groups.get(task)
        key = ("task", task) if group is None else ("group", group)
        units.setdefault(key, Counter()).update(cells)
    return list(units.values())


def _accuracy(labelled: _Labelled, groups: Mapping[str, str]) -> Estimate:
    return estimate(
        TaskScores(
            n=(n := cells.total()),
            total=(
                right := sum(count for (meant, given), count in cells.items() if meant == given)
            ),
            low=float(right == n),
            high=float(right > 0),
            binary=True,
            group=groups.get(task),
        )
        for task, cells in labelled.tasks.items()
    )


def _of_label(
    number: int,
    label: str,
    confusion: Sequence[Sequence[int]],
    sample: "_Sample",
    *,
    single: bool,
) -> LabelMetrics:
    right = confusion[number][number]
    meant, given = sum(confusion[number]), sum(row[number] for row in confusion)

    def share(of: int, measure: Callable[["Tables"], "Tables"], nothing: str) -> Measured:
        if not of:
            return Measured(value=None, reason=nothing)
        if single:
            trials = [_RIGHT] * right + [_WRONG] * (of - right)
            return Measured(value=right / of, interval=estimate(trials).interval)
        return sample.measured(lambda tables: measure(tables)[..., number])

    return LabelMetrics(
        label=label,
        trials=meant,
        precision=share(given, precisions, "no answer gave it"),
        recall=share(meant, recalls, "it was never right"),
        f1=sample.measured(lambda tables: f1_scores(tables)[..., number])
        if meant or given
        else Measured(value=None, reason="it was never right, and never given"),
    )


# --- what a table says ----------------------------------------------------------------------------


def precisions(tables: "Tables") -> "Tables":
    """Return the precision of each label: of the answers that gave it, how many were right."""
    return _ratio(_right(tables), _given(tables))


def recalls(tables: "Tables") -> "Tables":
    """Return the recall of each label: where it was right, how many answers gave it."""
    return _ratio(_right(tables), tables.sum(axis=-1))


def f1_scores(tables: "Tables") -> "Tables":
    """Return the F1 of each label, 0 for one that was never given or never right."""
    return _ratio(2 * _right(tables), tables.sum(axis=-1) + _given(tables))


def macro_f1(tables: "Tables") -> "Tables":
    """Return the mean of the F1 of every label that was right or given."""
    seen = tables.sum(axis=-1) + _given(tables) > 0
    return _ratio((f1_scores(tables) * seen).sum(axis=-1), seen.sum(axis=-1))


def matthews(tables: "Tables") -> "Tables":
    """Return Matthews' correlation for several labels (Gorodkin's R_K); 0 where it is undefined."""
    import numpy as np

    whole = tables.sum(axis=(-1, -2))
    meant, given = tables.sum(axis=-1), tables.sum(axis=-2)
    both = _right(tables).sum(axis=-1) * whole - (meant * given[..., :-1]).sum(axis=-1)
    spread = (whole**2 - (meant**2).sum(axis=-1)) * (whole**2 - (given**2).sum(axis=-1))
    return _ratio(both, np.sqrt(np.maximum(spread, 0.0)))


def _right(tables: "Tables") -> "Tables":
    import numpy as np

    labels = np.arange(tables.shape[-2])
    right: Tables = tables[..., labels, labels]
    return right


def _given(tables: "Tables") -> "Tables":
    given: Tables = tables.sum(axis=-2)[..., :-1]
    return given


def _ratio(above: "Tables", below: "Tables") -> "Tables":
    import numpy as np

    ratio: Tables = np.divide(above, below, out=np.zeros_like(above, dtype=float), where=below > 0)
    return ratio


# --- intervals ------------------------------------------------------------------------------------


class _Sample:
    """The units of one candidate, each kind once with how many there are, and tables drawn from them."""

    def __init__(self, units: Sequence[Counter[_Cell]], labels: Sequence[str]) -> None:
        import numpy as np

        place = {label: number for number, label in enumerate(labels)}
        kinds = Counter(tuple(sorted(cells.items(), key=repr)) for cells in units)
        self._tables = np.zeros((len(kinds), len(labels), len(labels) + 1))
        ordered = sorted(kinds, key=repr)  # so that the draws do not depend on the order of records
        for number, kind in enumerate(ordered):
            for (meant, given), count in kind:
                column = len(labels) if given is None else place[given]
                self._tables[number, place[meant], column] = count
        self._counts = np.array([kinds[kind] for kind in ordered], dtype=float)
        self._units = len(units)
        self.table: Tables = np.tensordot(self._counts, self._tables, axes=1)

    def measured(self, measure: Callable[["Tables"], "Tables"]) -> Measured:
        """Return what *measure* makes of the table, with its interval over units."""
        value = float(measure(self.table))
        if self._units < 2:
            return Measured(value=value, reason=_ONE_UNIT)
        interval = self._interval(value, measure)
        return Measured(value=value, interval=interval, reason=None if interval else _CERTAIN)

    def _interval(self, value: float, measure: Callable[["Tables"], "Tables"]) -> Interval | None:
        import numpy as np

        draws = np.concatenate([measure(tables) for tables in self._drawn()])
        below = float(np.mean(draws < value) + np.mean(draws == value) / 2)
        if not 0 < below < 1 or np.ptp(draws) == 0:
            return None
        normal, bias = NormalDist(), NormalDist().inv_cdf(below)
        skew = self._acceleration(measure)
        tails = []
        for tail in ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2):
            z = bias + normal.inv_cdf(tail)
            tails.append(normal.cdf(bias + z / (1 - skew * z)))
        low, high = np.quantile(draws, tails)
        return Interval(low=float(low), high=float(high), level=_LEVEL, method="BCa bootstrap")

    def _acceleration(self, measure: Callable[["Tables"], "Tables"]) -> float:
        """Return the skewness of the measure by leaving out one unit of each kind."""
        import numpy as np

        left_out = measure(self.table - self._tables)
        mean = np.average(left_out, weights=self._counts)
        squares = np.sum(self._counts * (mean - left_out) ** 2)
        cubes = np.sum(self._counts * (mean - left_out) ** 3)
        return float(cubes / (6 * squares**1.5)) if squares > 0 else 0.0

    def _drawn(self) -> Iterator["Tables"]:
        """Yield tables of as many units, drawn anew, some at a time."""
        import numpy as np

        chance = np.random.default_rng(_SEED)
        flat = self._tables.reshape(len(self._counts), -1)
        some = max(1, min(_DRAWS, _AT_ONCE // max(flat.shape)))
        shares = self._counts / self._units
        for begin in range(0, _DRAWS, some):
            picked = chance.multinomial(self._units, shares, size=min(some, _DRAWS - begin))
            yield (picked @ flat).reshape(-1, *self._tables.shape[1:])
