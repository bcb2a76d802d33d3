"""The runs that a viewer shows, with what was computed of them and still holds."""

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec

from bakeoff._lib.clock import monotonic, timestamp
from bakeoff._lib.redact import Redactor
from bakeoff._lib.value_object import value_object
from bakeoff._lib.version import __version__
from bakeoff.app.labels import TrialKey, TrialLabel, read_labels
from bakeoff.app.reporting import clean, redactor_of
from bakeoff.app.run_results import Run, question
from bakeoff.core.budget import Bill
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.record import Attempt, TrialRecord
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.formats.prompts import asked_by
from bakeoff.planning.selection import tags_of
from bakeoff.reports.files import SUMMARY
from bakeoff.reports.wording import phrases
from bakeoff.stats.summary import Buckets, Summary
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.stores.folders import MANIFEST, RunEntry, list_runs, read_manifest, stays_inside
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import LEDGER
from bakeoff.stores.queries import CandidateProgress, LedgerQueries, MatrixCell, TrialQuery
from bakeoff.stores.writing import being_written

_REST = 19  # of the time that statistics of a run that goes on take: they get a twentieth of a core
_RATE_S = 10.0  # over which the rate of a run is measured

_MOST_KEPT = 200  # values of a run: each view of its trials has a count
_MOST_TAGGED = 50_000  # tasks that are read for their tags

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
        """Whether the ledger has not changed, or the value was expensive to compute and is not old."""
        age_s = monotonic() - self.made_at
        return bool(self.state) and (self.state == state or age_s < _REST * self.took_s)


@value_object
class RunHead:
    """A run in a line of the list: what came of it, and what it took."""

    done: int
    faults: int
    verdict: str
    decided: bool
    cost_usd: float | None
    time_s: float | None


class _Headline(msgspec.Struct):
    text: str = ""
    decided: bool = False


class _SummaryHead(msgspec.Struct):
    """The part of a written summary that the list of runs shows."""

    buckets: Buckets
    billed: Bill
    headline: _Headline = msgspec.field(default_factory=_Headline)


@dataclass(frozen=True)
class PlannedTasks:
    """A plan, and what is read of all of its tasks once, where they are not too many."""

    plan: Plan

    @cached_property
    def tags(self) -> Mapping[str, Sequence[str]]:
        """The tasks of each tag."""
        tagged: dict[str, list[str]] = {}
        for task in self._few:
            for tag in tags_of(task):
                tagged.setdefault(tag, []).append(task.id)
        return tagged

    @cached_property
    def scorers(self) -> Sequence[str]:
        """The names of the scorers."""
        return sorted({scorer.name for task in self._few for scorer in task.scorers})

    @property
    def _few(self) -> Iterable[Task]:
        return self.plan.tasks if self.plan.task_count <= _MOST_TAGGED else ()


