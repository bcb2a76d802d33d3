"""Why one candidate scores higher than another: which tasks carry the gap, and which tell nothing.

The difference of two candidates is the mean, over the tasks that both have a score on, of the differences
of their task means. So each task has a part in it, its difference / number of tasks, and the parts add up.

Tasks are looked at as well, over all candidates of the run:

    flaky         a candidate passes it in some rollouts and fails it in others
    all, none     every candidate passes it in every rollout, or none in any: it separates nobody
    suspicious    who does better on all other tasks does worse on this one: a broken test looks like that
                  (item-rest correlation over candidates, negative, one-sided p under 5 %)
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bakeoff._lib.value_object import value_object
from bakeoff.core.record import Status, TaskTotals, TrialFailure
from bakeoff.stats.distributions import student_two_sided

ENOUGH_CANDIDATES = 4
_SUSPICIOUS_P = 0.05
_ROUNDING = 1e-12
_MOST_EXAMPLES = 3
_LONGEST_KIND = 160


@value_object
class TaskPart:
    """The part of one task in the difference of two candidates."""

    task: str
    category: str | None
    first: float
    second: float
    part: float


@value_object
class CategoryPart:
    """The part of one category in the difference: those of its tasks, added up."""

    category: str | None
    tasks: int
    first: float
    second: float
    part: float


@value_object
class TaskQuality:
    """What a task is like, over all candidates of the run.

    `difficulty` is 1 - the mean score. `flaky` are the candidates that pass it in some rollouts only.
    `rest_correlation` is that of the score on this task with the score on all others; None where it cannot be
    computed.
    """

    task: str
    category: str | None
    difficulty: float | None
    rest_correlation: float | None = None
    flaky: tuple[str, ...] = ()
    all_pass: bool = False
    none_pass: bool = False
    suspicious: bool = False


@value_object
class FailureGroup:
    """Failures that look alike: faults of a boundary, stops at a limit, or what a scorer said.

    `kind` is the text without what differs from one to the next; `example` is one as it was. `counts` has
    by candidate how many trials it happened to.
    """

    name: str
    source: str
    kind: str
    example: str
    counts: Mapping[str, int]
    tasks: tuple[str, ...]
    trials: tuple[str, ...]


@value_object
class Gap:
    """The difference of two candidates, first - second, in the parts that add up to it."""

    difference: float | None
    tasks: tuple[TaskPart, ...]
    categories: tuple[CategoryPart, ...]
    left_out: int


def gap(totals: Iterable[TaskTotals], first: str, second: str) -> Gap:
    """Return the parts of the difference of *first* and *second*, the largest in its direction first."""
    cells: dict[str, dict[str, TaskTotals]] = {first: {}, second: {}}
    for cell in totals:
        if cell.candidate_id in cells and cell.n:
            cells[cell.candidate_id][cell.task_id] = cell
    one, other = cells[first], cells[second]
    shared = [task for task in one if task in other]
    left_out = len(one.keys() ^ other.keys())
    if not shared:
        return Gap(difference=None, tasks=(), categories=(), left_out=left_out)
    parts = [_part(one[task], other[task], of=len(shared)) for task in shared]
    difference = math.fsum(part.part for part in parts)
    sign = -1 if difference < 0 else 1
    return Gap(
        difference=difference,
        tasks=tuple(sorted(parts, key=lambda part: (-sign * part.part, part.task))),
        categories=_by_category(parts, sign),
        left_out=left_out,
    )


def _part(one: TaskTotals, other: TaskTotals, *, of: int) -> TaskPart:
    first, second = one.total / one.n, other.total / other.n
    return TaskPart(
        task=one.task_id,
        category=one.category,
        first=first,
        second=second,
        part=(first - second) / of,
    )


def _by_category(parts: Sequence[TaskPart], sign: int) -> tuple[CategoryPart, ...]:
    by_name: dict[str | None, list[TaskPart]] = {}
    for part in parts:
        by_name.setdefault(part.category, []).append(part)
    found = [
        CategoryPart(
            category=name,
            tasks=len(members),
            first=math.fsum(part.first for part in members) / len(members),
            second=math.fsum(part.second for part in members) / len(members),
            part=math.fsum(part.part for part in members),
        )
        for name, members in by_name.items()
    ]
    return tuple(sorted(found, key=lambda c: (-sign * c.part, c.category or "")))


# --- tasks ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Cells:
    category: str | None
    cells: dict[str, TaskTotals] = field(default_factory=dict)


def task_qualities(totals: Iterable[TaskTotals]) -> tuple[TaskQuality, ...]:
    """Return what each task is like, over all candidates that have a score on it."""
    by_task: dict[str, _Cells] = {}
    sums: dict[str, list[float]] = {}
    for cell in totals:
        task = by_task.setdefault(cell.task_id, _Cells(category=cell.category))
        if cell.n:
            task.cells[cell.candidate_id] = cell
            sums.setdefault(cell.candidate_id, []).append(cell.total / cell.n)
    means = {name: (math.fsum(values), len(values)) for name, values in sums.items()}
    return tuple(_quality(task, seen, means) for task, seen in by_task.items())


def _quality(task: str, seen: _Cells, means: Mapping[str, tuple[float, int]]) -> TaskQuality:
    cells = seen.cells
    if not cells:
        return TaskQuality(task=task, category=seen.category, difficulty=None)
    own = {name: cell.total / cell.n for name, cell in cells.items()}
    correlation = _rest_correlation(own, means)
    return TaskQuality(
        task=task,
        category=seen.category,
        difficulty=1 - math.fsum(own.values()) / len(own),
        rest_correlation=correlation,
        flaky=tuple(name for name, cell in cells.items() if 0 < cell.passed < cell.n),
        all_pass=all(cell.passed == cell.n for cell in cells.values()),
        none_pass=not any(cell.passed for cell in cells.values()),
        suspicious=correlation is not None and _is_suspicious(correlation, len(own)),
    )


def _rest_correlation(
    own: Mapping[str, float], means: Mapping[str, tuple[float, int]]
) -> float | None:
    """Return the correlation of the score on one task with the mean score on all others."""
    pairs = [
        (score, (means[name][0] - score) / (means[name][1] - 1))
        for name, score in own.items()
        if means[name][1] > 1
    ]
    if len(pairs) < ENOUGH_CANDIDATES:
        return None
    n = len(pairs)
    x0, y0 = (math.fsum(values) / n for values in zip(*pairs, strict=True))
    xx = math.fsum((x - x0) ** 2 for x, _ in pairs)
    yy = math.fsum((y - y0) ** 2 for _, y in pairs)
    if xx <= _ROUNDING or yy <= _ROUNDING:
        return None
    xy = math.fsum((x - x0) * (y - y0) for x, y in pairs)
    return max(-1.0, min(xy / math.sqrt(xx * yy), 1.0))


def _is_suspicious(correlation: float, candidates: int) -> bool:
    if correlation >= 0:
        return False
    df = candidates - 2
    rest = max(1 - correlation * correlation, _ROUNDING)
    return student_two_sided(correlation * math.sqrt(df / rest), df) / 2 < _SUSPICIOUS_P


# --- failures ---------------------------------------------------------------------------------------

_QUOTED = re.compile(r"'[^'\n]{1,400}'|\"[^\"\n]{1,400}\"|`[^`\n]{1,400}`")
_PATH = re.compile(r"(?:/[\w.@+-]+){2,}/?")
_TOKEN = re.compile(r"\b(?:0x[0-9a-f]+|(?=[\w-]*\d)[0-9a-z-]{6,})\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def kind_of(text: str) -> str:
    """Return *text* without what differs from one failure to the next: quotations, numbers, paths, ids."""
    text = " ".join(text[: 4 * _LONGEST_KIND].split())
    for pattern, sign in ((_QUOTED, "…"), (_PATH, "/…"), (_TOKEN, "#"), (_NUMBER, "#")):
        text = pattern.sub(sign, text)
    return text[:_LONGEST_KIND].casefold()


@dataclass(slots=True)
class _Group:
    example: str
    counts: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, None] = field(default_factory=dict)
    trials: list[str] = field(default_factory=list)


def failure_groups(failures: Iterable[TrialFailure]) -> tuple[FailureGroup, ...]:
    """Return *failures* in groups that look alike, the largest first."""
    groups: dict[tuple[str, str], _Group] = {}
    for failure in failures:
        for source, text in _reasons(failure):
            group = groups.setdefault((source, kind_of(text)), _Group(example=text))
            group.counts[failure.candidate_id] += 1
            group.tasks[failure.task_id] = None
            if len(group.trials) < _MOST_EXAMPLES:
                group.trials.append(failure.name)
    ordered = sorted(groups.items(), key=lambda item: (-item[1].counts.total(), item[0]))
    return tuple(
        FailureGroup(
            name=f"failure-{number}",
            source=source,
            kind=kind,
            example=group.example,
            counts=dict(group.counts),
            tasks=tuple(group.tasks),
            trials=tuple(group.trials),
        )
        for number, ((source, kind), group) in enumerate(ordered, 1)
    )


def _reasons(failure: TrialFailure) -> Sequence[tuple[str, str]]:
    """Return what a trial failed by: where it was found out, and the text of it."""
    if failure.status == Status.FAULTED:
        return [(f"fault of the {failure.boundary or 'run'}", failure.message or "no message")]
    if failure.unmet:
        return [(f"scorer {name}", why or "no explanation") for name, why in failure.unmet]
    if failure.status == Status.LIMITED:
        return [("limit", failure.stopped_by or "stopped by a limit")]
    return [("score", "below what it takes to pass")]
