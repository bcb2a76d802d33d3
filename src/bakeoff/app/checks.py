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
from bakeoff.app.prepare import own_models, own_python, refuse_empty
from bakeoff.app.pricing import prices_of
from bakeoff.app.run import prepare_run
from bakeoff.app.trial_parts import PartBuilder, check_scorer
from bakeoff.app.workspaces import check_name
from bakeoff.core.candidate import ModelSpec, PromptSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Task, scored_task
from bakeoff.formats.detect import Format, format_of, read_source
from bakeoff.formats.text.locate import about_scorer
from bakeoff.formats.text.problems import Problems
from bakeoff.reports.wording.phrases import counted


def check(source: Path, *, models: Sequence[str] = (), base_url: str | None = None) -> list[str]:
    """Return what is right about *source*, line by line; raise with all that is not.

    User code is not imported here: that happens only when a run is started.
    """
    run_spec = read_source(source)
    refuse_empty(run_spec, source)
    without_models = not (run_spec.models or run_spec.pairings or models)
    if without_models:  # a suite alone is fine; who solves it is said at run time
        run_spec = replace(run_spec, models=(ModelSpec(provider="scripted", name="echo"),))
    textless = next((t for t in run_spec.tasks if t.vars and not t.messages), None)
    if needs_prompt := textless is not None and not run_spec.prompts:
        run_spec = replace(run_spec, prompts=(PromptSpec(text="at run time", literal=True),))
    prices_of(run_spec)  # a table that cannot be read would only show at the start
    if run_spec.sandbox.name:
        check_name(run_spec.sandbox.name)
    needs = _needs(run_spec, models, (source.resolve().parent,))
    options = RunOptions(
        run_spec, models=models, base_url=base_url, trust=True, allow_env=needs.variables
    )
    prepared = prepare_run(options)  # nothing is imported
    plan, parts = prepared.plan, PartBuilder(redactor=Redactor(), environ=_AnyEnviron())
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
    lines = _lines(source, prepared.spec, trials=len(plan), without_models=without_models)
    prompt = ["its tests have no text of their own: run it with --prompt"] * needs_prompt
    return [*lines, *prompt, *needs.lines()]


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


def _needs(run_spec: RunSpec, models: Sequence[str], folders: Sequence[Path]) -> _Needs:
    specs = [*(() if models else models_of(run_spec)), *run_spec.conditions.roles.values()]
    named = [name for s in specs if s.may_read is not None for name in variables_of(s)]
    python = [spec.name for spec in own_python(run_spec)]
    python += [spec.name for spec in own_models(run_spec, folders)]
    allowed = set(run_spec.allow_env)
    variables = tuple(name for name in dict.fromkeys(named) if name not in allowed)
    return _Needs(variables=variables, python=() if run_spec.trust else tuple(python))


def check_scorers(plan: Plan) -> None:
    """Raise where a scorer of *plan* could not judge its task, as a run would before it starts."""
    parts, problems = PartBuilder(redactor=Redactor(), environ=_AnyEnviron()), Problems()
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


def _check_scorers(
    task: Task, parts: PartBuilder, roles: Collection[str], problems: Problems
) -> None:
    for spec in task.scorers:
        if not registry.is_reference(spec.name):
            with problems.gathered(of=f"task {task.id!r}"), about_scorer(spec, task):
                check_scorer(parts.scorer(spec), scored_task(task, spec), roles)


def _lines(source: Path, run_spec: RunSpec, *, trials: int, without_models: bool) -> list[str]:
    unchecked = sum(1 for task in run_spec.tasks if not any(s.weight for s in task.scorers))
    categories = sorted({task.category for task in run_spec.tasks if task.category})
    many = len(categories)
    within = f" in {'1 category' if many == 1 else f'{many} categories'}" if many else ""
    lines = [
        f"{source}: valid",
        f"{counted(len(run_spec.tasks), 'task')}{within}",
        *run_spec.notices,
    ]
    if unchecked:
        have = "has" if unchecked == 1 else "have"
        lines.append(
            f"{counted(unchecked, 'task')} {have} no scorer: the answers are kept but not checked"
        )
    if without_models:
        lines.append("no model is named: give one with --model when you run it")
    else:
        named = dict.fromkeys(model.label or model.full_name for model in models_of(run_spec))
        names = ", ".join(named)
        lines.append(f"models: {names}; {counted(trials, 'trial')}")
    return lines
