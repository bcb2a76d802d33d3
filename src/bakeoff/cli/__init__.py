"""The command line: one module per command, each parses, calls the api and prints.

argparse, because it is there: the usual alternatives cost several times the start-up of Python
itself, and help must feel instant.
"""

import sys
from collections.abc import Sequence

from bakeoff._lib.process_setup import run_as_process
from bakeoff._lib.version import __version__

COMMANDS = {
    "run": "run a suite, a run file or task folders, or resume a run",
    "batch": "run one coding task with many models, and compare them",
    "list": "list runs, tasks, models, agents, scorers or sandboxes",
    "show": "show a run, or one trial of it",
    "summarize": "print the statistics of a run",
    "compare": "compare runs, or the candidates of one: what became better, what worse",
    "explain": "say why two candidates differ: tasks, categories, failures",
    "agreement": "say how far two scorers agree, such as a judge and people",
    "history": "show the runs of a suite over time, and where scores changed",
    "baseline": "give a run the name that gates compare with",
    "gate": "say whether a run is worse than its baseline, for pipelines",
    "report": "write a report of a run: HTML, CSV, JSON, JUnit or Markdown",
    "export": "write the trials of a run as CSV, JSON Lines or Parquet",
    "top": "watch a run that another process runs",
    "view": "look at runs in the browser, live, side by side",
    "power": "say how many tasks it takes to see a difference",
    "check": "check that nothing of a run is damaged",
    "merge": "put the shards of a run together as one run",
    "eval": "score the stored answers of a run again",
    "init": "write a run file, a suite and a scorer to start from",
    "validate": "check a run file or a suite without running it; prove coding tasks",
    "clean": "remove what crashed runs left behind",
    "schema": "print the JSON Schema of a kind of file, for editors",
}

_HELP = """\
usage: bakeoff COMMAND ...

Which model or agent is better at your work? Measured, with error bars, resumable.

commands:
{commands}

  bakeoff COMMAND --help   what a command takes
  bakeoff --version        which version this is

exit codes:
  0    everything ran and was recorded
  1    an error; the message says what to do
  2    the command line itself is wrong
  3    it ran, but some trials faulted
  4    stopped at the budget; the resume command is printed
  5    `gate`, `compare --fail-if-worse`: a candidate is surely worse than before; `history --fail-on-change`: scores changed
  6    an endpoint was given up; the resume command is printed. `gate --strict`: not shown either way
  130  stopped with Ctrl-C; the resume command is printed
"""


def help_text() -> str:
    """Return what `bakeoff --help` prints."""
    return _HELP.format(commands="\n".join(f"  {c:11}{what}" for c, what in COMMANDS.items()))


def main() -> None:
    """Run the command line and exit with its code."""
    run_as_process(lambda: call(sys.argv[1:]))


def call(argv: Sequence[str]) -> int:
    """Run one command; a user's mistake is one message, never a traceback."""
    if not argv or argv[0] in {"-h", "--help", "help"}:
        print(help_text(), end="")
        return 0
    if argv[0] in {"-V", "--version"}:
        print(f"bakeoff {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        from bakeoff._lib.phrasing import did_you_mean

        hint = did_you_mean(argv[0], COMMANDS)
        print(f"bakeoff: no command {argv[0]!r}; {hint}", file=sys.stderr)
        return 2
    return _run(argv[0], argv[1:])


def _traceback(error: BaseException) -> str:
    """Return where *error* came from, and what caused it."""
    from traceback import format_exception

    return "".join(format_exception(error))


def _run(name: str, argv: Sequence[str]) -> int:
    from importlib import import_module

    from bakeoff._lib.sanitize import for_terminal
    from bakeoff.core.errors import BakeoffError

    if name == "run" and _is_batch(argv):
        from bakeoff.cli.batch_command import from_run

        name, argv = "batch", from_run(argv)
    command = import_module(f"bakeoff.cli.{name}_command")
    # an option may stand between two words: `show RUN --output D TRIAL`
    args = command.parser().parse_intermixed_args(argv)
    try:
        code: int = command.main(args)
    except BakeoffError as error:
        if args.debug:
            print(for_terminal(_traceback(error)), file=sys.stderr)
        print(f"bakeoff: error: {for_terminal(str(error))}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has gone; so does the rest of what we had to say
        return 1
    return code


def _is_batch(argv: Sequence[str]) -> bool:
    """Whether `bakeoff run` is asked for a task in Markdown without a model: that is a batch."""
    names_a_model = any(w.startswith("-m") or w.partition("=")[0] == "--model" for w in argv)
    return not names_a_model and any(w.lower().endswith(".md") for w in argv)


def print_json(data: object) -> None:
    """Print *data* as indented JSON; dataclasses in it are objects."""
    import json
    from dataclasses import asdict

    print(json.dumps(data, indent=2, default=asdict))
