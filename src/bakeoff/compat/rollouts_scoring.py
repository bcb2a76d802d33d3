"""One run as a page to read: its score, its rubrics, what the tests said, and the diff."""

from collections.abc import Iterator

from bakeoff.compat.rollouts_record import UNVERIFIED, RunOfTask, agent_metrics, as_number
from bakeoff.core.passing import pass_rule
from bakeoff.reports.markdown_text import bar, cell, count, fenced, number, table

_MOST_DIFF = 60_000
_MOST_OUTPUT = 20_000


def scoring_page(run: RunOfTask) -> str:
    """Return scoring_results.md."""
    return "\n".join(_lines(run)) + "\n"


def _lines(run: RunOfTask) -> Iterator[str]:
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
    yield from _metrics(run)
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
        yield f"Nobody judged {names}: it counts neither for nor against. Name a model in"
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


def _metrics(run: RunOfTask) -> Iterator[str]:
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
