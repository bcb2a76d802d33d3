"""How an attempt ended: statuses, scores, faults."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import NamedTuple

from bakeoff._lib.value_object import positional_value_object, value_object
from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.core.errors import TrialError
from bakeoff.core.outcome import Outcome, Spent
from bakeoff.core.plan import Trial, trial_name
from bakeoff.core.task import Task
from bakeoff.core.values import Json


class Status(StrEnum):
    """How a trial ended, not whether it was right."""

    COMPLETED = "completed"
    LIMITED = "limited"
    FAULTED = "faulted"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether a resume leaves the trial alone."""
        return self in {Status.COMPLETED, Status.LIMITED}


LABEL_MEANT, LABEL_GIVEN = "expected", "label"  # details of a scorer of labels


@value_object
class Score:
    """One verdict, 0 to 1.

    `passed` is for a scorer whose value alone does not say whether the task is done; it counts where
    the task's threshold is 1. `turn` is the turn of a scripted conversation that it is about.
    """

    scorer: str
    value: float
    weight: float = 1.0
    explanation: str | None = None
    details: Mapping[str, Json] = field(default_factory=dict)
    passed: bool | None = None
    turn: int | None = None

    @property
    def labels(self) -> tuple[str, str | None] | None:
        """The label that was meant and the one that the answer gave; None where it is no scorer of labels."""
        meant, given = self.details.get(LABEL_MEANT), self.details.get(LABEL_GIVEN)
        if not isinstance(meant, str) or LABEL_GIVEN not in self.details:
            return None
        return meant, given if isinstance(given, str) else None

    @property
    def label(self) -> str:
        """The scorer, with the turn that it scored."""
        return self.scorer if self.turn is None else f"turn {self.turn}: {self.scorer}"


@value_object
class Fault:
    """An error as data. Never a score of zero.

    `traceback` says where in a person's own code a plain Python error came from.
    """

    boundary: str
    message: str
    transient: bool = False
    traceback: str | None = None

    @classmethod
    def of(cls, error: TrialError) -> "Fault":
        """Return *error* as data."""
        return cls(
            boundary=error.boundary,
            message=str(error),
            transient=error.transient,
            traceback=_traceback_of(error),
        )

    @property
    def is_model_error(self) -> bool:
        """Whether the endpoint itself said no for good; anything else is infrastructure."""
        return self.boundary == "provider" and not self.transient


