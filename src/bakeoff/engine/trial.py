"""The life of one attempt, top to bottom."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bakeoff._lib.clock import monotonic, timestamp
from bakeoff._lib.deadline import until, within
from bakeoff.core.budget import NO_BILL, UNPRICED
from bakeoff.core.candidate import Limits
from bakeoff.core.checkpoint import Checkpoint
from bakeoff.core.errors import (
    AgentError,
    LimitReached,
    NotRun,
    ProviderError,
    SandboxError,
    ScorerError,
    TrialError,
)
from bakeoff.core.events import Listener, TrialOutput, TurnEnded, TurnStarted, ignore
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Outcome, Spent
from bakeoff.core.plan import Trial
from bakeoff.core.ports import Agent, Context, Scorer, TrialParts
from bakeoff.core.record import Attempt, Fault, Score, Status, has_passed, total_score
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.engine.budget import AttemptBill
from bakeoff.engine.checkpoint import AttemptProgress
from bakeoff.engine.meter import Meter, OutageDeadline
from bakeoff.engine.workspace_attempt import contained, heeding, solve_in_room

_LEAST_S = 0.01  # what is saved may still be used where all the time was spent before


@dataclass(slots=True)
class _AttemptState:
    """How far an attempt has come; filled in as it goes, so that a cut leaves what there was."""

    outcome: Outcome | None = None
    scores: tuple[Score, ...] = ()
    status: Status = Status.COMPLETED
    fault: Fault | None = None
    meter: Meter | None = None
    roles: Mapping[str, Meter] = field(default_factory=dict)
    journal: Journal | None = None
    tab: AttemptBill = field(default_factory=AttemptBill)
    phases: dict[str, float] = field(default_factory=dict)
    tell: Listener = ignore
    before_s: float = 0.0  # how long attempts worked on it that this one goes on from

    def measure(self, rig: TrialParts, limits: Limits | None = None) -> Meter:
        """Put a meter before the model, which is returned, and before each role."""
        tab, tariffs = self.tab, rig.role_tariffs
        self.roles = {
            name: Meter(model, tariff=tariffs.get(name, UNPRICED), tab=tab)
            for name, model in rig.roles.items()
        }
        self.meter = Meter(rig.model, limits, tariff=rig.tariff, tab=tab)
        return self.meter

    def hold_in_outages(self, deadline: until) -> None:
        """Let the time of the agent stand still while an endpoint that it needs is down."""
        holding = OutageDeadline(deadline)
        for meter in (self.meter, *self.roles.values()):
            if meter is not None:
                meter.deadline = holding

    def end(self, error: TrialError | NotRun | None = None) -> None:
        """Say how it ended; a run that stops or has no budget left is nobody's fault and no result."""
        if error is not None and self.outcome is None:
            self.outcome = _broken_off(self.journal)
        if isinstance(error, TrialError):
            self.status, self.fault = Status.FAULTED, Fault.of(error)
        if self.tab.refused:  # also where a part of the trial swallowed the error
            self.status, self.fault, self.scores = Status.CANCELLED, None, ()


async def run_attempt(
    trial: Trial,
    rig: TrialParts,
    *,
    number: int,
    tab: AttemptBill | None = None,
    tell: Listener = ignore,
) -> Attempt:
    """Solve and score once. A broken trial is a record, not an exception.

    Only a cancellation escapes, after which nobody may say the trial was tried; *tab* still says
    what it cost.
    """
    started_at, began = timestamp(), monotonic()
    course = _AttemptState(tab=tab or AttemptBill(), tell=tell)
    try:
        await _solve(trial, rig, course, number)
        await _score(trial, rig, course, number)
        course.end()
    except (TrialError, NotRun) as error:
        course.end(error)
    return _close(trial.task, course, number, started_at, monotonic() - began)


async def rescore_attempt(
    trial: Trial, rig: TrialParts, old: Attempt, *, number: int, tab: AttemptBill | None = None
) -> Attempt:
    """Score the outcome of *old* again; no agent runs, and what it spent stays as it was.

    An attempt that takes the place of *old* takes over its bill; the next one has its own.
    """
    course = _AttemptState(
        outcome=old.outcome, status=_status_before_scoring(old), tab=tab or AttemptBill()
    )
    course.measure(rig)
    try:
        await _score(trial, rig, course, number)
        course.end()
    except (TrialError, NotRun) as error:
        course.end(error)
    course.phases = {**old.phases, **course.phases}
    again = _close(trial.task, course, number, old.started_at, old.elapsed_s)
    bill = again.bill + (old.bill if number == old.number else NO_BILL)
    return replace(again, spent=old.spent, roles=again.roles or old.roles, bill=bill)


