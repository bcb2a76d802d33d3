"""`bakeoff schema`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli import print_json
from bakeoff.cli.options import new_parser

KINDS = ("run", "suite", "task", "dialogue")


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser("schema", "Print the JSON Schema of a kind of file, for editors.")
    p.add_argument("kind", nargs="?", choices=KINDS, default="run", metavar="KIND",
                   help="run: a run file (the default); suite: a JSON suite of prompts; "
                   "task: the task.toml of a task folder; dialogue: a conversation in one file")  # fmt: skip
    return p


def main(args: Namespace) -> int:
    """Print the schema."""
    from bakeoff.formats.detect import json_schema

    print_json(json_schema(args.kind))
    return 0
