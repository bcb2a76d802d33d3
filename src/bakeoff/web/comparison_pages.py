"""The pages that compare: runs or candidates side by side, why two differ, a suite over time."""

from collections.abc import Callable, Mapping, Sequence

from multidict import MultiMapping

from bakeoff._lib.value_object import value_object
from bakeoff.app.comparing import compare
from bakeoff.app.history import CandidateHistory, SuiteHistory, history
from bakeoff.app.reporting import compared_steps
from bakeoff.core.errors import UsageError
from bakeoff.reports.explanation import headline, on_qualities, on_tasks
from bakeoff.reports.history import change_in_words
from bakeoff.reports.html.charts import Chart, TimePoint, over_time, shade
from bakeoff.reports.html.compared import MOST_MOVED, ComparedRun, Step, settings_apart
from bakeoff.reports.wording.phrases import moment, score, sentence
from bakeoff.stats.between_runs import Contrast
from bakeoff.stores.queries import MatrixCell
from bakeoff.web.rendering import Query, address, message, render, whole
from bakeoff.web.runs import Runs, ViewedRun

_PAGE = 50
_MOST_RUNS = 8
_MOST_COLUMNS = 24
_MOST_TASKS, _MOST_FAILURES = 50, 30  # of an explanation
_LAST_RUNS = 60  # of a suite


# --- runs or candidates side by side --------------------------------------------------------------


@value_object
class Column:
    """A candidate of a run, as a column of the table of tasks."""

    run: ViewedRun
    candidate: str

    @property
    def cells(self) -> Mapping[str, MatrixCell]:
        """What came of each task."""
        return self.run.means().get(self.candidate, {})


@value_object
class ComparedTask:
    """A task with what came of it in each column; None where it was not run there."""

    task: str
    cells: Sequence[MatrixCell | None]
    spread: float


def compare_page(runs: Runs, query: MultiMapping[str]) -> str:
    """Return the runs of an address beside each other, or the candidates `by` of one run."""
    names = list(dict.fromkeys(query.getall("run", [])))
    found = [run for name in names[:_MOST_RUNS] if (run := runs.find(name)) is not None]
    found.sort(key=lambda run: (run.manifest.created_at, run.id))
    candidates = list(dict.fromkeys(query.getall("by", [])))
    try:
        if len(found) == 1 and len(candidates) > 1:
            steps = _candidate_steps(found[0], candidates)
            if len(candidates) == 2:  # in the order in which the difference is taken
                candidates = [steps[0].contrasts[0].after, steps[0].contrasts[0].before]
        elif len(found) > 1:
            steps = compared_steps([run.run for run in found])
        else:
            return message(
                "Compare",
                "Tick two or more runs in the list of runs, or candidates on the page of a run.",
            )
    except UsageError as error:
        return message("Compare", str(error))
    columns = _columns(found, candidates)
    rows = _task_rows(columns, only_differing=bool(query.get("differing")))
    skip = whole(query.get("skip"))
    values = {
        "columns": columns,
        "rows": rows[skip : skip + _PAGE],
        "many": len(rows),
        "skip": skip,
        "step_size": _PAGE,
        "differing": bool(query.get("differing")),
        "shade": shade,
        "several_runs": len(found) > 1,
        "here": lambda **more: address("compare", run=[r.id for r in found], by=candidates, **more),
    }
    if query.get("part"):
        return render("compare_tasks.html", **values)
    compared = [ComparedRun(id=run.id, manifest=run.manifest) for run in found]
    return render(
        "compare.html",
        **values,
        runs=compared,
        steps=steps,
        apart=settings_apart(compared) if len(found) > 1 else None,
        link=_links,
        most=MOST_MOVED,
        tasks=max(step.tasks for step in steps),
    )


def _candidate_steps(run: ViewedRun, candidates: Sequence[str]) -> list[Step]:
    """Compare the *candidates* of a run, each with each."""
    result = compare(run.run, candidates=candidates)
    return [
        Step(
            before=run.id,
            after=run.id,
            contrasts=result.contrasts,
            tasks=result.tasks,
            notes=result.notes,
        )
    ]


def _columns(found: Sequence[ViewedRun], candidates: Sequence[str]) -> list[Column]:
    """Return a column for each candidate, those of the same name in several runs side by side."""
    if len(found) == 1:
        return [Column(run=found[0], candidate=name) for name in candidates][:_MOST_COLUMNS]
    names = dict.fromkeys(c.id for run in found for c in run.plan.candidates)
    columns = [
        Column(run=run, candidate=name)
        for name in names
        for run in found
        if any(candidate.id == name for candidate in run.plan.candidates)
    ]
    return columns[:_MOST_COLUMNS]


