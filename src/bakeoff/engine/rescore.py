"""Score stored outcomes again without running an agent."""

from collections.abc import Callable, Iterator

from bakeoff.core.errors import NotRun
from bakeoff.core.events import Listener, TrialEnded, TrialStarted
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.ports import Executor, Job, Ledger, Store, TrialPartsSource
from bakeoff.core.record import TrialRecord
from bakeoff.core.stop import Stop
from bakeoff.engine.budget import AttemptBill
from bakeoff.engine.trial import rescore_attempt


async def rescore_plan(
    plan: Plan,
    *,
    ledger: Ledger,
    store: Store,
    parts_source: TrialPartsSource,
    executor: Executor,
    stop: Stop,
    emit: Listener,
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
        emit(TrialStarted(job.trial))
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
        emit(TrialEnded(job.trial, attempt, last=True))

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
