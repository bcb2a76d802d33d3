"""`bakeoff gate`."""

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path

from bakeoff._lib.argument_parser import duration
from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, add_run, difference, dollars, new_parser

EXIT_WORSE, EXIT_NOT_SHOWN = 5, 6

_EXAMPLES = """\
  bakeoff baseline set main latest
  bakeoff gate --baseline main --margin 0.02
  bakeoff gate latest --min-score 0.8 --min-pass-rate 0.6 --max-cost 0.50
  bakeoff gate --baseline main --strict --github --comment gate.md   # in a workflow"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "gate",
        "Say whether a run may pass: surely worse than its baseline (exit 5), shown not to be worse by\n"
        "more than the margin (exit 0), or not shown, for which it takes more tasks (exit 0, or 6 with\n"
        "--strict). A bound that is not kept to is exit 5 too.",
        examples=_EXAMPLES,
    )
    add_run(p)
    p.add_argument("--baseline", metavar="NAME", help="a baseline, or any run, to compare with")
    p.add_argument("--margin", type=difference, default=0.02, metavar="M",
                   help="a loss too small to matter (default: 0.02)")  # fmt: skip
    p.add_argument("--strict", action="store_true",
                   help=f"exit with {EXIT_NOT_SHOWN} where it is not shown either way")  # fmt: skip
    p.add_argument("--force", action="store_true",
                   help="compare although conditions differ from those of the baseline (limits, judge ...)")  # fmt: skip
    p.add_argument("--min-score", type=difference, metavar="S",
                   help="the least mean score of each candidate")  # fmt: skip
    p.add_argument("--min-pass-rate", type=difference, metavar="R",
                   help="the least share of rollouts that pass, of every task")  # fmt: skip
    p.add_argument("--max-cost", type=dollars, metavar="USD",
                   help="the most that a candidate may cost, in dollars")  # fmt: skip
    p.add_argument("--max-latency", type=duration, metavar="TIME",
                   help="the most that 95 of 100 requests may take, such as 20 or 500ms")  # fmt: skip
    p.add_argument("--junit", type=Path, metavar="FILE", help="also write a JUnit file")
    p.add_argument("--comment", type=Path, metavar="FILE",
                   help="also write a comment for a pull request, in Markdown")  # fmt: skip
    p.add_argument("--github", action="store_true",
                   help="print annotations, and write the step summary of GitHub Actions")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Check the run, print what was found, and leave with the exit code that says it."""
    from bakeoff.app.gating import gate
    from bakeoff.reports.gate import annotations, headline, junit, lines, markdown
    from bakeoff.stats.gate import GateBounds, GateState

    bounds = GateBounds(
        min_score=args.min_score,
        min_pass_rate=args.min_pass_rate,
        max_cost_usd=args.max_cost,
        max_latency_s=args.max_latency,
    )
    found = gate(
        args.run,
        baseline=args.baseline,
        margin=args.margin,
        bounds=bounds,
        output=args.output,
        force=args.force,
    )
    for path, text in ((args.junit, junit), (args.comment, markdown)):
        if path is not None:
            _write(path, text(found))
    if args.as_json:
        print_json({"state": found.state, **asdict(found)})
    else:
        for line in (*lines(found), headline(found)):
            print(line)
    if args.github:
        for line in annotations(found):
            print(line)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            _write(Path(summary), markdown(found), more=True)
    if found.state is GateState.FAILED:
        return EXIT_WORSE
    return EXIT_NOT_SHOWN if args.strict and found.state is GateState.NOT_SHOWN else 0


def _write(path: Path, text: str, *, more: bool = False) -> None:
    from bakeoff.core.errors import UsageError

    try:
        with path.open("a" if more else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
