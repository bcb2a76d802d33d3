"""One attempt at a trial, from solving to scoring, top to bottom."""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from bakeoff._lib.clock import monotonic, timestamp, until, within
from bakeoff.core.budget import NO_BILL, UNPRICED
from bakeoff.core.candidate import Limits
from bakeoff.core.errors import (
    AgentError,
    LimitReached,
    NotRun,
    ProviderError,
    SandboxError,
    ScorerError,
    TrialError,
)
from bakeoff.core.events import Listener, TrialOutput, TrialSpent, TurnEnded, TurnStarted, ignore
from bakeoff.core.outcome import Journal, Outcome, Spent, Wait, turn_as_trial
from bakeoff.core.plan import Trial
from bakeoff.core.ports import Agent, Checkpoint, Context, Scorer, TrialParts
from bakeoff.core.record import Attempt, Fault, Score, Status, has_passed, total_score
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.engine.budget import AttemptBill
from bakeoff.engine.meter import AttemptProgress, Meter, OutageDeadline
from bakeoff.engine.workspace_attempt import cancel_on_refusal, contained, solve_in_workspace

OnWait = Callable[[Wait | None], None]

_LEAST_S = 0.01  # what is saved may still be used where all the time was spent before


@dataclass(slots=True)
class _AttemptState:
    """The state of a running attempt, filled in as it proceeds so that a cut leaves what there is."""

    task: Task
    outcome: Outcome | None = None
    scores: tuple[Score, ...] = ()
    status: Status = Status.COMPLETED
    fault: Fault | None = None
    meter: Meter | None = None
    roles: Mapping[str, Meter] = field(default_factory=dict)
    journal: Journal | None = None
    attempt_bill: AttemptBill = field(default_factory=AttemptBill)
    phases: dict[str, float] = field(default_factory=dict)
    listener: Listener = ignore
    on_wait: OnWait | None = None
    spent: Spent | None = None  # by the attempt that is scored again
    before_s: float = 0.0  # how long the attempts worked that this one continues

    def measure(self, parts: TrialParts, limits: Limits | None = None) -> Meter:
        """Meter the model and each role; return the model's meter."""
        attempt_bill, tariffs = self.attempt_bill, parts.role_tariffs
        self.roles = {
            name: Meter(
                model,
                tariff=tariffs.get(name, UNPRICED),
                attempt_bill=attempt_bill,
                on_wait=self.on_wait,
            )
            for name, model in parts.roles.items()
        }
        self.meter = Meter(
            parts.model,
            limits,
            tariff=parts.tariff,
            attempt_bill=attempt_bill,
            on_wait=self.on_wait,
        )
        return self.meter

    def hold_in_outages(self, deadline: until) -> None:
        """Pause the agent's deadline while an endpoint that it needs is down."""
        holding = OutageDeadline(deadline)
        for meter in (self.meter, *self.roles.values()):
            if meter is not None:
                meter.deadline = holding

    def end(self, error: TrialError | NotRun | None = None) -> None:
        """Set the status; a run that stops or has no budget left is neither a fault nor a result."""
        if error is not None and self.outcome is None:
            self.outcome = _partial_outcome(self.journal)
        if isinstance(error, TrialError):
            self.status, self.fault = Status.FAULTED, Fault.of(error)
        if self.attempt_bill.refused:  # also where a part of the trial swallowed the error
            self.status, self.fault, self.scores = Status.CANCELLED, None, ()


async def run_attempt(
    trial: Trial,
    parts: TrialParts,
    *,
    number: int,
    attempt_bill: AttemptBill | None = None,
    listener: Listener = ignore,
    on_wait: OnWait | None = None,
) -> Attempt:
    """Solve and score once; a broken trial is a record, not an exception.

    Only a cancellation is raised, and then the trial does not count as tried; *attempt_bill* still
    has what it cost. *on_wait* hears when no more is done for a while than to wait.
    """
    started_at, began = timestamp(), monotonic()
    state = _AttemptState(
        task=parts.task or trial.task,
        attempt_bill=attempt_bill or AttemptBill(),
        listener=listener,
        on_wait=on_wait,
    )
    try:
        await _solve(trial, parts, state, number)
        await _score(trial, parts, state, number)
        state.end()
    except (TrialError, NotRun) as error:
        state.end(error)
    if parts.keep_attachment is not None and state.outcome is not None:
        for message in state.outcome.transcript:
            for attachment in message.attachments:
                parts.keep_attachment(attachment)
    return _close(trial.task, state, number, started_at, monotonic() - began)