def _status_before_scoring(attempt: Attempt) -> Status:
    """Return how the agent ended; a fault or the end of the budget came after it: it left something."""
    if attempt.status is Status.CANCELLED:
        return Status.COMPLETED
    return Status.COMPLETED if attempt.fault is not None else attempt.status


async def _solve(trial: Trial, rig: TrialParts, course: _AttemptState, number: int) -> None:
    if trial.task.trouble is not None:
        raise SandboxError(trial.task.trouble)
    limits = _effective_limits(trial)
    meter = course.measure(rig, limits)
    if trial.task.workspace is None and trial.task.dialogue is None:
        context = Context(model=meter, roles=course.roles, rollout=trial.rollout)
        course.outcome = await _left_by(rig.agent, trial, course, context, limits)
        return
    course.journal = Journal(
        lambda text: course.tell(TrialOutput(trial, text)),
        lambda number, over: course.tell((TurnEnded if over else TurnStarted)(trial, number)),
    )
    context = replace(_context(trial, rig, course, meter, number), journal=course.journal)
    if trial.task.dialogue is not None and rig.checkpoints is not None:
        progress = _progress(rig.checkpoints.of(trial), course, number)
        context, limits = replace(context, checkpoint=progress), _what_is_left(limits, progress)
    if trial.task.workspace is None:
        course.outcome = await _left_by(rig.agent, trial, course, context, limits)
        return

    async def solve(context: Context) -> Outcome:
        return await _left_by(rig.agent, trial, course, context, limits)

    course.outcome = await solve_in_room(
        trial,
        rig,
        solve,
        context=context,
        journal=course.journal,
        meter=meter,
        phases=course.phases,
        tell=course.tell,
    )
    course.phases["agent"] += course.before_s


def _context(
    trial: Trial, rig: TrialParts, course: _AttemptState, meter: Meter, number: int
) -> Context:
    return Context(
        model=meter,
        roles=course.roles,
        rollout=trial.rollout,
        label=f"{trial.name}#{number}",
        workspaces=rig.site.workspaces if rig.site else None,
    )


def _progress(kept: Checkpoint, course: _AttemptState, number: int) -> AttemptProgress:
    """Return how far an attempt that was cut off had come; *course* starts with what that cost."""
    parties = {**course.roles, **({"": course.meter} if course.meter else {})}
    began = monotonic()
    progress = AttemptProgress(
        kept, number=number, meters=parties, tab=course.tab, elapsed=lambda: monotonic() - began
    )
    course.before_s = progress.before_s
    return progress


def _what_is_left(limits: Limits, progress: AttemptProgress) -> Limits:
    if limits.time_s is None or not progress.before_s:
        return limits
    return replace(limits, time_s=max(limits.time_s - progress.before_s, _LEAST_S))


async def _left_by(
    agent: Agent, trial: Trial, course: _AttemptState, context: Context, limits: Limits
) -> Outcome:
    """Return what *agent* leaves, or what there was when a limit ran out."""
    meter = course.meter
    try:
        with (
            within(limits.time_s) as deadline,
            contained(AgentError, f"agent {trial.candidate.agent.name!r}"),
        ):
            if deadline is not None:
                course.hold_in_outages(deadline)
            solving = agent.solve(trial.task, context)
            left = _checked(
                await (
                    solving
                    if context.model_access is None
                    else heeding(context.model_access, solving)
                )
            )
            if course.tab.refused:
                raise course.tab.refused
            return left
    except (TimeoutError, LimitReached) as error:
        # Only the deadline can raise TimeoutError here: `boundary` renamed any other.
        troubles = (m.trouble for m in (meter, *course.roles.values()) if m)
        if trouble := next(filter(None, troubles), None):
            # the endpoint spent that time, not the candidate
            raise ProviderError(
                f"the time limit ran out while trying again after: {trouble}", transient=True
            ) from error
        course.status = Status.LIMITED
        reason = str(error) or f"the time limit of {_effective_limits(trial).time_s:g} s ran out"
        if context.journal is not None and context.journal.left is not None:
            return replace(context.journal.left(), stop_reason=reason)
        return _cut_short(meter, reason)


