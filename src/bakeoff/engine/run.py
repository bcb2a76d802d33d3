"""Run the trials of a plan that are due, or score stored outcomes again, through the executor."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Protocol

from bakeoff._lib.clock import monotonic, timestamp
from bakeoff._lib.value_object import value_object
from bakeoff.core.candidate import Candidate
from bakeoff.core.errors import BakeoffError, NotRun
from bakeoff.core.events import Listener, TrialEnded, TrialNotRun, TrialStarted
from bakeoff.core.outcome import Wait
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Executor, Job, Ledger, Store, TrialPartsSource
from bakeoff.core.record import Attempt, Status, TrialRecord
from bakeoff.core.stop import Stop
from bakeoff.engine.adaptive import AdaptiveSelection
from bakeoff.engine.budget import AttemptBill, Budget
from bakeoff.engine.trial import OnWait, rescore_attempt, run_or_rescore
from bakeoff.planning.resume import remaining


@value_object
class StopConditions:
    """What may end a run before its whole plan is done.

    If the `budget` refuses a request, its trial is recorded as cancelled and no more are started.
    With a `selection`, trials that are no longer needed are skipped.
    """

    stop: Stop = field(default_factory=Stop)
    budget: Budget = field(default_factory=Budget)
    selection: AdaptiveSelection | None = None


class RunAttempt(Protocol):
    """What runs the attempts of one trial."""

    def __call__(
        self,
        before: Attempt | None,
        *,
        number: int,
        attempt_bill: AttemptBill,
        listener: Listener,
        on_wait: OnWait | None,
    ) -> Awaitable[Attempt]:
        """Run an attempt, or only its scoring where only that failed in the one *before*.

        What *attempt_bill* has is right also where this is cancelled.
        """


class TrialRunner(Protocol):
    """Where attempts are run: in this process, or in others."""

    def runs(self, trial: Trial) -> RunAttempt:
        """Return what runs the attempts of *trial*; NotRun where an endpoint that it needs was given up."""


class LocalRunner:
    """Runs attempts in this event loop."""

    def __init__(self, parts_source: TrialPartsSource) -> None:
        self._parts_source = parts_source

    def runs(self, trial: Trial) -> RunAttempt:
        """Return what runs the attempts of *trial* here; NotRun where its endpoint was given up."""
        return partial(run_or_rescore, trial, self._parts_source.parts_for(trial))


async def run_plan(
    plan: Plan,
    *,
    store: Store,
    runner: TrialRunner,
    executor: Executor,
    listener: Listener,
    until: StopConditions,
) -> None:
    """Run every trial of *plan* that *store* does not hold yet; its *listener* hears of what is durable.

    A trial that got no answer because the run stops, or its endpoint was given up, is not recorded:
    a resume runs it.
    """
    stop, budget, selection = until.stop, until.budget, until.selection
    jobs, *other_lanes = _lanes(plan, store, selection)

    async def work(job: Job) -> None:
        trial, before = job.trial, None
        # a box is held while its trial waits: only plain prompts let others run meanwhile
        on_wait = job.on_wait if trial.task.workspace is None else None
        try:
            attempt_of_trial = runner.runs(trial)
        except NotRun:
            return
        listener(TrialStarted(trial))
        for number in range(job.attempt, job.attempt + trial.conditions.attempts):
            attempt_bill = AttemptBill(budget)
            trying = attempt_of_trial(
                before,
                number=number,
                attempt_bill=attempt_bill,
                listener=listener,
                on_wait=on_wait,
            )
            attempt = await _recorded_if_cancelled(trying, trial, number, store, attempt_bill)
            if attempt_bill.not_run:
                listener(TrialNotRun(trial, str(attempt_bill.refused)))
                return
            if budget.reached:
                stop.request()
            await _stored(store, trial, attempt, on_wait)
            again = attempt.fault is not None and attempt.fault.transient
            spent = number == job.attempt + trial.conditions.attempts - 1
            last = not again or spent or stop.requested
            listener(TrialEnded(trial, attempt, last))
            if last:
                if selection is not None:
                    selection.record(
                        trial.candidate.id,
                        trial.task.id,
                        attempt.score,
                        faulted=attempt.status is Status.FAULTED,
                    )
                return
            before = attempt

    try:
        await executor.run(jobs, work, stop, other_lanes=other_lanes)
    except BaseExceptionGroup as group:
        raise _first_cause(group) from group


async def _stored(store: Store, trial: Trial, attempt: Attempt, on_wait: OnWait | None) -> None:
    """Append an attempt; others may run until it is durable."""
    if on_wait is None:
        await store.append(trial, attempt)
        return
    on_wait(Wait.DISK)
    try:
        await store.append(trial, attempt)
    finally:
        on_wait(None)


def _lanes(
    plan: Plan, store: Store, selection: AdaptiveSelection | None
) -> Sequence[Iterator[Job]]:
    """Return what is due, apart for each endpoint unless an order binds them all."""
    if selection is not None:
        return [selection.wanted_jobs(remaining(plan, store.next_attempts))]
    return [remaining(part, store.next_attempts) for part in _by_endpoint(plan)]


def _by_endpoint(plan: Plan) -> Sequence[Plan]:
    """Return a plan for the candidates of each endpoint; the whole where an order binds them."""
    endpoints = dict.fromkeys(_endpoint(candidate) for candidate in plan.candidates)
    if len(endpoints) < 2 or plan.one_after_another or plan.drawn is not None:
        return [plan]
    return [
        replace(
            plan,
            blocks=tuple(
                replace(
                    block,
                    candidates=tuple(c for c in block.candidates if _endpoint(c) == endpoint),
                )
                for block in plan.blocks
            ),
        )
        for endpoint in endpoints
    ]


def _endpoint(candidate: Candidate) -> str:
    return candidate.model.base_url or candidate.model.provider


async def _recorded_if_cancelled(
    trying: Awaitable[Attempt], trial: Trial, number: int, store: Store, attempt_bill: AttemptBill
) -> Attempt:
    """Return the attempt; if the run is cancelled meanwhile, record that."""
    started_at, began = timestamp(), monotonic()
    try:
        return await trying
    except asyncio.CancelledError:
        cancelled = Attempt(
            number=number,
            status=Status.CANCELLED,
            started_at=started_at,
            elapsed_s=monotonic() - began,
            bill=attempt_bill.total,
        )
        await store.append(trial, cancelled)
        raise


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error to report: our own before Python's, one before many."""
    errors: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            errors.append(error)
    return next((e for e in errors if isinstance(e, BakeoffError)), errors[0])


