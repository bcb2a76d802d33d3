"""`bakeoff history`."""

from argparse import ArgumentParser, Namespace

from rich.console import Console
from rich.text import Text

from bakeoff._lib.argument_parser import count
from bakeoff._lib.sanitize import one_line
from bakeoff.app.history import CandidateHistory, History, SuiteHistory, history
from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, new_parser
from bakeoff.cli.views.tables import console, named_table, print_table
from bakeoff.reports.history import bar, change_in_words, notes, when
from bakeoff.reports.wording.phrases import UNKNOWN, counted, score

EXIT_CHANGED = 5

_EXAMPLES = """\
  bakeoff history
  bakeoff history suite.json --last 30
  bakeoff history nightly --candidate openai/gpt-4o-mini --json
  bakeoff run suite.json && bakeoff history suite.json --fail-on-change     # on a timer"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "history",
        "Show the runs of a suite over time: scores with intervals, where they changed, and what else was\n"
        "not the same: the suite, its tasks, prompt, judge, limits, which model answered.",
        examples=_EXAMPLES,
    )
    p.add_argument("suite", nargs="?", metavar="SUITE",
                   help="a suite or run file, or the name of one (default: each that has runs)")  # fmt: skip
    p.add_argument("--candidate", metavar="NAME", help="only this candidate")
    p.add_argument("--last", type=count, metavar="N", help="only the newest N runs of a suite")
    p.add_argument("--fail-on-change", action="store_true",
                   help=f"exit with {EXIT_CHANGED} where the newest run showed a change of scores")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print the history, and leave with an exit code that says whether something changed just now."""
    found = history(args.suite, candidate=args.candidate, last=args.last, output=args.output)
    if args.as_json:
        import msgspec

        print_json({"changed_now": found.changed_now, **msgspec.to_builtins(found)})
    else:
        print_history(found)
    return EXIT_CHANGED if args.fail_on_change and found.changed_now else 0


def print_history(found: History) -> None:
    """Print each suite with its candidates."""
    out = console()
    for suite in found.suites:
        title = f"{one_line(suite.suite)}: {counted(len(suite.runs), 'run')}"
        out.print(Text(title, style="bold"))
        for candidate in suite.candidates:
            _print_candidate(suite, candidate, out)
        out.print()
    for line in found.skipped:
        out.print(Text(f"left out: {one_line(line, width=500)}", style="yellow"))


def _print_candidate(suite: SuiteHistory, candidate: CandidateHistory, out: Console) -> None:
    heads = ["score", "95 % interval", "tasks", "0" + " " * 22 + "1"]
    table = named_table(candidate.candidate, ["run", "started"], heads)
    starts = {change.run for change in candidate.changes}
    for point in candidate.points:
        interval = point.score.interval
        table.add_row(
            Text(f"{'→ ' if point.run in starts else ''}{one_line(point.run)}"),
            when(point.created_at),
            score(point.score.mean),
            UNKNOWN if interval is None else f"[{interval.low:.3f}, {interval.high:.3f}]",
            str(point.score.tasks),
            bar(point.score),
        )
    print_table(table, out)
    for point in candidate.points:
        for mark in notes((*suite.marks.get(point.run, ()), *point.marks)):
            out.print(Text(f"{one_line(point.run)}: {mark}", style="dim"))
    for change in candidate.changes:
        out.print(Text(f"change: {change_in_words(change)}", style="bold"))
    if not candidate.changes and len(candidate.points) > 1:
        out.print(Text(f"no change that is sure in {len(candidate.points)} runs"))
