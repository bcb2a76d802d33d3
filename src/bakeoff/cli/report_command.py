"""`bakeoff report`."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bakeoff.cli.options import add_output, new_parser

_EXAMPLES = """\
  bakeoff report
  bakeoff report main latest
  bakeoff report latest --format html,csv --to reports/today
  bakeoff report latest --format junit --to build"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "report",
        "Write a report of a run: one HTML file that needs nothing else, or other forms; of several\n"
        "runs, one page that compares the earliest with each later one. It prints the path of each\n"
        "file. An unfinished run is reported as far as it got.",
        examples=_EXAMPLES,
    )
    p.add_argument("runs", nargs="*", default=["latest"], metavar="RUN",
                   help="an id, the start of one, a name, a folder, or `latest` (the default)")  # fmt: skip
    p.add_argument("--format", type=_names, default=["html"], metavar="NAMES", dest="formats",
                   help="html, csv (a line for each trial), json, junit, md; several with commas "
                   "(default: html)")  # fmt: skip
    p.add_argument("--to", type=Path, metavar="FOLDER",
                   help="where to write (default: the folder of the run)")  # fmt: skip
    p.add_argument("--no-text", action="store_false", dest="text",
                   help="leave out questions, expected answers and answers")  # fmt: skip
    add_output(p)
    return p


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] or [text]


def main(args: Namespace) -> int:
    """Write the files, and print where they are."""
    from bakeoff import app
    from bakeoff._lib.sanitize import for_terminal

    written = app.report(
        args.runs, output=args.output, to=args.to, formats=args.formats, text=args.text
    )
    for path in written:
        print(for_terminal(str(path)))
    return 0
