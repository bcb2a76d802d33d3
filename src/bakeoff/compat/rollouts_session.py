"""One session at rollouts: started, resumed or graded again, with Ctrl-C once and twice."""

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff import api
from bakeoff._lib.clock import now
from bakeoff.api.interrupting import interruptible
from bakeoff.api.site import ANY_CONTAINER, VARIABLE, is_container
from bakeoff.compat.rollouts_console import QUIET, Console
from bakeoff.compat.rollouts_place import Rollout, find_rollout, is_rollout, new_rollout
from bakeoff.compat.rollouts_view import MANIFEST, RolloutView
from bakeoff.compat.session import (
    EXIT_BUDGET,
    EXIT_ENDPOINT,
    EXIT_FAULTED,
    EXIT_INTERRUPTED,
    exit_code,
    run_in,
    typed,
)
from bakeoff.core.brief import Brief
from bakeoff.core.errors import BakeoffError, UsageError
from bakeoff.core.events import Event
from bakeoff.core.stop import Stop

DEFAULT_DATA = Path("data")


@dataclass(frozen=True, kw_only=True)
class Session:
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

    def _resumed(self, brief: Brief | None) -> Rollout:
        """Return the rollout to go on with: a folder, a stamp of the config's name, or its newest."""
        if brief is None:
            return find_rollout(self.data, str(self.resume))
        if is_rollout(Path(str(self.resume))):
            return Rollout(folder=Path(str(self.resume)))
        stamp = None if self.resume == "latest" else self.resume
        return find_rollout(self.data, brief.name, stamp)

    def _view(self, brief: Brief | None, rollout: Rollout) -> RolloutView:
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

    def _announce(self, brief: Brief | None, view: RolloutView, console: Console) -> None:
        tasks = "" if brief is None else f" tasks={len(brief.pairings)}"
        console.say(
            f"[rollouts] config={view.config} name={view.name}{tasks} parallel={view.parallel}"
        )
        console.say(f"[rollouts] output={view.rollout.folder}")
        if self.verbosity == QUIET:
            console.say("[rollouts] Running in quiet mode - use -vv for full output")

    def _where_it_began(
        self, brief: Brief | None, view: RolloutView, console: Console
    ) -> tuple[Brief | None, str | None]:
        """Return *brief* for the sandbox that the rollout began in, unless a flag asks for another."""
        try:
            began = api.load_run(view.rollout.ledger).manifest.sandbox
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

    def _asked(self, brief: Brief | None) -> str | None:
        """Return the sandbox that is asked for: by the flag, or by the environment if it counts."""
        named = brief is not None and brief.sandbox.name
        return self.sandbox or (None if named else os.environ.get(VARIABLE) or None)

    def execute(self, brief: Brief | None, view: RolloutView, console: Console) -> int:
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

    def _again(self, brief: Brief | None, view: RolloutView) -> str:
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
    work = api.rescore_async(
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
        manifest = api.load_run(rollout.ledger).manifest
        config = manifest.sources[0].path if manifest.sources else None
        name, parallel = manifest.name, 1
    return RolloutView(rollout, config=config, name=name, parallel=parallel)


def _is_same(asked: str, began: str) -> bool:
    return asked == began or (asked == ANY_CONTAINER and is_container(began))


def _brief(config: Path) -> Brief:
    brief = api.read(config, {})
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
