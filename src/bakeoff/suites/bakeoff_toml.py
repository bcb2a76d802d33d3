"""The front door for Bakeoff's own TOML."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from bakeoff._lib.digest import digest_bytes
from bakeoff.config.convert import convert
from bakeoff.config.entries import conversation, default_scorers, scorer_specs
from bakeoff.config.run_file import AgentTable, LimitsTable, ModelTable, RunFile, TaskTable
from bakeoff.config.toml_file import line_of, read_toml, with_overrides
from bakeoff.core.brief import Brief, Source
from bakeoff.core.candidate import AgentSpec, Conditions, Limits, ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Task
from bakeoff.suites.json_suite import read_suite


def read_run_file(path: Path, overrides: Mapping[str, str] | None = None) -> Brief:
    """Return what the run file at *path* asks for, with `key=value` *overrides* applied."""
    data, text = read_toml(path)
    run = convert(
        with_overrides(data, overrides or {}),
        RunFile,
        source=str(path),
        line_of=partial(line_of, text),
    )
    source = Source(path=str(path.resolve()), digest=digest_bytes(text.encode()))
    return _brief(run, path, source)


def read_suite_file(path: Path, overrides: Mapping[str, str] | None = None) -> Brief:
    """Return what the suite at *path* asks for, as if a run file had named only it."""
    brief = read_suite(path)
    if not overrides:
        return brief
    run = convert(with_overrides({}, overrides), RunFile, source="--set", line_of=lambda _: None)
    return _under(run, brief)


def model_spec(entry: str | ModelTable) -> ModelSpec:
    """Return the model as it is named; what the name means is found out later."""
    if isinstance(entry, str):
        return ModelSpec(provider="", name=entry)
    return ModelSpec(
        provider="",
        name=entry.model,
        base_url=entry.base_url,
        api_key=entry.api_key,
        headers=entry.headers,
        parameters=entry.parameters,
        settings=entry.settings,
        label=entry.name,
    )


def _brief(run: RunFile, path: Path, source: Source) -> Brief:
    tasks: list[Task] = []
    sources = [source]
    models: tuple[ModelSpec, ...] = ()
    for name in run.suites:
        suite = read_suite(path.parent / name)
        tasks += suite.tasks
        models = models or suite.models
        sources += suite.sources
    tasks += [_task(entry, path) for entry in run.tasks]
    _refuse_twins(tasks, path)
    brief = Brief(
        name=run.name or path.stem, tasks=tuple(tasks), models=models, sources=tuple(sources)
    )
    return _under(run, brief)


def _under(run: RunFile, brief: Brief) -> Brief:
    """Return *brief* with everything that *run* says beyond the tasks."""
    return replace(
        brief,
        name=run.name or brief.name,
        tasks=tuple(_with_defaults(task, run) for task in brief.tasks),
        models=tuple(model_spec(m) for m in run.models) or brief.models,
        agents=tuple(_agent_spec(a) for a in run.agents) or brief.agents,
        rollouts=run.rollouts,
        parallel=run.parallel or brief.parallel,
        pause_s=run.pause_s or brief.pause_s,
        conditions=_conditions(run.limits, run.roles),
    )


def _with_defaults(task: Task, run: RunFile) -> Task:
    scorers = task.scorers or scorer_specs(run.scorers) or default_scorers(task.target)
    if scorers == task.scorers and not run.parameters and run.pass_threshold is None:
        return task
    return replace(
        task,
        scorers=scorers,
        parameters={**run.parameters, **task.parameters},
        pass_threshold=task.pass_threshold if run.pass_threshold is None else run.pass_threshold,
    )


def _task(entry: TaskTable, path: Path) -> Task:
    what = f"{path}: task {entry.id!r}"
    return Task(
        id=entry.id,
        messages=conversation(entry.prompt, entry.messages, what=what),
        parameters=entry.parameters,
        target=entry.expected,
        scorers=scorer_specs(entry.scorers or ()),
        pass_threshold=1.0 if entry.pass_threshold is None else entry.pass_threshold,
        time_s=entry.time_s,
        name=entry.name,
        category=entry.category,
        metadata=entry.metadata,
    )


def _refuse_twins(tasks: list[Task], path: Path) -> None:
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise UsageError(f"{path}: task {task.id!r} is there twice; give each its own `id`")
        seen.add(task.id)


def _agent_spec(entry: str | AgentTable) -> AgentSpec:
    if isinstance(entry, str):
        return AgentSpec(name=entry)
    return AgentSpec(
        name=entry.agent, version=entry.version, settings=entry.settings, label=entry.name
    )


def _conditions(limits: LimitsTable, roles: Mapping[str, str | ModelTable]) -> Conditions:
    return Conditions(
        limits=Limits(
            time_s=limits.time_s,
            requests=limits.requests,
            output_tokens=limits.output_tokens,
            scoring_s=limits.scoring_s,
        ),
        roles={name: model_spec(entry) for name, entry in roles.items()},
        attempts=limits.attempts,
    )
