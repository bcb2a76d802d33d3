"""`bakeoff compare`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from bakeoff._lib.sanitize import one_line
from bakeoff.app.comparing import RunComparison
from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, new_parser, two
from bakeoff.cli.views.tables import console, cost, figures, named_table, print_table, seconds
from bakeoff.reports.comparison import comparison_notes, moved, verdict
from bakeoff.reports.wording.phrases import UNKNOWN, counted
from bakeoff.stats.between_runs import Contrast
from bakeoff.stats.summary import CandidateSummary


def print_comparison(comparison: RunComparison) -> None:
    """Print what became better, what became worse, and what is open."""
    out = console()
    title = f"{comparison.before} → {comparison.after}: {counted(comparison.tasks, 'shared task')}"
    out.print(Text(one_line(title, width=500), style="bold"))
    print_table(_scores(comparison.contrasts), out)
    for line in comparison_notes(
        comparison.contrasts, only_before=comparison.only_before, only_after=comparison.only_after
    ):
        out.print(Text(line, style="dim"))
    out.print()
    print_table(_speed(comparison), out)
    for contrast in comparison.contrasts:
        for line in moved(contrast):
            out.print(Text(line))
    for note in comparison.notes:
        out.print(Text(f"note: {one_line(note, width=500)}", style="yellow"))
    out.print()
    for contrast in comparison.contrasts:
        out.print(
            Text(f"verdict: {' → '.join(_names(contrast))}: {verdict(contrast)}", style="bold")
        )


def _names(contrast: Contrast) -> list[str]:
    """Return the name of the candidate, or both names where they are two."""
    return list(dict.fromkeys((one_line(contrast.before), one_line(contrast.after))))


def _scores(contrasts: Sequence[Contrast]) -> Table:
    planned = any(contrast.pair.detectable is not None for contrast in contrasts)
    heads = [
        "before\nafter",
        "after - before\n95 % interval",
        "by chance\nsmallest gap" if planned else "by chance",
    ]
    table = named_table("scores on these tasks", ["candidate"], heads)
    for contrast in contrasts:
        table.add_row(
            Text("\n".join(_names(contrast))),
            f"{_mean(contrast.mean_before)}\n{_mean(contrast.mean_after)}",
            *figures(contrast.pair, planned=planned),
        )
    return table


def _mean(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}"


def _speed(comparison: RunComparison) -> Table:
    """Return what answers took, in the whole of both runs."""
    heads = ["tokens out", "latency p50", "cost"]
    table = named_table("speed and cost, before → after", ["candidate"], heads)
    before = {summary.candidate: summary for summary in comparison.candidates_before}
    after = {summary.candidate: summary for summary in comparison.candidates_after}
    for contrast in comparison.contrasts:
        old, new = _speed_figures(before[contrast.before]), _speed_figures(after[contrast.after])
        table.add_row(
            Text("\n".join(_names(contrast))),
            *(f"{was} → {now}" for was, now in zip(old, new, strict=True)),
        )
    return table


def _speed_figures(summary: CandidateSummary) -> list[str]:
    tokens = summary.total.tokens
    out = UNKNOWN if tokens.output is None else f"{tokens.output:,}"
    return [out, seconds(summary.total.latency.p50_s), cost(tokens.cost_usd)]


EXIT_WORSE = 5

_EXAMPLES = """\
  bakeoff compare 20261115-0930 latest
  bakeoff compare runs/old runs/new --pair ollama/qwen3:8b,ollama/qwen3:14b
  bakeoff compare main latest --fail-if-worse      # in a pipeline"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "compare",
        "Compare two runs task by task. Each candidate that is in both is compared with itself; where\n"
        "none is, each with each. Tasks are matched by id.",
        examples=_EXAMPLES,
    )
    p.add_argument(
        "before", metavar="BEFORE", help="a run: an id, the start of one, a name, or a folder"
    )
    p.add_argument("after", nargs="?", default="latest", metavar="AFTER",
                   help="the run to compare it with (default: latest)")  # fmt: skip
    p.add_argument("--pair", type=two, metavar="A,B",
                   help="only these two: A of the run before, B of the run after")  # fmt: skip
    p.add_argument("--fail-if-worse", action="store_true",
                   help=f"exit with {EXIT_WORSE} where a candidate is surely worse than before")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print what became better, what became worse, and what is open."""
    from bakeoff import app
    from bakeoff.reports.comparison import run_comparison_json

    comparison = app.compare(args.before, args.after, pair=args.pair, output=args.output)
    if args.as_json:
        print_json(run_comparison_json(comparison))
    else:
        print_comparison(comparison)
    return EXIT_WORSE if args.fail_if_worse and comparison.worse else 0