@dataclass
class ViewedRun:
    """One run; what was computed of it is kept until its ledger changes.

    `resumed` is the process that a button of the page started, `stopping` how often one was pressed to stop it.
    """

    folder: Path
    stopping: int = 0
    resumed: "subprocess.Popen[bytes] | None" = None
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _counts: list[tuple[float, int]] = field(default_factory=list)
    _asked: tuple[str, frozenset[str]] = ("", frozenset())
    _planned: tuple[int, PlannedTasks] | None = None

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

    @property
    def planned(self) -> PlannedTasks:
        """The plan, read again where a resume changed it, and now and then while its tasks still come."""
        if self.ledger.plan_is_open:
            return self.kept("plan", lambda: PlannedTasks(self.run.plan))
        changed_ns = (self.folder / MANIFEST).stat().st_mtime_ns
        if self._planned is None or self._planned[0] != changed_ns:
            self._planned = changed_ns, PlannedTasks(self.run.plan)
        return self._planned[1]

    @property
    def plan(self) -> Plan:
        """Every trial of the run; tasks of a large plan are read as they are needed."""
        return self.planned.plan

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
    def labels(self) -> Mapping[TrialKey, TrialLabel]:
        """What people said of its trials; nothing where that cannot be read."""
        with suppress(UsageError):
            return read_labels(self.folder)
        return {}

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
        """Return what *make* computes; while the run goes on, an older value where that was expensive."""
        if len(self._kept) > _MOST_KEPT:
            self._kept.clear()
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
        return self.kept(
            "summary", lambda: self._written(Summary) or self.run.summary_of(self.plan)
        )

    def head(self) -> RunHead:
        """Return what the list of runs says of it."""
        return self.kept("head", self._head)

    def _head(self) -> RunHead:
        running_s = timestamp() if self.is_running else None
        time_s = self.queries.time_s(running_s)
        if written := self._written(_SummaryHead):
            return RunHead(
                done=written.buckets.ran,
                faults=written.buckets.faults,
                verdict=written.headline.text,
                decided=written.headline.decided,
                cost_usd=written.billed.cost_usd,
                time_s=time_s,
            )
        progress = self.progress()
        means = [(p.mean_score, p.candidate) for p in progress if p.mean_score is not None]
        best = max(means, default=None)
        return RunHead(
            done=self.queries.ended(),
            faults=sum(p.statuses.get("faulted", 0) for p in progress),
            verdict="" if best is None else f"So far: {best[1]} {phrases.score(best[0])}",
            decided=False,
            cost_usd=self.billed().cost_usd,
            time_s=time_s,
        )

    def _written(self, kind: type[T]) -> T | None:
        """Return the summary that the run itself wrote, or a part of it, if it is of its ledger."""
        path = self.folder / SUMMARY
        try:
            if path.stat().st_mtime_ns < max(self.state[0], self.state[2]):
                return None
            if read_manifest(self.folder).bakeoff != __version__:
                return None  # another version may count otherwise
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError):
            return None

    def progress(self) -> list[CandidateProgress]:
        """Return how far each candidate has come."""
        return self.kept("progress", self.queries.progress)

    def billed(self) -> Bill:
        """Return what the run was billed."""
        return self.kept("billed", self.ledger.billed)

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
        """Return a task as a candidate was asked it; None where the ledger has it no more."""
        task = self.ledger.task(task_id)
        candidate = next((c for c in self.plan.candidates if c.id == candidate_id), None)
        if task is None or candidate is None:
            return None
        safe = clean(asked_by(candidate.prompt, task), self.redactor)
        return AttachmentStore(self.folder).task(replace(safe, id=task.id))

    @property
    def tags(self) -> Mapping[str, Sequence[str]]:
        """The tasks of each tag; nothing where there are too many tasks to look at."""
        return self.planned.tags

    @property
    def scorers(self) -> Sequence[str]:
        """The scorers of the tasks; nothing where there are too many tasks to look at."""
        return self.planned.scorers

    def count(self, which: TrialQuery) -> int:
        """Return how many trials a view has."""
        return self.kept(f"count {which}", lambda: self.queries.count(which))

    def faults(self) -> list[tuple[str, str, int]]:
        """Return how many trials of each candidate broke, and where."""
        return self.kept("faults", self.queries.faults)

    def means(self) -> Mapping[str, Mapping[str, MatrixCell]]:
        """Return what came of each task, by candidate."""
        return self.kept("means", self.queries.means)

    def distribution(self, measure: str) -> tuple[float, dict[str, list[int]]]:
        """Return how many trials of each candidate are in which bin of a measure."""
        return self.kept(measure, lambda: self.queries.distribution(measure))

    def asking(self, text: str) -> frozenset[str]:
        """Return the tasks whose question has this text in it."""
        if self._asked[0] != text:
            wanted = text.casefold()
            found = frozenset(t.id for t in self.plan.tasks if wanted in question(t))
            self._asked = (text, found)
        return self._asked[1]


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
