"""A batch that is gone on with: what it was, and whether today's files and models are still that."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff import api
from bakeoff.compat.batch_models import Market, Offer
from bakeoff.compat.batch_place import Batch, BatchState
from bakeoff.core.candidate import AgentSpec, Candidate, Conditions
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import SandboxSpec
from bakeoff.planning.differences import differences


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What a batch has been so far."""

    task: Task
    candidates: tuple[Candidate, ...]
    conditions: Conditions
    rollouts: int
    sandbox: SandboxSpec

    @property
    def agent(self) -> AgentSpec:
        """The agent, which all candidates of a batch share."""
        return self.candidates[0].agent

    def offers(self, there: Market, more: Sequence[Offer]) -> tuple[Offer, ...]:
        """Return the models of the batch as they are today, and *more* that it has not had."""
        today = {offer.key: offer for offer in there.offers}
        digests = {offer.spec.full_name: offer.digest for offer in there.offers}
        specs = (candidate.model for candidate in self.candidates)
        before = (Offer(spec=spec, digest=digests.get(spec.full_name)) for spec in specs)
        found = {offer.key: today.get(offer.key, offer) for offer in before}
        for offer in more:
            found.setdefault(offer.key, offer)
        return tuple(found.values())

    def seats(self) -> dict[str, dict[str, Json]]:
        """Return what each candidate was, with its conditions, by its id."""
        return {c.id: {**c.identity(), **self.conditions.identity()} for c in self.candidates}


def earlier(batch: Batch) -> Earlier:
    """Return what *batch* has been, as its ledger has it."""
    run = api.load_run(batch.run)
    plan = run.plan
    (task,) = plan.tasks
    return Earlier(
        task=task,
        candidates=tuple(plan.candidates),
        conditions=plan.conditions,
        rollouts=plan.rollouts,
        sandbox=run.manifest.sandbox,
    )


def refuse_what_differs(
    before: Earlier, plan: Plan, state: BatchState, offers: Sequence[Offer], batch: Batch
) -> None:
    """Raise where what would be run now is not what was run then: one report cannot show both."""
    (task,) = plan.tasks
    if task.id != before.task.id:
        raise UsageError(
            f"{batch.id} is a batch of the task {before.task.id!r}, not of {task.id!r}; start a new "
            "batch for it"
        )
    agent = next(iter(plan.candidates)).agent
    if agent != before.agent:
        raise another_agent(before, agent.name, batch)
    lines = differences(plan, {before.task.id: before.task}, before.seats())
    lines += [_other_digest(offer, state) for offer in offers if _other_digest(offer, state)]
    if lines:
        told = "\n  ".join(lines)
        raise UsageError(
            f"{batch.id} cannot be resumed, since one report would mix results that differ in:\n"
            f"  {told}\nPut it back as it was, or start a new batch"
        )


def another_agent(before: Earlier, name: str, batch: Batch) -> UsageError:
    """Return the error that an agent is which *batch* was not begun with."""
    return UsageError(
        f"{batch.id} is a batch with the agent {before.agent.name!r}, not with {name!r}; "
        "start a new batch for it"
    )


def _other_digest(offer: Offer, state: BatchState) -> str:
    then = state.digests.get(offer.spec.full_name)
    if then is None or offer.digest is None or then == offer.digest:
        return ""
    return (
        f"model {offer.name!r} is another one now: its digest is {offer.digest[:12]}, "
        f"it was {then[:12]}"
    )
