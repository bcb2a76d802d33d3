"""The input of every report: summary, manifest, plan, and access to the recorded trials."""

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Protocol

from bakeoff._lib.value_object import value_object
from bakeoff.core.lazy_tasks import LazyTasks
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, Score, TrialRecord, TrialRow
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Message, Task
from bakeoff.reports.wording.phrases import counted, moment
from bakeoff.stats.by_task import TaskSummary
from bakeoff.stats.head_to_head import RolloutVerdict, verdict
from bakeoff.stats.summary import Summary


class Trials(Protocol):
    """The recorded trials of a run; they can be read repeatedly."""

    def rows(self) -> Iterator[TrialRow]:
        """Yield each recorded trial without its body."""

    def records(
        self,
        *,
        tasks: Collection[str] | None = None,
        candidate: str | None = None,
        rollouts: int | None = None,
    ) -> Iterator[TrialRecord]:
        """Yield each recorded trial, optionally filtered; trials of *tasks* come task by task."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that a report is made from.

    `called` is the name of the run to a person, `run` and `output` are how a command finds it;
    `made_at` is when the ledger was read, `running` whether the run was still active then. A report
    `with_text` contains prompts, expected answers and answers. `as_asked` returns a task as a
    candidate, by its id, is asked it.
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
    as_asked: Callable[[str, Task], Task] = lambda _, task: task

    @cached_property
    def prompts(self) -> bool:
        """Whether candidates differ in what they are asked."""
        return any(candidate.prompt is not None for candidate in self.plan.candidates)

    @cached_property
    def tasks(self) -> Sequence[Task]:
        """Each task once, in the order of the plan; those of a large plan are read as they are needed."""
        tasks = self.plan.blocks[0].tasks if len(self.plan.blocks) == 1 else ()
        if isinstance(tasks, LazyTasks) and tasks.are_distinct:
            return tasks
        return tuple(self.plan.tasks)

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """Each candidate once, in the order of the plan."""
        return tuple(candidate.id for candidate in self.plan.candidates)

    @cached_property
    def cells(self) -> Mapping[str, Mapping[str, TaskSummary]]:
        """The task summaries by task and candidate; a plan need not contain every combination."""
        cells: dict[str, dict[str, TaskSummary]] = {}
        for cell in self.by_task:
            cells.setdefault(cell.task, {})[cell.candidate] = cell
        return cells

    @cached_property
    def settled(self) -> frozenset[str]:
        """The candidates whose missing trials an adaptive run did not need."""
        return frozenset(
            candidate.candidate
            for candidate in self.summary.candidates
            if candidate.total.buckets.not_needed
        )

    @property
    def standing(self) -> str | None:
        """Why the run is incomplete; None if it is complete."""
        buckets = self.summary.buckets
        missing = buckets.not_run + buckets.cancelled
        share = f"{missing:,} of {counted(buckets.planned, 'trial')}"
        if self.running:
            return f"It was still running at {moment(self.made_at)}: {share} were missing then."
        if missing:
            return f"It is not finished: {share} are missing. Resume it to run just those."
        return None

    def command(self, verb: str, *words: str) -> str:
        """Return the shell command that runs *verb* on this run."""
        where = () if self.output is None else ("--output", self.output)
        return shlex.join(["bakeoff", verb, self.run, *words, *where])

    def missing(self, candidate: str | None = None) -> Iterator[Trial]:
        """Yield each planned trial that has no record."""
        seen = self._recorded(candidate)
        for trial in self.plan:
            recorded = seen.get(trial.candidate.id)
            if recorded is not None and not recorded[self._place(trial.task.id, trial.rollout)]:
                yield trial

    def _recorded(self, candidate: str | None) -> dict[str, bytearray]:
        """Return one byte per possible trial and candidate: 1 if it is recorded."""
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
        """Return why a trial of *candidate* has no record."""
        return "not needed" if candidate in self.settled else "not run"


@value_object
class Check:
    """The result of one scorer and the output of its tests."""

    scorer: str
    value: float
    explanation: str | None = None
    output: str | None = None


@value_object
class Evidence:
    """The evidence of one rollout: transcript, changes, checks and the reason for a failure."""

    started_at: str
    error: str | None = None
    answer: str = ""
    patch: str | None = None
    left_out: tuple[str, ...] = ()
    transcript: tuple[Message, ...] = ()
    checks: tuple[Check, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)


def evidence_of(record: TrialRecord) -> Evidence:
    """Return the evidence of the final attempt."""
    attempt, outcome = record.attempt, record.attempt.outcome
    change = outcome.change if outcome else None
    return Evidence(
        started_at=started_at(attempt),
        error=error_of(attempt),
        answer=outcome.answer if outcome else "",
        patch=change.patch if change else None,
        left_out=change.left_out if change else (),
        transcript=outcome.transcript if outcome else (),
        checks=tuple(_check(score) for score in attempt.scores),
        phases=attempt.phases,
    )


def started_at(attempt: Attempt) -> str:
    """Return when *attempt* began, in UTC."""
    return datetime.fromtimestamp(attempt.started_at, UTC).isoformat(timespec="seconds")


def _check(score: Score) -> Check:
    output = score.details.get("output")
    return Check(
        scorer=score.label,
        value=score.value,
        explanation=score.explanation,
        output=output if isinstance(output, str) else None,
    )


def error_of(attempt: Attempt) -> str | None:
    """Return why *attempt* failed or stopped at a limit; None if it did neither."""
    result = verdict(attempt)
    if attempt.fault is not None:
        return f"{attempt.fault.boundary}: {attempt.fault.message}"
    if result.limited:
        reason = (attempt.outcome.stop_reason if attempt.outcome else None) or "a limit ran out"
        return f"{reason}; the work done by then passes the check" if result.solved else reason
    if result is RolloutVerdict.FAILED:
        explanations = [s.explanation for s in attempt.scores if s.explanation and s.value < 1]
        return "the check failed" + (f": {explanations[0]}" if explanations else "")
    return "it was stopped before it finished" if result is RolloutVerdict.CANCELLED else None
