"""`bakeoff schema`."""

import json
from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import new_parser


def parser() -> ArgumentParser:
    """Return what the command takes."""
    return new_parser("schema", "Print the JSON Schema of run files, for editors.")


def main(_: Namespace) -> int:
    """Print the schema."""
    from bakeoff.config.run_file import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0
