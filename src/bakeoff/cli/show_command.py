"""`bakeoff show`."""

import json
from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import add_json, add_output, add_run, new_parser


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser("show", "Show a run, or one trial of it with everything that was said.")
    add_run(p)
    p.add_argument("trial", nargs="?", metavar="TRIAL",
                   help="TASK, TASK@CANDIDATE or TASK@CANDIDATE#ROLLOUT")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print the run, or the trial."""
    from bakeoff import api
    from bakeoff.cli import showing

    run = api.load_run(args.run, output=args.output)
    if args.as_json:
        print(json.dumps(showing.as_data(run, args.trial), indent=2))
    elif args.trial is None:
        showing.print_run(run)
    else:
        showing.print_trial(run, args.trial)
    return 0
