"""`bakeoff run` and `bakeoff eval` with a person in front of them."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bakeoff._lib.sanitize import for_terminal
from bakeoff.app.options import DEFAULT_OUTPUT, RunOptions
from bakeoff.app.run import prepare_run
from bakeoff.app.run_results import Run
from bakeoff.cli import print_json
from bakeoff.cli.views.progress import RunProgress
from bakeoff.cli.views.tables import print_summary, print_verdict
from bakeoff.cli.views.terminal import LiveView, PlainLines
from bakeoff.core.budget import Cap
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Notice
from bakeoff.frontends.session import (
    ExitCode,
    View,
    command_line,
    flags,
    rescore_session,
    run_session,
)
from bakeoff.reports.files import as_json as summary_as_json
from bakeoff.reports.wording.phrases import counted


def print_plan(options: RunOptions, *, as_json: bool) -> int:
    """Print what would be run."""
    if options.source is None:
        raise UsageError("--dry-run needs a suite or a run file")
    from bakeoff.app.checks import check_scorers

    prepared = prepare_run(options)
    check_scorers(prepared.plan)
    from bakeoff.cli.views import plan

    return plan.print_plan(prepared, as_json=as_json)


def run(options: RunOptions, *, as_json: bool, debug: bool = False) -> int:
    """Run, show the progress, print the results; return the exit code."""
    result = run_session(options, _view(RunProgress(), debug=debug))
    words = _without("--resume", sys.argv[1:])
    resume = ["--resume", result.run_id or ""]
    cap = _whole_cap(result.run)
    steps = result.next_steps(
        command_line("bakeoff", *words, *resume),
        larger_budget=command_line("bakeoff", *_with_twice(cap, words), *resume),
    )
    if result.run is None or result.exit_code is ExitCode.INTERRUPTED:
        _print_steps(steps)
    else:
        _print_result(result.run, [*steps, *_after_shard(result.run)], as_json=as_json)
    return result.exit_code


def _after_shard(run: Run) -> Iterator[str]:
    """Yield what to do once every shard of the plan has run, where *run* is one."""
    if (shard := run.manifest.shard) is not None and shard.count > 1:
        yield f"this is shard {shard.name}; once all have run: bakeoff merge RUN RUN ..."


def merge(runs: Sequence[str], *, output: Path, name: str | None, as_json: bool) -> int:
    """Put the runs of all shards together and print the results; return the exit code."""
    from bakeoff.app.merging import merge as merge_shards

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            _print_steps([f"note: {event.text}"])

    command = tuple(sys.argv[1:])
    run = merge_shards(runs, output=output, name=name, listener=listen, command=command)
    print(
        for_terminal(f"merged {len(run.manifest.merged)} runs into {run.folder}"), file=sys.stderr
    )
    buckets = run.summary().buckets
    steps = []
    if due := buckets.not_run + buckets.cancelled + buckets.faults:
        where = [] if output == DEFAULT_OUTPUT else ["--output", str(output)]
        resume = command_line("bakeoff", "run", "--resume", run.id, *where)
        steps = [f"{counted(due, 'trial')} not run or faulted; run the rest with: {resume}"]
    _print_result(run, steps, as_json=as_json)
    return ExitCode.OK


def score_again(run: str, options: RunOptions, *, as_json: bool, debug: bool = False) -> int:
    """Score the stored answers of a run again; return the exit code."""
    view = _view(RunProgress(rescoring=True), debug=debug)
    result = rescore_session(run, options, view)
    if result.run is None or result.stopped_early:
        _print_steps([f"given up: {why}" for why in result.given_up])
        print("stopped; the verdicts are as they were before", file=sys.stderr)
    else:
        _print_result(result.run, (), as_json=as_json)
    return result.exit_code


def _view(progress: RunProgress, *, debug: bool) -> View:
    if sys.stderr.isatty():
        return LiveView(progress, debug=debug)
    return PlainLines(progress, debug=debug)


def _print_result(run: Run, steps: Sequence[str], *, as_json: bool) -> None:
    """Print the results of a run: the figures, what to do next, and last the verdict."""
    summary = run.summary()
    if as_json:
        print_json(summary_as_json(summary))
    else:
        print_summary(summary, folder=run.folder)
    sys.stdout.flush()  # both may go to one terminal: the lines keep their order
    _print_steps(steps)
    if not as_json:
        print_verdict(summary)


def _print_steps(steps: Sequence[str]) -> None:
    for line in steps:
        print(for_terminal(line), file=sys.stderr, flush=True)


def _whole_cap(run: Run | None) -> Cap:
    """Return the budget as it was typed: that of a shard is a part of it."""
    if run is None:
        return Cap()
    manifest = run.manifest
    return manifest.cap if manifest.shard is None else manifest.shard.cap


def _with_twice(cap: Cap, words: Sequence[str]) -> list[str]:
    """Return the command line *words* with twice the budget *cap*."""
    larger = {
        "--max-cost": None if cap.cost_usd is None else f"{2 * cap.cost_usd:g}",
        "--max-tokens": None if cap.tokens is None else 2 * cap.tokens,
    }
    for option, value in larger.items():
        words = words if value is None else _without(option, words)
    return [*words, *flags(larger)]


def _without(option: str, words: Sequence[str]) -> list[str]:
    """Return *words* without *option* and its value."""
    left = list(words)
    while option in left:
        at = left.index(option)
        del left[at : at + 2]
    return [word for word in left if not word.startswith(f"{option}=")]
