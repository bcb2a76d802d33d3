"""One run: what is due, through the executor, into the store."""

from bakeoff.core.errors import BakeoffError
from bakeoff.core.events import Listener, TrialEnded, TrialStarted
from bakeoff.core.plan import Plan
from bakeoff.core.ports import Executor, Job, Rigs, Store
from bakeoff.core.stop import Stop
from bakeoff.engine.trial import run_attempt
from bakeoff.planning.resume import remaining


async def run_plan(
    plan: Plan, *, store: Store, rigs: Rigs, executor: Executor, stop: Stop, tell: Listener
) -> None:
    """Run every trial of *plan* that *store* does not hold yet; announce what is durable."""

    async def work(job: Job) -> None:
        trial = job.trial
        tell(TrialStarted(trial))
        rig = rigs.rig(trial)
        last_number = job.attempt + trial.conditions.attempts - 1
        for number in range(job.attempt, last_number + 1):
            attempt = await run_attempt(trial, rig, number=number)
            await store.append(trial, attempt)
            again = attempt.fault is not None and attempt.fault.transient
            last = not again or number == last_number or stop.requested
            tell(TrialEnded(trial, attempt, last))
            if last:
                return

    try:
        await executor.run(remaining(plan, store.next_attempts), work, stop)
    except BaseExceptionGroup as group:
        raise _first_cause(group) from group


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
