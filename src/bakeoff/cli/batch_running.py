"""A batch with a person in front of it: the live table, signals, the files, and the word at the end."""

import json
import sys
from collections.abc import Sequence

from bakeoff import app
from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.app.interrupts import interruptible
from bakeoff.cli.running import show_plan
from bakeoff.cli.views.batch import BatchProgress, print_batch
from bakeoff.cli.views.live import LiveView
from bakeoff.cli.views.plain import PlainLines
from bakeoff.core.candidate import Candidate
from bakeoff.core.errors import BakeoffError
from bakeoff.core.events import (
    Event,
    Listener,
    Notice,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialOutput,
)
from bakeoff.core.stop import Stop
from bakeoff.core.values import Json
from bakeoff.core.workspace import Tree
from bakeoff.frontends.batch.batch import BatchOptions, BatchRun, planned, ready
from bakeoff.frontends.batch.folders import Batch, names_of
from bakeoff.frontends.batch.view import write_report, write_result
from bakeoff.reports.comparison import Comparison
from bakeoff.reports.comparison import as_json as comparison_as_json
from bakeoff.stats.head_to_head import Verdict

EXIT_NOTHING = 1
EXIT_ENDPOINT = 6
EXIT_INTERRUPTED = 130
_EVERY_S = 30.0


def print_plan(wanted: BatchOptions, *, as_json: bool) -> int:
    """Print what would be run; no folder is made."""
    prepared, notices = planned(wanted)
    (task,) = prepared.plan.tasks
    limits_s = (prepared.brief.conditions.limits.time_s, task.time_s)
    more: dict[str, Json] = {
        "files": [_files_of(tree) for tree in task.workspace.files] if task.workspace else [],
        "checked_by": [scorer.name for scorer in task.scorers],
        "time_limit_s": min((s for s in limits_s if s is not None), default=None),
        "parallel": prepared.brief.parallel,
    }
    return show_plan(prepared, as_json=as_json, more=more, notices=notices)


def _files_of(tree: Tree) -> str:
    where = f"{tree.path}/{tree.subdir}" if tree.subdir else tree.path
    return f"{where} at commit {tree.commit[:12]}" if tree.commit else where


def run(wanted: BatchOptions, *, again: str, as_json: bool = False, debug: bool = False) -> int:
    """Run, show how it goes, write the reports; *again* is the command that resumes, but for the id."""
    it = ready(wanted)
    stop, screen = Stop(), _screen(it, debug=debug)
    given_up: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, RunEnded):
            given_up.extend(event.given_up)
        if isinstance(event, RunStarted):
            it.batch.remember(it.state)
        if isinstance(event, TrialEnded) and event.last and it.settings.save_intermediate:
            _keep(it.batch, event.trial.candidate, screen)
        if isinstance(event, TrialOutput) and it.settings.verbose:
            screen.say(f"{event.trial.candidate.id}: {one_line(event.text)}")
        screen(event)

    try:
        with screen:
            for notice in it.notices:
                screen(Notice(notice))
            finished = interruptible(
                app.run_async(it.brief, **_options(it, listen, stop)), stop, screen.say
            )
    finally:
        it.give_back()
    if not it.batch.begun:
        print("stopped before anything was run", file=sys.stderr)
        return EXIT_INTERRUPTED
    comparison = write_report(it.batch)
    if as_json:
        print(json.dumps(comparison_as_json(comparison), indent=2, allow_nan=False))
    else:
        print_batch(comparison, it.batch.folder, verbose=it.settings.verbose)
    cut = finished is None or (stop.requested and not comparison.result.complete)
    return _ended(comparison, f"{again} {it.batch.id}", cut=cut, given_up=given_up)


def _ended(comparison: Comparison, again: str, *, cut: bool, given_up: Sequence[str]) -> int:
    """Say how the batch ended and how to go on, and return the exit code."""
    for why in given_up:
        print(for_terminal(f"given up: {why}"), file=sys.stderr)
    if cut or given_up:
        print(f"stopped; go on with: {again}", file=sys.stderr)
        return EXIT_ENDPOINT if given_up else EXIT_INTERRUPTED
    if any(r.verdict is Verdict.ERROR for c in comparison.result.contenders for r in c.rollouts):
        print(f"once that is fixed, run what broke again with: {again}", file=sys.stderr)
    return 0 if comparison.result.successful else EXIT_NOTHING


def _options(it: BatchRun, listener: Listener, stop: Stop) -> app.Options:
    how: app.Options = {"listener": listener, "stop": stop, "command": tuple(sys.argv[1:])}
    return {**how, **it.options()}


def _screen(it: BatchRun, *, debug: bool) -> LiveView | PlainLines:
    plan = it.prepared.plan
    names = names_of(tuple(plan.candidates))
    shown = {c.id: c.model.label or names[c.id] for c in plan.candidates}
    before = app.load_run(it.batch.run).trials() if it.resumes else ()
    story = BatchProgress(f"{it.batch.id}, {it.brief.tasks[0].id}", plan, shown, before)
    if it.settings.show_progress and sys.stderr.isatty():
        return LiveView(story, debug=debug)
    quiet = not it.settings.show_progress
    return PlainLines(story, every_s=_EVERY_S, quiet=quiet, debug=debug)


def _keep(batch: Batch, candidate: Candidate, tell: Listener) -> None:
    """Write the file of one model anew; the ledger has its results, whatever becomes of the file."""
    try:
        write_result(batch, candidate)
    except BakeoffError as error:
        tell(Notice(str(error)))
