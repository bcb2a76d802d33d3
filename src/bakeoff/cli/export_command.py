"""`bakeoff export`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import add_output, add_run, new_parser

_EXAMPLES = """\
  bakeoff export latest --format parquet
  bakeoff export latest --format jsonl --to - | jq .score
  bakeoff export main --no-text --to scores.csv"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "export",
        "Write the recorded trials of a run as a table: a row for each, with its score, time, tokens,\n"
        "cost, question and answer. It prints the path of the file.",
        examples=_EXAMPLES,
    )
    add_run(p)
    p.add_argument("--format", default="csv", metavar="NAME",
                   help="csv, jsonl, or parquet (needs pyarrow; default: csv)")  # fmt: skip
    p.add_argument("--to", metavar="FILE",
                   help="the file to write, or a folder for trials.FORMAT; `-` for standard output "
                   "(default: the folder of the run)")  # fmt: skip
    p.add_argument("--no-text", action="store_false", dest="text",
                   help="leave out questions, expected answers and answers")  # fmt: skip
    add_output(p)
    return p


def main(args: Namespace) -> int:
    """Write the table, and print where it is."""
    import sys

    from bakeoff import app
    from bakeoff._lib.sanitize import for_terminal
    from bakeoff.app.trial_table import check_format, export, export_to

    check_format(args.format)
    run = app.load_run(args.run, output=args.output)
    if args.to == "-":
        export_to(run, sys.stdout.buffer, form=args.format, text=args.text)
    else:
        path = export(run, form=args.format, to=args.to, text=args.text)
        print(for_terminal(str(path)))
    return 0
