"""`eval_rollouts.py`: run, summarize and eval rollouts of prepared tasks.

python -m bakeoff.frontends.rollouts.command run configs/your_benchmark.toml
"""

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff import app
from bakeoff._lib.argument_parser import ReadableParser
from bakeoff._lib.clock import now
from bakeoff._lib.standard_streams import run_as_process
from bakeoff.app.interrupts import interruptible
from bakeoff.app.workspaces import ANY_CONTAINER, VARIABLE, is_container
from bakeoff.core.errors import BakeoffError, UsageError
from bakeoff.core.events import Event
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.stop import Stop
from bakeoff.frontends.rollouts.folders import Rollout, find_rollout, is_rollout, new_rollout
from bakeoff.frontends.rollouts.view import MANIFEST, QUIET, Console, RolloutView
from bakeoff.frontends.session import (
    EXIT_BUDGET,
    EXIT_ENDPOINT,
    EXIT_FAULTED,
    EXIT_INTERRUPTED,
    exit_code,
    run_in,
    typed,
)

DEFAULT_DATA = Path("data")


@dataclass(frozen=True, kw_only=True)
class RolloutsSession:
    """What was said on the command line about a run of rollouts."""

    config: Path | None
    data: Path
    resume: str | None = None
    verbosity: int = QUIET
    parallel: int | None = None
    sandbox: str | None = None
    env_file: Path | None = None
    only: bool = False

    def run(self) -> int:
        """Run what is to be run; return the exit code."""
        brief = None if self.config is None else _brief(self.config)
        if self.resume is None and brief is None:
            raise UsageError("nothing to run: name a config, or a rollout with --resume")
        if self.resume is not None:
            rollout = self._resumed(brief)
        else:
            rollout = new_rollout(self.data, brief.name if brief else "", now())
        try:
            view = self._view(brief, rollout)
            console = Console(view, sys.stdout, verbosity=self.verbosity)
            self._announce(brief, view, console)
            if self.resume is not None:
                brief, sandbox = self._where_it_began(brief, view, console)
                return replace(self, sandbox=sandbox).execute(brief, view, console)
            return self.execute(brief, view, console)
        finally:
            if not is_rollout(rollout.folder):
                _give_back(rollout)

    def _resumed(self, brief: RunSpec | None) -> Rollout:
        """Return the rollout to go on with: a folder, a stamp of the config's name, or its newest."""
        if brief is None:
            return find_rollout(self.data, str(self.resume))
        if is_rollout(Path(str(self.resume))):
            return Rollout(folder=Path(str(self.resume)))
        stamp = None if self.resume == "latest" else self.resume
        return find_rollout(self.data, brief.name, stamp)

    def _view(self, brief: RunSpec | None, rollout: Rollout) -> RolloutView:
        if brief is None or self.config is None:
            before = view_of(rollout)
            return RolloutView(
                rollout,
                config=before.config,
                name=before.name,
                parallel=self.parallel or before.parallel,
            )
        parallel = self.parallel or brief.parallel or 1
        return RolloutView(rollout, config=str(self.config), name=brief.name, parallel=parallel)

    def _announce(self, brief: RunSpec | None, view: RolloutView, console: Console) -> None:
        tasks = "" if brief is None else f" tasks={len(brief.pairings)}"
        console.say(
            f"[rollouts] config={view.config} name={view.name}{tasks} parallel={view.parallel}"
        )
        console.say(f"[rollouts] output={view.rollout.folder}")
        if self.verbosity == QUIET:
            console.say("[rollouts] Running in quiet mode - use -vv for full output")

    def _where_it_began(
        self, brief: RunSpec | None, view: RolloutView, console: Console
    ) -> tuple[RunSpec | None, str | None]:
        """Return *brief* for the sandbox that the rollout began in, unless a flag asks for another."""
        try:
            began = app.load_run(view.rollout.ledger).manifest.sandbox
        except BakeoffError:  # nothing says where; whoever resumes it will be told what is wrong
            return brief, self.sandbox
        asked = self._asked(brief)
        if began.name is None:
            return brief, self.sandbox
        if asked is not None and not _is_same(asked, began.name):
            if self.sandbox is not None:
                console.say(
                    f"[rollouts] this rollout was begun in {began.name}, the rest runs in {asked}: "
                    "results may differ for that reason alone"
                )
                return brief, asked
            console.say(
                f"[rollouts] this rollout was begun in {began.name} and goes on there; {VARIABLE} "
                f"does not change that, --sandbox {asked} would"
            )
        return (None if brief is None else replace(brief, sandbox=began)), None

    def _asked(self, brief: RunSpec | None) -> str | None:
        """Return the sandbox that is asked for: by the flag, or by the environment if it counts."""
        named = brief is not None and brief.sandbox.name
        return self.sandbox or (None if named else os.environ.get(VARIABLE) or None)

    def execute(self, brief: RunSpec | None, view: RolloutView, console: Console) -> int:
        """Run *brief*, or what is missing of the rollout; return the exit code."""

        def listen(event: Event) -> None:
            view(event)
            console(event)

        stop, again = Stop(), self._again(brief, view)
        try:
            finished = run_in(
                view.rollout.ledger,
                brief,
                resumed=self.resume is not None,
                say=console.say,
                listener=listen,
                stop=stop,
                sandbox=self.sandbox,
                parallel=view.parallel,
                env_file=self.env_file,
                only=self.only,
            )
        finally:
            console.close()
        if finished is None or stop.requested or console.given_up:
            return self._stopped(view, console, again)
        code = exit_code(finished)
        if code == EXIT_FAULTED:
            console.say(f"[rollouts] once that is fixed, run the rest with: {again}")
        summary = typed("summarize", str(view.rollout.folder))
        console.say(f"[rollouts] see the scores with: {summary}")
        return code

    def _again(self, brief: RunSpec | None, view: RolloutView) -> str:
        """Return what to type to go on, with whatever else shaped the run."""
        words = ["run"] if self.config is None else ["run", str(self.config)]
        words += ["--resume", str(view.rollout.folder)]
        for flag, given in (
            ("--sandbox", self._asked(brief)),
            ("--parallel", self.parallel),
            ("--env-file", self.env_file),
            ("--data", None if self.data == DEFAULT_DATA else self.data),
        ):
            words += [] if given is None else [flag, str(given)]
        return typed(*words, *(["--only"] if self.only else []))

    def _stopped(self, view: RolloutView, console: Console, again: str) -> int:
        if not is_rollout(view.rollout.folder):
            console.say("[rollouts] stopped before anything was run")
            return EXIT_INTERRUPTED
        view.rebuild()
        for why in console.given_up:
            console.say(f"[rollouts] given up: {why}")
        why = "stopped at the budget" if console.at_budget else "stopped"
        console.say(f"[rollouts] {why}; go on with: {again}")
        if console.given_up:
            return EXIT_ENDPOINT
        return EXIT_BUDGET if console.at_budget else EXIT_INTERRUPTED


