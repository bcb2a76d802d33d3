"""The runs of a suite over time: scores with intervals, where they changed, and what was changed with them.

Each run is read by aggregates, one after another; of its trials nothing is kept but the mean of each task.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.core.candidate import Candidate
from bakeoff.core.errors import UsageError
from bakeoff.core.record import TaskTotals
from bakeoff.core.run_spec import Manifest
from bakeoff.core.values import Json
from bakeoff.planning.resume import fields_apart
from bakeoff.stats.change_points import ChangePoint, changes
from bakeoff.stats.estimate import Estimate, TaskScores, estimate
from bakeoff.stats.fairness import conditions_apart
from bakeoff.stores.folders import RunEntry, list_runs
from bakeoff.stores.ledger_reader import SqliteLedger

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class HistoryPoint:
    """How a candidate did in one run; `marks` are what was not the same in the run before."""

    run: str
    created_at: str
    score: Estimate
    faults: int
    answered_by: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScoreChange:
    """A change of scores: from `run` on, found with run `found_with`; `marks` are what else changed there."""

    run: str
    found_with: str
    point: ChangePoint
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CandidateHistory:
    """A candidate of a suite, run by run, the oldest first."""

    candidate: str
    points: tuple[HistoryPoint, ...]
    changes: tuple[ScoreChange, ...]

    @property
    def changed_now(self) -> bool:
        """Whether its newest run brought a change to light."""
        return any(change.found_with == self.points[-1].run for change in self.changes)


@dataclass(frozen=True, kw_only=True)
class SuiteHistory:
    """The runs of one suite, the oldest first; `marks` has by run what holds for all its candidates."""

    suite: str
    runs: tuple[str, ...]
    candidates: tuple[CandidateHistory, ...]
    marks: Mapping[str, tuple[str, ...]]

    @property
    def changed_now(self) -> bool:
        """Whether the newest run brought a change of any candidate to light."""
        return any(c.changed_now for c in self.candidates if c.points[-1].run == self.runs[-1])


@dataclass(frozen=True, kw_only=True)
class History:
    """The suites of a folder with their runs; `skipped` are runs that could not be read, and why."""

    suites: tuple[SuiteHistory, ...]
    skipped: tuple[str, ...] = ()

    @property
    def changed_now(self) -> bool:
        """Whether the newest run of any suite brought a change to light."""
        return any(suite.changed_now for suite in self.suites)


def history(
    suite: str | Path | None = None,
    *,
    candidate: str | None = None,
    last: int | None = None,
    output: str | Path = DEFAULT_OUTPUT,
) -> History:
    """Return how the runs of *suite* went over time: of every suite in *output* where none is named.

    A suite is named as its runs are, or by its file. Only the *last* runs are looked at, and only one
    *candidate*, where that is asked for. A run that cannot be read is named, and left out, and so are
    the shards of runs.
    """
    entries = list_runs(Path(output))
    if not entries:
        raise UsageError(f"there are no runs in {output}; start one with: bakeoff run SUITE")
    entries, skipped = _whole_runs(entries)
    by_suite: dict[str, list[tuple[Path, Manifest]]] = {}
    for entry in entries:
        if entry.manifest is not None and (suite is None or _is_of(entry.manifest, str(suite))):
            by_suite.setdefault(entry.manifest.name, []).append((entry.folder, entry.manifest))
    if suite is not None and not by_suite:
        known = {entry.manifest.name for entry in entries if entry.manifest is not None}
        raise UsageError(f"no run of {str(suite)!r} in {output}: {did_you_mean(str(suite), known)}")
    found = []
    for name, of_suite in by_suite.items():
        series = _Series(name, groups=_groups(of_suite))
        for folder, manifest in of_suite[-last:] if last else of_suite:
            try:
                series.add(SqliteLedger(folder), manifest, run=folder.name)
            except UsageError as error:
                skipped.append(f"{folder.name}: {error}")
        if series.runs:
            found.append(series.history(only=candidate))
    if candidate is not None and not any(each.candidates for each in found):
        raise UsageError(f"no candidate {candidate!r} in these runs")
    return History(suites=tuple(found), skipped=tuple(skipped))


def _whole_runs(entries: Sequence[RunEntry]) -> tuple[list[RunEntry], list[str]]:
    """Return the runs that can be points of a history, and a line for each of the others."""
    skipped = [f"{e.folder.name}: {e.trouble}" for e in entries if e.manifest is None]
    whole = [entry for entry in entries if entry.manifest is None or entry.manifest.shard is None]
    if shards := len(entries) - len(whole):
        skipped.append(f"shards of runs ({shards:,}): merged they are a run, each is a part of one")
    return whole, skipped


def _is_of(manifest: Manifest, suite: str) -> bool:
    """Whether a run is one of *suite*: its name, or a file of it."""
    if suite == manifest.name:
        return True
    given = PurePath(suite)
    names = {PurePath(source.path).name for source in manifest.sources}
    return given.name in names and (len(given.parts) == 1 or _same_file(given, manifest))


def _same_file(given: PurePath, manifest: Manifest) -> bool:
    wanted = Path(given).resolve()
    return any(Path(source.path).resolve() == wanted for source in manifest.sources)


def _groups(runs: Sequence[tuple[Path, Manifest]]) -> dict[str, str]:
    """Return the group of each task that is in one, by digest, as the newest run that can be read has it."""
    for folder, _ in reversed(runs):
        try:
            return {t.digest: t.group for t in SqliteLedger(folder).planned().tasks if t.group}
        except UsageError:
            continue  # it is named where it is read
    return {}


# --- one suite ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Column:
    """The task means of a candidate in one run, by the numbers of tasks."""

    run: int
    tasks: "array[int]" = field(default_factory=lambda: array("l"))
    means: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class _CandidateSeries:
    """A candidate as it is read, run by run, with what it was in the run before."""

    points: list[HistoryPoint] = field(default_factory=list)
    columns: list[_Column] = field(default_factory=list)
    _last: Candidate | None = None
    _served: Json = None
    _answered_by: Sequence[str] = ()

    def marks(self, now: Candidate, served: Json, answered_by: Sequence[str]) -> tuple[str, ...]:
        """Return what changed since the run before: its settings, and which model answers under its name."""
        marks = []
        if self._last is not None:
            if apart := fields_apart(self._last.identity(), now.identity()):
                marks.append(f"differs in {', '.join(apart)}")
            if None not in (served, self._served) and served != self._served:
                marks.append("served as something else: a new digest or version of the same name")
            if answered_by and self._answered_by and answered_by != self._answered_by:
                names = " and ".join(answered_by), " and ".join(self._answered_by)
                marks.append(f"answered by {names[0]}, before by {names[1]}")
        self._last, self._served = now, served
        self._answered_by = answered_by or self._answered_by
        return tuple(marks)


class _Series:
    """The runs of one suite, as they are read."""

    def __init__(self, suite: str, *, groups: Mapping[str, str]) -> None:
        self._suite = suite
        self._groups = groups
        self._numbers: dict[str, int] = {}  # of tasks, by their digests
        self._candidates: dict[str, _CandidateSeries] = {}
        self._marks: dict[str, tuple[str, ...]] = {}
        self._before: tuple[Manifest, Mapping[str, str]] | None = None
        self.runs: list[str] = []

    def add(self, ledger: SqliteLedger, manifest: Manifest, *, run: str) -> None:
        """Read the next run; nothing is kept of one that cannot be read, or has no score yet."""
        digests, by_candidate = ledger.task_digests(), _by_candidate(ledger)
        answered, damage = ledger.answering_models(), ledger.damage().lines
        if not by_candidate:
            return
        self._marks[run] = (*_marks(self._before, (manifest, digests)), *damage)
        self.runs.append(run)
        for candidate in manifest.candidates:
            if totals := by_candidate.get(candidate.id):
                series = self._candidates.setdefault(candidate.id, _CandidateSeries())
                served = manifest.served.get(candidate.model.full_name)
                marks = series.marks(candidate, served, answered.get(candidate.id, []))
                series.columns.append(self._column(totals, digests))
                series.points.append(
                    HistoryPoint(
                        run=run,
                        created_at=manifest.created_at,
                        score=estimate(self._scores(totals, digests)),
                        faults=sum(task.faults for task in totals),
                        answered_by=tuple(answered.get(candidate.id, ())),
                        marks=marks,
                    )
                )
        self._before = manifest, digests

    def _scores(
        self, totals: Sequence[TaskTotals], digests: Mapping[str, str]
    ) -> Iterator[TaskScores]:
        for task in totals:
            if task.n:
                yield TaskScores(
                    n=task.n,
                    total=task.total,
                    low=task.low or 0.0,
                    high=task.high or 0.0,
                    binary=task.binary,
                    group=self._groups.get(digests.get(task.task_id, "")),
                )

    def _column(self, totals: Sequence[TaskTotals], digests: Mapping[str, str]) -> _Column:
        column = _Column(run=len(self.runs) - 1)
        for task in totals:
            if task.n and (digest := digests.get(task.task_id)) is not None:
                column.tasks.append(self._numbers.setdefault(digest, len(self._numbers)))
                column.means.append(task.total / task.n)
        return column

    def history(self, *, only: str | None) -> SuiteHistory:
        """Return what was read, with the changes in it."""
        groups = [self._groups.get(digest) for digest in self._numbers]
        return SuiteHistory(
            suite=self._suite,
            runs=tuple(self.runs),
            candidates=tuple(
                self._candidate(name, series, groups if any(groups) else ())
                for name, series in self._candidates.items()
                if only is None or name == only
            ),
            marks=self._marks,
        )

    def _candidate(
        self, name: str, series: _CandidateSeries, groups: Sequence[str | None]
    ) -> CandidateHistory:
        points = series.points
        found = changes(_matrix(series.columns, len(self._numbers)), groups=groups)
        return CandidateHistory(
            candidate=name,
            points=tuple(points),
            changes=tuple(
                ScoreChange(
                    run=points[change.at].run,
                    found_with=points[change.found].run,
                    point=change,
                    marks=(*self._marks[points[change.at].run], *points[change.at].marks),
                )
                for change in found
            ),
        )


def _by_candidate(ledger: SqliteLedger) -> dict[str, list[TaskTotals]]:
    found: dict[str, list[TaskTotals]] = {}
    for task in ledger.totals():
        found.setdefault(task.candidate_id, []).append(task)
    return {name: totals for name, totals in found.items() if any(task.n for task in totals)}


def _matrix(columns: Sequence[_Column], tasks: int) -> "NDArray[np.float64]":
    """Return the means of all runs, a row for each task; NaN where it has no score."""
    import numpy as np

    matrix = np.full((tasks, len(columns)), np.nan)
    for number, column in enumerate(columns):
        matrix[np.array(column.tasks, dtype=int), number] = column.means
    return matrix


# --- what was not the same in the run before ---------------------------------------------------------


def _marks(
    before: tuple[Manifest, Mapping[str, str]] | None, now: tuple[Manifest, Mapping[str, str]]
) -> Iterator[str]:
    """Yield what changed for all candidates: the suite, its tasks, conditions, the version of this program."""
    if before is None:
        return
    (old, old_tasks), (new, new_tasks) = before, now
    old_sources, new_sources = (
        {PurePath(source.path).name: source.digest for source in m.sources} for m in (old, new)
    )
    if changed := [n for n in new_sources if old_sources.get(n, new_sources[n]) != new_sources[n]]:
        yield f"another content of {', '.join(changed)}"
    yield from _task_marks(old_tasks, new_tasks)
    yield from conditions_apart(old.conditions, new.conditions)
    if old.bakeoff != new.bakeoff:
        yield f"bakeoff is {old.bakeoff} and {new.bakeoff}"


def _task_marks(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    counts = {
        "changed": [task for task in new if old.get(task, new[task]) != new[task]],
        "new": [task for task in new if task not in old],
        "gone": [task for task in old if task not in new],
    }
    parts = [f"{len(tasks)} {word} ({_few(tasks)})" for word, tasks in counts.items() if tasks]
    if parts:
        yield f"tasks: {', '.join(parts)}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
