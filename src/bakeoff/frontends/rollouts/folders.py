"""Where rollouts are kept, a folder each and one for every run of a task, and their results for a script."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.files import remove_empty, safe_name
from bakeoff._lib.phrasing import did_you_mean
from bakeoff.app.run_results import Run
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.stats.by_task import by_task
from bakeoff.stores.folders import INNER, LATEST, choose_folder, folders_in, fresh_folder, lettered
from bakeoff.stores.ledger_writer import LEDGER

_STAMP = "%Y%m%d__%H-%M-%S"
_STAMPED = re.compile(r"\d{8}__\d{2}-\d{2}-\d{2}[a-z]*")
_LEDGER = f"{INNER}/{LEDGER}"


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One start of a benchmark: its folder, and where the runs of it are."""

    folder: Path

    @property
    def stamp(self) -> str:
        """When it was started; its name among the rollouts of the benchmark."""
        return self.folder.name

    @property
    def ledger(self) -> Path:
        """The folder of the run itself, as `bakeoff show` takes it."""
        return self.folder / INNER

    @property
    def data(self) -> Path:
        """The folder that holds all rollouts and all runs."""
        return self.folder.parent.parent.parent

    @property
    def index(self) -> Path:
        """The small file that says where the rollout is."""
        name = f"rollout_{self.folder.parent.name}__{self.stamp}.json"
        return self.data / "rollouts" / "temp" / name

    def run_dir(self, run_id: str) -> Path:
        """Return where the files of one run are."""
        return self.data / "runs" / run_id

    def remove_unless_started(self) -> None:
        """Remove the folders of a rollout that has not started; none of them with anything in it."""
        if not is_rollout(self.folder):
            first_run = self.run_dir(f"{self.stamp}-0")
            remove_empty(self.ledger, self.folder, first_run, self.folder.parent)


def new_rollout(data: Path, name: str, moment: datetime) -> Rollout:
    """Make the folder of a new rollout; two that start in the same second never share anything.

    The first run's folder is made with it: stamps of other benchmarks must be different too, since
    all runs lie in one folder.
    """
    benchmark = data / "rollouts" / safe_name(name)
    stamps = (s for s in lettered(moment.strftime(_STAMP)) if not (benchmark / s).exists())
    first_run = fresh_folder(data / "runs", (f"{stamp}-0" for stamp in stamps), what="rollout")
    rollout = Rollout(folder=benchmark / first_run.name.removesuffix("-0"))
    try:
        files.make_folder(rollout.folder, exist_ok=False)
        files.make_folder(rollout.index.parent)
    except OSError as error:
        raise UsageError(f"no rollout can be kept in {data}: {error.strerror}") from error
    return rollout


def find_rollout(data: Path, reference: str, stamp: str | None = None) -> Rollout:
    """Return a rollout by its folder, or by the benchmark's name: the newest, or that of *stamp*."""
    folder = Path(reference)
    if is_rollout(folder):
        return Rollout(folder=folder)
    benchmark = data / "rollouts" / safe_name(reference)
    if not benchmark.is_dir() and folder.is_dir():
        benchmark = folder
    folders = [rollout.folder for rollout in rollouts_in(benchmark)]
    if not folders:
        known = [path.name for path in (data / "rollouts").glob("*") if rollouts_in(path)]
        hint = did_you_mean(reference, known)
        raise UsageError(f"no rollout of {reference!r} in {data / 'rollouts'}; {hint}")
    return Rollout(folder=choose_folder(stamp or LATEST, folders, what="rollout", where=benchmark))


def is_rollout(folder: Path) -> bool:
    """Whether *folder* is that of a rollout that has started."""
    return (folder / _LEDGER).is_file()


def rollouts_in(benchmark: Path) -> list[Rollout]:
    """Return the rollouts of a benchmark, the oldest first."""
    folders = folders_in(benchmark, _LEDGER)
    return [Rollout(folder=path) for path in folders if _STAMPED.fullmatch(path.name)]


# --- results, for a script ------------------------------------------------------------------------


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
