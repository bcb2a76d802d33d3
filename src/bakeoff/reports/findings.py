"""A run as its reports see it: what it says, what it promised, and how its trials are read."""

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from bakeoff.core.manifest import Manifest
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import TrialRecord, TrialRow
from bakeoff.core.task import Task
from bakeoff.reports.in_words import counted, moment
from bakeoff.stats.by_task import TaskSummary
from bakeoff.stats.summary import Summary


class Trials(Protocol):
    """What is recorded of a run, as often as somebody wants to read it."""

    def rows(self) -> Iterator[TrialRow]:
        """Yield each recorded trial without its body."""

    def records(
        self,
        *,
        tasks: Collection[str] | None = None,
        candidate: str | None = None,
        rollouts: int | None = None,
    ) -> Iterator[TrialRecord]:
        """Yield each recorded trial, or just those of a part; those of *tasks* task by task."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that a report is made from.

    `called` is the name of the run to a person, `run` and `output` are how a command finds it;
    `made_at` is when it was looked at, `running` that somebody was still writing to it then. A report
    `with_text` holds what was asked, expected and answered.
    """

    summary: Summary
    manifest: Manifest
    plan: Plan
    by_task: tuple[TaskSummary, ...]
    trials: Trials
    called: str
    run: str
    made_at: str
    output: str | None = None
    running: bool = False
    with_text: bool = True

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """Each task once, in the order of the plan."""
        return tuple(self.plan.tasks)

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """Each candidate once, in the order of the plan."""
        return tuple(candidate.id for candidate in self.plan.candidates)

    @cached_property
    def cells(self) -> Mapping[str, Mapping[str, TaskSummary]]:
        """What is known by task and candidate; the plan need not pair every two of them."""
        found: dict[str, dict[str, TaskSummary]] = {}
        for cell in self.by_task:
            found.setdefault(cell.task, {})[cell.candidate] = cell
        return found

    @cached_property
    def settled(self) -> frozenset[str]:
        """Those whose missing trials an adaptive run did not need."""
        return frozenset(
            one.candidate for one in self.summary.candidates if one.total.buckets.not_needed
        )

    @property
    def standing(self) -> str | None:
        """Why this is not all that was planned; None where it is."""
        buckets = self.summary.buckets
        missing = buckets.not_run + buckets.cancelled
        told = f"{missing:,} of {counted(buckets.planned, 'trial')}"
        if self.running:
            return f"It was still running at {moment(self.made_at)}: {told} were missing then."
        if missing:
            return f"It is not finished: {told} are missing. Resume it to run just those."
        return None

    def command(self, verb: str, *words: str) -> str:
        """Return what to type to do something else with this run."""
        where = () if self.output is None else ("--output", self.output)
        return shlex.join(["bakeoff", verb, self.run, *words, *where])

    def missing(self, candidate: str | None = None) -> Iterator[Trial]:
        """Yield each planned trial that nothing is recorded of."""
        seen = self._recorded(candidate)
        for trial in self.plan:
            mine = seen.get(trial.candidate.id)
            if mine is not None and not mine[self._place(trial.task.id, trial.rollout)]:
                yield trial

    def _recorded(self, candidate: str | None) -> dict[str, bytearray]:
        """Return a byte for each trial that the plan may have: whether something is recorded."""
        names = self.candidates if candidate is None else (candidate,)
        seen = {name: bytearray(len(self.tasks) * self.plan.rollouts) for name in names}
        for row in self.trials.rows():
            if row.candidate_id in seen:
                seen[row.candidate_id][self._place(row.task_id, row.rollout)] = 1
        return seen

    def _place(self, task: str, rollout: int) -> int:
        return self._numbers[task] * self.plan.rollouts + rollout

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {task.id: number for number, task in enumerate(self.tasks)}

    def why_missing(self, candidate: str) -> str:
        """Return what to say of a trial of *candidate* that nothing is recorded of."""
        return "not needed" if candidate in self.settled else "not run"
