"""The runs that a viewer shows, with what was computed of them and still holds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec

from bakeoff._lib.clock import monotonic
from bakeoff._lib.redact import Redactor
from bakeoff.app.reporting import clean, redactor_of
from bakeoff.app.run_results import Run
from bakeoff.core.plan import Plan
from bakeoff.core.record import Attempt, TrialRecord
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.formats.prompts import asked_by
from bakeoff.reports.files import SUMMARY
from bakeoff.stats.summary import Summary
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.stores.folders import MANIFEST, RunEntry, list_runs, read_manifest, stays_inside
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import LEDGER
from bakeoff.stores.queries import CandidateProgress, LedgerQueries
from bakeoff.stores.writing import being_written

_REST = 19  # of the time that statistics of a run that goes on take: they get a twentieth of a core
_RATE_S = 10.0  # over which the rate of a run is measured

State = tuple[int, ...]
T = TypeVar("T")


@dataclass
class _Kept:
    """A value that was computed of a ledger: in which state that was, when, and how long it took."""

    lock: Lock = field(default_factory=Lock)
    state: State = ()
    made_at: float = 0.0
    took_s: float = 0.0
    value: Any = None

    def holds(self, state: State) -> bool:
        """Whether the ledger has not changed, or the value was dear and is not old."""
        age_s = monotonic() - self.made_at
        return bool(self.state) and (self.state == state or age_s < _REST * self.took_s)


@dataclass
class ViewedRun:
    """One run; what was computed of it is kept until its ledger changes."""

    folder: Path
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _counts: list[tuple[float, int]] = field(default_factory=list)

    @cached_property
    def ledger(self) -> SqliteLedger:
        """The ledger; `bakeoff check` and the report examine it, a page does not."""
        return SqliteLedger(self.folder, trusting=True)

    @cached_property
    def queries(self) -> LedgerQueries:
        """What is asked of the ledger by SQL."""
        return LedgerQueries(self.ledger)

    @cached_property
    def run(self) -> Run:
        """The run as Python has it."""
        return Run(self.folder, ledger=self.ledger)

    @cached_property
    def plan(self) -> Plan:
        """Every trial of the run; tasks of a large plan are read as they are needed."""
        return self.run.plan

    @cached_property
    def redactor(self) -> Redactor:
        """What takes secrets of this environment out of texts."""
        return redactor_of(self.plan)

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def manifest(self) -> Manifest:
        """What the run promised, without secrets."""
        return clean(read_manifest(self.folder), self.redactor)

    @property
    def is_running(self) -> bool:
        """Whether a process writes to it."""
        return being_written(self.folder)

    @property
    def state(self) -> State:
        """Something that changes whenever the ledger does."""
        stats = []
        for name in (LEDGER, f"{LEDGER}-wal"):
            try:
                stat = (self.folder / name).stat()
                stats += [stat.st_mtime_ns, stat.st_size]
            except FileNotFoundError:
                stats += [0, 0]
        return tuple(stats)

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """Return what *make* computes; of a run that goes on, what it did a while ago if that was dear."""
        kept = self._kept.setdefault(name, _Kept())
        with kept.lock:
            state = self.state
            if not kept.holds(state):
                began = monotonic()
                kept.value = make()
                kept.state, kept.made_at = state, monotonic()
                kept.took_s = kept.made_at - began
            value: T = kept.value
            return value

    def summary(self) -> Summary:
        """Return the statistics: those that the run itself wrote at its end, if they are of its ledger."""
        return self.kept("summary", lambda: self._written() or self.run.summary_of(self.plan))

    def _written(self) -> Summary | None:
        path = self.folder / SUMMARY
        try:
            if path.stat().st_mtime_ns < max(self.state[0], self.state[2]):
                return None
            if read_manifest(self.folder).bakeoff != version("bakeoff"):
                return None  # another version may count otherwise
            return msgspec.json.decode(path.read_bytes(), type=Summary)
        except (OSError, msgspec.MsgspecError):
            return None

    def progress(self) -> list[CandidateProgress]:
        """Return how far each candidate has come."""
        return self.kept("progress", self.queries.progress)

    def rate(self, ended: int) -> float | None:
        """Return how many trials end in a second, by what was seen in the last seconds."""
        now = monotonic()
        self._counts = [c for c in self._counts if now - c[0] < _RATE_S] + [(now, ended)]
        (then, before), *_ = self._counts
        return (ended - before) / (now - then) if now - then > 0.5 else None

    def records(self, name: str) -> list[TrialRecord]:
        """Return all attempts at a trial, without secrets, with the files of the run."""
        return [
            replace(record, attempt=self._shown(record.attempt))
            for record in self.ledger.attempts(name)
        ]

    def _shown(self, attempt: Attempt) -> Attempt:
        safe = clean(attempt, self.redactor)
        if safe.outcome is None:
            return safe
        return replace(safe, outcome=AttachmentStore(self.folder).outcome(safe.outcome))

    def asked(self, task_id: str, candidate_id: str) -> Task | None:
        """Return a task as a candidate was asked it; None where the plan has it no more."""
        task = next((task for task in self.plan.tasks if task.id == task_id), None)
        candidate = next((c for c in self.plan.candidates if c.id == candidate_id), None)
        if task is None or candidate is None:
            return None
        safe = clean(asked_by(candidate.prompt, task), self.redactor)
        return AttachmentStore(self.folder).task(safe)


class Runs:
    """The runs in one folder."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._viewed: dict[str, ViewedRun] = {}

    def entries(self) -> list[RunEntry]:
        """Return every run, the newest first."""
        return list_runs(self.output)[::-1]

    def find(self, name: str) -> ViewedRun | None:
        """Return the run of this folder name; None for what is not a run in this folder."""
        if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
            return None
        folder = self.output / name
        if not all(
            (folder / file).is_file() and stays_inside(folder / file, self.output)
            for file in (LEDGER, MANIFEST)
        ):
            self._viewed.pop(name, None)
            return None
        return self._viewed.setdefault(name, ViewedRun(folder))