async def rescore_attempt(
    trial: Trial,
    parts: TrialParts,
    old: Attempt,
    *,
    number: int,
    attempt_bill: AttemptBill | None = None,
) -> Attempt:
    """Score the outcome of *old* again; no agent runs, and what it spent is unchanged.

    An attempt that replaces *old* (the same number) includes its bill; a new one has its own.
    """
    state = _AttemptState(
        task=parts.task or trial.task,
        outcome=old.outcome,
        status=_status_before_scoring(old),
        attempt_bill=attempt_bill or AttemptBill(),
        spent=old.spent,
    )
    state.measure(parts)
    try:
        await _score(trial, parts, state, number)
        state.end()
    except (TrialError, NotRun) as error:
        state.end(error)
    state.phases = {**old.phases, **state.phases}
    again = _close(trial.task, state, number, old.started_at, old.elapsed_s)
    bill = again.bill + (old.bill if number == old.number else NO_BILL)
    return replace(again, spent=old.spent, roles=again.roles or old.roles, bill=bill)


def run_or_rescore(
    trial: Trial,
    parts: TrialParts,
    before: Attempt | None,
    *,
    number: int,
    attempt_bill: AttemptBill,
    listener: Listener,
    on_wait: OnWait | None,
) -> Awaitable[Attempt]:
    """Run an attempt of *trial*; only its scoring where only that failed in the attempt *before*."""
    if before is not None and before.scorable:
        return rescore_attempt(trial, parts, before, number=number, attempt_bill=attempt_bill)
    return run_attempt(
        trial, parts, number=number, attempt_bill=attempt_bill, listener=listener, on_wait=on_wait
    )


def _status_before_scoring(attempt: Attempt) -> Status:
    """Return the agent's own status; a fault or an exhausted budget came later, at scoring."""
    if attempt.status is Status.CANCELLED:
        return Status.COMPLETED
    return Status.COMPLETED if attempt.fault is not None else attempt.status


async def _solve(trial: Trial, parts: TrialParts, state: _AttemptState, number: int) -> None:
    if state.task.trouble is not None:
        raise SandboxError(state.task.trouble)
    limits = _effective_limits(trial)
    meter = state.measure(parts, limits)
    task = trial.task
    if not (task.workspace or task.dialogue or task.tools or task.turns):
        context = Context(model=meter, roles=state.roles, rollout=trial.rollout)
        state.outcome = await _run_agent(parts.agent, trial, state, context, limits)
        return
    state.journal = Journal(
        lambda text: state.listener(TrialOutput(trial, text)),
        lambda number, over: state.listener((TurnEnded if over else TurnStarted)(trial, number)),
    )
    context = replace(_workspace_context(trial, parts, state, meter, number), journal=state.journal)
    if trial.task.dialogue is not None and parts.checkpoints is not None:
        progress = _progress(parts.checkpoints.of(trial), state, number)
        context, limits = replace(context, checkpoint=progress), _remaining_limits(limits, progress)
    if trial.task.workspace is None:
        state.outcome = await _run_agent(parts.agent, trial, state, context, limits)
        return

    async def solve(context: Context) -> Outcome:
        return await _run_agent(parts.agent, trial, state, context, limits)

    meter.on_spent = lambda spent: state.listener(TrialSpent(trial, spent))
    state.outcome = await solve_in_workspace(
        trial,
        parts,
        solve,
        context=context,
        journal=state.journal,
        meter=meter,
        phases=state.phases,
    )
    state.phases["agent"] += state.before_s


def _workspace_context(
    trial: Trial, parts: TrialParts, state: _AttemptState, meter: Meter, number: int
) -> Context:
    return Context(
        model=meter,
        roles=state.roles,
        rollout=trial.rollout,
        label=f"{trial.name}#{number}",
        workspaces=parts.workspace_access.workspaces if parts.workspace_access else None,
    )


def _progress(saved: Checkpoint, state: _AttemptState, number: int) -> AttemptProgress:
    """Return the progress of an interrupted attempt; *state* starts with what that cost."""
    parties = {**state.roles, **({"": state.meter} if state.meter else {})}
    began = monotonic()
    progress = AttemptProgress(
        saved,
        number=number,
        meters=parties,
        attempt_bill=state.attempt_bill,
        elapsed=lambda: monotonic() - began,
    )
    state.before_s = progress.before_s
    return progress


def _remaining_limits(limits: Limits, progress: AttemptProgress) -> Limits:
    if limits.time_s is None or not progress.before_s:
        return limits
    return replace(limits, time_s=max(limits.time_s - progress.before_s, _LEAST_S))