def grade_again(rollout: Rollout, *, verbosity: int, sandbox: str | None) -> int:
    """Grade the stored work of a rollout again, and make its files anew; return the exit code."""
    view, stop = view_of(rollout), Stop()
    console = Console(view, sys.stdout, verbosity=verbosity)
    view.rebuild()
    work = app.rescore_async(
        str(rollout.ledger), listener=console.grading, stop=stop, sandbox=sandbox
    )
    try:
        finished = interruptible(work, stop, console.say)
    finally:
        console.close()
    if finished is None or stop.requested:
        console.say("[rollouts] stopped; the verdicts are as they were before")
        return EXIT_INTERRUPTED
    view.rebuild()
    return exit_code(finished)


def view_of(rollout: Rollout) -> RolloutView:
    """Return the view of a rollout that was started before, as its manifest describes it."""
    try:
        before = json.loads((rollout.folder / MANIFEST).read_bytes())
        config, name, parallel = before["config"], before["name"], before["parallel"]
    except (OSError, ValueError, KeyError, TypeError):  # killed before its first version was there
        manifest = app.load_run(rollout.ledger).manifest
        config = manifest.sources[0].path if manifest.sources else None
        name, parallel = manifest.name, 1
    return RolloutView(rollout, config=config, name=name, parallel=parallel)


def _is_same(asked: str, began: str) -> bool:
    return asked == began or (asked == ANY_CONTAINER and is_container(began))


def _brief(config: Path) -> RunSpec:
    brief = app.read(config, {})
    if not brief.pairings:
        raise UsageError(
            f"{config}: no rollouts are in it; write [[tasks]] with `prepared_dir` and `model`"
        )
    return brief


def _give_back(rollout: Rollout) -> None:
    """Take the folders of a rollout away that has not begun; none of them with anything in it."""
    first = rollout.run_dir(f"{rollout.stamp}-0")
    for folder in (rollout.ledger, rollout.folder, first, rollout.folder.parent):
        with suppress(OSError):
            folder.rmdir()


_ABOUT = """\
Run prepared tasks with models, each as often as the config says, and keep what came of it.

exit codes: 0 all was run, 1 an error, 2 the command line is wrong, 3 some could not be run,
4 stopped at the budget, 130 stopped with Ctrl-C"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one message, never a traceback."""
    args = _parser().parse_args(argv)
    from bakeoff._lib.sanitize import for_terminal
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

    config, resume = args.config, args.resume
    if config is None and resume is not None and resume.endswith(".toml"):
        config, resume = Path(resume), "latest"  # `run --resume config.toml`
    return RolloutsSession(
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
    from bakeoff._lib.sanitize import for_terminal
    from bakeoff.frontends.rollouts.folders import find_rollout
    from bakeoff.frontends.rollouts.summary import summary_page

    view = view_of(find_rollout(args.data, args.name, args.rollout))
    view.refresh()
    sys.stdout.write(for_terminal(summary_page(view.findings())))
    return 0


def _eval(args: Namespace) -> int:
    from bakeoff.frontends.rollouts.folders import find_rollout
    from bakeoff.frontends.session import EXIT_INTERRUPTED

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
