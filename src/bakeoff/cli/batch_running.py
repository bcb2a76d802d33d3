"""`bakeoff batch` with a person in front of it: the live table, the files and the reports."""

import sys

from bakeoff import app
from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.app.options import RunOptions
from bakeoff.cli.printing import print_json
from bakeoff.cli.views import plan
from bakeoff.cli.views.batch import BatchProgress, print_batch
from bakeoff.cli.views.live import LiveView
from bakeoff.cli.views.plain import PlainLines
from bakeoff.core.candidate import Candidate
from bakeoff.core.errors import BakeoffError
from bakeoff.core.events import Event, Notice, RunStarted, TrialEnded, TrialOutput
from bakeoff.core.values import Json
from bakeoff.core.workspace import Tree
from bakeoff.frontends.batch.batch import BatchOptions, BatchRun, plan_batch, prepare_batch
from bakeoff.frontends.batch.folders import Batch, names_of
from bakeoff.frontends.batch.view import write_report, write_result
from bakeoff.frontends.session import ExitCode, View, run_session
from bakeoff.reports.comparison import Comparison
from bakeoff.reports.comparison import as_json as comparison_as_json

_EVERY_S = 30.0


def print_plan(options: BatchOptions, *, as_json: bool) -> int:
    """Print what would be run; no folder is made."""
    prepared, notices = plan_batch(options)
    (task,) = prepared.plan.tasks
    limits_s = (prepared.spec.conditions.limits.time_s, task.time_s)
    more: dict[str, Json] = {
        "files": [_files_of(tree) for tree in task.workspace.files] if task.workspace else [],
        "checked_by": [scorer.name for scorer in task.scorers],
        "time_limit_s": min((s for s in limits_s if s is not None), default=None),
        "parallel": prepared.spec.parallel,
    }
    return plan.print_plan(prepared, as_json=as_json, more=more, notices=notices)


def _files_of(tree: Tree) -> str:
    where = f"{tree.path}/{tree.subdir}" if tree.subdir else tree.path
    return f"{where} at commit {tree.commit[:12]}" if tree.commit else where


def run(options: BatchOptions, *, resume: str, as_json: bool = False, debug: bool = False) -> int:
    """Run the batch and write its reports; *resume* is the command that resumes it, without its id."""
    batch_run = prepare_batch(options)
    batch, settings = batch_run.batch, batch_run.settings
    view = _view(batch_run, debug=debug)

    def write_files(event: Event) -> None:
        if isinstance(event, RunStarted):
            batch.remember(batch_run.state)
        elif isinstance(event, TrialEnded) and event.last and settings.save_intermediate:
            _write_result(batch, event.trial.candidate, view)
        elif isinstance(event, TrialOutput) and settings.verbose:
            view.say(f"{event.trial.candidate.id}: {one_line(event.text)}")

    try:
        for notice in batch_run.notices:
            view(Notice(notice))
        run_options = RunOptions(
            batch_run.spec,
            env_file=options.env_file,
            give_up_after=options.give_up_after_s,
            keep_going=options.keep_going,
        )
        run_options = run_options.in_folder(batch.run, resumed=batch_run.resumed)
        result = run_session(run_options, view, files=write_files)
    finally:
        batch.remove_unless_started()
    comparison = write_report(batch) if batch.started else None
    if comparison is not None:
        _print_report(comparison, batch_run, as_json=as_json)
    for line in result.next_steps(f"{resume} {batch.id}"):
        print(for_terminal(line), file=sys.stderr)
    if comparison is None or result.stopped_early:
        return result.exit_code
    return ExitCode.OK if comparison.result.successful else ExitCode.ERROR


def _print_report(comparison: Comparison, batch_run: BatchRun, *, as_json: bool) -> None:
    if as_json:
        print_json(comparison_as_json(comparison))
    else:
        verbose = batch_run.settings.verbose
        print_batch(comparison, batch_run.batch.folder, verbose=verbose)


def _view(batch_run: BatchRun, *, debug: bool) -> View:
    planned, batch = batch_run.prepared.plan, batch_run.batch
    names = names_of(tuple(planned.candidates))
    labels = {c.id: c.model.label or names[c.id] for c in planned.candidates}
    earlier = app.load_run(batch.run).trials() if batch_run.resumed else ()
    title = f"{batch.id}, {batch_run.spec.tasks[0].id}"
    progress = BatchProgress(title, planned, labels, earlier)
    if batch_run.settings.show_progress and sys.stderr.isatty():
        return LiveView(progress, debug=debug)
    quiet = not batch_run.settings.show_progress
    return PlainLines(progress, every_s=_EVERY_S, quiet=quiet, debug=debug)


def _write_result(batch: Batch, candidate: Candidate, view: View) -> None:
    """Write the file of one model; where that fails, the ledger has its results and the run goes on."""
    try:
        write_result(batch, candidate)
    except BakeoffError as error:
        view(Notice(str(error)))
