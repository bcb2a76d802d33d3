"""`bakeoff validate`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bakeoff.cli.options import new_parser


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "validate",
        "Check SOURCE without running it: every key, name and setting, and what would be planned.",
    )
    p.add_argument("source", type=Path, metavar="SOURCE", help="a .json or .toml file")
    p.add_argument("-m", "--model", action="append", default=[], dest="models", metavar="M",
                   help="as for `run`")  # fmt: skip
    p.add_argument("--base-url", metavar="URL", help="as for `run`")
    return p


def main(args: Namespace) -> int:
    """Print what is right about it; what is wrong is an error."""
    from bakeoff._lib.untrusted import for_terminal
    from bakeoff.api import checks

    for line in checks.check(args.source, models=args.models, base_url=args.base_url):
        print(for_terminal(line))
    return 0
