"""The Python API; `bakeoff.app.run` is the place to start reading."""

from importlib import import_module
from typing import TYPE_CHECKING

from bakeoff.app.options import DEFAULT_OUTPUT, RunOptions
from bakeoff.app.run import plan, run, run_async
from bakeoff.app.run_results import Run, load_run, summarize
from bakeoff.formats.detect import RunSource
from bakeoff.formats.detect import read_source as read

if TYPE_CHECKING:
    from bakeoff.app.comparing import compare
    from bakeoff.app.gating import Gate, gate, set_baseline
    from bakeoff.app.merging import merge
    from bakeoff.app.power_planning import power
    from bakeoff.app.reporting import report
    from bakeoff.app.rescoring import rescore, rescore_async

__all__ = [
    "DEFAULT_OUTPUT",
    "Gate",
    "Run",
    "RunOptions",
    "RunSource",
    "compare",
    "gate",
    "load_run",
    "merge",
    "plan",
    "power",
    "read",
    "report",
    "rescore",
    "rescore_async",
    "run",
    "run_async",
    "set_baseline",
    "summarize",
]

_HOMES = {
    "compare": "bakeoff.app.comparing",
    "Gate": "bakeoff.app.gating",
    "gate": "bakeoff.app.gating",
    "set_baseline": "bakeoff.app.gating",
    "merge": "bakeoff.app.merging",
    "power": "bakeoff.app.power_planning",
    "report": "bakeoff.app.reporting",
    "rescore": "bakeoff.app.rescoring",
    "rescore_async": "bakeoff.app.rescoring",
}


def __getattr__(name: str) -> object:
    """Import a name when it is asked for: a run needs neither comparisons nor reports."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bakeoff.app' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
