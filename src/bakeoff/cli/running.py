"""A run with a person in front of it: progress while it goes, signals, and the word at the end."""

import asyncio
import json
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from bakeoff import app
from bakeoff._lib.redact import public_word
from bakeoff._lib.sanitize import for_terminal
from bakeoff.app.checks import check_scorers
from bakeoff.app.execution import ends_when
from bakeoff.app.interrupts import interruptible, new_event_loop
from bakeoff.app.pricing import forecast_of
from bakeoff.app.sources import PreparedRun
from bakeoff.cli.views.live import LiveView
from bakeoff.cli.views.plain import PlainLines
from bakeoff.cli.views.progress import RunProgress
from bakeoff.cli.views.tables import print_summary, print_verdict
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, RunEnded, RunStarted
from bakeoff.core.run_spec import Adaptive
from bakeoff.core.stop import Stop
from bakeoff.planning.forecast import Forecast
from bakeoff.reports.files import as_json as summary_as_json
from bakeoff.reports.wording.power import foreseen_in_words
from bakeoff.stats.sizing import Foreseen, foreseen

EXIT_FAULTED = 3
EXIT_BUDGET = 4
EXIT_ENDPOINT = 6
EXIT_INTERRUPTED = 130


def print_plan(source: Path | None, options: Mapping[str, object], *, as_json: bool) -> int:
    """Print what would be run."""
    if source is None:
        raise UsageError("--dry-run needs a suite or a run file")
    prepared = app.plan(source, **_options(options))
    check_scorers(prepared.plan)
    return show_plan(prepared, as_json=as_json)


def show_plan(
    prepared: PreparedRun,
    *,
    as_json: bool,
    more: Mapping[str, object] | None = None,
    notices: Sequence[str] = (),
) -> int:
    """Print what is planned, with *more* that a person should know of it."""
    plan, notices = prepared.plan, [*prepared.notices, *notices]
    tasks = list(plan.tasks)
    shown = {
        "name": prepared.brief.name,
        "trials": len(plan),
        "tasks": len(tasks),
        "rollouts": prepared.brief.rollouts,
        "candidates": [c.id for c in plan.candidates],
        "categories": sorted({t.category for t in tasks if t.category}),
        "unchecked_tasks": sum(1 for t in tasks if not t.scorers),
        **(more or {}),
        "estimate": forecast_of(plan, prepared.brief),
        "plan": plan.digest,
        "notices": notices,
    }
    if prepared.brief.adaptive is not None:
        shown["adaptive"] = prepared.brief.adaptive
    elif (seen := foreseen(plan)) is not None:
        shown["least_difference"] = seen
    if as_json:
        print(json.dumps(shown, indent=2, default=asdict))
        return 0
    del shown["notices"]
    for notice in notices:
        print(f"note: {for_terminal(notice)}", file=sys.stderr)
    for key, value in shown.items():
        text = (", ".join(value) or "none") if isinstance(value, list) else value
        if isinstance(value, Forecast):
            text = _in_words(value)
        elif isinstance(value, Adaptive):
            text = ends_when(value, len(plan))
        elif isinstance(value, Foreseen):
            text = foreseen_in_words(value)
        print(f"{key.replace('_', ' '):16} {for_terminal(str(text))}")
    return 0


def _in_words(may: Forecast) -> str:
    """Return what a plan may come to as a person says it."""
    longest = "unknown" if may.output_tokens is None else f"at most {may.output_tokens:,}"
    cost = "cost unknown" if may.cost_usd is None else f"${may.cost_usd:.4f}"
    cost = cost if may.billed else "nothing is billed"
    if may.more:
        cost += f" for the first request of each trial, and there are more ({', '.join(may.more)})"
    why = f" (unknown: {'; '.join(may.unknown)})" if may.unknown else ""
    return f"{cost}: about {may.input_tokens:,} tokens in, {longest} out, without retries{why}"


def run(
    source: Path | None, options: Mapping[str, object], *, as_json: bool, debug: bool = False
) -> int:
    """Run, show how it goes, print what came of it; return the exit code."""
    view = _view(RunProgress(), debug=debug)
    stop, seen = Stop(), _Seen()

    def listen(event: Event) -> None:
        seen(event)
        view(event)

    given: app.Options = {
        **_options(options),
        "listener": listen,
        "stop": stop,
        "command": tuple(sys.argv[1:]),
    }
    with view:
        finished = interruptible(app.run_async(source, **given), stop, view.say)
    if finished is not None and seen.at_budget:
        _print_result(finished, as_json=as_json, hint=_budget_hint(finished))
        return EXIT_BUDGET
    if finished is not None and seen.given_up:
        _print_result(finished, as_json=as_json)
        _print_given_up(seen.given_up, finished.id)
        return EXIT_ENDPOINT
    if stop.requested or finished is None:
        _print_resume(seen.run_id)
        return EXIT_INTERRUPTED
    hint = (
        f"some trials faulted; once that is fixed, run those again with: "
        f"{_resume_command(finished.id)}"
    )
    return _print_result(finished, as_json=as_json, fault_hint=hint)


