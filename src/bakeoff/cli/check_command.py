"""`bakeoff check`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, add_run, new_parser

EXIT_DAMAGED = 1


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "check",
        "Check every record of a run against its checksum, and its other files. It changes nothing;\n"
        f"a resume runs again what is lost. The exit code is {EXIT_DAMAGED} where something is damaged.",
    )
    add_run(p)
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print what is damaged."""
    from bakeoff import app
    from bakeoff._lib.sanitize import for_terminal
    from bakeoff.app.inspection import check_run

    checked = check_run(app.load_run(args.run, output=args.output))
    if args.as_json:
        print_json({"records": checked.records, "damage": checked.lines, "trials": checked.trials})
    elif not checked.lines:
        print(f"everything is as it was written: {checked.records:,} records")
    else:
        for line in checked.lines:
            print(for_terminal(line))
        print(for_terminal(f"run again what is lost with: bakeoff run --resume {args.run}"))
    return EXIT_DAMAGED if checked.lines else 0
