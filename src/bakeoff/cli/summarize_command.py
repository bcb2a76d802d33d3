"""`bakeoff summarize`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, add_run, new_parser


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser("summarize", "Print the statistics of a run.")
    add_run(p)
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print the statistics of what is recorded so far."""
    from bakeoff import app
    from bakeoff.cli.views.tables import print_summary, print_verdict
    from bakeoff.reports.files import as_json

    run = app.load_run(args.run, output=args.output)
    summary = run.summary()
    if args.as_json:
        print_json(as_json(summary))
    else:
        print_summary(summary, folder=run.folder)
        print_verdict(summary)
    return 0
