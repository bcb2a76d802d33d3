"""How far scorers agree on the same answers: a judge with a check, with a person, with another judge.

    scores of 0 and 1 alone    Cohen's kappa and Gwet's AC1 of the two-by-two table
    graded scores              Krippendorff's alpha for intervals: small differences count little

0 is what chance alone would give, 1 is complete agreement. The unit of the uncertainty is the task,
or the group of tasks: each is left out once (jackknife), with all its answers.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bakeoff._lib.value_object import value_object
from bakeoff.stats.distributions import student_quantile
from bakeoff.stats.estimate import Interval

Weighting: TypeAlias = Literal["none", "linear", "quadratic"]
Metric: TypeAlias = Literal["nominal", "ordinal", "interval"]
Table: TypeAlias = Sequence[Sequence[int]]

WEAK = 0.6  # below this the one should not be taken for the other
_LEVEL = 0.95
_FEWEST_UNITS = 3
_ROUNDING = 1e-12
_ZERO_OR_ONE = (0, 1)


@value_object
class Kappa:
    """Agreement of two raters: `observed` is the share of equal ratings, `se` that of independent ones."""

    observed: float
    kappa: float | None
    se: float | None
    ac1: float | None


def kappa(table: Table, *, weighting: Weighting = "none") -> Kappa:
    """Return the agreement in a square *table* of how often which pair of ratings was given.

    Kappa is None where both raters always gave the same one rating: chance explains all of it then.
    """
    size, n = len(table), sum(map(sum, table))
    shares = [[count / n for count in row] for row in table]
    rows = [math.fsum(row) for row in shares]
    columns = [math.fsum(column) for column in zip(*shares, strict=True)]
    weights = [[_weight(i, j, size, weighting) for j in range(size)] for i in range(size)]
    cells = [(i, j) for i in range(size) for j in range(size)]
    seen = math.fsum(weights[i][j] * shares[i][j] for i, j in cells)
    chance = math.fsum(weights[i][j] * rows[i] * columns[j] for i, j in cells)
    if math.isclose(chance, 1.0):
        return Kappa(observed=seen, kappa=None, se=None, ac1=_ac1(shares, rows, columns))
    value = (seen - chance) / (1 - chance)
    # the standard error is that of Fleiss, Cohen and Everitt, 1969
    of_row = [math.fsum(w * c for w, c in zip(weights[i], columns, strict=True)) for i in range(size)]  # fmt: skip
    of_column = [math.fsum(weights[i][j] * rows[i] for i in range(size)) for j in range(size)]
    squares = math.fsum(
        shares[i][j] * (weights[i][j] - (of_row[i] + of_column[j]) * (1 - value)) ** 2
        for i, j in cells
    )
    variance = (squares - (value - chance * (1 - value)) ** 2) / (n * (1 - chance) ** 2)
    return Kappa(
        observed=seen,
        kappa=value,
        se=math.sqrt(max(variance, 0.0)),
        ac1=_ac1(shares, rows, columns),
    )


def _weight(i: int, j: int, size: int, weighting: Weighting) -> float:
    if weighting == "none":
        return float(i == j)
    apart = abs(i - j) / max(size - 1, 1)
    return 1 - (apart if weighting == "linear" else apart**2)


def _ac1(
    shares: Sequence[Sequence[float]], rows: Sequence[float], columns: Sequence[float]
) -> float | None:
    """Return Gwet's AC1, which does not fall where nearly all ratings are the same."""
    if len(rows) < 2:
        return None
    means = [(row + column) / 2 for row, column in zip(rows, columns, strict=True)]
    chance = math.fsum(share * (1 - share) for share in means) / (len(rows) - 1)
    same = math.fsum(shares[i][i] for i in range(len(rows)))
    return (same - chance) / (1 - chance)


def alpha(units: Sequence[Sequence[float]], *, metric: Metric = "interval") -> float | None:
    """Return Krippendorff's alpha of *units*, each with the ratings it has got; None without a difference.

    Units with one rating tell nothing of agreement, and are left out.
    """
    rated = [unit for unit in units if len(unit) > 1]
    counts = Counter(value for unit in rated for value in unit)
    if len(counts) < 2:
        return None
    apart = _distance(counts, metric)
    n = counts.total()
    seen = math.fsum(
        math.fsum(apart(a, b) for a in unit for b in unit) / (len(unit) - 1) for unit in rated
    )
    values = list(counts)
    by_chance = math.fsum(counts[a] * counts[b] * apart(a, b) for a in values for b in values)
    return 1 - (n - 1) * seen / by_chance


def _distance(counts: Mapping[float, int], metric: Metric) -> Callable[[float, float], float]:
    if metric == "nominal":
        return lambda a, b: float(a != b)
    if metric == "interval":
        return lambda a, b: (a - b) ** 2
    # ordinal: how many ratings lie between the two, each end counted half
    below, place = 0, {}
    for value in sorted(counts):
        place[value] = below + counts[value] / 2
        below += counts[value]
    return lambda a, b: (place[a] - place[b]) ** 2


