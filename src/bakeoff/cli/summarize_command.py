"""`bakeoff summarize`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, add_run, difference, new_parser

_METHODS = ("auto", "wilson", "clopper-pearson", "jeffreys", "t")


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser("summarize", "Print the statistics of a run.")
    add_run(p)
    p.add_argument("--interval", choices=_METHODS, default="auto",
                   help="how the intervals of scores are computed (default: auto, the one that fits)")  # fmt: skip
    p.add_argument("--margin", type=difference, metavar="M",
                   help="a difference too small to matter, such as 0.02: say who is equivalent within it")  # fmt: skip
    p.add_argument("--force", action="store_true",
                   help="rank candidates although their conditions differ (sampling, time limit ...)")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print the statistics of what is recorded so far."""
    from bakeoff import app
    from bakeoff.cli.views.tables import print_summary, print_verdict
    from bakeoff.reports.files import as_json

    run = app.load_run(args.run, output=args.output)
    summary = run.summary(interval=args.interval, margin=args.margin, force=args.force)
    if args.as_json:
        print_json(as_json(summary))
    else:
        print_summary(summary, folder=run.folder)
        print_verdict(summary)
    return 0
