"""`runner.py`: benchmark cases, in which an instructor and a supervisor talk to agents.

python runner.py --base_config base_config.toml --agent_config agent_configs/
"""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from bakeoff._lib.argument_parser import ReadableParser
from bakeoff._lib.standard_streams import run_as_process

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_ABOUT = """\
Run the cases of a benchmark with agents. A case is a conversation: the instructor plays the person
who wants the work done, the supervisor checks what it says, the agent works.

exit codes: 0 all was run, 1 an error, 2 the command line is wrong, 3 some could not be run,
4 stopped at the budget, 130 stopped with Ctrl-C"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run; a user's mistake is one message, never a traceback."""
    args = _parser().parse_args(argv)
    from bakeoff._lib.untrusted import for_terminal
    from bakeoff.core.errors import BakeoffError

    try:
        return _run(args)
    except BakeoffError as error:
        sys.stderr.write(f"runner: error: {for_terminal(str(error))}\n")
        return 1


def _run(args: Namespace) -> int:
    from bakeoff.compat.agent_runner_session import Session
    from bakeoff.core.errors import UsageError

    if not args.base_config.exists():
        raise UsageError(
            f"{args.base_config} cannot be read: there is no such file; name the base file with "
            "--base_config, or copy sample_base_config.toml to base_config.toml and change it"
        )
    return Session(
        base_config=args.base_config,
        agent_config=args.agent_config,
        log_level=args.log_level,
        resume=args.resume,
        sandbox=args.sandbox,
        env_file=args.env_file,
    ).run()


def _parser() -> ArgumentParser:
    parser = ReadableParser(
        prog="runner.py",
        description=_ABOUT,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--base_config", type=Path, default=Path("base_config.toml"),
                        metavar="FILE", help="cases, roles, places (default: base_config.toml)")  # fmt: skip
    parser.add_argument("--agent_config", type=Path, metavar="PATH",
                        help="an agent's TOML, or a folder of them (default: agent_configs/)")  # fmt: skip
    parser.add_argument("--log_level", "-l", type=str.upper, choices=LEVELS, default="INFO",
                        metavar="LEVEL", help=f"how much is logged: {', '.join(LEVELS)} (default: INFO)")  # fmt: skip
    parser.add_argument("--resume", nargs="?", const="latest", metavar="RUN",
                        help="resume a run that was interrupted: its name, or the newest")  # fmt: skip
    parser.add_argument("--sandbox", metavar="NAME",
                        help="where code runs: bubblewrap, docker, podman, local, modal")  # fmt: skip
    parser.add_argument("--env_file", type=Path, metavar="FILE",
                        help="variables that are not set in the shell (default: .env, if it exists)")  # fmt: skip
    return parser


if __name__ == "__main__":
    run_as_process(main)
