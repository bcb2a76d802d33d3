"""A worker: runs the attempts that it is leased, in one event loop, and sends them back as data."""

import asyncio
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from bakeoff._lib.clock import timestamp
from bakeoff._lib.version import __version__
from bakeoff.core.budget import Bill
from bakeoff.core.errors import (
    BakeoffError,
    BudgetReached,
    LedgerError,
    TrialError,
    UsageError,
)
from bakeoff.core.events import (
    Event,
    Listener,
    TrialOutput,
    TrialSpent,
    TurnEnded,
    TurnStarted,
)
from bakeoff.core.outcome import Wait
from bakeoff.core.plan import Trial
from bakeoff.core.ports import TrialParts, TrialPartsSource
from bakeoff.core.record import Attempt, Fault, Status
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task
from bakeoff.engine.budget import AttemptBill, BudgetAccount
from bakeoff.engine.trial import run_or_rescore
from bakeoff.executors.files import WorkerFiles
from bakeoff.executors.link import Link, Post, RecentTasks
from bakeoff.executors.turns import Calls, RemoteBudget, RemoteLimiters
from bakeoff.executors.wire import (
    LARGEST_FRAME,
    VERSION,
    Alive,
    Billed,
    Broken,
    Cancel,
    Closed,
    Crashed,
    End,
    Ended,
    Hello,
    Lease,
    Output,
    RunSettings,
    SpentSoFar,
    Start,
    Stopping,
    TurnEvent,
    Waits,
    WorkerReady,
    messages_to_worker,
)
from bakeoff.stores.packing import plain_json

_MOST_KEPT = 256
_OF_OPEN_ATTEMPTS = (Billed, SpentSoFar)

_attempt = msgspec.json.Decoder(Attempt)
_task = msgspec.json.Decoder(Task)


class WorkerParts(TrialPartsSource, Protocol):
    """The live parts in a worker, and what is to be told of them at the end.

    `files` has what trials need from the disk, where that is fetched from the run.
    """

    files: WorkerFiles | None

    def closing_words(self) -> Closed:
        """Return what a person should know of how models were asked, of recording and cache."""


OpenParts = Callable[[RunSettings, RemoteLimiters, Stop], AbstractAsyncContextManager[WorkerParts]]


class TrialWorker:
    """One worker of a run; frames of the run go to `receive`, its own to *send*."""

    def __init__(self, send: Callable[[bytes], None], open_parts: OpenParts) -> None:
        self._open_parts = open_parts
        self._loop = asyncio.get_running_loop()
        self._stop = Stop()
        self._settings: asyncio.Future[RunSettings] = self._loop.create_future()
        self._over = asyncio.Event()
        self._working: dict[int, asyncio.Task[None]] = {}
        self._tasks: RecentTasks[Task] = RecentTasks()
        self._kept_parts: OrderedDict[str, TrialParts] = (
            OrderedDict()
        )  # of trials to be tried again
        self._link = Link(
            messages_to_worker,
            {
                Start: lambda message: self._settings.set_result(message.settings),
                Lease: self._on_lease,
                Cancel: self._on_cancel,
                Stopping: lambda _: self._stop.request(),
                End: lambda _: self._over.set(),
            },
            shorten=_without_overtaken,
        )
        self._post = self._link.post
        self._calls = Calls(self._post)
        self._link.handlers |= self._calls.handlers
        self._link.connect(send)

    def receive(self, frame: bytes) -> None:
        """Take a frame of the run."""
        self._link.receive(frame)

    def run_is_gone(self) -> None:
        """Stop everything: nobody wants to hear of it any more."""
        self._link.close()
        self._settings.cancel()
        self._over.set()

    async def work(self) -> None:
        """Work until the run says that it is over, or is gone."""
        self._post(Hello(VERSION, __version__))
        try:
            settings = await self._settings
        except asyncio.CancelledError:
            if self._link.closed:
                return
            raise
        try:
            async with self._open_parts(
                settings, RemoteLimiters(self._calls), self._stop
            ) as self._parts:
                self._run = settings
                self._post(WorkerReady())
                await self._serve()
                words = self._parts.closing_words()
        except BakeoffError as error:
            self._post(Broken(str(error), isinstance(error, UsageError)))
        except Exception:  # noqa: BLE001 -- the run is told, and raises it
            self._post(Broken(traceback.format_exc(), usage=False))
        else:
            self._post(words)
        self._link.close()

    async def _serve(self) -> None:
        """Do what is leased until it is over."""
        beating = asyncio.create_task(self._beat())
        try:
            await self._over.wait()
        finally:
            beating.cancel()
            working = [*self._working.values(), beating]
            for task in working:
                task.cancel()
            await asyncio.wait(working)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._run.heartbeat_s)
            self._post(Alive())

    def _on_lease(self, lease: Lease) -> None:
        if not self._tasks.use(lease.task):
            assert lease.body is not None  # noqa: S101 -- what is not kept here is sent
            task = _task.decode(lease.body)
            task.__dict__["digest"] = lease.task  # where the cached property keeps it
            self._tasks.put(lease.task, task, len(lease.body))
        trial = Trial(
            task=self._tasks[lease.task],
            candidate=self._run.candidates[lease.candidate],
            conditions=self._run.conditions,
            rollout=lease.rollout,
        )
        working = self._loop.create_task(self._run_attempt(lease, trial))
        self._working[lease.job] = working
        working.add_done_callback(lambda _: self._on_done(lease.job, working))

    def _on_done(self, job: int, working: asyncio.Task[None]) -> None:
        del self._working[job]
        if working.cancelled():  # perhaps before it had begun
            self._post(Ended(job, None, begun=False, refused=None, at_budget=False))

    def _on_cancel(self, cancel: Cancel) -> None:
        if (working := self._working.get(cancel.job)) is not None:
            working.cancel()

    async def _run_attempt(self, lease: Lease, trial: Trial) -> None:
        """Run an attempt, and tell how it ended."""
        job, post = lease.job, self._post
        budget = RemoteBudget(job, self._calls, capped=self._run.capped)
        bill = _Bill(budget, lambda part: post(Billed(job, part)))

        def on_wait(wait: Wait | None) -> None:
            post(Waits(job, wait))

        async def attempted(trial: Trial) -> Attempt:
            parts = self._kept_parts.pop(trial.name, None) or self._parts.parts_for(trial)
            running: Awaitable[Attempt] = run_or_rescore(
                trial,
                parts,
                None if lease.before is None else _attempt.decode(lease.before),
                number=lease.number,
                attempt_bill=bill,
                listener=_listener(job, post),
                on_wait=None if trial.task.workspace is not None else on_wait,
            )
            attempt = await running
            if attempt.fault is not None and attempt.fault.transient:
                self._keep(trial, parts)
            return attempt

        try:
            if self._parts.files is None:
                attempt = await attempted(trial)
            else:
                async with self._parts.files.local(trial, job) as local_trial:
                    attempt = await attempted(local_trial)
        except TrialError as error:  # its files could not be had
            attempt = _faulted(lease, error)
        except (LedgerError, UsageError) as error:
            kind = "ledger" if isinstance(error, LedgerError) else "usage"
            post(Crashed(job, kind, str(error)))
            return
        except Exception:  # noqa: BLE001 -- the run is told, and raises it
            post(Crashed(job, "", traceback.format_exc()))
            return
        refused = bill.refused
        post(
            Ended(
                job,
                _encoded(attempt),
                bill.begun,
                None if refused is None else str(refused),
                isinstance(refused, BudgetReached),
            )
        )

    def _keep(self, trial: Trial, parts: TrialParts) -> None:
        """Keep the parts of a trial for its next attempt: they count how often what was asked."""
        self._kept_parts[trial.name] = parts
        if len(self._kept_parts) > _MOST_KEPT:
            self._kept_parts.popitem(last=False)


