"""An agent at work in a room of its own: opened before it, emptied of its change after it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeVar

from bakeoff._lib.clock import monotonic
from bakeoff.core.boxes import Bench, Room
from bakeoff.core.errors import ChangeTooLargeError, SandboxError, ScorerError
from bakeoff.core.events import Listener, TrialSpent
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Outcome
from bakeoff.core.plan import Trial
from bakeoff.core.ports import ChecksBox, Context, Door, Rig
from bakeoff.core.task import Task
from bakeoff.core.workspace import Change
from bakeoff.engine.contained import contained
from bakeoff.engine.meter import Meter

T = TypeVar("T")
Solve = Callable[[Context], Awaitable[Outcome]]


async def solve_in_room(
    trial: Trial,
    rig: Rig,
    solve: Solve,
    *,
    kit: Context,
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
    meter.hears = lambda spent: tell(TrialSpent(trial, spent))
    async with AsyncExitStack() as stack:
        began = monotonic()
        with contained(SandboxError, "the workspace could not be set up"):
            room = await stack.enter_async_context(
                site.bench.room(
                    task,
                    label=kit.label,
                    gateway=site.gateway.address if site.gateway else None,
                    mounts=site.mounts,
                    environment=trial.candidate.agent.environment,
                )
            )
        await _check_box(rig, task, room)
        phases["set-up"] = monotonic() - began
        door = None
        if site.gateway is not None:
            door = site.gateway.admit(meter, journal, rollout=trial.rollout)
        began = monotonic()
        try:
            left = await solve(replace(kit, room=room, door=door))
        except BaseException:
            journal.print(_refusals(room))
            raise
        finally:
            phases["agent"] = monotonic() - began
            if door is not None:
                door.close()
                await door.settled()
        if door is not None and door.fault is not None:
            raise door.fault
        left = _with_refusals(replace(left, log=left.log or journal.log), room)
        change, refused = await _change(site.bench, task, room)
    return replace(
        left,
        transcript=left.transcript or tuple(journal.messages),
        interventions=left.interventions or journal.interventions,
        change=change,
        change_refused=refused,
    )


async def _change(bench: Bench, task: Task, room: Room) -> tuple[Change | None, str | None]:
    """Return what was changed in the room; where it is too large to be taken, why that is refused."""
    try:
        with contained(SandboxError, "what the agent changed could not be taken"):
            return await bench.change(task, room), None
    except ChangeTooLargeError as error:
        return None, str(error)


def _with_refusals(left: Outcome, room: Room) -> Outcome:
    """Return *left* with what the room's box tried to reach and was refused, in its log and notes."""
    refused = room.box.refused_traffic
    if not refused:
        return left
    notes = {**left.notes, "refused_traffic": list(refused)}
    return replace(left, log="\n".join(filter(None, (left.log, _refusals(room)))), notes=notes)


def _refusals(room: Room) -> str:
    """Return what the room's box tried to reach and was refused, as lines of a log."""
    return "".join(f"refused traffic: {line}\n" for line in room.box.refused_traffic)


async def _check_box(rig: Rig, task: Task, room: Room) -> None:
    """Raise where the box of *task* lacks what its scorers need: better now than after the work."""
    if task.digest in rig.checked:
        return
    for scorer in rig.scorers:
        if isinstance(scorer, ChecksBox):
            with contained(ScorerError, "the box could not be checked"):
                await scorer.check_box(room.box)
    rig.checked.add(task.digest)


async def heeding(door: Door, work: Awaitable[T]) -> T:
    """Await *work*, and end it where a limit or the budget shuts the *door* on it."""
    working = asyncio.ensure_future(work)
    refusing = asyncio.ensure_future(door.refused())
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