def score_again(
    run: str,
    source: Path | None,
    options: Mapping[str, object],
    *,
    as_json: bool,
    debug: bool = False,
) -> int:
    """Score the stored answers of a run again; return the exit code."""
    view = _view(RunProgress(rescoring=True), debug=debug)
    stop = Stop()

    async def work() -> app.Run:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.request)
        given: app.Options = {**_options(options), "listener": view, "stop": stop}
        return await app.rescore_async(run, source, **given)

    with view, asyncio.Runner(loop_factory=new_event_loop) as runner:
        finished = runner.run(work())
    if stop.requested:
        print("stopped; the verdicts are as they were before", file=sys.stderr)
        return EXIT_INTERRUPTED
    return _print_result(finished, as_json=as_json)


def _view(progress: RunProgress, *, debug: bool) -> LiveView | PlainLines:
    if sys.stderr.isatty():
        return LiveView(progress, debug=debug)
    return PlainLines(progress, debug=debug)


def _print_result(
    run: app.Run, *, as_json: bool, hint: str | None = None, fault_hint: str | None = None
) -> int:
    """Print what came of a run: the figures, what to do next, and last the verdict."""
    summary = run.summary()
    faulted = bool(summary.buckets.faults)
    if as_json:
        print(json.dumps(summary_as_json(summary), indent=2))
    else:
        print_summary(summary, folder=run.folder)
    sys.stdout.flush()  # both may go to one terminal: the lines keep their order
    if next_step := hint or (fault_hint if faulted else None):
        print(next_step, file=sys.stderr, flush=True)
    if not as_json:
        print_verdict(summary)
    return EXIT_FAULTED if faulted else 0


class _Seen:
    """Remembers which run this is, for the resume command, and what ended it early."""

    def __init__(self) -> None:
        self.run_id: str | None = None
        self.at_budget = False
        self.given_up: tuple[str, ...] = ()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.run_id = event.run_id
        elif isinstance(event, RunEnded):
            self.at_budget, self.given_up = event.at_budget, event.given_up


def _options(options: Mapping[str, object]) -> app.Options:
    return cast("app.Options", dict(options))


def _print_resume(run_id: str | None) -> None:
    if run_id is None:
        print("stopped before the run had started", file=sys.stderr)
        return
    print(f"stopped; go on with: {_resume_command(run_id)}", file=sys.stderr)


def _print_given_up(reasons: Sequence[str], run_id: str) -> None:
    """Say which endpoints were given up and why, and how to go on once they are back."""
    for why in reasons:
        print(for_terminal(f"given up: {why}"), file=sys.stderr)
    print(
        "what was not run counts as not run; once that is fixed, "
        f"go on with: {_resume_command(run_id)}",
        file=sys.stderr,
    )


def _resume_command(run_id: str) -> str:
    words = _without("--resume", sys.argv[1:])
    return for_terminal(shlex.join(["bakeoff", *map(public_word, words), "--resume", run_id]))


def _budget_hint(run: app.Run) -> str:
    """Return that the budget ended the run, and how to go on with twice as much."""
    cap, billed = run.manifest.cap, run.billed()
    words = _without("--resume", sys.argv[1:])
    told = []
    if cap.cost_usd is not None:
        told.append(f"${billed.most_usd:.4f} of ${cap.cost_usd:.4f}")
        words = [*_without("--max-cost", words), "--max-cost", f"{2 * cap.cost_usd:g}"]
    if cap.tokens is not None:
        told.append(f"{billed.most_tokens:,} of {cap.tokens:,} tokens")
        words = [*_without("--max-tokens", words), "--max-tokens", str(2 * cap.tokens)]
    command = shlex.join(["bakeoff", *map(public_word, words), "--resume", run.id])
    return (
        f"stopped at the budget ({', '.join(told)}), the next request might have passed it; "
        f"with twice as much, go on with: {command}"
    )


def _without(option: str, words: Sequence[str]) -> list[str]:
    """Return *words* without *option* and its value."""
    left = list(words)
    while option in left:
        at = left.index(option)
        del left[at : at + 2]
    return [w for w in left if not w.startswith(f"{option}=")]
