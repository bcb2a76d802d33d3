"""`bakeoff compare`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from bakeoff._lib.sanitize import one_line
from bakeoff.app.comparing import RunComparison
from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, names, new_parser, two
from bakeoff.cli.views.tables import console, cost, figures, named_table, print_table, seconds
from bakeoff.reports.comparison import comparison_notes, moved
from bakeoff.reports.wording.phrases import UNKNOWN, counted
from bakeoff.stats.between_runs import Contrast
from bakeoff.stats.summary import CandidateSummary

_MOST_TOLD = 4  # couples whose tasks are named


def print_comparison(comparison: RunComparison) -> None:
    """Print what became better, what became worse, and what is open."""
    out = console()
    several = len(comparison.runs) > 2
    out.print(Text(one_line(_title(comparison), width=500), style="bold"))
    alone = len(comparison.runs) == 1
    print_table(_scores(comparison.contrasts, with_runs=several, alone=alone), out)
    for line in comparison_notes(
        comparison.contrasts,
        only_before=comparison.only_before,
        only_after=comparison.only_after,
        only=comparison.only,
    ):
        out.print(Text(line, style="dim"))
    out.print()
    if several or alone:
        print_table(_speed_by_run(comparison, alone=alone), out)
    else:
        print_table(_speed(comparison), out)
    for contrast in comparison.contrasts:
        for line in moved(
            contrast,
            with_runs=several,
            with_tasks=len(comparison.contrasts) <= _MOST_TOLD,
        ):
            out.print(Text(line))
    for note in comparison.notes:
        out.print(Text(f"note: {one_line(note, width=500)}", style="yellow"))
    out.print()
    for contrast, line in zip(comparison.contrasts, comparison.verdicts, strict=True):
        out.print(Text(f"verdict: {line}", style="bold"))
        if contrast.unequal and contrast.pair.better is not None:
            out.print(Text(f"  forced, although conditions differ: {', '.join(contrast.unequal)}"))
    if any(contrast.unequal and contrast.pair.better is None for contrast in comparison.contrasts):
        out.print(Text("--force compares them although their conditions differ"))


def _title(comparison: RunComparison) -> str:
    tasks = counted(comparison.tasks, "shared task")
    if len(comparison.runs) == 1:
        return f"{comparison.before}: its candidates on {counted(comparison.tasks, 'task')}"
    if len(comparison.runs) > 2:
        return f"{', '.join(comparison.runs)}: {tasks}"
    return f"{comparison.before} → {comparison.after}: {tasks}"


def _scores(contrasts: Sequence[Contrast], *, with_runs: bool, alone: bool) -> Table:
    planned = any(contrast.pair.detectable is not None for contrast in contrasts)
    before, after = ("first", "second") if alone else ("before", "after")
    heads = [
        f"{before}\n{after}",
        f"{after} - {before}\n95 % interval",
        "by chance\nsmallest gap" if planned else "by chance",
    ]
    table = named_table("scores on these tasks", ["candidate"], heads)
    for contrast in contrasts:
        table.add_row(
            Text("\n".join(_sides(contrast, with_runs=with_runs))),
            f"{_mean(contrast.mean_before)}\n{_mean(contrast.mean_after)}",
            *figures(contrast.pair, planned=planned),
        )
    return table


def _sides(contrast: Contrast, *, with_runs: bool) -> list[str]:
    """Return the name of the candidate, or both names where they are two."""
    sides = (contrast.before, contrast.run_before), (contrast.after, contrast.run_after)
    names = [f"{name} ({run})" if with_runs else name for name, run in sides]
    return [one_line(name) for name in dict.fromkeys(names)]


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
            Text("\n".join(_sides(contrast, with_runs=False))),
            *(f"{was} → {now}" for was, now in zip(old, new, strict=True)),
        )
    return table


def _speed_by_run(comparison: RunComparison, *, alone: bool) -> Table:
    """Return what answers took in each run."""
    heads = ["tokens out", "latency p50", "cost"]
    table = named_table("speed and cost", ["candidate", *([] if alone else ["run"])], heads)
    compared = dict.fromkeys(
        place
        for c in comparison.contrasts
        for place in ((c.run_before, c.before), (c.run_after, c.after))
    )
    for run, candidates in comparison.candidates.items():
        for summary in candidates:
            if (run, summary.candidate) in compared:
                name = one_line(summary.candidate)
                where = [] if alone else [Text(one_line(run))]
                table.add_row(Text(name), *where, *_speed_figures(summary))
    return table


def _speed_figures(summary: CandidateSummary) -> list[str]:
    tokens = summary.total.tokens
    out = UNKNOWN if tokens.output is None else f"{tokens.output:,}"
    return [out, seconds(summary.total.latency.p50_s), cost(tokens.cost_usd)]


EXIT_WORSE = 5

_EXAMPLES = """\
  bakeoff compare 20261115-0930 latest
  bakeoff compare monday tuesday wednesday         # any number of runs
  bakeoff compare latest                           # the candidates of one run
  bakeoff compare runs/old runs/new --pair ollama/qwen3:8b,ollama/qwen3:14b
  bakeoff compare main latest --fail-if-worse      # in a pipeline"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "compare",
        "Compare runs task by task, or the candidates of one run. Each candidate that is in several runs is\n"
        "compared with itself; where none is, each with each. Tasks are matched by content. Where the\n"
        "conditions of two differ (sampling, limits, judge ...), that is reported instead of a verdict.",
        examples=_EXAMPLES,
    )
    p.add_argument("runs", nargs="+", metavar="RUN",
                   help="an id, the start of one, a name, or a folder; one alone is compared with the latest, "
                   "the latest alone by its candidates")  # fmt: skip
    p.add_argument("--candidates", type=names, metavar="NAMES",
                   help="compare only these with each other, A,B,C, or `all`; with one run, within it")  # fmt: skip
    p.add_argument("--pair", type=two, metavar="A,B",
                   help="only these two: A of the first run, B of the last")  # fmt: skip
    p.add_argument("--force", action="store_true",
                   help="give a verdict although conditions differ, and match tasks by id alone")  # fmt: skip
    p.add_argument("--fail-if-worse", action="store_true",
                   help=f"exit with {EXIT_WORSE} where a candidate is surely worse than before")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print what became better, what became worse, and what is open."""
    from bakeoff import app
    from bakeoff.reports.comparison import run_comparison_json

    comparison = app.compare(
        *args.runs,
        pair=args.pair,
        candidates=args.candidates,
        output=args.output,
        force=args.force,
    )
    if args.as_json:
        print_json(run_comparison_json(comparison))
    else:
        print_comparison(comparison)
    return EXIT_WORSE if args.fail_if_worse and comparison.worse else 0
