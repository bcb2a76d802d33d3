"""`bakeoff show`."""

import json
from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import add_json, add_output, add_run, new_parser

_EXAMPLES = """\
  bakeoff show latest --failed --category sums
  bakeoff show latest --faulted --search timeout
  bakeoff show latest capital@ollama/qwen3:8b#0"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "show",
        "Show a run, or one trial of it with everything that was said.",
        examples=_EXAMPLES,
    )
    add_run(p)
    p.add_argument("trial", nargs="?", metavar="TRIAL",
                   help="TASK, TASK@CANDIDATE or TASK@CANDIDATE#ROLLOUT")  # fmt: skip
    p.add_argument("--failed", action="store_true",
                   help="only trials whose answer was wrong")  # fmt: skip
    p.add_argument("--faulted", action="store_true",
                   help="only trials that broke; with --failed, both")  # fmt: skip
    p.add_argument("--candidate", action="append", default=[], dest="candidates", metavar="C",
                   help="only of this candidate; may be repeated")  # fmt: skip
    p.add_argument("--category", action="append", default=[], dest="categories", metavar="C",
                   help="only of this category; may be repeated")  # fmt: skip
    p.add_argument("--search", metavar="TEXT",
                   help="only with this text in the name, the question, the answer or the fault")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print the run, or the trial."""
    from bakeoff import api
    from bakeoff.cli import showing
    from bakeoff.core.errors import UsageError
    from bakeoff.core.record import TrialFilter

    run = api.load_run(args.run, output=args.output)
    which = TrialFilter(
        failed=args.failed,
        faulted=args.faulted,
        candidates=args.candidates,
        categories=args.categories,
    )
    if args.trial is not None and (
        which != TrialFilter(candidates=[], categories=[]) or args.search
    ):
        raise UsageError("a filter is for the list of trials; leave it out to see one trial")
    if args.as_json:
        print(json.dumps(showing.as_data(run, args.trial, which, args.search), indent=2))
    elif args.trial is None:
        showing.print_run(run, which, args.search)
    else:
        showing.print_trial(run, args.trial)
    return 0