def _task_rows(columns: Sequence[Column], *, only_differing: bool) -> list[ComparedTask]:
    """Return the tasks that at least two columns share, those on which they are furthest apart first.

    Of several runs, it is each candidate that is compared with itself.
    """
    cells = [column.cells for column in columns]
    numbers: dict[str, list[int]] = {}
    for number, column in enumerate(columns):
        numbers.setdefault(column.candidate, []).append(number)
    groups = [group for group in numbers.values() if len(group) > 1] or [list(range(len(columns)))]
    rows = []
    for task in dict.fromkeys(task for column in cells for task in column):
        row = [column.get(task) for column in cells]
        if sum(cell is not None for cell in row) > 1:
            spread = max(_spread([row[number] for number in group]) for group in groups)
            rows.append(ComparedTask(task=task, cells=row, spread=spread))
    shown = [row for row in rows if row.spread > 0] if only_differing else rows
    return sorted(shown, key=lambda row: -row.spread)


def _spread(cells: Sequence[MatrixCell | None]) -> float:
    """Return how far apart the means of some cells are."""
    means = [cell.mean for cell in cells if cell is not None and cell.mean is not None]
    return max(means) - min(means) if means else 0.0


def _links(step: Step) -> Callable[[Contrast, str, str], str]:
    """Return what gives the address of a trial of one side of a step."""

    def link(contrast: Contrast, task: str, side: str) -> str:
        run = step.before if side == "before" else step.after
        candidate = contrast.before if side == "before" else contrast.after
        return address("run", run, "trial", of=task, by=candidate)

    return link


# --- why two candidates differ --------------------------------------------------------------------


def explain_page(run: ViewedRun, query: MultiMapping[str]) -> str:
    """Return the explanation of the first two candidates `by`, or of the only two."""
    names = query.getall("by", [])[:2]
    try:
        found = run.run.explain(*names)
    except UsageError as error:
        return message("Explain", str(error))
    carrying = [task for task in found.tasks if task.part]
    return render(
        "explain.html",
        run=run,
        found=found,
        headline=headline(found),
        remarks=(*on_tasks(found), *map(sentence, on_qualities(found))),
        tasks=carrying[:_MOST_TASKS],
        more_tasks=max(len(carrying) - _MOST_TASKS, 0),
        failures=found.failures[:_MOST_FAILURES],
        more_failures=max(len(found.failures) - _MOST_FAILURES, 0),
        trial_address=lambda name: _trial_address(run, name),
    )


def _trial_address(run: ViewedRun, name: str) -> str:
    """Return the address of the trial that is called `task@candidate#rollout`; nothing where that is not clear."""
    for candidate in run.plan.candidates:
        task, at, rollout = name.rpartition(f"@{candidate.id}#")
        if at and rollout.isdecimal():
            return address("run", run.id, "trial", of=task, by=candidate.id, rollout=rollout)
    return ""


# --- a suite over time ----------------------------------------------------------------------------


def history_page(runs: Runs, query: Query) -> str:
    """Return the newest runs of a suite, or of each, candidate by candidate."""
    last = whole(query.get("last")) or _LAST_RUNS
    try:
        found = history(query.get("suite") or None, last=last, output=runs.output)
    except UsageError as error:
        return message("History", str(error))
    suites = sorted(found.suites, key=lambda suite: suite.runs[-1], reverse=True)
    return render(
        "history.html",
        suites=suites,
        skipped=found.skipped,
        last=last,
        chart=_chart,
        in_words=change_in_words,
        marks=_marks,
    )


def _chart(candidate: CandidateHistory) -> Chart:
    starts = {change.run for change in candidate.changes}
    times = [moment(point.created_at) for point in candidate.points]
    shown = slice(11, 16) if len({time[:10] for time in times}) == 1 else slice(10)
    points = [
        TimePoint(
            name=point.run,
            value=point.score.mean,
            low=point.score.interval.low if point.score.interval else None,
            high=point.score.interval.high if point.score.interval else None,
            tip=f"{point.run}, {time}: {score(point.score.mean)}",
            when=time[shown],
            link=address("run", point.run),
            starts=point.run in starts,
        )
        for point, time in zip(candidate.points, times, strict=True)
    ]
    return over_time(
        "Score", "from run to run, with 95 % intervals; a dashed line: changed", points
    )


def _marks(suite: SuiteHistory, candidate: CandidateHistory) -> list[tuple[str, list[str]]]:
    """Return the runs with which something else changed, the newest first, and what that was."""
    found = [
        (point.run, [*suite.marks.get(point.run, ()), *point.marks]) for point in candidate.points
    ]
    return [(run, marks) for run, marks in reversed(found) if marks]
