"""A rollout as a page to read: models, tasks, runs; models are never averaged together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bakeoff.core.record import pass_rule
from bakeoff.frontends.rollouts.record import (
    UNVERIFIED,
    RolloutLine,
    RunOfTask,
    agent_metrics,
    as_number,
)
from bakeoff.reports.markdown import bar, cell, count, fenced, number, pairs_section, table
from bakeoff.reports.wording.decision import verdict
from bakeoff.reports.wording.phrases import in_order
from bakeoff.stats.by_task import TaskSummary, metric_means
from bakeoff.stats.estimate import Interval
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.summary import PassRates, Summary


@dataclass(frozen=True, kw_only=True)
class RolloutFindings:
    """The results of a rollout."""

    name: str
    stamp: str
    config: str | None
    summary: Summary
    cells: Sequence[TaskSummary]
    runs: Sequence[RolloutLine]


def summary_page(findings: RolloutFindings) -> str:
    """Return summary.md, which is also what `summarize` prints."""
    return "\n".join(_lines(findings)) + "\n"


def _lines(findings: RolloutFindings) -> Iterator[str]:
    buckets = findings.summary.buckets
    yield f"# {cell(findings.name)}, {findings.stamp}"
    yield ""
    if findings.config:
        yield f"Config: {cell(findings.config)}"
        yield ""
    yield (
        f"{buckets.planned} runs planned: {buckets.scored} scored, {buckets.unchecked} unchecked, "
        f"{buckets.limited} limited, {buckets.model_error} model errors, "
        f"{buckets.infrastructure_fault} infrastructure faults, {buckets.cancelled} cancelled, "
        f"{buckets.not_run} not run"
    )
    yield ""
    yield from _models(findings)
    if findings.summary.pairwise is not None:
        yield from pairs_section(findings.summary.pairwise)
    yield from _tasks(findings.cells)
    yield from _runs(findings.runs)
    yield from _metrics(findings)
    if findings.summary.notes:
        yield "## Notes"
        yield ""
        yield from (f"- {cell(note, width=300)}" for note in findings.summary.notes)
        yield ""
    if findings.summary.pairwise is not None:
        yield from _verdict(findings.summary.pairwise)


def _models(findings: RolloutFindings) -> Iterator[str]:
    yield "## Models"
    yield ""
    yield "Each task counts once, however often it was run; the interval is for other tasks like these."
    if findings.summary.pass_rule:
        yield f"For pass@k, {findings.summary.pass_rule}."
    yield ""
    rows = []
    for candidate in in_order(findings.summary):
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


def _verdict(pairwise: Pairwise) -> Iterator[str]:
    """Yield the verdict, as the last line that `summarize` prints."""
    if any(pair.p is not None for pair in pairwise.pairs):
        yield f"Verdict: {cell(verdict(pairwise), width=300)}"


def _tasks(cells: Sequence[TaskSummary]) -> Iterator[str]:
    yield "## Tasks"
    yield ""
    rows = [
        (
            cell(by_task.task),
            cell(by_task.candidate),
            f"{by_task.recorded} of {by_task.planned}",
            number(by_task.mean),
            number(by_task.best),
            _interval(by_task.interval),
            _passes(by_task.passes),
            str(by_task.faulted),
        )
        for by_task in cells
    ]
    head = ("task", "model", "runs", "mean", "max", "95 %", "pass@k", "faulted")
    yield from table(head, rows)
    yield ""


def _runs(runs: Sequence[RolloutLine]) -> Iterator[str]:
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


def _metrics(findings: RolloutFindings) -> Iterator[str]:
    rows = []
    for candidate in findings.summary.candidates:
        own_runs = [run for run in findings.runs if run.candidate == candidate.candidate]
        unverified = {name for run in own_runs for name in run.unverified_metrics}
        for name, (mean, runs) in metric_means([run.custom_metrics for run in own_runs]).items():
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


_MOST_DIFF = 60_000
_MOST_OUTPUT = 20_000


def scoring_page(run: RunOfTask) -> str:
    """Return scoring_results.md."""
    return "\n".join(_lines_scoring(run)) + "\n"


def _lines_scoring(run: RunOfTask) -> Iterator[str]:
    attempt = run.attempt
    score = attempt.score if attempt else None
    yield f"# {cell(run.task.name or run.task.id)}"
    yield ""
    rule = pass_rule([run.task])
    yield f"**{run.status}** `{bar(score)}`" + (f" ({rule})" if rule else "")
    yield ""
    yield from _about(run)
    if attempt is not None and attempt.fault is not None:
        yield "## Fault"
        yield ""
        yield f"At the {attempt.fault.boundary}; this is no score:"
        yield ""
        yield from fenced(attempt.fault.message)
        yield ""
    yield from _rubrics(run)
    yield from _tests(run)
    yield from _metrics_scoring(run)
    yield from _diff(run)


def _about(run: RunOfTask) -> Iterator[str]:
    metrics = agent_metrics(run)
    agent = run.trial.candidate.agent
    who = f"{agent.name} {agent.version}" if agent.version else agent.name
    seconds, cost = metrics.get("time_taken_seconds"), metrics.get("money_spent_usd")
    took = f"{seconds:.1f} s" if isinstance(seconds, float) else "–"
    rows = [
        ("task", cell(run.task.id)),
        ("run", cell(run.run_id)),
        ("model", cell(run.model)),
        ("agent", cell(who)),
        ("rollout", str(run.trial.rollout)),
        ("agent's time", took),
        ("tokens", count(run.tokens)),
        ("tool calls", count(run.tool_calls)),
        ("cost", f"${cost:.4f}" if isinstance(cost, float) else "unknown"),
    ]
    yield from table(("", ""), rows)
    yield ""


def _rubrics(run: RunOfTask) -> Iterator[str]:
    if not run.rubrics:
        return
    yield "## Rubrics"
    yield ""
    rows = []
    for name, entry in run.rubrics.items():
        tests = entry.get("test_count")
        rows.append(
            (
                cell(name),
                cell(entry.get("criterion", ""), width=400),
                number(as_number(entry.get("weight")), 2),
                number(as_number(entry.get("score"))),
                f"{entry.get('tests_passed', 0)} of {tests}" if tests else "judged",
            )
        )
    yield from table(("rubric", "criterion", "weight", "score", "tests passed"), rows)
    yield ""
    without = [name for name, entry in run.rubrics.items() if entry.get("score") is None]
    if without:
        names = ", ".join(cell(name) for name in without)
        yield f"No model judged {names}: it counts neither for nor against. Name a model in"
        yield "`[roles]` as `judge` to have it judged."
        yield ""
    for name, entry in run.rubrics.items():
        why = entry.get("explanation") or entry.get("reason")
        if isinstance(why, str) and why:
            yield f"**{cell(name)}**: {cell(why, width=1000)}"
            yield ""


def _tests(run: RunOfTask) -> Iterator[str]:
    if not run.test_results:
        return
    yield "## Tests"
    yield ""
    for path, test in run.test_results.items():
        how = "passed" if test.get("success") else "failed"
        seconds = as_number(test.get("duration_sec"))
        took = "" if seconds is None else f" in {seconds:.2f} s"
        yield f"### {cell(path)}: {how}{took}"
        yield ""
        output = test.get("output")
        if isinstance(output, str) and output.strip():
            yield from fenced(_cut(output, _MOST_OUTPUT))
            yield ""


def _metrics_scoring(run: RunOfTask) -> Iterator[str]:
    if not run.custom_metrics:
        return
    yield "## Custom metrics"
    yield ""
    unverified = set(run.unverified_metrics)
    rows = [
        (f"{cell(name)}{UNVERIFIED if name in unverified else ''}", cell(value))
        for name, value in run.custom_metrics.items()
    ]
    yield from table(("metric", "value"), rows)
    yield ""


def _diff(run: RunOfTask) -> Iterator[str]:
    yield "## Diff"
    yield ""
    if not run.patch:
        elsewhere = " in the repository; see artifacts/" if run.whole_patch else ""
        yield f"Nothing was changed{elsewhere}."
        return
    yield from fenced(_cut(run.patch, _MOST_DIFF), "diff")


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most:,} more characters are in the files beside this]"
