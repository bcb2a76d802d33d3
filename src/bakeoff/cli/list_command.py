"""`bakeoff list`."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from bakeoff.cli.options import add_json, add_output, new_parser

KINDS = ("runs", "tasks", "models", "agents", "scorers", "sandboxes")


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "list", "List runs, or the tasks, models, agents, scorers or sandboxes that can be used."
    )
    p.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    p.add_argument(
        "source",
        nargs="?",
        type=Path,
        metavar="SOURCE",
        help="whose tasks to list, or a models_config.yaml",
    )
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print one row for each thing."""
    from bakeoff.cli import listings

    rows = listings.rows(args.kind, args.source, args.output)
    if args.as_json:
        print(json.dumps(rows, indent=2))
    else:
        listings.print_rows(args.kind, rows)
    return 0
