"""A run as a notebook shows it: the verdict, a table of scores, charts; no script, no style outside of it."""

from bakeoff.reports.html import charts
from bakeoff.reports.html.run import tables
from bakeoff.reports.html.templates import colours, environment, trusted
from bakeoff.reports.wording import decision
from bakeoff.stats.summary import Summary

_SCOPE = ".bakeoff-run"
_MOST_PAIRS = 10


def render(summary: Summary, *, called: str) -> str:
    """Return an HTML fragment for *summary* of the run *called* so."""
    drawn = charts.of_run(summary, pairs=_MOST_PAIRS)
    return (
        environment()
        .get_template("notebook.html")
        .render(
            called=called,
            colours=trusted(colours(_SCOPE)),
            headline=decision.answer(summary),
            summary=summary,
            tables=tables(summary),
            charts=[*drawn["scores"], *drawn["trade_offs"], *drawn["differences"]],
        )
    )
