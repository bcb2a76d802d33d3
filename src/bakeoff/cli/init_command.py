"""`bakeoff init`."""

import json
import shutil
from argparse import ArgumentParser, Namespace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.cli.options import new_parser

if TYPE_CHECKING:
    from bakeoff.app.inspection import FirstModel

FILES = ("bakeoff.toml", "suite.json", "my_scorers.py")
EXAMPLES = "examples"
_MODEL = """\
# a real small model in this process: no key, no server
models = ["embedded"]
"""
_BUDGET = """\
[budget]
max_cost_usd = 0.10     # the run stops before it costs more

[limits]
"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "init",
        "Write a run file, a suite and a scorer, ready to run and to change. The run file names a\n"
        "model that works here: the embedded one if it is installed, else one of a local server\n"
        "(Ollama, ...), else one of a provider whose key is set.",
    )
    p.add_argument("folder", nargs="?", default=Path(), type=Path, metavar="FOLDER",
                   help="where to write them (default: here)")  # fmt: skip
    p.add_argument("--examples", action="store_true",
                   help="copy the examples too: suites, coding tasks, dialogues, rollouts")  # fmt: skip
    return p


def main(args: Namespace) -> int:
    """Write the files; nothing that is there is touched."""
    from bakeoff.app.inspection import first_model
    from bakeoff.core.errors import UsageError

    folder: Path = args.folder
    names = (*FILES, EXAMPLES) if args.examples else FILES
    if there := [name for name in names if (folder / name).exists()]:
        raise UsageError(f"{folder} already has {', '.join(there)}; nothing was written")
    model = first_model(_environ())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = files("bakeoff.templates").joinpath(name).read_text(encoding="utf-8")
            text = _with_model(text, model) if name == FILES[0] else text
            (folder / name).write_text(text, encoding="utf-8")
            print(f"wrote {folder / name}")
        if args.examples:
            _copy_examples(folder / EXAMPLES)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error
    _say_what_next(folder / FILES[0], model)
    return 0


def _environ() -> dict[str, str]:
    """Return what a run here could read: the shell's variables, then those of `.env`."""
    import os

    from bakeoff.formats.text.env import environment

    return dict(environment(os.environ, named=None, here=Path()).values)


def _with_model(text: str, model: "FirstModel") -> str:
    """Return the run file with *model* in it, and with a budget where it costs money."""
    named = f"# {model.why}\nmodels = [{json.dumps(model.name)}]\n"
    text = text.replace(_MODEL, named) if not model.install else text
    return text.replace("[limits]\n", _BUDGET) if model.billed else text


def _copy_examples(target: Path) -> None:
    from bakeoff.core.errors import UsageError
    from bakeoff.templates import shipped

    examples = shipped(EXAMPLES)
    if examples is None:
        raise UsageError(
            "this installation has no examples; install Bakeoff from its wheel or clone"
        )
    shutil.copytree(examples, target, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    print(f"wrote {target} (see {target / 'README.md'})")


def _say_what_next(file: Path, model: "FirstModel") -> None:
    from bakeoff._lib.sanitize import for_terminal
    from bakeoff.templates import shipped

    print(for_terminal(f"model: {model.name} ({model.why})"))
    if model.install:
        print(f"install it first: {model.install}")
        print("or name another one in the run file: bakeoff list models")
    if docs := shipped("docs"):
        print(f"guides: {docs / 'README.md'}")
    print(f"now try: bakeoff run {file}")
