"""Where an agent benchmark keeps its results, logs and checkpoints: a folder each for every run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bakeoff._lib import files
from bakeoff._lib.files import digested_name, safe_name
from bakeoff.core.errors import UsageError
from bakeoff.formats.agent_bench_cases import DEFAULT_CHECKPOINTS, BenchmarkTable
from bakeoff.stores.folders import INNER, refuse_link_out, stays_inside
from bakeoff.stores.ledger_writer import LEDGER

_STAMP = "run_%Y%m%d_%H%M%S"
_STAMPED = re.compile(r"run_\d{8}_\d{6}[a-z]?")
_LIKE_A_ROLLOUT = re.compile(r"__\d+$")
_LETTERS = ("", *"bcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True, kw_only=True)
class BenchRun:
    """One run: its name, and the three folders that it writes to.

    `checkpoints_of` has the agents whose conversations are saved somewhere else.
    """

    name: str
    results: Path
    logs: Path
    checkpoints: Path
    checkpoints_of: Mapping[str, Path] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the results are."""
        return self.results / self.name

    @property
    def ledger(self) -> Path:
        """The folder of the run itself, as `bakeoff show` takes it."""
        return self.folder / INNER

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on with."""
        return (self.ledger / LEDGER).is_file()

    @property
    def main_log(self) -> Path:
        """The log of the whole run."""
        return self.logs / self.name / "main.log"

    def case_log(self, agent: str, case: str, rollout: int = 0) -> Path:
        """The log of one conversation."""
        name = _file_name(case, rollout)
        return self.logs / self.name / f"agent_{safe_name(agent)}" / name / f"{name}.log"

    def checkpoint(self, agent: str, case: str, rollout: int = 0) -> Path:
        """The conversation as it stands after its last turn."""
        name = _file_name(case, rollout)
        folder = self.checkpoints_of.get(agent, self.checkpoints)
        return folder / self.name / f"agent_{safe_name(agent)}" / f"{name}.json"

    def result(self, agent: str) -> Path:
        """The results of one agent."""
        return self.folder / f"results_{safe_name(agent)}.json"


def _file_name(case: str, rollout: int) -> str:
    # a case may itself be called as if it were a rollout of another
    name = digested_name(case) if _LIKE_A_ROLLOUT.search(case) else safe_name(case)
    return f"{name}__{rollout}" if rollout else name


def _at(table: BenchmarkTable, name: str) -> BenchRun:
    return BenchRun(
        name=name,
        results=Path(table.results or table.result_path or "results"),
        logs=Path(table.log_path),
        checkpoints=Path(table.checkpoint_path or DEFAULT_CHECKPOINTS),
    )


def new_run(table: BenchmarkTable, moment: datetime) -> BenchRun:
    """Make the folder of a new run; two that start in the same second never share one."""
    for letter in _LETTERS:
        run = _at(table, moment.strftime(_STAMP) + letter)
        try:
            files.make_folder(run.folder, exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"no run can be kept in {run.results}: {error.strerror}") from error
        return run
    raise UsageError("too many runs start in this second; try again in the next")


def find_run(table: BenchmarkTable, reference: str) -> BenchRun:
    """Return a run by its name, its folder, or `latest`."""
    runs = runs_of(table)
    if reference == "latest":
        if not runs:
            where = _at(table, "").results
            raise UsageError(f"{where}: there is no run to go on with")
        return runs[-1]
    name = Path(reference).name
    found = _at(table, name)
    if Path(reference).parent != Path() and Path(reference).is_dir():
        found = BenchRun(
            name=name,
            results=Path(reference).parent,
            logs=found.logs,
            checkpoints=found.checkpoints,
        )
    if not found.begun:
        there = ", ".join(run.name for run in runs[-10:]) or "none"
        raise UsageError(f"no run is called {reference!r}; there are: {there}")
    refuse_link_out(found.folder, found.results, names=(INNER,))
    return found


def runs_of(table: BenchmarkTable) -> list[BenchRun]:
    """Return the runs that have begun, the oldest first."""
    results = _at(table, "").results
    if not results.is_dir():
        return []
    names = sorted(f.name for f in results.iterdir() if _STAMPED.fullmatch(f.name))
    runs = [_at(table, name) for name in names]
    return [run for run in runs if run.begun and stays_inside(run.ledger / LEDGER, results)]
