"""Why two candidates differ, in plain sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from bakeoff._lib.sanitize import one_line
from bakeoff.reports.wording.phrases import amount, counted, difference
from bakeoff.stats.explain import CategoryPart, FailureGroup, TaskPart, TaskQuality

_MOST_NAMED = 8
_MOST_CANDIDATES = 2
_CHANCE = 0.05


class Explained(Protocol):
    """What the wording needs to know of an explanation."""

    @property
    def run(self) -> str:
        """The run."""

    @property
    def first(self) -> str:
        """One candidate."""

    @property
    def second(self) -> str:
        """The other one."""

    @property
    def difference(self) -> float | None:
        """First - second."""

    @property
    def better(self) -> str | None:
        """Which of them is surely better."""

    @property
    def verdict(self) -> str:
        """The same in words."""

    @property
    def tasks(self) -> Sequence[TaskPart]:
        """The part of each task."""

    @property
    def categories(self) -> Sequence[CategoryPart]:
        """The part of each category."""

    @property
    def left_out(self) -> int:
        """How many tasks only one of them has a score on."""

    @property
    def candidates(self) -> int:
        """How many candidates the run has."""

    @property
    def correlations_known(self) -> bool:
        """Whether there are enough of them to say which tasks are suspicious."""

    @property
    def qualities(self) -> Sequence[TaskQuality]:
        """What each task is like."""

    @property
    def failures(self) -> Sequence[FailureGroup]:
        """Failures that look alike."""


def headline(found: Explained) -> str:
    """Return who is ahead by how much, and whether that is sure."""
    first, second = one_line(found.first), one_line(found.second)
    if found.difference is None:
        return f"{first} and {second} have no scored task in common"
    tasks = counted(len(found.tasks), "task")
    if not found.difference:
        return f"{first} and {second} have the same score on {tasks}"
    ahead, behind = (first, second) if found.difference > 0 else (second, first)
    sure = "" if found.better else f"; not sure: {one_line(found.verdict, width=300)}"
    if not found.verdict:
        sure = ""
    return f"{ahead} is ahead of {behind} by {amount(found.difference)} on {tasks}{sure}"


def on_tasks(found: Explained) -> Iterator[str]:
    """Yield how many tasks speak for each of the two."""
    won = sum(task.part > 0 for task in found.tasks)
    lost = sum(task.part < 0 for task in found.tasks)
    equal = len(found.tasks) - won - lost
    if found.tasks:
        yield (
            f"{one_line(found.first)} does better on {counted(won, 'task')}, {one_line(found.second)} on "
            f"{lost}; on {equal} both have the same score"
        )
    if found.left_out:
        yield f"left out, because only one of the two has a score: {counted(found.left_out, 'task')}"


def on_qualities(found: Explained) -> Iterator[str]:
    """Yield what is to be said of tasks: flaky, dead, suspicious, hardest."""
    flaky = [quality for quality in found.qualities if quality.flaky]
    if flaky:
        named = [f"{one_line(q.task)} ({_by_whom(q.flaky)})" for q in flaky]
        yield (
            f"flaky: {counted(len(flaky), 'task')}, which the same candidate sometimes passes and sometimes "
            f"does not: {_listed(named)}"
        )
    for which, text in (
        ([q.task for q in found.qualities if q.all_pass], "passed by every candidate, every time"),
        ([q.task for q in found.qualities if q.none_pass], "never passed by any candidate"),
    ):
        if which:
            many = counted(len(which), "task")
            yield f"separates no candidates: {many} {text}: {_listed(map(one_line, which))}"
    yield from _on_suspicious(found)
    graded = [
        q
        for q in found.qualities
        if q.difficulty is not None and not q.none_pass and not q.all_pass
    ]
    hardest = sorted(graded, key=lambda q: (-(q.difficulty or 0.0), q.task))[:3]
    if hardest:
        named = [
            f"{one_line(q.task)} (mean score {1 - (q.difficulty or 0.0):.2f})" for q in hardest
        ]
        yield f"hardest of those that some pass: {_listed(named)}"


def _on_suspicious(found: Explained) -> Iterator[str]:
    if not found.correlations_known:
        return
    known = [q for q in found.qualities if q.rest_correlation is not None]
    suspicious = sorted(
        (q for q in known if q.suspicious), key=lambda q: (q.rest_correlation or 0.0, q.task)
    )
    if suspicious:
        named = [f"{one_line(q.task)} (correlation {q.rest_correlation:.2f})" for q in suspicious]
        chance = round(_CHANCE * len(known))
        by_chance = (
            f"by chance about {chance} of {len(known)} would" if chance else "by chance none would"
        )
        yield (
            f"suspicious: {counted(len(suspicious), 'task')} on which candidates that are better on all other "
            f"tasks are worse; a broken test looks like that, such as a wrong expected answer; {by_chance}: "
            f"{_listed(named)}"
        )


def _by_whom(candidates: Sequence[str]) -> str:
    if len(candidates) > _MOST_CANDIDATES:
        return f"{len(candidates)} candidates"
    return ", ".join(map(one_line, candidates))


def part_in_words(part: float, whole: float | None) -> str:
    """Return a part of the gap, and how much of it that is."""
    if not whole:
        return difference(part)
    return f"{difference(part)} {part / whole:6.1%}".replace("%", " %").replace("-", "−")


def failure_line(group: FailureGroup, order: Sequence[str]) -> str:
    """Return how often something went wrong for each candidate, where, and one example."""
    counts = _counts(group.counts, order)
    text = one_line(group.example, width=100)
    return f"{group.name}: {counts}: {group.source}: {text}  (bakeoff show RUN {group.trials[0]})"


def _counts(counts: Mapping[str, int], order: Sequence[str]) -> str:
    return ", ".join(f"{one_line(name)} {counts.get(name, 0):,} times" for name in order)


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - _MOST_NAMED
    return ", ".join(every[:_MOST_NAMED]) + (f", and {more} more" if more > 0 else "")
