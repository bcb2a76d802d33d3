"""One run: what is due, through the executor, into the store."""

import asyncio
from collections.abc import Awaitable

from bakeoff._lib.clock import monotonic, timestamp
from bakeoff.core.errors import BakeoffError, NotRun
from bakeoff.core.events import Listener, TrialEnded, TrialNotRun, TrialStarted
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Executor, Job, Store, TrialPartsSource
from bakeoff.core.record import Attempt, Status
from bakeoff.core.stop import Stop
from bakeoff.engine.adaptive import AdaptiveSelection
from bakeoff.engine.budget import AttemptBill, Budget
from bakeoff.engine.trial import rescore_attempt, run_attempt
from bakeoff.planning.resume import remaining


async def run_plan(
    plan: Plan,
    *,
    store: Store,
    rigs: TrialPartsSource,
    executor: Executor,
    stop: Stop,
    tell: Listener,
    budget: Budget | None = None,
    until: AdaptiveSelection | None = None,
) -> None:
    """Run every trial of *plan* that *store* does not hold yet; announce what is durable.

    Where the *budget* refuses a request, its trial is recorded as cancelled and none is started.
    A trial that never got an answer because the run stops, or its endpoint was given up, is not
    recorded: a resume runs it.
    With *until*, trials that could tell nothing more are left out.
    """
    budget = budget or Budget()
    due = remaining(plan, store.next_attempts)

    async def work(job: Job) -> None:
        trial, before = job.trial, None
        try:
            rig = rigs.rig(trial)
        except NotRun:
            return
        tell(TrialStarted(trial))
        for number in range(job.attempt, job.attempt + trial.conditions.attempts):
            tab = AttemptBill(budget)
            if before is not None and before.scorable:  # only its scoring broke
                trying = rescore_attempt(trial, rig, before, number=number, tab=tab)
            else:
                trying = run_attempt(trial, rig, number=number, tab=tab, tell=tell)
            attempt = await _or_cut(trying, trial, number, store, tab)
            if tab.not_run:
                tell(TrialNotRun(trial, str(tab.refused)))
                return
            if budget.reached:
                stop.request()
            await store.append(trial, attempt)
            again = attempt.fault is not None and attempt.fault.transient
            spent = number == job.attempt + trial.conditions.attempts - 1
            last = not again or spent or stop.requested
            tell(TrialEnded(trial, attempt, last))
            if last:
                if until is not None:
                    until.hear(
                        trial.candidate.id,
                        trial.task.id,
                        attempt.score,
                        faulted=attempt.status is Status.FAULTED,
                    )
                return
            before = attempt

    try:
        await executor.run(until.chosen(due) if until else due, work, stop)
    except BaseExceptionGroup as group:
        raise _first_cause(group) from group


async def _or_cut(
    trying: Awaitable[Attempt], trial: Trial, number: int, store: Store, tab: AttemptBill
) -> Attempt:
    """Return the attempt; where the run is stopped for good meanwhile, the ledger is told so."""
    started_at, began = timestamp(), monotonic()
    try:
        return await trying
    except asyncio.CancelledError:
        cut = Attempt(
            number=number,
            status=Status.CANCELLED,
            started_at=started_at,
            elapsed_s=monotonic() - began,
            bill=tab.bill,
        )
        await store.append(trial, cut)
        raise


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that a person should read: ours before Python's, one before many."""
    errors: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            errors.append(error)
    return next((e for e in errors if isinstance(e, BakeoffError)), errors[0])
