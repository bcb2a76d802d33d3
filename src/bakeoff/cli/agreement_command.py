"""`bakeoff agreement`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, add_run, new_parser

_EXAMPLES = """\
  bakeoff agreement                                   # every two scorers of the latest run
  bakeoff agreement main judge exact
  bakeoff export main --to answers.csv                # add a column `label`: 0, 1, pass, fail
  bakeoff agreement main --labels answers.csv         # is the judge as good as a person?"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "agreement",
        "Say how far two scorers agree on the same answers, such as a judge and a check, or a judge and\n"
        "the labels of people. Chance agreement is taken off, and tasks are the unit of what is unsure.",
        examples=_EXAMPLES,
    )
    add_run(p)
    p.add_argument("scorers", nargs="*", metavar="SCORER", help="one or two scorers (default: all)")
    p.add_argument("--labels", type=Path, metavar="FILE.csv",
                   help="compare with labels of people: columns task, candidate, rollout, as `bakeoff export` "
                   "writes them, and one that was filled in")  # fmt: skip
    p.add_argument("--column", default="label", metavar="NAME",
                   help="the column that was filled in (default: label)")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print how far they agree."""
    from dataclasses import asdict

    from bakeoff.app.agreeing import agreement
    from bakeoff.cli.views.tables import console
    from bakeoff.core.errors import UsageError
    from bakeoff.reports.agreement import details, headline

    if len(args.scorers) > 2:
        raise UsageError("name two scorers at most: bakeoff agreement RUN SCORER SCORER")
    found = agreement(
        args.run, *args.scorers, labels=args.labels, column=args.column, output=args.output
    )
    if args.as_json:
        print_json([{"headline": headline(each), **asdict(each)} for each in found])
        return 0
    out = console()
    for each in found:
        out.print(headline(each), style="bold", markup=False, highlight=False)
        for line in details(each):
            out.print(f"  {line}", markup=False, highlight=False)
    return 0
