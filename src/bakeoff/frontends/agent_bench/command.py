"""`runner.py`: benchmark cases, in which an instructor and a supervisor talk to agents.

python runner.py --base_config base_config.toml --agent_config agent_configs/
"""

import json
import logging
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.argument_parser import ReadableParser, add_executor, add_patience, seconds
from bakeoff._lib.clock import now
from bakeoff._lib.process_setup import run_as_process
from bakeoff._lib.sanitize import for_terminal
from bakeoff.app.options import RunOptions
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.formats.agent_bench import read_bench
from bakeoff.frontends.agent_bench.folders import BenchRun, find_run, new_run, runs_of
from bakeoff.frontends.agent_bench.view import LOGGER, SUMMARY, BenchView
from bakeoff.frontends.session import (
    EXIT_CODES,
    command_line,
    flags,
    run_script,
    run_session,
    script_line,
)

_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _Plain(logging.Formatter):
    """Formats records without terminal control sequences; none of them can forge another."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one record as text; only its first line begins like a record."""
        return for_terminal(super().format(record)).replace("\n", "\n    | ")


@dataclass(frozen=True, kw_only=True)
class AgentBenchCommand:
    """The command line."""

    base_config: Path
    agent_config: Path | None = None
    log_level: str = "INFO"
    resume: str | None = None
    sandbox: str | None = None
    executor: str | None = None
    workers: int | None = None
    ray_address: str | None = None
    env_file: Path | None = None
    give_up_after: float | None = None
    keep_going: bool = False

    def run(self) -> int:
        """Run the benchmark, or the rest of a run; return the exit code."""
        bench = read_bench(self.base_config, self.agent_config)
        table = bench.base.benchmark
        earlier = runs_of(table)
        run = new_run(table, now()) if self.resume is None else find_run(table, self.resume)
        elsewhere = {a.id: a.checkpoints for a in bench.agents if a.checkpoints is not None}
        run = replace(run, checkpoints=Path(bench.base.checkpoints), checkpoints_of=elsewhere)
        try:
            with _logging(run.main_log, self.log_level):
                if self.resume is None and earlier and not _is_finished(earlier[-1]):
                    name = earlier[-1].name
                    LOGGER.warning("%s was not finished; continue it with --resume %s", name, name)
                view = BenchView(run, [agent.id for agent in bench.agents])
                return self._execute(bench.run_spec, view)
        finally:
            run.remove_unless_started()

    def _execute(self, spec: RunSpec, view: BenchView) -> int:
        options = RunOptions(
            spec,
            sandbox=self.sandbox,
            executor=self.executor,
            workers=self.workers,
            ray_address=self.ray_address,
            env_file=self.env_file,
            give_up_after=self.give_up_after,
            keep_going=self.keep_going,
        )
        options = options.in_folder(view.run.ledger, resumed=self.resume is not None)
        result = run_session(options, view)
        if result.run is not None and not result.stopped_early:
            for note in result.run.summary().notes:
                LOGGER.warning("%s", note)
        elif view.run.started:
            view.write(finished=False)
        if view.run.started:
            view.log_agents()
        level = logging.ERROR if result.given_up else logging.WARNING
        for line in result.next_steps(self._resume_command(view)):
            LOGGER.log(level, "%s", line)
        if not result.stopped_early:
            show = command_line("bakeoff", "show", str(view.run.ledger))
            LOGGER.info("the results are in %s; the conversations: %s", view.run.folder, show)
        return result.exit_code

    def _resume_command(self, view: BenchView) -> str:
        """Return the command that resumes the run with the same options."""
        options = {
            "--base_config": self.base_config,
            "--agent_config": self.agent_config,
            "--sandbox": self.sandbox,
            "--executor": self.executor,
            "--workers": self.workers,
            "--ray-address": self.ray_address,
            "--env_file": self.env_file,
            "--give_up_after": seconds(self.give_up_after),
            "--keep_going": self.keep_going,
            "--resume": view.run.name,
        }
        return script_line(*flags(options))


@contextmanager
def _logging(path: Path, level: str) -> Iterator[None]:
    """Send log records to the terminal and to the run's main log."""
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


def _is_finished(run: BenchRun) -> bool:
    try:
        return json.loads((run.folder / SUMMARY).read_bytes()).get("finished") is True
    except (OSError, ValueError, AttributeError):
        return False


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_ABOUT = f"""\
Run the cases of a benchmark with agents. A case is a conversation: the instructor plays the person
who wants the work done, the supervisor checks what it says, the agent works.

{EXIT_CODES}"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run; a user's mistake is one message, never a traceback."""
    args = _parser().parse_args(argv)
    return run_script("runner", lambda: _run(args))


def _run(args: Namespace) -> int:
    if not args.base_config.exists():
        raise UsageError(
            f"{args.base_config} cannot be read: there is no such file; name the base file with "
            "--base_config, or copy sample_base_config.toml to base_config.toml and change it"
        )
    return AgentBenchCommand(
        base_config=args.base_config,
        agent_config=args.agent_config,
        log_level=args.log_level,
        resume=args.resume,
        sandbox=args.sandbox,
        executor=args.executor,
        workers=args.workers,
        ray_address=args.ray_address,
        env_file=args.env_file,
        give_up_after=args.give_up_after,
        keep_going=args.keep_going,
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
    add_executor(parser)
    add_patience(parser, separator="_")
    return parser


if __name__ == "__main__":
    run_as_process(main)
