"""The runs of a suite over time: a chart for each candidate, what changed, and a way to each run."""

from bakeoff.app.history import CandidateHistory, SuiteHistory, history
from bakeoff.core.errors import UsageError
from bakeoff.reports.history import change_in_words
from bakeoff.reports.html.charts import Chart, TimePoint, over_time
from bakeoff.reports.wording.phrases import moment, score
from bakeoff.web.rendering import Query, message, render, whole
from bakeoff.web.runs import Runs

_LAST = 60


def history_page(runs: Runs, query: Query) -> str:
    """Return the newest runs of a suite, or of each, candidate by candidate."""
    last = whole(query.get("last")) or _LAST
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
    points = [
        TimePoint(
            name=point.run,
            value=point.score.mean,
            low=point.score.interval.low if point.score.interval else None,
            high=point.score.interval.high if point.score.interval else None,
            tip=f"{point.run}, {moment(point.created_at)}: {score(point.score.mean)}",
            starts=point.run in starts,
        )
        for point in candidate.points
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
