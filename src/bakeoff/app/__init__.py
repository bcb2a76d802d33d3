"""The Python API; `bakeoff.app.run` is the place to start reading."""

from pathlib import Path

from bakeoff._lib.threads import run_sync
from bakeoff.app.comparing import compare
from bakeoff.app.interrupts import new_event_loop
from bakeoff.app.options import DEFAULT_OUTPUT, RunOptions, options_as_more_keywords
from bakeoff.app.power_planning import power
from bakeoff.app.reporting import report
from bakeoff.app.rescoring import score_again
from bakeoff.app.run import plan, run, run_async
from bakeoff.app.run_results import Run, load_run
from bakeoff.formats.detect import RunSource
from bakeoff.formats.detect import read_source as read
from bakeoff.stats.summary import Summary

__all__ = [
    "DEFAULT_OUTPUT",
    "Run",
    "RunOptions",
    "RunSource",
    "compare",
    "load_run",
    "plan",
    "power",
    "read",
    "report",
    "rescore",
    "rescore_async",
    "run",
    "run_async",
    "summarize",
]


@options_as_more_keywords(RunOptions)
def rescore(run: Run | str, options: RunOptions) -> Run:
    """Score the stored answers of a run again, without asking any candidate.

    With a source (a suite or a run file), its targets and scorers take the place of the stored ones.
    """
    return run_sync(score_again(_reference(run), options), loop_factory=new_event_loop)


@options_as_more_keywords(RunOptions)
async def rescore_async(run: Run | str, options: RunOptions) -> Run:
    """Score again as `rescore` does, in the event loop that is running."""
    return await score_again(_reference(run), options)


def _reference(run: Run | str) -> str:
    return str(run.folder) if isinstance(run, Run) else run


def summarize(run: Run | str | Path, *, output: str | Path = DEFAULT_OUTPUT) -> Summary:
    """Return the statistics of a run."""
    return (run if isinstance(run, Run) else load_run(run, output=output)).summary()