def _without_overtaken(messages: list[object]) -> list[object]:
    """Return *messages* without what their attempts had spent so far, where they end among them."""
    ended = {message.job for message in messages if isinstance(message, Ended)}
    if not ended:
        return messages
    return [m for m in messages if not (isinstance(m, _OF_OPEN_ATTEMPTS) and m.job in ended)]


class _Bill(AttemptBill):
    """The bill of an attempt, of which the run hears at once: the attempt may never end."""

    __slots__ = ("_tell",)

    def __init__(self, budget: BudgetAccount, tell: Callable[[Bill], None]) -> None:
        super().__init__(budget)
        self._tell = tell

    def add(self, bill: Bill) -> None:
        """Add what one try of a request cost."""
        super().add(bill)
        self._tell(bill)


def _listener(job: int, post: Post) -> Listener:
    """Return a listener that passes on what a trial tells while it goes on."""

    def listen(event: Event) -> None:
        match event:
            case TrialOutput(text=text):
                post(Output(job, text))
            case TurnStarted(number=number):
                post(TurnEvent(job, number, over=False))
            case TurnEnded(number=number):
                post(TurnEvent(job, number, over=True))
            case TrialSpent(spent=spent):
                post(SpentSoFar(job, spent))

    return listen


def _faulted(lease: Lease, error: TrialError) -> Attempt:
    return Attempt(
        number=lease.number,
        status=Status.FAULTED,
        started_at=timestamp(),
        elapsed_s=0.0,
        fault=Fault.of(error),
    )


def _encoded(attempt: Attempt) -> bytes:
    """Return *attempt* as the JSON that a ledger would keep of it; one that is too large is a fault."""
    data = plain_json(attempt)
    if len(data) < LARGEST_FRAME - 1024:
        return data
    size, most = len(data) >> 20, LARGEST_FRAME >> 20
    error = TrialError(f"what the attempt left is too large: {size} MiB, and {most} MiB at most")
    return plain_json(
        Attempt(
            number=attempt.number,
            status=Status.FAULTED,
            started_at=attempt.started_at,
            elapsed_s=attempt.elapsed_s,
            fault=Fault.of(error),
            spent=attempt.spent,
            roles=attempt.roles,
            bill=attempt.bill,
        )
    )
