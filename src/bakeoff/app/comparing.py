"""Two runs side by side: did a change of model, prompt or agent make it better?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.app.run_results import Run, load_run
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import Manifest
from bakeoff.planning.resume import fields_apart
from bakeoff.stats.between_runs import Contrast, RunScores, contrasts, run_scores
from bakeoff.stats.estimate import is_checked
from bakeoff.stats.summary import CandidateSummary

_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """What became of the candidates of one run in another.

    `candidates_before` and `candidates_after` say how each did in its own run. `notes` say what else
    is not the same: then it may be that which made the difference.
    """

    before: str
    after: str
    contrasts: tuple[Contrast, ...]
    candidates_before: tuple[CandidateSummary, ...]
    candidates_after: tuple[CandidateSummary, ...]
    tasks: int
    only_before: int
    only_after: int
    notes: tuple[str, ...]

    @property
    def worse(self) -> bool:
        """Whether it is sure of any candidate that it was better before."""
        return any(contrast.worse for contrast in self.contrasts)


def compare(
    before: Run | str | Path,
    after: Run | str | Path = "latest",
    *,
    pair: Sequence[str] | None = None,
    output: str | Path = DEFAULT_OUTPUT,
) -> RunComparison:
    """Compare two runs on the tasks that both have.

    Each candidate that is in both is compared with itself; where none is, each with each. A *pair*
    is one of the run *before* and one of the run *after*.
    """
    old, new = (r if isinstance(r, Run) else load_run(r, output=output) for r in (before, after))
    if old.folder.resolve() == new.folder.resolve():
        raise UsageError(
            f"{old.id} would be compared with itself; name an earlier run and a later one "
            "(bakeoff list runs)"
        )
    plans = old.plan, new.plan
    couples = _couples(*plans) if pair is None else [_chosen(pair, *plans)]
    tasks_before, tasks_after = ({task.id for task in plan.tasks} for plan in plans)
    if not tasks_before & tasks_after:
        raise UsageError(f"{old.id} and {new.id} have no task in common: tasks are matched by id")
    return RunComparison(
        before=old.id,
        after=new.id,
        contrasts=contrasts(
            _marks(old, plans[0], shared=tasks_before & tasks_after),
            _marks(new, plans[1], shared=tasks_before & tasks_after),
            couples,
            groups={task.id: task.group for plan in plans for task in plan.tasks if task.group},
        ),
        candidates_before=old.summary().candidates,
        candidates_after=new.summary().candidates,
        tasks=len(tasks_before & tasks_after),
        only_before=len(tasks_before - tasks_after),
        only_after=len(tasks_after - tasks_before),
        notes=(*_changed(*plans), *served_otherwise(old.manifest, new.manifest)),
    )


def _marks(run: Run, plan: Plan, *, shared: set[str]) -> RunScores:
    unchecked = {task.id for task in plan.tasks if not is_checked(task)}
    only = next(iter(shared)) if len(shared) == 1 else None
    rows = (row for row in run.rows() if row.task_id in shared)
    return run_scores(rows, unchecked=unchecked, rollouts_of=only)


def _couples(old: Plan, new: Plan) -> list[tuple[str, str]]:
    before, after = ([c.id for c in plan.candidates] for plan in (old, new))
    shared = [(name, name) for name in before if name in after]
    return shared or [(old, new) for old in before for new in after]


def _chosen(pair: Sequence[str], old: Plan, new: Plan) -> tuple[str, str]:
    if len(pair) != 2:
        raise UsageError(f"a pair is two candidates, one of each run, not {len(pair)}")
    for name, plan, which in zip(pair, (old, new), ("before", "after"), strict=True):
        there = [c.id for c in plan.candidates]
        if name not in there:
            raise UsageError(f"{name!r} is not in the run {which}; there are: {', '.join(there)}")
    return pair[0], pair[1]


def _changed(before: Plan, after: Plan) -> Iterator[str]:
    """Yield what was planned otherwise, besides who was asked."""
    if apart := fields_apart(before.conditions.identity(), after.conditions.identity()):
        yield f"they were run under other conditions: {', '.join(apart)}"
    earlier = {candidate.id: candidate for candidate in before.candidates}
    for candidate in after.candidates:
        if (old := earlier.get(candidate.id)) is None:
            continue
        if apart := fields_apart(old.identity(), candidate.identity()):
            yield f"candidate {candidate.id!r} differs in {', '.join(apart)}"
    yield from _changed_tasks(before, after)


def served_otherwise(before: Manifest, after: Manifest) -> Iterator[str]:
    """Yield which models were another one under the same name, and which run chose its own end."""
    for name, served in before.served.items():
        if name in after.served and after.served[name] != served:
            yield f"{name} was served as something else: a new digest or version of the same name"
    for manifest in (before, after):
        if manifest.adaptive is not None:
            yield f"{manifest.run} ended when it was sure: its last tasks were run because of its scores"


def _changed_tasks(before: Plan, after: Plan) -> Iterator[str]:
    """Yield which tasks have the same name and another content, by what is other about them."""
    known = {task.id: task for task in before.tasks}
    changed: dict[tuple[str, ...], list[str]] = {}
    for task in after.tasks:
        if task.id in known and known[task.id].digest != task.digest:
            apart = fields_apart(known[task.id].identity(), task.identity())
            changed.setdefault(tuple(apart), []).append(task.id)
    for fields, names in changed.items():
        more = f", and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        which = ", ".join(map(repr, names[:_MOST_NAMED]))
        yield f"{len(names)} of the tasks differ in {', '.join(fields)}: {which}{more}"
