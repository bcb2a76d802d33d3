"""Run the trials of a plan that are due, or score stored outcomes again, through the executor."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from bakeoff._lib.clock import monotonic, timestamp
from bakeoff.core.errors import BakeoffError, NotRun
from bakeoff.core.events import Listener, TrialEnded, TrialNotRun, TrialStarted
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Executor, Job, Ledger, Store, TrialPartsSource
from bakeoff.core.record import Attempt, Status, TrialRecord
from bakeoff.core.stop import Stop
from bakeoff.engine.adaptive import AdaptiveSelection
from bakeoff.engine.budget import AttemptBill, Budget
from bakeoff.engine.trial import rescore_attempt, run_attempt
from bakeoff.planning.resume import remaining


async def run_plan(
    plan: Plan,
    *,
    store: Store,
    parts_source: TrialPartsSource,
    executor: Executor,
    stop: Stop,
    listener: Listener,
    budget: Budget | None = None,
    selection: AdaptiveSelection | None = None,
) -> None:
    """Run every trial of *plan* that *store* does not hold yet; its *listener* hears of what is durable.

    If the *budget* refuses a request, its trial is recorded as cancelled and no more are started.
    A trial that got no answer because the run stops, or its endpoint was given up, is not recorded:
    a resume runs it. With *selection*, trials that are no longer needed are skipped.
    """
    budget = budget or Budget()
    due = remaining(plan, store.next_attempts)

    async def work(job: Job) -> None:
        trial, before = job.trial, None
        try:
            parts = parts_source.parts_for(trial)
        except NotRun:
            return
        listener(TrialStarted(trial))
        for number in range(job.attempt, job.attempt + trial.conditions.attempts):
            attempt_bill = AttemptBill(budget)
            if before is not None and before.scorable:  # only scoring failed
                trying = rescore_attempt(
                    trial, parts, before, number=number, attempt_bill=attempt_bill
                )
            else:
                trying = run_attempt(
                    trial, parts, number=number, attempt_bill=attempt_bill, listener=listener
                )
            attempt = await _recorded_if_cancelled(trying, trial, number, store, attempt_bill)
            if attempt_bill.not_run:
                listener(TrialNotRun(trial, str(attempt_bill.refused)))
                return
            if budget.reached:
                stop.request()
            await store.append(trial, attempt)
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
        await executor.run(selection.wanted_jobs(due) if selection else due, work, stop)
    except BaseExceptionGroup as group:
        raise _first_cause(group) from group


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
