"""`bakeoff baseline`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, new_parser

_EXAMPLES = """\
  bakeoff baseline set main latest
  bakeoff baseline list
  bakeoff baseline remove main"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "baseline",
        "Give a run the name of a baseline, which `bakeoff gate` compares others with. The names are kept in\n"
        "baselines.json, beside the runs.",
        examples=_EXAMPLES,
    )
    p.add_argument("action", choices=("set", "list", "remove"), help="what to do")
    p.add_argument("name", nargs="?", metavar="NAME", help="the name of the baseline")
    p.add_argument("run", nargs="?", default="latest", metavar="RUN",
                   help="its run: an id, the start of one, a name, a folder (default: latest)")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Set, list or remove a baseline."""
    from bakeoff.app import gating
    from bakeoff.core.errors import UsageError

    if args.action == "list":
        known = gating.baselines(args.output)
        if args.as_json:
            print_json(known)
            return 0
        for name, run in sorted(known.items()):
            print(f"{name}: {run}")
        if not known:
            print(f"no baselines in {args.output}; set one with: bakeoff baseline set NAME RUN")
        return 0
    if args.name is None:
        raise UsageError(f"which baseline? bakeoff baseline {args.action} NAME")
    if args.action == "remove":
        gating.remove_baseline(args.name, output=args.output)
        print(f"baseline {args.name} removed; its run stays")
        return 0
    chosen = gating.set_baseline(args.name, args.run, output=args.output)
    print(f"baseline {args.name}: {chosen.id}")
    return 0
