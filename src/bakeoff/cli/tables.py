"""Summaries as tables, on a terminal and in a pipe."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bakeoff._lib.untrusted import one_line
from bakeoff.stats.summarize import Buckets, CandidateSummary, Group, Summary

_PIPE_WIDTH = 160


def console() -> Console:
    """Return the console for results: as wide as the terminal, or wide enough for a pipe."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=_PIPE_WIDTH)


def print_summary(summary: Summary, *, folder: Path | None = None) -> None:
    """Print the statistics of a run."""
    out = console()
    out.print(_main_table(summary))
    if any(len(c.categories) > 1 for c in summary.candidates):
        out.print(_category_table(summary.candidates))
    if any(len(c.total.passes) > 1 for c in summary.candidates):
        out.print(_pass_table(summary.candidates))
    out.print(Text(_conservation(summary.buckets), style="dim"))
    for reason in _reasons(summary):
        out.print(Text(reason, style="dim"))
    for note in summary.notes:
        out.print(Text(f"note: {one_line(note)}", style="yellow"))
    if folder is not None:
        where = "" if folder.parent == Path("runs") else f" --output {folder.parent}"
        out.print(Text(f"kept in {folder}; see: bakeoff show {folder.name}{where}", style="dim"))


def _main_table(summary: Summary) -> Table:
    rollouts = f" × {summary.rollouts} rollouts" if summary.rollouts > 1 else ""
    table = Table(
        title=Text(f"{summary.run}: {summary.tasks} tasks{rollouts}"), title_justify="left"
    )
    table.add_column("candidate", overflow="fold")
    for name in (
        "score",
        "95 % interval",
        "coverage",
        "faults",
        "tokens in/out",
        "tok/s",
        "latency p50/p95",
        "first token",
        "cost",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for c in summary.candidates:
        group = c.total
        name = one_line(c.candidate) + (" (scripted)" if c.scripted else "")
        table.add_row(Text(name), *_figures(group))
    return table


def _figures(group: Group) -> list[str]:
    tokens, latency = group.tokens, group.latency
    return [
        _number(group.score.mean, 3),
        _interval(group),
        f"{group.coverage:.0%}",
        str(group.buckets.faults),
        f"{_count(tokens.input)}/{_count(tokens.output)}",
        _number(tokens.output_per_s, 1),
        f"{_seconds(latency.p50_s)}/{_seconds(latency.p95_s)}",
        _seconds(latency.first_token_p50_s),
        "–" if tokens.cost_usd is None else f"${tokens.cost_usd:.4f}",
    ]


def _category_table(candidates: Iterable[CandidateSummary]) -> Table:
    table = Table(title="by category", title_justify="left")
    table.add_column("category", overflow="fold")
    table.add_column("candidate", overflow="fold")
    for name in ("tasks", "score", "95 % interval", "coverage", "faults", "latency p50"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [(g.category or "", c.candidate, g) for c in candidates for g in c.categories]
    for category, candidate, group in sorted(rows, key=lambda row: row[0]):
        table.add_row(
            Text(one_line(category)),
            Text(one_line(candidate)),
            str(group.score.tasks),
            _number(group.score.mean, 3),
            _interval(group),
            f"{group.coverage:.0%}",
            str(group.buckets.faults),
            _seconds(group.latency.p50_s),
        )
    return table


def _pass_table(candidates: Iterable[CandidateSummary]) -> Table:
    table = Table(title="pass@k / pass^k (at least one, all of k rollouts)", title_justify="left")
    table.add_column("candidate", overflow="fold")
    shown = list(candidates)
    ks = sorted({p.k for c in shown for p in c.total.passes})[:10]
    for k in ks:
        table.add_column(f"k = {k}", justify="right", no_wrap=True)
    for c in shown:
        rates = {p.k: f"{_number(p.pass_at, 3)} / {_number(p.pass_hat, 3)}" for p in c.total.passes}
        table.add_row(Text(one_line(c.candidate)), *(rates.get(k, "–") for k in ks))
    return table


def _conservation(b: Buckets) -> str:
    parts = {
        "scored": b.scored,
        "unchecked": b.unchecked,
        "limited": b.limited,
        "model error": b.model_error,
        "infrastructure fault": b.infrastructure_fault,
        "cancelled": b.cancelled,
        "not run": b.not_run,
    }
    told = " + ".join(f"{n} {name}" for name, n in parts.items() if n or name == "scored")
    return f"{b.planned} planned = {told}"


def _reasons(summary: Summary) -> list[str]:
    lines = []
    for c in summary.candidates:
        score, bounds = c.total.score, c.total.score_bounds
        if score.interval is not None:
            lines.append(
                f"{one_line(c.candidate)}: interval by {score.interval.method}, {score.tasks} tasks"
            )
        elif score.reason:
            lines.append(f"{one_line(c.candidate)}: {score.reason}")
        if bounds and c.total.coverage < 1 and score.mean is not None:
            lines.append(
                f"{one_line(c.candidate)}: with what is missing, the mean of trials lies "
                f"between {bounds[0]:.3f} and {bounds[1]:.3f}"
            )
    return lines


def _interval(group: Group) -> str:
    interval = group.score.interval
    return "–" if interval is None else f"[{interval.low:.3f}, {interval.high:.3f}]"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