# --- scoring again --------------------------------------------------------------------------------


async def rescore_plan(
    plan: Plan,
    *,
    ledger: Ledger,
    store: Store,
    parts_source: TrialPartsSource,
    executor: Executor,
    stop: Stop,
    listener: Listener,
) -> bool:
    """Rescore the outcomes in *ledger* as *plan* says, and put all new scores into effect at once.

    Returns False, and changes nothing, if it was stopped.
    """
    trial_before = _trial_lookup(ledger.planned())
    trial_after = _trial_lookup(plan)
    taken: dict[str, TrialRecord] = {}

    def jobs() -> Iterator[Job]:
        for record in ledger.records():
            if record.attempt.scorable:
                taken[record.name] = record
                yield Job(trial_after(record), record.attempt.number)

    async def work(job: Job) -> None:
        listener(TrialStarted(job.trial))
        record = taken.pop(job.trial.name)
        attempt_bill = AttemptBill()
        try:
            parts = parts_source.parts_for(job.trial)
        except NotRun:
            stop.request()
            return
        attempt = await rescore_attempt(
            job.trial, parts, record.attempt, number=job.attempt, attempt_bill=attempt_bill
        )
        if (
            attempt_bill.refused is not None
        ):  # a judge's endpoint is down: the verdicts stay as they were
            stop.request()
            return
        store.rescore(trial_before(record), attempt)
        listener(TrialEnded(job.trial, attempt, last=True))

    await executor.run(jobs(), work, stop)
    if stop.requested:
        return False
    store.adopt(plan)
    return True


def _trial_lookup(plan: Plan) -> Callable[[TrialRecord], Trial]:
    tasks = {task.id: task for task in plan.tasks}
    candidates = {candidate.id: candidate for candidate in plan.candidates}

    def find(record: TrialRecord) -> Trial:
        return Trial(
            task=tasks[record.task_id],
            candidate=candidates[record.candidate_id],
            conditions=plan.conditions,
            rollout=record.rollout,
        )

    return find
