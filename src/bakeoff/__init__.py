"""A benchmark runner for LLMs and AI agents.

import bakeoff

run = bakeoff.run("suite.json", models=["embedded"], rollouts=3)
for trial in run.trials():
print(trial.name, trial.attempt.score)
print(bakeoff.summarize(run).candidates[0].total.score)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bakeoff.api import (
        Run,
        compare,
        load_run,
        power,
        report,
        rescore,
        run,
        run_async,
        summarize,
    )
    from bakeoff.api.benchmarks import get_task_score, load_benchmark
    from bakeoff.compat.test_runner import (
        APIConfiguration,
        ExecutionProgress,
        TestResult,
        TestRunner,
    )
    from bakeoff.core.candidate import AgentSpec, ModelSpec
    from bakeoff.core.errors import BakeoffError, UsageError
    from bakeoff.core.outcome import Completion, Outcome, Request, Usage
    from bakeoff.core.record import Score, TrialRecord
    from bakeoff.core.stop import Stop
    from bakeoff.core.task import Message, ScorerSpec, Suite, Task
    from bakeoff.stats.summary import Summary

__all__ = [
    "APIConfiguration",
    "AgentSpec",
    "BakeoffError",
    "Completion",
    "ExecutionProgress",
    "Message",
    "ModelSpec",
    "Outcome",
    "Request",
    "Run",
    "Score",
    "ScorerSpec",
    "Stop",
    "Suite",
    "Summary",
    "Task",
    "TestResult",
    "TestRunner",
    "TrialRecord",
    "Usage",
    "UsageError",
    "compare",
    "get_task_score",
    "load_benchmark",
    "load_run",
    "power",
    "report",
    "rescore",
    "run",
    "run_async",
    "summarize",
]

_HOMES = {
    "bakeoff.api": (
        "Run",
        "compare",
        "load_run",
        "power",
        "report",
        "rescore",
        "run",
        "run_async",
        "summarize",
    ),
    "bakeoff.api.benchmarks": ("get_task_score", "load_benchmark"),
    "bakeoff.compat.test_runner": (
        "APIConfiguration",
        "ExecutionProgress",
        "TestResult",
        "TestRunner",
    ),
    "bakeoff.core.candidate": ("AgentSpec", "ModelSpec"),
    "bakeoff.core.errors": ("BakeoffError", "UsageError"),
    "bakeoff.core.outcome": ("Completion", "Outcome", "Request", "Usage"),
    "bakeoff.core.record": ("Score", "TrialRecord"),
    "bakeoff.core.stop": ("Stop",),
    "bakeoff.core.task": ("Message", "ScorerSpec", "Suite", "Task"),
    "bakeoff.stats.summary": ("Summary",),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for: `import bakeoff` itself costs nothing."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'bakeoff' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, also those that nobody has asked for yet."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
