"""`runner.py`: benchmark cases, in which an instructor and a supervisor talk to agents.

python runner.py --base_config base_config.toml --agent_config agent_configs/
"""

import json
import logging
import shlex
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.argument_parser import ReadableParser
from bakeoff._lib.clock import now
from bakeoff._lib.sanitize import for_terminal
from bakeoff._lib.standard_streams import run_as_process
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.stop import Stop
from bakeoff.formats.agent_bench import read_bench
from bakeoff.frontends.agent_bench.folders import BenchRun, find_run, new_run, runs_of
from bakeoff.frontends.agent_bench.view import LOGGER, SUMMARY, BenchView
from bakeoff.frontends.session import (
    EXIT_BUDGET,
    EXIT_ENDPOINT,
    EXIT_INTERRUPTED,
    exit_code,
    run_in,
    typed,
)

_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _Plain(logging.Formatter):
    """Records without anything that a terminal would obey, and none that looks like two."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one record as text; only its first line begins as a record does."""
        return for_terminal(super().format(record)).replace("\n", "\n    | ")


@dataclass(frozen=True, kw_only=True)
class AgentBenchSession:
    """What was said on the command line."""

    base_config: Path
    agent_config: Path | None = None
    log_level: str = "INFO"
    resume: str | None = None
    sandbox: str | None = None
    env_file: Path | None = None

    def run(self) -> int:
        """Run what is to be run; return the exit code."""
        bench = read_bench(self.base_config, self.agent_config)
        table = bench.base.benchmark
        before = runs_of(table)
        run = new_run(table, now()) if self.resume is None else find_run(table, self.resume)
        elsewhere = {a.id: a.checkpoints for a in bench.agents if a.checkpoints is not None}
        run = replace(run, checkpoints=Path(bench.base.checkpoints), checkpoints_of=elsewhere)
        try:
            with _logging(run.main_log, self.log_level):
                if self.resume is None and before and _was_cut(before[-1]):
                    name = before[-1].name
                    LOGGER.warning("%s was not finished; --resume %s goes on with it", name, name)
                view = BenchView(run, [agent.id for agent in bench.agents])
                return self._execute(bench.brief, view)
        finally:
            if not run.begun:
                _give_back(run)

    def _execute(self, brief: RunSpec, view: BenchView) -> int:
        stop = Stop()
        finished = run_in(
            view.run.ledger,
            brief,
            resumed=self.resume is not None,
            say=LOGGER.warning,
            listener=view,
            stop=stop,
            sandbox=self.sandbox,
            env_file=self.env_file,
        )
        if finished is None or stop.requested or view.given_up:
            return self._stopped(view)
        for note in finished.summary().notes:
            LOGGER.warning(note)
        view.log_agents()
        if code := exit_code(finished):
            again = self._resume_command(view)
            LOGGER.warning(
                "once the faults are fixed, try those conversations again with: %s", again
            )
        look = shlex.join(["bakeoff", "show", str(view.run.ledger)])
        LOGGER.info("the results are in %s; what was said: %s", view.run.folder, look)
        return code

    def _stopped(self, view: BenchView) -> int:
        for why in view.given_up:
            LOGGER.error("given up: %s", why)
        if view.run.begun:
            view.write(finished=False)
            view.log_agents()
            LOGGER.warning("stopped; go on with: %s", self._resume_command(view))
        if view.given_up:
            return EXIT_ENDPOINT
        return EXIT_BUDGET if view.at_budget else EXIT_INTERRUPTED

    def _resume_command(self, view: BenchView) -> str:
        """Return what goes on with the run as it was started."""
        given = {
            "--base_config": self.base_config,
            "--agent_config": self.agent_config,
            "--sandbox": self.sandbox,
            "--env_file": self.env_file,
        }
        words = [str(w) for option, value in given.items() if value for w in (option, value)]
        return typed(*words, "--resume", view.run.name)


@contextmanager
def _logging(path: Path, level: str) -> Iterator[None]:
    """Let the logger speak to the terminal and into the run's main log."""
    try:
        files.make_folder(path.parent)
        files.make_file(path)
        file = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"the log {path} cannot be opened: {error.strerror}") from error
    handlers: list[logging.Handler] = [file, logging.StreamHandler(sys.stderr)]
    for handler in handlers:
        handler.setFormatter(_Plain(_FORMAT))
        LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    LOGGER.propagate = False
    try:
        yield
    finally:
        for handler in handlers:
            LOGGER.removeHandler(handler)
            handler.close()


def _was_cut(run: BenchRun) -> bool:
    try:
        return json.loads((run.folder / SUMMARY).read_bytes()).get("finished") is not True
    except (OSError, ValueError, AttributeError):
        return True


def _give_back(run: BenchRun) -> None:
    """Take the folders of a run away that has not begun; none of them with anything in it."""
    with suppress(OSError):
        run.main_log.unlink()
    for folder in (run.main_log.parent, run.ledger, run.folder):
        with suppress(OSError):
            folder.rmdir()


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_ABOUT = """\
Run the cases of a benchmark with agents. A case is a conversation: the instructor plays the person
who wants the work done, the supervisor checks what it says, the agent works.

exit codes: 0 all was run, 1 an error, 2 the command line is wrong, 3 some could not be run,
4 stopped at the budget, 130 stopped with Ctrl-C"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run; a user's mistake is one message, never a traceback."""
    args = _parser().parse_args(argv)
    from bakeoff._lib.sanitize import for_terminal
    from bakeoff.core.errors import BakeoffError

    try:
        return _run(args)
    except BakeoffError as error:
        sys.stderr.write(f"runner: error: {for_terminal(str(error))}\n")
        return 1


def _run(args: Namespace) -> int:
    from bakeoff.core.errors import UsageError

    if not args.base_config.exists():
        raise UsageError(
            f"{args.base_config} cannot be read: there is no such file; name the base file with "
            "--base_config, or copy sample_base_config.toml to base_config.toml and change it"
        )
    return AgentBenchSession(
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
