"""`eval_rollouts.py`: run, summarize and eval rollouts of prepared tasks.

python -m bakeoff.frontends.rollouts.command run configs/your_benchmark.toml
"""

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff import app
from bakeoff._lib.argument_parser import ReadableParser, add_executor, add_patience, seconds
from bakeoff._lib.clock import now
from bakeoff._lib.process_setup import run_as_process
from bakeoff._lib.sanitize import for_terminal
from bakeoff.app.options import RunOptions
from bakeoff.app.workspaces import ANY_CONTAINER, VARIABLE, is_container
from bakeoff.core.errors import BakeoffError, UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.frontends.rollouts.folders import Rollout, find_rollout, is_rollout, new_rollout
from bakeoff.frontends.rollouts.summary import summary_page
from bakeoff.frontends.rollouts.view import MANIFEST, QUIET, Console, GradingConsole, RolloutView
from bakeoff.frontends.session import (
    EXIT_CODES,
    ExitCode,
    flags,
    rescore_session,
    run_script,
    run_session,
    script_line,
)

DEFAULT_DATA = Path("data")


@dataclass(frozen=True, kw_only=True)
class RolloutsCommand:
    """The command line of `run`."""

    config: Path | None
    data: Path
    resume: str | None = None
    verbosity: int = QUIET
    parallel: int | None = None
    sandbox: str | None = None
    executor: str | None = None
    workers: int | None = None
    ray_address: str | None = None
    env_file: Path | None = None
    only: bool = False
    give_up_after: float | None = None
    keep_going: bool = False

    def run(self) -> int:
        """Run the config, or the rest of a rollout; return the exit code."""
        spec = None if self.config is None else _read(self.config)
        if self.resume is not None:
            rollout = self._resumed(spec)
        elif spec is not None:
            rollout = new_rollout(self.data, spec.name, now())
        else:
            raise UsageError("nothing to run: name a config, or a rollout with --resume")
        try:
            view = self._view(spec, rollout)
            console = Console(view, sys.stdout, verbosity=self.verbosity)
            self._announce(spec, view, console)
            if self.resume is None:
                return self.execute(spec, view, console)
            spec, sandbox = self._first_sandbox(spec, view, console)
            return replace(self, sandbox=sandbox).execute(spec, view, console)
        finally:
            rollout.remove_unless_started()

    def _resumed(self, spec: RunSpec | None) -> Rollout:
        """Return the rollout to resume: a folder, a stamp of the config's name, or its newest."""
        if spec is None:
            return find_rollout(self.data, str(self.resume))
        if is_rollout(Path(str(self.resume))):
            return Rollout(folder=Path(str(self.resume)))
        stamp = None if self.resume == "latest" else self.resume
        return find_rollout(self.data, spec.name, stamp)

    def _view(self, spec: RunSpec | None, rollout: Rollout) -> RolloutView:
        if spec is None or self.config is None:
            earlier = view_of(rollout)
            return RolloutView(
                rollout,
                config=earlier.config,
                name=earlier.name,
                parallel=self.parallel or earlier.parallel,
            )
        parallel = self.parallel or spec.parallel or 1
        return RolloutView(rollout, config=str(self.config), name=spec.name, parallel=parallel)

    def _announce(self, spec: RunSpec | None, view: RolloutView, console: Console) -> None:
        tasks = "" if spec is None else f" tasks={len(spec.pairings)}"
        console.say(
            f"[rollouts] config={view.config} name={view.name}{tasks} parallel={view.parallel}"
        )
        console.say(f"[rollouts] output={view.rollout.folder}")
        if self.verbosity == QUIET:
            console.say("[rollouts] Running in quiet mode - use -vv for full output")

    def _first_sandbox(
        self, spec: RunSpec | None, view: RolloutView, console: Console
    ) -> tuple[RunSpec | None, str | None]:
        """Return *spec* for the sandbox that the rollout began in, unless a flag asks for another."""
        try:
            began = app.load_run(view.rollout.ledger).manifest.sandbox
        except BakeoffError:  # the resume itself reports what is wrong with the ledger
            return spec, self.sandbox
        asked = self._asked_sandbox(spec)
        if began.name is None:
            return spec, self.sandbox
        if asked is not None and not _is_same(asked, began.name):
            if self.sandbox is not None:
                console.say(
                    f"[rollouts] this rollout was begun in {began.name}, the rest runs in {asked}: "
                    "results may differ for that reason alone"
                )
                return spec, asked
            console.say(
                f"[rollouts] this rollout was begun in {began.name} and continues there; {VARIABLE} "
                f"does not change that, --sandbox {asked} would"
            )
        return (None if spec is None else replace(spec, sandbox=began)), None

    def _asked_sandbox(self, spec: RunSpec | None) -> str | None:
        """Return the sandbox of the flag, or of the environment where the config names none."""
        in_config = spec is not None and spec.sandbox.name
        return self.sandbox or (None if in_config else os.environ.get(VARIABLE) or None)

    def execute(self, spec: RunSpec | None, view: RolloutView, console: Console) -> int:
        """Run *spec*, or the rest of the rollout; return the exit code."""
        options = RunOptions(
            spec,
            sandbox=self.sandbox,
            executor=self.executor,
            workers=self.workers,
            ray_address=self.ray_address,
            parallel=view.parallel,
            env_file=self.env_file,
            only=self.only,
            give_up_after=self.give_up_after,
            keep_going=self.keep_going,
        )
        options = options.in_folder(view.rollout.ledger, resumed=self.resume is not None)
        result = run_session(options, console, files=view)
        if result.stopped_early and is_rollout(view.rollout.folder):
            view.rebuild()
        for line in result.next_steps(self._resume_command(spec, view)):
            console.say(f"[rollouts] {line}")
        if not result.stopped_early:
            summary = script_line("summarize", str(view.rollout.folder))
            console.say(f"[rollouts] see the scores with: {summary}")
        return result.exit_code

    def _resume_command(self, spec: RunSpec | None, view: RolloutView) -> str:
        """Return the command that resumes the rollout with the same options."""
        options = {
            "--resume": view.rollout.folder,
            "--sandbox": self._asked_sandbox(spec),
            "--executor": self.executor,
            "--workers": self.workers,
            "--ray-address": self.ray_address,
            "--parallel": self.parallel,
            "--env-file": self.env_file,
            "--data": None if self.data == DEFAULT_DATA else self.data,
            "--only": self.only,
            "--give-up-after": seconds(self.give_up_after),
            "--keep-going": self.keep_going,
        }
        config = [] if self.config is None else [str(self.config)]
        return script_line("run", *config, *flags(options))


