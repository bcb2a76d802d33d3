"""`bakeoff init`."""

from argparse import ArgumentParser, Namespace
from importlib.resources import files
from pathlib import Path

from bakeoff.cli.options import new_parser

FILES = ("bakeoff.toml", "suite.json", "my_scorers.py")


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser("init", "Write a run file, a suite and a scorer, ready to run and to change.")
    p.add_argument("folder", nargs="?", default=Path(), type=Path, metavar="FOLDER",
                   help="where to (default: here)")  # fmt: skip
    return p


def main(args: Namespace) -> int:
    """Write the files; nothing that is there is touched."""
    from bakeoff.core.errors import UsageError

    folder: Path = args.folder
    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise UsageError(f"{folder} already has {', '.join(there)}; nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = files("bakeoff.templates").joinpath(name).read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
            print(f"wrote {folder / name}")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error
    print(f"now try: bakeoff run {folder / FILES[0]}")
    return 0
