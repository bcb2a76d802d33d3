"""Results of rollouts to compare in a script: load a benchmark, ask it for a task's score."""

from dataclasses import dataclass
from pathlib import Path

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.run_results import Run
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.stats.by_task import by_task
from bakeoff.stores.folders import INNER
from bakeoff.stores.ledger_writer import LEDGER


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """What one candidate reached in one task; the score is the mean over its scored rollouts."""

    task: str
    task_dir: str
    candidate: str
    model: str
    score: float | None
    best: float | None
    rollouts: int
    scored: int
    passed: int
    faulted: int


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The results of one rollout, or of any run."""

    name: str
    folder: Path
    results: tuple[TaskResult, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The id of every task, in the order of the plan."""
        return tuple(dict.fromkeys(result.task for result in self.results))

    @property
    def candidates(self) -> tuple[str, ...]:
        """The id of every candidate that was measured."""
        return tuple(dict.fromkeys(result.candidate for result in self.results))


def load_benchmark(path: str | Path) -> Benchmark:
    """Return the results in a folder: of a rollout, of a run, or the newest in it.

    The last part of the path may be cut short: `data/rollouts/nightly/20250824` is the newest
    rollout of that day.
    """
    folder = _newest(Path(path))
    run = Run(folder)
    plan = run.plan
    places = {task.id: str(task.metadata.get("task_dir", task.id)) for task in plan.tasks}
    models = _models(plan)
    return Benchmark(
        name=run.manifest.name,
        folder=Path(path) if folder.name == INNER else folder,
        results=tuple(
            TaskResult(
                task=cell.task,
                task_dir=places[cell.task],
                candidate=cell.candidate,
                model=models[cell.candidate],
                score=cell.mean,
                best=cell.best,
                rollouts=cell.planned,
                scored=cell.scored,
                passed=cell.passed,
                faulted=cell.faulted,
            )
            for cell in by_task(plan, run.rows())
        ),
    )


def get_task_score(results: Benchmark, task_name: str, *, model: str | None = None) -> float | None:
    """Return the mean score of a task, by its id or its folder; None where nothing was scored.

    Where several candidates solved it, *model* says which: they are never averaged together.
    """
    matching = [r for r in results.results if task_name in _names(r)]
    if not matching:
        hint = did_you_mean(task_name, results.tasks)
        raise UsageError(f"{results.name}: no task {task_name!r}; {hint}")
    if model is not None:
        matching = [r for r in matching if model in (r.candidate, r.model)]
    if len(matching) != 1:
        names = ", ".join(sorted(r.candidate for r in results.results if task_name in _names(r)))
        raise UsageError(
            f"{results.name}: say whose score of {task_name!r} is meant, with model=; "
            f"there are: {names}"
        )
    return matching[0].score


def _names(result: TaskResult) -> tuple[str, ...]:
    return result.task, result.task_dir, Path(result.task_dir).name


def _models(plan: Plan) -> dict[str, str]:
    return {c.id: c.model.label or c.model.full_name for c in plan.candidates}


def _newest(path: Path) -> Path:
    """Return the folder of the run that *path* means."""
    if (run := _run_in(path)) is not None:
        return run
    near = sorted(path.iterdir()) if path.is_dir() else sorted(path.parent.glob(f"{path.name}*"))
    runs = [folder for folder in map(_run_in, near) if folder is not None]
    if not runs:
        raise UsageError(f"{path} is not the folder of a rollout or of a run, and holds none")
    return runs[-1]


def _run_in(folder: Path) -> Path | None:
    return next((f for f in (folder, folder / INNER) if (f / LEDGER).is_file()), None)