def grade_again(rollout: Rollout, *, verbosity: int, sandbox: str | None) -> int:
    """Grade the stored work of a rollout again and rewrite its files; return the exit code."""
    view = view_of(rollout)
    console = GradingConsole(view, sys.stdout, verbosity=verbosity)
    view.rebuild()
    result = rescore_session(str(rollout.ledger), RunOptions(sandbox=sandbox), console)
    if result.stopped_early:
        for why in result.given_up:
            console.say(f"[rollouts] given up: {why}")
        console.say("[rollouts] stopped; the verdicts are as they were before")
    else:
        view.rebuild()
    return result.exit_code


def view_of(rollout: Rollout) -> RolloutView:
    """Return the view of a rollout that was started before, as its manifest describes it."""
    try:
        written = json.loads((rollout.folder / MANIFEST).read_bytes())
        config, name, parallel = written["config"], written["name"], written["parallel"]
    except (OSError, ValueError, KeyError, TypeError):  # killed before it was written
        manifest = app.load_run(rollout.ledger).manifest
        config = manifest.sources[0].path if manifest.sources else None
        name, parallel = manifest.name, 1
    return RolloutView(rollout, config=config, name=name, parallel=parallel)


def _is_same(asked: str, began: str) -> bool:
    return asked == began or (asked == ANY_CONTAINER and is_container(began))


def _read(config: Path) -> RunSpec:
    spec = app.read(config, {})
    if not spec.pairings:
        raise UsageError(
            f"{config}: no rollouts are in it; write [[tasks]] with `prepared_dir` and `model`"
        )
    return spec


_ABOUT = f"""\
Run prepared tasks with models, each as often as the config says, and keep the results.

{EXIT_CODES}"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one message, never a traceback."""
    args = _parser().parse_args(argv)
    return run_script("eval_rollouts", lambda: int(args.command(args)))


def _run(args: Namespace) -> int:
    config, resume = args.config, args.resume
    if config is None and resume is not None and resume.endswith(".toml"):
        config, resume = Path(resume), "latest"  # `run --resume config.toml`
    return RolloutsCommand(
        config=config,
        resume=resume,
        data=args.data,
        verbosity=min(args.verbose, 2),
        parallel=args.parallel,
        sandbox=args.sandbox,
        executor=args.executor,
        workers=args.workers,
        ray_address=args.ray_address,
        env_file=args.env_file,
        only=args.only,
        give_up_after=args.give_up_after,
        keep_going=args.keep_going,
    ).run()


def _summarize(args: Namespace) -> int:
    view = view_of(find_rollout(args.data, args.name, args.rollout))
    view.refresh()
    sys.stdout.write(for_terminal(summary_page(view.findings())))
    return 0


def _eval(args: Namespace) -> int:
    rollout = find_rollout(args.data, args.name, args.rollout)
    code = grade_again(rollout, verbosity=min(args.verbose, 2), sandbox=args.sandbox)
    if code in {ExitCode.OK, ExitCode.FAULTED}:
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
    add_executor(run)
    add_patience(run)
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
        sub.add_argument("--data", type=Path, default=DEFAULT_DATA, metavar="DIR",
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