def _traceback_of(error: TrialError) -> str | None:
    """Return the traceback of *error*, or of what caused it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TrialError) and cause.traceback is not None:
            return cause.traceback
        cause = cause.__cause__
    return None


@value_object
class Attempt:
    """One try at a trial. `bill` is what it cost with its roles and with tries that failed.

    `phases` says how many seconds went where: set-up, agent, grading.
    """

    number: int
    status: Status
    started_at: float
    elapsed_s: float
    outcome: Outcome | None = None
    scores: tuple[Score, ...] = ()
    score: float | None = None
    passed: bool | None = None
    fault: Fault | None = None
    spent: Spent = field(default_factory=Spent)
    roles: Mapping[str, Spent] = field(default_factory=dict)
    bill: Bill = NO_BILL
    phases: Mapping[str, float] = field(default_factory=dict)

    @property
    def scorable(self) -> bool:
        """Whether there is an outcome that could be scored, now or again."""
        return self.outcome is not None and not self.outcome.unfinished


@value_object
class TrialRecord:
    """A trial as the ledger knows it: whose it is, and the attempt that counts."""

    task_id: str
    category: str | None
    candidate_id: str
    rollout: int
    attempt: Attempt

    @classmethod
    def of(cls, trial: Trial, attempt: Attempt) -> "TrialRecord":
        """Return the record of *trial* in which *attempt* counts."""
        return cls(
            task_id=trial.task.id,
            category=trial.task.category,
            candidate_id=trial.candidate.id,
            rollout=trial.rollout,
            attempt=attempt,
        )

    @property
    def name(self) -> str:
        """How a person refers to this trial."""
        return trial_name(self.task_id, self.candidate_id, self.rollout)


class TrialRow(NamedTuple):
    """A trial without its body: what statistics need, cheap at a million."""

    task_id: str
    category: str | None
    candidate_id: str
    rollout: int
    status: str
    score: float | None
    passed: bool | None
    fault_boundary: str | None
    fault_transient: bool | None
    attempts: int
    elapsed_s: float
    model_s: float
    first_token_s: float | None
    requests: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    load_s: float | None = None
    flags: str | None = None


class TaskTotals(NamedTuple):
    """The trials of one task and candidate, added up: what comparing runs needs.

    `n` of them have a score, of which `passed` are a pass; `low` and `high` are None where none has.
    `cost_usd` is None where that of a trial is unknown.
    """

    task_id: str
    category: str | None
    candidate_id: str
    n: int
    total: float
    low: float | None
    high: float | None
    binary: bool
    passed: int
    faults: int
    cost_usd: float | None = None


@value_object
class TrialFailure:
    """A trial that did not pass, and why: its fault, what stopped it, or the scorers that it did not meet."""

    task_id: str
    candidate_id: str
    rollout: int
    status: str
    boundary: str | None = None
    message: str | None = None
    stopped_by: str | None = None
    unmet: tuple[tuple[str, str | None], ...] = ()

    @property
    def name(self) -> str:
        """How a person refers to the trial."""
        return trial_name(self.task_id, self.candidate_id, self.rollout)


@value_object
class TrialFilter:
    """Which trials: those that failed or faulted, of some candidates, of some categories; empty is all."""

    failed: bool = False
    faulted: bool = False
    candidates: Collection[str] = ()
    categories: Collection[str] = ()


@positional_value_object
class TrialLine:
    """A trial in one line; `text` is its whole answer, or why it has none."""

    task_id: str
    name: str
    status: str
    score: float | None
    elapsed_s: float
    text: str


def total_score(scores: tuple[Score, ...]) -> float | None:
    """Return the weighted mean; None where nothing with a weight was scored."""
    if len(scores) == 1:  # nearly always
        return scores[0].value if scores[0].weight > 0 else None
    weight = sum(s.weight for s in scores)
    if weight <= 0:
        return None
    mean = sum(s.value * s.weight for s in scores) / weight
    return min(max(mean, 0.0), 1.0)  # rounding must not leave the range


_ROUNDING = 1e-9  # weights such as .7 + .3 must still reach a threshold of 1


def has_passed(task: Task, scores: Sequence[Score], total: float | None) -> bool | None:
    """Return whether *scores*, which make *total*, are a pass at *task*; None where none are.

    With a threshold under 1 the total decides. Else every scorer that counts must be satisfied: it
    says so itself, or its value is 1.
    """
    if total is None:
        return None
    if task.pass_threshold < 1:
        return total >= task.pass_threshold - _ROUNDING
    counting = [score for score in scores if score.weight > 0]
    return all(
        score.value >= 1 - _ROUNDING if score.passed is None else score.passed for score in counting
    )


def pass_rule(tasks: Iterable[Task]) -> str:
    """Return in a few words what it takes to pass *tasks*."""
    return joined_rules({rule_of(task) for task in tasks if task.scorers})


def joined_rules(rules: Collection[str]) -> str:
    """Return in a few words what it takes to pass tasks with these *rules*."""
    if len(rules) > 1:
        return f"a pass depends on the task: {' or '.join(sorted(rules))}"
    return f"a pass is {next(iter(rules))}" if rules else ""


def rule_of(task: Task) -> str:
    """Return in a few words what it takes to pass *task*."""
    if task.pass_threshold < 1:
        return f"a score of {task.pass_threshold:g} or more"
    if any(
        scorer.name == "rubrics" and scorer.settings.get("test_scripts") for scorer in task.scorers
    ):
        return "all tests passing, whatever a judge says"
    return "a score of 1"
