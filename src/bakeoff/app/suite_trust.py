"""What a suite may do beyond asking questions: read variables and run Python, where that is allowed.

A suite is data, perhaps from a stranger. Run files, models files and the command line are the
operator's own, and are not asked.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bakeoff import registry
from bakeoff.app.options import RunOptions
from bakeoff.app.pairings import changed_pairings
from bakeoff.app.source_locations import about, about_scorer
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.formats.text.problems import Problems

_REFUSED = (
    "the {} {!r} is Python that would run on this machine, with your rights; a suite may not "
    "name any by itself: read the code, then add --trust, or write `trust = true` into the run file "
    "that names the suite"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_trust(run_spec: RunSpec, options: RunOptions) -> RunSpec:
    """Return *run_spec* with what its suites may do; raise where one names Python without `trust`."""
    trust, folders = options.trust or run_spec.trust, options.source_folders
    allowed = (*run_spec.allow_env, *options.allow_env)
    _check_names(allowed)
    tasks = _trusted(run_spec.tasks, folders, trust=trust)
    by_digest = {old.digest: new for old, new in zip(run_spec.tasks, tasks, strict=True)}

    def allow(spec: ModelSpec) -> ModelSpec:
        if spec.may_read is None:
            return spec
        return replace(spec, may_read=(*spec.may_read, *allowed))

    roles = {name: allow(spec) for name, spec in run_spec.conditions.roles.items()}
    for spec in () if trust else own_models(run_spec, folders):
        with about(spec):
            raise UsageError(_REFUSED.format("model", spec.name))
    pairings = changed_pairings(run_spec.pairings, model=allow)
    return replace(
        run_spec,
        tasks=tasks,
        models=tuple(map(allow, run_spec.models)),
        pairings=tuple(replace(p, task=by_digest.get(p.task.digest, p.task)) for p in pairings),
        conditions=replace(run_spec.conditions, roles=roles),
    )


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--allow-env {name}: it takes the name of an environment variable, such as MY_API_KEY"
            )


def own_python(run_spec: RunSpec) -> list[ScorerSpec]:
    """Return the scorers that a suite of *run_spec* names as Python, each once."""
    specs = [spec for task in run_spec.tasks for spec in task.scorers if _is_doubtful(spec)]
    return list({spec.name: spec for spec in specs}.values())


def own_models(run_spec: RunSpec, folders: Sequence[Path]) -> list[ModelSpec]:
    """Return the models of roles that a suite of *run_spec* names as Python."""
    return [
        spec
        for spec in run_spec.conditions.roles.values()
        if spec.may_read is not None
        and not (spec.provider or spec.base_url)
        and registry.is_own(spec.name, folders=folders)
    ]


def _is_doubtful(spec: ScorerSpec) -> bool:
    return not spec.trusted and registry.is_reference(spec.name)


def _trusted(tasks: Sequence[Task], folders: Sequence[Path], *, trust: bool) -> tuple[Task, ...]:
    """Return *tasks* with all their scorers trusted; raise where Python is named without *trust*."""
    problems = Problems()
    checked = []
    for task in tasks:
        doubtful = [spec for spec in task.scorers if _is_doubtful(spec)]
        for spec in doubtful:
            with problems.gathered(), about_scorer(spec, task):
                registry.refuse_standard(spec.name, folders)
                if not trust:
                    raise UsageError(_REFUSED.format("scorer", spec.name))
        scorers = tuple(replace(spec, trusted=True) for spec in task.scorers)
        checked.append(replace(task, scorers=scorers) if doubtful else task)
    problems.raise_any()
    return tuple(checked)
