"""A benchmark runner for LLMs and AI agents.

import bakeoff

run = bakeoff.run("suite.json", models=["embedded"], rollouts=3)
for trial in run.trials():
print(trial.name, trial.attempt.score)
print(bakeoff.summarize(run).candidates[0].total.score)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bakeoff.app import (
        Gate,
        Run,
        compare,
        gate,
        load_run,
        merge,
        power,
        report,
        rescore,
        set_baseline,
        summarize,
    )
    from bakeoff.app.agreeing import agreement
    from bakeoff.app.history import history
    from bakeoff.app.run import run, run_async
    from bakeoff.core.attachment import Attachment
    from bakeoff.core.candidate import (
        AgentSpec,
        Candidate,
        Conditions,
        Limits,
        ModelSpec,
        PromptSpec,
    )
    from bakeoff.core.errors import (
        AgentError,
        BakeoffError,
        BudgetReached,
        LedgerError,
        LimitReached,
        NotRun,
        ProviderError,
        SandboxError,
        ScorerError,
        TrialError,
        UsageError,
    )
    from bakeoff.core.events import (
        Event,
        Listener,
        Notice,
        RunEnded,
        RunStarted,
        TrialEnded,
        TrialNotRun,
        TrialOutput,
        TrialSpent,
        TrialStarted,
        TurnEnded,
        TurnStarted,
        Waiting,
    )
    from bakeoff.core.outcome import Completion, Journal, Outcome, Request, Spent, Tool, Usage, Wait
    from bakeoff.core.plan import Plan, Trial
    from bakeoff.core.ports import Agent, Checkpoint, Context, Model, ModelAccess, Scorer
    from bakeoff.core.record import Attempt, Fault, Score, Status, TrialRecord
    from bakeoff.core.sandbox import (
        Box,
        BoxSpec,
        Command,
        CommandResult,
        GatewayAddress,
        GradingSpec,
        GradingWorkspace,
        Mount,
        OpenWorkspace,
        Sandbox,
        Workspaces,
    )
    from bakeoff.core.stop import Stop
    from bakeoff.core.task import Message, ScorerSpec, Suite, Task, ToolCall
    from bakeoff.core.values import Json
    from bakeoff.core.workspace import BoxLimits, Change, Image, SandboxSpec, Workspace
    from bakeoff.frontends.rollouts.folders import get_task_score, load_benchmark
    from bakeoff.frontends.test_runner.runner import (
        APIConfiguration,
        ExecutionProgress,
        TestResult,
        TestRunner,
    )
    from bakeoff.stats.summary import Summary

__all__ = [
    "APIConfiguration",
    "Agent",
    "AgentError",
    "AgentSpec",
    "Attachment",
    "Attempt",
    "BakeoffError",
    "Box",
    "BoxLimits",
    "BoxSpec",
    "BudgetReached",
    "Candidate",
    "Change",
    "Checkpoint",
    "Command",
    "CommandResult",
    "Completion",
    "Conditions",
    "Context",
    "Event",
    "ExecutionProgress",
    "Fault",
    "Gate",
    "GatewayAddress",
    "GradingSpec",
    "GradingWorkspace",
    "Image",
    "Journal",
    "Json",
    "LedgerError",
    "LimitReached",
    "Limits",
    "Listener",
    "Message",
    "Model",
    "ModelAccess",
    "ModelSpec",
    "Mount",
    "NotRun",
    "Notice",
    "OpenWorkspace",
    "Outcome",
    "Plan",
    "PromptSpec",
    "ProviderError",
    "Request",
    "Run",
    "RunEnded",
    "RunStarted",
    "Sandbox",
    "SandboxError",
    "SandboxSpec",
    "Score",
    "Scorer",
    "ScorerError",
    "ScorerSpec",
    "Spent",
    "Status",
    "Stop",
    "Suite",
    "Summary",
    "Task",
    "TestResult",
    "TestRunner",
    "Tool",
    "ToolCall",
    "Trial",
    "TrialEnded",
    "TrialError",
    "TrialNotRun",
    "TrialOutput",
    "TrialRecord",
    "TrialSpent",
    "TrialStarted",
    "TurnEnded",
    "TurnStarted",
    "Usage",
    "UsageError",
    "Wait",
    "Waiting",
    "Workspace",
    "Workspaces",
    "agreement",
    "compare",
    "gate",
    "get_task_score",
    "history",
    "load_benchmark",
    "load_run",
    "merge",
    "power",
    "report",
    "rescore",
    "run",
    "run_async",
    "set_baseline",
    "summarize",
]

_HOMES = {
    "bakeoff.app": "Gate Run compare gate load_run merge power report rescore set_baseline summarize",
    "bakeoff.app.run": "run run_async",
    "bakeoff.app.agreeing": "agreement",
    "bakeoff.app.history": "history",
    "bakeoff.frontends.rollouts.folders": "get_task_score load_benchmark",
    "bakeoff.frontends.test_runner.runner": "APIConfiguration ExecutionProgress TestResult TestRunner",
    "bakeoff.core.sandbox": "Workspaces Box BoxSpec GradingSpec GradingWorkspace Command GatewayAddress "
    "Mount CommandResult OpenWorkspace Sandbox",
    "bakeoff.core.candidate": "AgentSpec Candidate Conditions Limits ModelSpec PromptSpec",
    "bakeoff.core.errors": "AgentError BakeoffError BudgetReached LedgerError LimitReached NotRun ProviderError "
    "SandboxError ScorerError TrialError UsageError",
    "bakeoff.core.events": "Event Listener Notice RunEnded RunStarted "
    "TrialEnded TrialNotRun TrialOutput TrialSpent TrialStarted TurnEnded TurnStarted Waiting",
    "bakeoff.core.outcome": "Completion Journal Outcome Request Spent Tool Usage Wait",
    "bakeoff.core.plan": "Plan Trial",
    "bakeoff.core.ports": "Agent Checkpoint Context ModelAccess Model Scorer",
    "bakeoff.core.record": "Attempt Fault Score Status TrialRecord",
    "bakeoff.core.stop": "Stop",
    "bakeoff.core.attachment": "Attachment",
    "bakeoff.core.task": "Message ScorerSpec Suite Task ToolCall",
    "bakeoff.core.values": "Json",
    "bakeoff.core.workspace": "BoxLimits Change Image SandboxSpec Workspace",
    "bakeoff.stats.summary": "Summary",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for: `import bakeoff` itself costs nothing."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'bakeoff' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, also those that were not loaded yet."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
