"""A session at one of the older front doors: its run, which may be stopped, and its exit codes."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from bakeoff import app
from bakeoff.app.interrupts import interruptible
from bakeoff.app.run_results import Run
from bakeoff.core.run_spec import RunSpec

EXIT_FAULTED, EXIT_BUDGET, EXIT_ENDPOINT, EXIT_INTERRUPTED = 3, 4, 6, 130


def run_in(
    ledger: Path,
    brief: RunSpec | None,
    *,
    resumed: bool,
    say: Callable[[str], None],
    **options: Unpack[app.Options],
) -> Run | None:
    """Run *brief* in the folder *ledger*, or what is missing there; None where it is cut short."""
    options["command"] = tuple(sys.argv[1:])
    if resumed:
        options["resume"] = str(ledger)
    else:
        options["folder"] = ledger
    return interruptible(app.run_async(brief, **options), options["stop"], say)


def typed(*words: str) -> str:
    """Return what a person types to start this script with other *words*."""
    return shlex.join(["python", sys.argv[0], *words])


def exit_code(run: Run) -> int:
    """Return how a run that went to its end is told to a shell."""
    return EXIT_FAULTED if run.summary().buckets.faults else 0
