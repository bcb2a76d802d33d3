"""`bakeoff clean`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import new_parser


def parser() -> ArgumentParser:
    """Return what the command takes."""
    return new_parser(
        "clean",
        "Remove what crashed runs left behind: processes, containers, cgroups, folders.\n"
        "What belongs to a running run is kept, and so are the runs themselves.",
    )


def main(_: Namespace) -> int:
    """Say what was taken away."""
    from bakeoff._lib.sanitize import for_terminal
    from bakeoff._lib.threads import run_sync
    from bakeoff.app.workspaces import clean

    lines = run_sync(clean())
    for line in lines or ["there is nothing to remove"]:
        print(for_terminal(line))
    return 0
