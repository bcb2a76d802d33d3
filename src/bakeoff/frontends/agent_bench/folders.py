"""Where an agent benchmark keeps its results, logs and checkpoints: a folder each for every run."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from bakeoff._lib.files import digested_name, remove_empty, safe_name
from bakeoff.formats.agent_bench_cases import DEFAULT_CHECKPOINTS, BenchmarkTable
from bakeoff.stores.folders import (
    INNER,
    choose_folder,
    folder_at,
    folders_in,
    fresh_folder,
    lettered,
)
from bakeoff.stores.ledger_writer import LEDGER

_STAMP = "run_%Y%m%d_%H%M%S"
_STAMPED = re.compile(r"run_\d{8}_\d{6}[a-z]?")
_LIKE_A_ROLLOUT = re.compile(r"__\d+$")
_LEDGER = f"{INNER}/{LEDGER}"


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
    def started(self) -> bool:
        """Whether there is a ledger, so that the run can be resumed."""
        return (self.folder / _LEDGER).is_file()

    def remove_unless_started(self) -> None:
        """Remove the log and the folders of a run that has not started."""
        if not self.started:
            with suppress(OSError):
                self.main_log.unlink()
            remove_empty(self.main_log.parent, self.ledger, self.folder)

    @property
    def main_log(self) -> Path:
        """The log of the whole run."""
        return self.logs / self.name / "main.log"

    def case_log(self, agent: str, case: str, rollout: int = 0) -> Path:
        """The log of one conversation."""
        name = _file_name(case, rollout)
        return self.logs / self.name / f"agent_{safe_name(agent)}" / name / f"{name}.log"

    def checkpoint(self, agent: str, case: str, rollout: int = 0) -> Path:
        """The file of the conversation after its last turn."""
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


def _results(table: BenchmarkTable) -> Path:
    return Path(table.results or table.result_path or "results")


def _at(table: BenchmarkTable, name: str) -> BenchRun:
    return BenchRun(
        name=name,
        results=_results(table),
        logs=Path(table.log_path),
        checkpoints=Path(table.checkpoint_path or DEFAULT_CHECKPOINTS),
    )


def new_run(table: BenchmarkTable, moment: datetime) -> BenchRun:
    """Make the folder of a new run; two that start in the same second never share one."""
    names = lettered(moment.strftime(_STAMP))
    return _at(table, fresh_folder(_results(table), names, what="run").name)


def find_run(table: BenchmarkTable, reference: str) -> BenchRun:
    """Return a run by its folder, its name, the start of that, or `latest`."""
    results = _results(table)
    folder = folder_at(reference, results, _LEDGER, own=(INNER,))
    if folder is None:
        folders = [run.folder for run in runs_of(table)]
        folder = choose_folder(reference, folders, what="run", where=results)
    return replace(_at(table, folder.name), results=folder.parent)


def runs_of(table: BenchmarkTable) -> list[BenchRun]:
    """Return the runs that have started, the oldest first."""
    names = [folder.name for folder in folders_in(_results(table), _LEDGER)]
    return [_at(table, name) for name in names if _STAMPED.fullmatch(name)]
