"""An agent at work in a room of its own: opened before it, emptied of its change after it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeVar

from bakeoff._lib.clock import monotonic
from bakeoff.core.errors import ChangeTooLargeError, SandboxError, ScorerError, boundary
from bakeoff.core.events import Listener, TrialSpent
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Outcome
from bakeoff.core.plan import Trial
from bakeoff.core.ports import ChecksBox, Context, ModelAccess, TrialParts
from bakeoff.core.sandbox import OpenWorkspace, Workspaces
from bakeoff.core.task import Task
from bakeoff.core.workspace import Change
from bakeoff.engine.meter import Meter


class contained(boundary):  # noqa: N801 -- reads as a word at its place: `with contained(...)`
    """A boundary that also holds where a part ends the program or cancels itself."""

    __slots__ = ("_asked_before", "_task")

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._asked_before = self._task.cancelling() if self._task else 0

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SystemExit):
            raise self._kind(f"{self._what}: it called exit({error.code})") from error
        if isinstance(error, asyncio.CancelledError):
            if self._task is None or self._task.cancelling() > self._asked_before:
                return  # somebody asked for it: the deadline, or the end of the run
            raise self._kind(f"{self._what}: it cancelled itself") from error
        super().__exit__(kind, error, trace)


T = TypeVar("T")
Solve = Callable[[Context], Awaitable[Outcome]]


async def solve_in_room(
    trial: Trial,
    rig: TrialParts,
    solve: Solve,
    *,
    context: Context,
    journal: Journal,
    meter: Meter,
    phases: dict[str, float],
    tell: Listener,
) -> Outcome:
    """Return what *solve* left in a room of the rig's site, with its change; *phases* learns the times.

    A question that the endpoint failed to answer, and that nobody repeated with success, is the
    endpoint's fault and not a result: a program in a box may well carry on without it.
    """
    site = rig.site
    if site is None:
        raise SandboxError(
            f"task {trial.task.id!r} has a workspace, and there is no sandbox for it"
        )
    task = trial.task
    meter.on_output = lambda spent: tell(TrialSpent(trial, spent))
    async with AsyncExitStack() as stack:
        began = monotonic()
        with contained(SandboxError, "the workspace could not be set up"):
            workspace = await stack.enter_async_context(
                site.workspaces.open(
                    task,
                    label=context.label,
                    gateway=site.gateway.address if site.gateway else None,
                    mounts=site.mounts,
                    environment=trial.candidate.agent.environment,
                )
            )
        await _check_box(rig, task, workspace)
        phases["set-up"] = monotonic() - began
        model_access = None
        if site.gateway is not None:
            model_access = site.gateway.admit(meter, journal, rollout=trial.rollout)
        began = monotonic()
        try:
            left = await solve(replace(context, workspace=workspace, model_access=model_access))
        except BaseException:
            journal.print(_refusals(workspace))
            raise
        finally:
            phases["agent"] = monotonic() - began
            if model_access is not None:
                model_access.close()
                await model_access.settled()
        if model_access is not None and model_access.fault is not None:
            raise model_access.fault
        left = _with_refusals(replace(left, log=left.log or journal.log), workspace)
        change, refused = await _change(site.workspaces, task, workspace)
    return replace(
        left,
        transcript=left.transcript or tuple(journal.messages),
        interventions=left.interventions or journal.interventions,
        change=change,
        change_refused=refused,
    )


async def _change(
    workspaces: Workspaces, task: Task, workspace: OpenWorkspace
) -> tuple[Change | None, str | None]:
    """Return what was changed in the room; where it is too large to be taken, why that is refused."""
    try:
        with contained(SandboxError, "what the agent changed could not be taken"):
            return await workspaces.change(task, workspace), None
    except ChangeTooLargeError as error:
        return None, str(error)


def _with_refusals(left: Outcome, workspace: OpenWorkspace) -> Outcome:
    """Return *left* with what the room's box tried to reach and was refused, in its log and notes."""
    refused = workspace.box.refused_traffic
    if not refused:
        return left
    notes = {**left.notes, "refused_traffic": list(refused)}
    return replace(left, log="\n".join(filter(None, (left.log, _refusals(workspace)))), notes=notes)


def _refusals(workspace: OpenWorkspace) -> str:
    """Return what the room's box tried to reach and was refused, as lines of a log."""
    return "".join(f"refused traffic: {line}\n" for line in workspace.box.refused_traffic)


async def _check_box(rig: TrialParts, task: Task, workspace: OpenWorkspace) -> None:
    """Raise where the box of *task* lacks what its scorers need: better now than after the work."""
    if task.digest in rig.checked:
        return
    for scorer in rig.scorers:
        if isinstance(scorer, ChecksBox):
            with contained(ScorerError, "the box could not be checked"):
                await scorer.check_box(workspace.box)
    rig.checked.add(task.digest)


async def heeding(model_access: ModelAccess, work: Awaitable[T]) -> T:
    """Await *work*, and end it where a limit or the budget shuts the *model_access* on it."""
    working = asyncio.ensure_future(work)
    refusing = asyncio.ensure_future(model_access.refused())
    try:
        await asyncio.wait({working, refusing}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise refusing.result()
        return working.result()
    finally:
        refusing.cancel()
        working.cancel()
        await asyncio.wait({working, refusing})  # a box must be empty before the room is left
        if not working.cancelled():
            working.exception()  # whatever it was, the refusal came first
