"""`bakeoff compare`."""

import json
from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import add_json, add_output, new_parser, two

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
    from bakeoff import api
    from bakeoff.cli.comparing import print_comparison
    from bakeoff.reports.run_comparison import as_json

    found = api.compare(args.before, args.after, pair=args.pair, output=args.output)
    if args.as_json:
        print(json.dumps(as_json(found), indent=2))
    else:
        print_comparison(found)
    return EXIT_WORSE if args.fail_if_worse and found.worse else 0
