"""`eval_rollouts.py`: run, summarize and eval rollouts of prepared tasks.

python -m bakeoff.compat.rollouts run configs/your_benchmark.toml
"""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from bakeoff._lib.argument_parser import ReadableParser
from bakeoff._lib.standard_streams import run_as_process

_ABOUT = """\
Run prepared tasks with models, each as often as the config says, and keep what came of it.

exit codes: 0 all was run, 1 an error, 2 the command line is wrong, 3 some could not be run,
4 stopped at the budget, 130 stopped with Ctrl-C"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one message, never a traceback."""
    args = _parser().parse_args(argv)
    from bakeoff._lib.untrusted import for_terminal
    from bakeoff.core.errors import BakeoffError

    try:
        return int(args.command(args))
    except BakeoffError as error:
        sys.stderr.write(f"eval_rollouts: error: {for_terminal(str(error))}\n")
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has gone; so does the rest of what we had to say
        return 1


def _run(args: Namespace) -> int:
    from bakeoff.compat.rollouts_session import Session

    config, resume = args.config, args.resume
    if config is None and resume is not None and resume.endswith(".toml"):
        config, resume = Path(resume), "latest"  # `run --resume config.toml`
    return Session(
        config=config,
        resume=resume,
        data=args.data,
        verbosity=min(args.verbose, 2),
        parallel=args.parallel,
        sandbox=args.sandbox,
        env_file=args.env_file,
        only=args.only,
    ).run()


def _summarize(args: Namespace) -> int:
    from bakeoff._lib.untrusted import for_terminal
    from bakeoff.compat.rollouts_place import find_rollout
    from bakeoff.compat.rollouts_session import view_of
    from bakeoff.compat.rollouts_summary import summary_page

    view = view_of(find_rollout(args.data, args.name, args.rollout))
    view.refresh()
    sys.stdout.write(for_terminal(summary_page(view.findings())))
    return 0


def _eval(args: Namespace) -> int:
    from bakeoff.compat.rollouts_place import find_rollout
    from bakeoff.compat.rollouts_session import grade_again
    from bakeoff.compat.session import EXIT_INTERRUPTED

    rollout = find_rollout(args.data, args.name, args.rollout)
    code = grade_again(rollout, verbosity=min(args.verbose, 2), sandbox=args.sandbox)
    if code != EXIT_INTERRUPTED:
        args.rollout = None
        args.name = str(rollout.folder)
        _summarize(args)
    return code


def _parser() -> ArgumentParser:
    parser = ReadableParser(
        prog="eval_rollouts.py",
        description=_ABOUT,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="run | summarize | eval")
    run = commands.add_parser("run", help="run a config", allow_abbrev=False)
    run.add_argument("config", nargs="?", type=Path, help="such as configs/your_benchmark.toml")
    run.add_argument("--resume", nargs="?", const="latest", metavar="ROLLOUT",
                     help="run what is missing of a rollout: a stamp, a folder, or the newest")  # fmt: skip
    run.add_argument("--only", action="store_true",
                     help="with --resume: run just what the config asks for now, and keep the rest")  # fmt: skip
    run.add_argument("--parallel", type=_count, metavar="N", help="rollouts at once")
    run.add_argument("--env-file", type=Path, metavar="FILE",
                     help="variables that are not set in the shell (default: .env, if it exists)")  # fmt: skip
    run.set_defaults(command=_run)
    for name, command, what in (
        ("summarize", _summarize, "print what is known of a rollout"),
        ("eval", _eval, "grade the stored work of a rollout again, then summarize"),
    ):
        sub = commands.add_parser(name, help=what, allow_abbrev=False)
        sub.add_argument("name", help="the name of the benchmark, or the folder of a rollout")
        which = sub.add_mutually_exclusive_group()
        which.add_argument("--latest", action="store_true", help="the newest rollout (the default)")
        which.add_argument("--rollout", metavar="STAMP", help="such as 20250824__12-34-56")
        sub.set_defaults(command=command)
    for sub in commands.choices.values():
        sub.add_argument("-v", "--verbose", action="count", default=0,
                         help="progress line by line; -vv: everything that programs print")  # fmt: skip
        sub.add_argument("--data", type=Path, default=Path("data"), metavar="DIR",
                         help="where rollouts and runs are kept (default: data)")  # fmt: skip
        sub.add_argument("--sandbox", metavar="NAME",
                         help="bubblewrap, docker, podman, local, modal (or SANDBOX_BACKEND)")  # fmt: skip
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number of 1 or more, not {text!r}")
    return int(text)


if __name__ == "__main__":
    run_as_process(main)
