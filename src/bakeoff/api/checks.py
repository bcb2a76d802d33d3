"""A run file or a suite, checked without running it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bakeoff import registry
from bakeoff._lib.redact import Redactor
from bakeoff.api.rigs import Parts
from bakeoff.api.sources import Wishes, prepare, read
from bakeoff.core.brief import Brief
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.task import Task


def check(source: Path, *, models: Sequence[str] = (), base_url: str | None = None) -> list[str]:
    """Return what is right about *source*, line by line; raise at the first thing that is not.

    Nobody's own Python is imported here: that happens only when a run is asked for.
    """
    brief = read(source, {})
    without_models = not (brief.models or models)
    if without_models:  # a suite alone is fine; who solves it is said at run time
        brief = replace(brief, models=(ModelSpec(provider="scripted", name="echo"),))
    prepared = prepare(brief, Wishes(models=models, base_url=base_url))
    for task in prepared.plan.tasks:
        _check_scorers(task)
    for agent in {c.agent.name for c in prepared.plan.candidates}:
        if not registry.is_reference(agent):
            registry.find("agents", agent)
    return _lines(source, prepared.brief, trials=len(prepared.plan), without_models=without_models)


def _check_scorers(task: Task) -> None:
    parts = Parts(redactor=Redactor(), environ={})
    for spec in task.scorers:
        if registry.is_reference(spec.name):
            continue
        scorer = parts.scorer(spec)
        if hasattr(scorer, "check"):
            scorer.check(task)


def _lines(source: Path, brief: Brief, *, trials: int, without_models: bool) -> list[str]:
    unchecked = sum(1 for task in brief.tasks if not any(s.weight for s in task.scorers))
    categories = sorted({task.category for task in brief.tasks if task.category})
    lines = [f"{source}: valid", f"{len(brief.tasks)} tasks in {len(categories)} categories"]
    if unchecked:
        lines.append(f"{unchecked} tasks have no scorer: their answers are kept but not checked")
    if without_models:
        lines.append("no model is named: give one with --model when you run it")
    else:
        names = ", ".join(model.label or model.full_name for model in brief.models)
        lines.append(f"models: {names}; {trials} trials")
    return lines
