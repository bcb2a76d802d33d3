"""Stored outcomes, scored again without running an agent."""

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
    rigs: TrialPartsSource,
    executor: Executor,
    stop: Stop,
    tell: Listener,
) -> bool:
    """Score what *ledger* holds as *plan* says, and make the verdicts count all at once.

    Returns False, and changes nothing, where it was stopped on the way.
    """
    before = _finder(ledger.planned())
    after = _finder(plan)
    taken: dict[str, TrialRecord] = {}

    def jobs() -> Iterator[Job]:
        for record in ledger.records():
            if record.attempt.scorable:
                taken[record.name] = record
                yield Job(after(record), record.attempt.number)

    async def work(job: Job) -> None:
        tell(TrialStarted(job.trial))
        record = taken.pop(job.trial.name)
        tab = AttemptBill()
        try:
            rig = rigs.rig(job.trial)
        except NotRun:
            stop.request()
            return
        attempt = await rescore_attempt(job.trial, rig, record.attempt, number=job.attempt, tab=tab)
        if tab.refused is not None:  # a judge's endpoint is down: the verdicts stay as they were
            stop.request()
            return
        store.rescore(before(record), attempt)
        tell(TrialEnded(job.trial, attempt, last=True))

    await executor.run(jobs(), work, stop)
    if stop.requested:
        return False
    store.adopt(plan)
    return True


def _finder(plan: Plan) -> Callable[[TrialRecord], Trial]:
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
