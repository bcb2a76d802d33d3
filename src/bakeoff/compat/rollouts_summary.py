"""A rollout as a page to read: models, tasks, runs; models are never averaged together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bakeoff.compat.rollouts_record import UNVERIFIED, RunLine
from bakeoff.reports.decision import verdict
from bakeoff.reports.markdown_pairs import pairs_section
from bakeoff.reports.markdown_text import cell, count, number, table
from bakeoff.reports.summary_words import in_order
from bakeoff.stats.by_task import TaskSummary, metric_means
from bakeoff.stats.estimate import Interval
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.summary import PassRates, Summary


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that is known of a rollout."""

    name: str
    stamp: str
    config: str | None
    summary: Summary
    cells: Sequence[TaskSummary]
    runs: Sequence[RunLine]


def summary_page(found: Findings) -> str:
    """Return summary.md, which is also what `summarize` prints."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Findings) -> Iterator[str]:
    buckets = found.summary.buckets
    yield f"# {cell(found.name)}, {found.stamp}"
    yield ""
    if found.config:
        yield f"Config: {cell(found.config)}"
        yield ""
    yield (
        f"{buckets.planned} runs planned: {buckets.scored} scored, {buckets.unchecked} unchecked, "
        f"{buckets.limited} limited, {buckets.model_error} model errors, "
        f"{buckets.infrastructure_fault} infrastructure faults, {buckets.cancelled} cancelled, "
        f"{buckets.not_run} not run"
    )
    yield ""
    yield from _models(found)
    if found.summary.pairwise is not None:
        yield from pairs_section(found.summary.pairwise)
    yield from _tasks(found.cells)
    yield from _runs(found.runs)
    yield from _metrics(found)
    if found.summary.notes:
        yield "## Notes"
        yield ""
        yield from (f"- {cell(note, width=300)}" for note in found.summary.notes)
        yield ""
    if found.summary.pairwise is not None:
        yield from _verdict(found.summary.pairwise)


def _models(found: Findings) -> Iterator[str]:
    yield "## Models"
    yield ""
    yield "Each task counts once, however often it was run; the interval is for other tasks like these."
    if found.summary.pass_rule:
        yield f"For pass@k, {found.summary.pass_rule}."
    yield ""
    rows = []
    for candidate in in_order(found.summary):
        total = candidate.total
        rows.append(
            (
                cell(candidate.candidate),
                str(total.score.tasks),
                str(total.buckets.planned),
                number(total.score.mean),
                _interval(total.score.interval),
                _passes(total.passes),
                f"{total.coverage:.0%}",
            )
        )
    yield from table(("model", "tasks", "runs", "mean", "95 %", "pass@k", "coverage"), rows)
    yield ""


def _verdict(found: Pairwise) -> Iterator[str]:
    """Yield who is better, as the last line: it is what `summarize` leaves on the screen."""
    if any(pair.p is not None for pair in found.pairs):
        yield f"Verdict: {cell(verdict(found), width=300)}"


def _tasks(cells: Sequence[TaskSummary]) -> Iterator[str]:
    yield "## Tasks"
    yield ""
    rows = [
        (
            cell(one.task),
            cell(one.candidate),
            f"{one.recorded} of {one.planned}",
            number(one.mean),
            number(one.best),
            _interval(one.interval),
            _passes(one.passes),
            str(one.faulted),
        )
        for one in cells
    ]
    head = ("task", "model", "runs", "mean", "max", "95 %", "pass@k", "faulted")
    yield from table(head, rows)
    yield ""


def _runs(runs: Sequence[RunLine]) -> Iterator[str]:
    yield "## Runs"
    yield ""
    rows = [
        (
            cell(run.task),
            cell(run.candidate),
            cell(run.run_id),
            number(run.unit),
            number(run.lm),
            count(run.tokens),
            count(run.tool_calls),
            run.status,
            number(run.score),
        )
        for run in runs
    ]
    head = ("task", "model", "run", "unit", "lm", "tokens", "tools", "status", "score")
    yield from table(head, rows)
    yield ""


def _metrics(found: Findings) -> Iterator[str]:
    rows = []
    for candidate in found.summary.candidates:
        mine = [run for run in found.runs if run.candidate == candidate.candidate]
        unverified = {name for run in mine for name in run.unverified_metrics}
        for name, (mean, runs) in metric_means([run.custom_metrics for run in mine]).items():
            shown = f"{cell(name)}{UNVERIFIED if name in unverified else ''}"
            rows.append((cell(candidate.candidate), shown, f"{mean:.6g}", str(runs)))
    if rows:
        yield "## Custom metrics"
        yield ""
        yield from table(("model", "metric", "mean", "runs"), rows)
        yield ""


def _interval(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"


def _passes(passes: Sequence[PassRates]) -> str:
    """Return pass@k for the least and the greatest k there is."""
    ends = {p.k: p for p in (*passes[:1], *passes[-1:])}
    return ", ".join(f"@{k}: {number(p.pass_at)}" for k, p in ends.items()) or "–"