async def _run_agent(
    agent: Agent, trial: Trial, state: _AttemptState, context: Context, limits: Limits
) -> Outcome:
    """Return the outcome of *agent*, or what there is when a limit is reached."""
    meter = state.meter
    try:
        with (
            within(limits.time_s) as deadline,
            contained(AgentError, f"agent {trial.candidate.agent.name!r}"),
        ):
            if deadline is not None:
                state.hold_in_outages(deadline)
            solving = agent.solve(state.task, context)
            outcome = _checked(
                await (
                    solving
                    if context.model_access is None
                    else cancel_on_refusal(context.model_access, solving)
                )
            )
            if state.attempt_bill.refused:
                raise state.attempt_bill.refused
            return outcome
    except (TimeoutError, LimitReached) as error:
        # only the deadline can raise TimeoutError here: `boundary` wrapped any other
        troubles = (m.trouble for m in (meter, *state.roles.values()) if m)
        if trouble := next(filter(None, troubles), None):
            # the endpoint spent that time, not the candidate
            raise ProviderError(
                f"the time limit ran out while trying again after: {trouble}", transient=True
            ) from error
        state.status = Status.LIMITED
        reason = str(error) or f"the time limit of {_effective_limits(trial).time_s:g} s ran out"
        if context.journal is not None and context.journal.partial_outcome is not None:
            return replace(context.journal.partial_outcome(), stop_reason=reason)
        return _limited_outcome(meter, reason)


def _checked(outcome: object) -> Outcome:
    """Return *outcome* if it is valid: a user's agent may return anything."""
    if not isinstance(outcome, Outcome) or not isinstance(outcome.answer, str):
        raise TypeError(f"it left {type(outcome).__name__}; leave an Outcome with a text as answer")
    return outcome


async def _score(trial: Trial, parts: TrialParts, state: _AttemptState, number: int) -> None:
    if state.outcome is None or state.meter is None:
        return
    task, deadline_s = state.task, trial.conditions.limits.scoring_s
    if why := state.outcome.change_refused:
        state.scores = tuple(
            Score(scorer=spec.name, value=0.0, weight=spec.weight, explanation=why, turn=spec.turn)
            for spec in task.scorers
        )
        return
    spent = state.spent or state.meter.spent
    if task.workspace is None:
        context = Context(model=state.meter, roles=state.roles, rollout=trial.rollout, spent=spent)
    else:
        context = replace(_workspace_context(trial, parts, state, state.meter, number), spent=spent)
    began = monotonic()
    scores = []
    try:
        with within(deadline_s):
            for spec, scorer in zip(task.scorers, parts.scorers, strict=True):
                scores.append(await _verdict(spec, scorer, task, state.outcome, context))
    except TimeoutError as error:
        raise ScorerError(f"scoring took longer than {deadline_s:g} s") from error
    finally:
        if task.workspace is not None:
            state.phases["grading"] = monotonic() - began
    state.scores = tuple(scores)


async def _verdict(
    spec: ScorerSpec, scorer: Scorer, task: Task, outcome: Outcome, context: Context
) -> Score:
    what = f"scorer {spec.name!r}"
    if spec.turn is not None:
        turn = turn_as_trial(task, outcome, spec.turn)
        if turn is None:
            return Score(
                scorer=spec.name,
                value=0.0,
                weight=spec.weight,
                explanation=f"the conversation ended before turn {spec.turn} was answered",
                turn=spec.turn,
            )
        task, outcome = turn
    try:
        with contained(ScorerError, what):
            verdict = await scorer.score(task, outcome, context)
            if not math.isfinite(verdict.value) or not 0 <= verdict.value <= 1:
                raise ScorerError(f"{what} gave {verdict.value}, not a value from 0 to 1")
            if (verdict.scorer, verdict.weight, type(verdict.value), verdict.turn) == (
                spec.name,
                spec.weight,
                float,
                spec.turn,
            ):
                return verdict
            return Score(
                scorer=spec.name,
                value=float(verdict.value),
                weight=spec.weight,
                explanation=verdict.explanation,
                details=verdict.details,
                passed=verdict.passed,
                turn=spec.turn,
            )
    except ProviderError as error:
        # the judge's endpoint failed, not the candidate's: it must not count against the candidate
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


def _limited_outcome(meter: Meter | None, reason: str) -> Outcome:
    last = meter.last if meter else None
    return Outcome(
        answer=last.answer if last else "",
        stop_reason=reason,
        model=last.model if last else None,
    )


def _partial_outcome(journal: Journal | None) -> Outcome | None:
    """Return the outcome of a broken attempt; None if nothing was said or logged."""
    if journal is None:
        return None
    if journal.partial_outcome is not None:
        return replace(journal.partial_outcome(), unfinished=True)
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
    task: Task, state: _AttemptState, number: int, started_at: float, elapsed_s: float
) -> Attempt:
    score = total_score(state.scores)
    roles = {name: m.spent for name, m in state.roles.items() if m.spent.sent}
    return Attempt(
        number=number,
        status=state.status,
        started_at=started_at,
        elapsed_s=elapsed_s + state.before_s,
        outcome=state.outcome,
        scores=state.scores,
        score=score,
        passed=has_passed(task, state.scores, score),
        fault=state.fault,
        spent=state.meter.spent if state.meter else Spent(),
        roles=roles,
        bill=state.attempt_bill.total,
        phases=state.phases,
    )