@value_object
class RatedAnswer:
    """An answer with what two scorers gave it, from 0 to 1; `unit` is its task, or the task's group."""

    trial: str
    unit: str
    first: float
    second: float


@value_object
class Agreement:
    """How far two scorers agree; `reason` says why a part is None.

    `table` is of answers that the first passed, then failed, by those that the second did; it is None for
    graded scores. `value` is that of the `measure`, kappa or alpha. `same` is the share of answers with
    the same score. `apart` are the answers on which they differ, the largest difference first.
    """

    first: str
    second: str
    answers: int
    tasks: int
    measure: str
    value: float | None
    interval: Interval | None
    same: float | None
    ac1: float | None
    table: tuple[tuple[int, int], tuple[int, int]] | None
    mean_first: float | None
    mean_second: float | None
    apart: tuple[RatedAnswer, ...]
    limit: float = WEAK
    reason: str | None = None

    @property
    def weak(self) -> bool:
        """Whether the one should not be taken for the other."""
        return self.value is not None and self.value < self.limit


def agreement(first: str, second: str, answers: Sequence[RatedAnswer]) -> Agreement:
    """Return how far the scorers *first* and *second* agree on *answers*."""
    n, whole = len(answers), _Sums()
    units: dict[str, _Sums] = {}
    for answer in answers:
        whole.add(answer)
        units.setdefault(answer.unit, _Sums()).add(answer)
    value = whole.value()
    table = whole.table if whole.binary and n else None
    apart = (answer for answer in answers if answer.first != answer.second)
    return Agreement(
        first=first,
        second=second,
        answers=n,
        tasks=len(units),
        measure="kappa" if whole.binary else "alpha",
        value=value,
        interval=_jackknifed(whole, list(units.values())),
        same=sum(a.first == a.second for a in answers) / n if n else None,
        ac1=kappa(table).ac1 if table is not None else None,
        table=table,
        mean_first=math.fsum(a.first for a in answers) / n if n else None,
        mean_second=math.fsum(a.second for a in answers) / n if n else None,
        apart=tuple(sorted(apart, key=lambda a: (-abs(a.first - a.second), a.trial))),
        reason=_reason(n, value),
    )


def _reason(answers: int, value: float | None) -> str | None:
    if not answers:
        return "no answer has a score of both"
    if value is None:
        return (
            "both gave one and the same score to every answer: that does not show how they differ"
        )
    return None


@dataclass(slots=True)
class _Sums:
    """What agreement is computed of; that of some answers can be taken away again."""

    n: int = 0
    cells: Counter[tuple[float, float]] = field(default_factory=Counter)
    total: float = 0.0
    squares: float = 0.0
    apart: float = 0.0
    graded: int = 0

    def add(self, answer: RatedAnswer) -> None:
        """Add an answer."""
        first, second = answer.first, answer.second
        self.n += 1
        self.total += first + second
        self.squares += first**2 + second**2
        self.apart += (first - second) ** 2
        if first in _ZERO_OR_ONE and second in _ZERO_OR_ONE:
            self.cells[first, second] += 1
        else:
            self.graded += 1

    def without(self, other: "_Sums", *, binary: bool) -> float | None:
        """Return the agreement without the answers of *other*."""
        left = _Sums(
            n=self.n - other.n,
            total=self.total - other.total,
            squares=self.squares - other.squares,
            apart=self.apart - other.apart,
            graded=self.graded,
        )
        if binary:
            left.cells = self.cells - other.cells
        return left.value()

    @property
    def binary(self) -> bool:
        """Whether every score is 0 or 1."""
        return not self.graded

    @property
    def table(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Answers that the first passed, then failed, by those that the second did."""
        cells = self.cells
        return (cells[1, 1], cells[1, 0]), (cells[0, 1], cells[0, 0])

    def value(self) -> float | None:
        """Return kappa, or alpha of graded scores."""
        if not self.n:
            return None
        if self.binary:
            return kappa(self.table).kappa
        ratings = 2 * self.n  # `alpha` of two ratings each, from sums
        chance = ratings * self.squares - self.total**2
        return 1 - (ratings - 1) * self.apart / chance if chance > _ROUNDING else None


def _jackknifed(whole: _Sums, units: Sequence[_Sums]) -> Interval | None:
    """Return where the agreement on tasks like these lies; None where it cannot be told."""
    value, count = whole.value(), len(units)
    if value is None or count < _FEWEST_UNITS:
        return None
    known = [v for u in units if (v := whole.without(u, binary=whole.binary)) is not None]
    if len(known) < count:
        return None
    mean = math.fsum(known) / count
    se = math.sqrt((count - 1) / count * math.fsum((each - mean) ** 2 for each in known))
    if se < _ROUNDING:
        return None
    half = student_quantile(0.5 + _LEVEL / 2, count - 1) * se
    return Interval(
        low=max(value - half, -1.0),
        high=min(value + half, 1.0),
        level=_LEVEL,
        method="jackknife over tasks",
    )
