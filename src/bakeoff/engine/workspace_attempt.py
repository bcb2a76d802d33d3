"""Run an agent in a workspace: open it, let the agent work, then take out its change."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeVar

from bakeoff._lib.clock import monotonic
from bakeoff.core.errors import ChangeTooLargeError, SandboxError, ScorerError, boundary
from bakeoff.core.outcome import Journal, Outcome
from bakeoff.core.plan import Trial
from bakeoff.core.ports import ChecksBox, Context, ModelAccess, TrialParts
from bakeoff.core.sandbox import OpenWorkspace, Workspaces
from bakeoff.core.task import Task
from bakeoff.core.workspace import Change
from bakeoff.engine.meter import Meter


class contained(boundary):  # noqa: N801 -- reads as a word at its place: `with contained(...)`
    """A boundary that also catches a part that exits the program or cancels itself."""

    __slots__ = ("_asked_before", "_task")

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._asked_before = self._task.cancelling() if self._task else 0

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SystemExit):
            raise self._kind(f"{self._what}: it called exit({error.code})") from error
        if isinstance(error, asyncio.CancelledError):
            if self._task is None or self._task.cancelling() > self._asked_before:
                return  # requested: by the deadline, or by the end of the run
            raise self._kind(f"{self._what}: it cancelled itself") from error
        super().__exit__(kind, error, trace)


T = TypeVar("T")
Solve = Callable[[Context], Awaitable[Outcome]]


async def solve_in_workspace(
    trial: Trial,
    parts: TrialParts,
    solve: Solve,
    *,
    context: Context,
    journal: Journal,
    meter: Meter,
    phases: dict[str, float],
) -> Outcome:
    """Return the outcome of *solve* in a fresh workspace, with its change; *phases* gets the times.

    A request that the endpoint failed to answer, and that was not repeated successfully, is the
    endpoint's fault and not a result: a program in a box may carry on without it.
    """
    access = parts.workspace_access
    if access is None:
        raise SandboxError(
            f"task {trial.task.id!r} has a workspace, and there is no sandbox for it"
        )
    task = trial.task
    async with AsyncExitStack() as stack:
        began = monotonic()
        with contained(SandboxError, "the workspace could not be set up"):
            workspace = await stack.enter_async_context(
                access.workspaces.open(
                    task,
                    label=context.label,
                    gateway=access.gateway.address if access.gateway else None,
                    mounts=access.mounts,
                    environment=trial.candidate.agent.environment,
                )
            )
        await _check_box(parts, task, workspace)
        phases["set-up"] = monotonic() - began
        model_access = None
        if access.gateway is not None:
            model_access = access.gateway.admit(meter, journal, rollout=trial.rollout)
        began = monotonic()
        try:
            outcome = await solve(replace(context, workspace=workspace, model_access=model_access))
        except BaseException:
            journal.write_log(_refusals(workspace))
            raise
        finally:
            phases["agent"] = monotonic() - began
            if model_access is not None:
                model_access.close()
                await model_access.settled()
        if model_access is not None and model_access.fault is not None:
            raise model_access.fault
        outcome = _with_refusals(replace(outcome, log=outcome.log or journal.log), workspace)
        change, refused = await _change(access.workspaces, task, workspace)
    return replace(
        outcome,
        transcript=outcome.transcript or tuple(journal.messages),
        interventions=outcome.interventions or journal.interventions,
        change=change,
        change_refused=refused,
    )


async def _change(
    workspaces: Workspaces, task: Task, workspace: OpenWorkspace
) -> tuple[Change | None, str | None]:
    """Return what was changed in the workspace, or why it is refused as too large."""
    try:
        with contained(SandboxError, "what the agent changed could not be taken"):
            return await workspaces.change(task, workspace), None
    except ChangeTooLargeError as error:
        return None, str(error)


def _with_refusals(outcome: Outcome, workspace: OpenWorkspace) -> Outcome:
    """Return *outcome* with the refused network traffic of the box in its log and notes."""
    refused = workspace.box.refused_traffic
    if not refused:
        return outcome
    notes = {**outcome.notes, "refused_traffic": list(refused)}
    return replace(
        outcome, log="\n".join(filter(None, (outcome.log, _refusals(workspace)))), notes=notes
    )


def _refusals(workspace: OpenWorkspace) -> str:
    """Return the refused network traffic of the box as log lines."""
    return "".join(f"refused traffic: {line}\n" for line in workspace.box.refused_traffic)


async def _check_box(parts: TrialParts, task: Task, workspace: OpenWorkspace) -> None:
    """Raise if the box of *task* lacks what its scorers need: better now than after the work."""
    if task.digest in parts.checked:
        return
    for scorer in parts.scorers:
        if isinstance(scorer, ChecksBox):
            with contained(ScorerError, "the box could not be checked"):
                await scorer.check_box(workspace.box)
    parts.checked.add(task.digest)


async def cancel_on_refusal(model_access: ModelAccess, work: Awaitable[T]) -> T:
    """Await *work*, and cancel it when a limit or the budget closes *model_access*."""
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
        await asyncio.wait(
            {working, refusing}
        )  # a box must be empty before its workspace is closed
        if not working.cancelled():
            working.exception()  # whatever it was, the refusal came first
