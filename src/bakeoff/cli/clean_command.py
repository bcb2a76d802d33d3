"""`bakeoff clean`."""

from argparse import ArgumentParser, Namespace

from bakeoff.cli.options import new_parser


def parser() -> ArgumentParser:
    """Return what the command takes."""
    return new_parser(
        "clean",
        "Take away what runs that died left behind: processes, containers, cgroups, folders.\n"
        "What belongs to a run that is still alive stays, and so do the runs themselves.",
    )


def main(_: Namespace) -> int:
    """Say what was taken away."""
    from bakeoff._lib.loops import run_sync
    from bakeoff._lib.untrusted import for_terminal
    from bakeoff.api.site import clean

    lines = run_sync(clean())
    for line in lines or ["there is nothing to take away"]:
        print(for_terminal(line))
    return 0
