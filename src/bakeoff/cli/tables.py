"""Summaries as tables, on a terminal and in a pipe."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bakeoff._lib.untrusted import one_line
from bakeoff.cli.named_table import named_table, print_table
from bakeoff.cli.pairwise_table import print_pairwise
from bakeoff.reports.answer import answer
from bakeoff.reports.decision import verdict
from bakeoff.reports.in_words import counted
from bakeoff.reports.summary_words import billed, conservation, in_order, order, shared_reasons
from bakeoff.stats.summary import CandidateSummary, Group, Summary

_PIPE_WIDTH = 160
_LONGEST_NOTE = 500


def console() -> Console:
    """Return the console for results: as wide as the terminal, or wide enough for a pipe."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=_PIPE_WIDTH)


def print_summary(
    summary: Summary, *, folder: Path | None = None, out: Console | None = None
) -> None:
    """Print the statistics of a run, all but the verdict: that comes last, see `print_verdict`."""
    out = out or console()
    print_table(_score_table(summary), out)
    for line in order(summary):
        out.print(Text(f"{line}\n", style="dim"))
    if summary.pairwise is not None:
        print_pairwise(summary.pairwise, out)
    if any(len(c.categories) > 1 for c in summary.candidates):
        print_table(_category_table(in_order(summary)), out)
    if any(len(c.total.passes) > 1 for c in summary.candidates):
        print_table(_pass_table(in_order(summary), summary.pass_rule, width=out.width), out)
    print_table(_speed_table(in_order(summary)), out)
    if cost_line := billed(summary.billed):
        out.print(Text(cost_line))
    out.print(Text(conservation(summary.buckets), style="dim"))
    for reason in shared_reasons(summary):
        out.print(Text(reason, style="dim"))
    for note in summary.notes:
        style = "yellow" if note in summary.warnings else "dim"
        out.print(Text(f"note: {one_line(note, width=_LONGEST_NOTE)}", style=style))
    if folder is not None:
        where = "" if folder.parent == Path("runs") else f" --output {folder.parent}"
        name = f"{folder.name}{where}"
        see = f"kept in {folder}; see: bakeoff report {name}, bakeoff show {name}"
        out.print(Text(see, style="dim"))


def print_verdict(summary: Summary, *, out: Console | None = None) -> None:
    """Print in a line what the run says: who is better, or how good the one candidate is."""
    out = out or console()
    so_far = " so far" if summary.buckets.not_run or summary.buckets.cancelled else ""
    found, text = summary.pairwise, answer(summary).told.removesuffix(".")
    if found is not None:
        tested = any(pair.p is not None for pair in found.pairs)
        text = verdict(found) if tested else f"{text[0].lower()}{text[1:]}"
    kind = "result" if found is None else "verdict"
    out.print(Text(f"\n{kind}{so_far}: {text}", style="bold"))


def _score_table(summary: Summary) -> Table:
    rollouts = f" × {counted(summary.rollouts, 'rollout')}" if summary.rollouts > 1 else ""
    title = f"{summary.run}: {counted(summary.tasks, 'task')}{rollouts}"
    table = named_table(title, ["candidate"], ["score", "95 % interval", "coverage", "faults"])
    for c in in_order(summary):
        table.add_row(_name(c), *_score_figures(c.total))
    return table


def _score_figures(group: Group) -> list[str]:
    return [
        _number(group.score.mean, 3),
        _interval(group),
        f"{group.coverage:.0%}",
        str(group.buckets.faults),
    ]


def _speed_table(candidates: Iterable[CandidateSummary]) -> Table:
    figures = ["tokens\nin/out", "tok/s", "latency\np50/p95", "first\ntoken", "cost"]
    table = named_table("speed and cost", ["candidate"], figures)
    for c in candidates:
        tokens, latency = c.total.tokens, c.total.latency
        table.add_row(
            _name(c),
            f"{_count(tokens.input)}/{_count(tokens.output)}",
            _number(tokens.output_per_s, 1),
            f"{seconds(latency.p50_s)}/{seconds(latency.p95_s)}",
            seconds(latency.first_token_p50_s),
            cost(tokens.cost_usd),
        )
    return table


def _name(c: CandidateSummary) -> Text:
    return Text(one_line(c.candidate) + (" (scripted)" if c.scripted else ""))


def _category_table(candidates: Iterable[CandidateSummary]) -> Table:
    shown = list(candidates)
    names = ["category", "candidate"] if len(shown) > 1 else ["category"]
    rows = [(g.category or "", c.candidate, g) for c in shown for g in c.categories]
    missing = any(g.coverage < 1 or g.buckets.faults for _, _, g in rows)
    figures = ["score", "95 % interval", *(["coverage", "faults"] if missing else [])]
    table = named_table("by category", names, ["tasks", *figures])
    for category, candidate, group in sorted(rows, key=lambda row: row[0]):
        told = [Text(one_line(name)) for name in (category, candidate)[: len(names)]]
        table.add_row(*told, str(group.score.tasks), *_score_figures(group)[: len(figures)])
    return table


def _pass_table(candidates: Iterable[CandidateSummary], rule: str, *, width: int) -> Table:
    shown = list(candidates)
    ks = sorted({p.k for c in shown for p in c.total.passes})
    fit = max((width - 24) // 15, 2)
    if (
        len(ks) > fit
    ):  # the first ones and the last: what is between can be guessed, or read as JSON
        ks = [*ks[: fit - 1], ks[-1]]
    about = f"; {rule}" if rule else ""
    title = f"pass@k / pass^k (at least one, all of k rollouts{about})"
    table = named_table(title, ["candidate"], [f"k = {k}" for k in ks])
    for c in shown:
        rates = {p.k: f"{_number(p.pass_at, 3)}/{_number(p.pass_hat, 3)}" for p in c.total.passes}
        table.add_row(_name(c), *(rates.get(k, "–") for k in ks))
    return table


def _interval(group: Group) -> str:
    interval = group.score.interval
    return "–" if interval is None else f"[{interval.low:.3f}, {interval.high:.3f}]"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def cost(usd: float | None) -> str:
    """Return dollars, to the hundredth of a cent."""
    return "–" if usd is None else f"${usd:.4f}"


def seconds(value: float | None) -> str:
    """Return a time that is short."""
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
