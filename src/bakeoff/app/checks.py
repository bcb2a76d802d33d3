"""A run file or a suite, checked without running it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff import registry
from bakeoff._lib.redact import Redactor
from bakeoff.app.known_secrets import variables_of
from bakeoff.app.model_names import OWN
from bakeoff.app.options import RunOptions
from bakeoff.app.pairings import models_of
from bakeoff.app.prepare import refuse_empty
from bakeoff.app.pricing import prices_of
from bakeoff.app.run import prepare_run
from bakeoff.app.source_locations import about_scorer
from bakeoff.app.suite_trust import own_models, own_python
from bakeoff.app.trial_parts import Parts, check_scorer
from bakeoff.app.workspaces import check_name
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Task
from bakeoff.formats.detect import Format, format_of, read_source
from bakeoff.formats.text.problems import Problems
from bakeoff.reports.wording.phrases import counted


def check(source: Path, *, models: Sequence[str] = (), base_url: str | None = None) -> list[str]:
    """Return what is right about *source*, line by line; raise with all that is not.

    Nobody's own Python is imported here: that happens only when a run is asked for.
    """
    brief = read_source(source)
    refuse_empty(brief, source)
    without_models = not (brief.models or brief.pairings or models)
    if without_models:  # a suite alone is fine; who solves it is said at run time
        brief = replace(brief, models=(ModelSpec(provider="scripted", name="echo"),))
    prices_of(brief)  # a table that cannot be read would only show at the start
    if brief.sandbox.name:
        check_name(brief.sandbox.name)
    needs = _needs(brief, models, (source.resolve().parent,))
    options = RunOptions(
        brief, models=models, base_url=base_url, trust=True, allow_env=needs.variables
    )
    prepared = prepare_run(options)  # nothing is imported
    plan, parts = prepared.plan, Parts(redactor=Redactor(), environ=_AnyEnviron())
    problems = Problems()
    for spec in (*(c.model for c in plan.candidates), *plan.conditions.roles.values()):
        if spec.provider != OWN:
            with problems.gathered():
                parts.model(spec)
    for agent in (c.agent for c in plan.candidates):
        if not registry.is_reference(agent.name):
            with problems.gathered():
                parts.agent(agent)
    # a suite alone is judged by whom the run says; a run file must say it
    roles = (
        plan.conditions.roles
        if format_of(source) in {Format.RUN_FILE, Format.ROLLOUTS, Format.AGENT_BENCHMARK}
        else {"judge"}
    )
    for task in plan.tasks:
        with problems.gathered():
            if task.trouble:
                raise UsageError(task.trouble)
        _check_scorers(task, parts, roles, problems)
    problems.raise_any()
    lines = _lines(source, prepared.brief, trials=len(plan), without_models=without_models)
    return [*lines, *needs.lines()]


@dataclass(frozen=True, kw_only=True)
class _Needs:
    """What a suite asks for that only the operator can allow."""

    variables: tuple[str, ...]
    python: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        for name in self.variables:
            yield f"it reads the environment variable {name}: allow that with --allow-env {name}"
        if self.python:
            yield f"it runs Python of its own ({', '.join(self.python)}): allow that with --trust"


def _needs(brief: RunSpec, models: Sequence[str], folders: Sequence[Path]) -> _Needs:
    specs = [*(() if models else models_of(brief)), *brief.conditions.roles.values()]
    named = [name for s in specs if s.may_read is not None for name in variables_of(s)]
    python = [spec.name for spec in own_python(brief)]
    python += [spec.name for spec in own_models(brief, folders)]
    allowed = set(brief.allow_env)
    variables = tuple(name for name in dict.fromkeys(named) if name not in allowed)
    return _Needs(variables=variables, python=() if brief.trust else tuple(python))


def check_scorers(plan: Plan) -> None:
    """Raise where a scorer of *plan* could not judge its task, as a run would before it starts."""
    parts, problems = Parts(redactor=Redactor(), environ=_AnyEnviron()), Problems()
    for task in plan.tasks:
        if not task.trouble:
            _check_scorers(task, parts, plan.conditions.roles, problems)
    problems.raise_any()


class _AnyEnviron(dict[str, str]):
    """An environment in which every variable is set: the keys are needed at run time, not here."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return f"${key}"


def _check_scorers(task: Task, parts: Parts, roles: Collection[str], problems: Problems) -> None:
    for spec in task.scorers:
        if not registry.is_reference(spec.name):
            with problems.gathered(of=f"task {task.id!r}"), about_scorer(spec, task):
                check_scorer(spec, parts.scorer(spec), task, roles)


def _lines(source: Path, brief: RunSpec, *, trials: int, without_models: bool) -> list[str]:
    unchecked = sum(1 for task in brief.tasks if not any(s.weight for s in task.scorers))
    categories = sorted({task.category for task in brief.tasks if task.category})
    lines = [
        *brief.notices,
        f"{source}: valid",
        f"{counted(len(brief.tasks), 'task')} in {len(categories)} categories",
    ]
    if unchecked:
        have = "has" if unchecked == 1 else "have"
        lines.append(
            f"{counted(unchecked, 'task')} {have} no scorer: the answers are kept but not checked"
        )
    if without_models:
        lines.append("no model is named: give one with --model when you run it")
    else:
        named = dict.fromkeys(model.label or model.full_name for model in models_of(brief))
        names = ", ".join(named)
        lines.append(f"models: {names}; {counted(trials, 'trial')}")
    return lines