def _checked(left: object) -> Outcome:
    """Return what the agent left; anybody's code may leave something else than it should."""
    if not isinstance(left, Outcome) or not isinstance(left.answer, str):
        raise TypeError(f"it left {type(left).__name__}; leave an Outcome with a text as answer")
    return left


async def _score(trial: Trial, rig: TrialParts, course: _AttemptState, number: int) -> None:
    if course.outcome is None or course.meter is None:
        return
    task, deadline_s = trial.task, trial.conditions.limits.scoring_s
    if why := course.outcome.change_refused:
        course.scores = tuple(
            Score(scorer=spec.name, value=0.0, weight=spec.weight, explanation=why)
            for spec in task.scorers
        )
        return
    if task.workspace is None:
        context = Context(model=course.meter, roles=course.roles, rollout=trial.rollout)
    else:
        context = _context(trial, rig, course, course.meter, number)
    began = monotonic()
    scores = []
    try:
        with within(deadline_s):
            for spec, scorer in zip(task.scorers, rig.scorers, strict=True):
                scores.append(await _verdict(spec, scorer, task, course.outcome, context))
    except TimeoutError as error:
        raise ScorerError(f"scoring took longer than {deadline_s:g} s") from error
    finally:
        if task.workspace is not None:
            course.phases["grading"] = monotonic() - began
    course.scores = tuple(scores)


async def _verdict(
    spec: ScorerSpec, scorer: Scorer, task: Task, outcome: Outcome, context: Context
) -> Score:
    what = f"scorer {spec.name!r}"
    try:
        with contained(ScorerError, what):
            verdict = await scorer.score(task, outcome, context)
            if not math.isfinite(verdict.value) or not 0 <= verdict.value <= 1:
                raise ScorerError(f"{what} gave {verdict.value}, not a value from 0 to 1")
            if (verdict.scorer, verdict.weight, type(verdict.value)) == (
                spec.name,
                spec.weight,
                float,
            ):
                return verdict
            return Score(
                scorer=spec.name,
                value=float(verdict.value),
                weight=spec.weight,
                explanation=verdict.explanation,
                details=verdict.details,
                passed=verdict.passed,
            )
    except ProviderError as error:
        # the judge's endpoint, not the candidate's: it must not count against the candidate
        raise ScorerError(f"{what}: {error}", transient=error.transient) from error
    except LimitReached as error:
        raise ScorerError(f"{what}: {error}") from error


def _effective_limits(trial: Trial) -> Limits:
    limits, task_s, agent_s = (
        trial.conditions.limits,
        trial.task.time_s,
        trial.candidate.agent.time_s,
    )
    if task_s is None and agent_s is None:
        return limits
    least = min(s for s in (limits.time_s, task_s, agent_s) if s is not None)
    return replace(limits, time_s=least)


def _cut_short(meter: Meter | None, reason: str) -> Outcome:
    last = meter.last if meter else None
    return Outcome(
        answer=last.answer if last else "",
        stop_reason=reason,
        model=last.model if last else None,
    )


def _broken_off(journal: Journal | None) -> Outcome | None:
    """Return what there was when it was broken off; None where nothing was said or printed."""
    if journal is None:
        return None
    if journal.left is not None:
        return replace(journal.left(), unfinished=True)
    if not journal.messages and journal.log is None:
        return None
    return Outcome(
        answer="",
        transcript=tuple(journal.messages),
        log=journal.log,
        interventions=journal.interventions,
        unfinished=True,
    )


def _close(
    task: Task, course: _AttemptState, number: int, started_at: float, elapsed_s: float
) -> Attempt:
    score = total_score(course.scores)
    roles = {name: m.spent for name, m in course.roles.items() if m.spent.sent}
    return Attempt(
        number=number,
        status=course.status,
        started_at=started_at,
        elapsed_s=elapsed_s + course.before_s,
        outcome=course.outcome,
        scores=course.scores,
        score=score,
        passed=has_passed(task, course.scores, score),
        fault=course.fault,
        spent=course.meter.spent if course.meter else Spent(),
        roles=roles,
        bill=course.tab.bill,
        phases=course.phases,
    )
