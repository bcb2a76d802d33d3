"""The run's side of its workers: leases attempts to them, serves what they ask, and replaces those that are lost.

The run decides what is due, counts each trial once and keeps plan, ledger, budget and limiters; so
nothing here has to be agreed on, and a worker that is lost costs only the attempts that it was leased.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from bakeoff._lib.clock import timestamp
from bakeoff._lib.process import run_to_completion
from bakeoff._lib.version import __version__
from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.core.errors import (
    BakeoffError,
    BudgetReached,
    LedgerError,
    NotRun,
    TrialError,
    UsageError,
)
from bakeoff.core.events import Listener, Notice, TrialOutput, TrialSpent, TurnEnded, TurnStarted
from bakeoff.core.outcome import Wait
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, Fault, Status
from bakeoff.core.stop import Stop
from bakeoff.engine.budget import AttemptBill
from bakeoff.engine.run import RunAttempt
from bakeoff.engine.trial import OnWait
from bakeoff.executors.files import FileGiver, RunFiles
from bakeoff.executors.link import Carrier, Launch, Link, RecentTasks
from bakeoff.executors.turns import Reservations, RunLimiters, TurnGiver
from bakeoff.executors.wire import (
    VERSION,
    Alive,
    Billed,
    Booked,
    Broken,
    Cancel,
    Closed,
    Crashed,
    Dropped,
    End,
    Ended,
    Hello,
    Hold,
    Lease,
    Output,
    RunSettings,
    Settled,
    SpentSoFar,
    Start,
    Stopping,
    TurnEvent,
    Waits,
    WorkerReady,
    messages_from_worker,
)
from bakeoff.models.limits.settings import Limiters
from bakeoff.stores.packing import plain_json

LEASE_S = 30.0
"""How long a worker may be silent before it is killed."""

_START_S = 300.0
_GRACE_S = 20.0  # for a worker that closes its boxes and connections at the end
_EXIT_S = 15.0  # for what it removes in the background
_CANCEL_S = 10.0  # for a box that closes where its trial is cancelled
_MOST_LOSSES = 5  # of one attempt: then it is what ends its workers
_ALONE_AFTER = 2
_FUTILE = 12  # workers in a row that were lost before anything of theirs ended

_attempt = msgspec.json.Decoder(Attempt)


class WorkerLost(Exception):  # noqa: N818 -- an event, not an error
    """A worker is gone with all that it was leased."""


@dataclass(frozen=True, kw_only=True)
class WorkerRules:
    """How many workers there are at the start, and after how many seconds of silence one is killed.

    `most` is how many attempts one of them may be at; None is any number.
    """

    workers: int
    lease_s: float = LEASE_S
    most: int | None = None


class RunParts(Protocol):
    """What the run knows of its endpoints."""

    limiters: Limiters

    def refuse_given_up(self, trial: Trial) -> None:
        """Raise NotRun where an endpoint that *trial* needs was given up."""

    def add_closing_words(self, words: Closed) -> None:
        """Add what a worker says at its end."""


@dataclass(eq=False)
class _Leased:
    """An attempt that is to be run, and whoever follows it; `ended` is its end in the worker that has it."""

    trial: Trial
    number: int
    before: Attempt | None
    attempt_bill: AttemptBill
    listener: Listener
    on_wait: OnWait | None
    ended: "asyncio.Future[Ended]" = field(init=False)
    started_at: float = field(default_factory=timestamp)
    losses: int = 0
    billed_before: Bill = NO_BILL  # by workers that were lost

    def waits(self, wait: Wait | None) -> None:
        if self.on_wait is not None:
            self.on_wait(wait)


class Coordinator:
    """The workers of a run; runs each attempt in the one that has the fewest."""

    def __init__(
        self,
        launch: Launch,
        settings: RunSettings,
        parts: RunParts,
        *,
        rules: WorkerRules,
        listener: Listener,
        on_killed: Callable[[], Awaitable[None]] | None = None,
        files: RunFiles | None = None,
    ) -> None:
        self._launch = launch
        self.settings = settings
        self.parts = parts
        self.limiters = RunLimiters(parts.limiters)
        self._rules = rules
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._on_killed = on_killed
        self.files = files
        self._candidates = {c.digest: number for number, c in enumerate(settings.candidates)}
        self._workers: list[_Worker] = []
        self._lost: list[_Worker] = []  # some of their requests may still be under way
        self._free = asyncio.Condition()
        self._suspects = asyncio.Lock()
        self._futile = 0
        self._failure: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._jobs = 0
        self._starting: set[asyncio.Task[object]] = set()
        self._stopping = False
        self.closing = False

    async def start(self) -> None:
        """Start all workers, unless the run stops; a mistake that one of them finds is raised here."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._rules.workers):
                    group.create_task(self.add_worker())
        except BaseExceptionGroup as errors:
            told = [error for error in errors.exceptions if isinstance(error, BakeoffError)]
            raise (told or errors.exceptions)[0] from errors

    async def close(self) -> None:
        """Let every worker say its last word and end; one that has not started is killed."""
        self.closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        workers, self._workers = self._workers, []
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.end(_GRACE_S if worker.ready else 0.0))
        for worker in self._lost:
            worker.turns.close()

    async def add_worker(self) -> None:
        """Start one more worker, also while the run goes on; return when it takes work."""
        if self._stopping:
            return
        worker, task = _Worker(self), asyncio.current_task()
        assert task is not None  # noqa: S101 -- this is a coroutine
        self._workers.append(worker)
        self._starting.add(task)
        try:
            await worker.start(self._launch)
        except BaseException:
            if worker in self._workers:
                self._workers.remove(worker)
            await run_to_completion(worker.end(0.0))
            raise
        finally:
            self._starting.discard(task)
        await self._tell_free()

    def grow(self) -> None:
        """Start one more worker, in the background."""
        self._background(self._grow("a worker could not be started"))

    async def _grow(self, what_else: str) -> None:
        try:
            await self.add_worker()
        except Exception as error:  # noqa: BLE001 -- whoever waits for a worker must hear it
            if not self._workers:
                await self._fail(error)
            else:
                self._listener(Notice(f"{what_else}: {error}"))

    async def _tell_free(self) -> None:
        """Tell whoever waits for a worker that one may be free."""
        async with self._free:
            self._free.notify_all()

    def runs(self, trial: Trial) -> RunAttempt:
        """Return what runs the attempts of *trial*; NotRun where its endpoint was given up."""
        self.parts.refuse_given_up(trial)
        worker: _Worker | None = None

        async def run(
            before: Attempt | None,
            *,
            number: int,
            attempt_bill: AttemptBill,
            listener: Listener,
            on_wait: OnWait | None,
        ) -> Attempt:
            nonlocal worker  # a second attempt goes where the first one was
            leased = _Leased(trial, number, before, attempt_bill, listener, on_wait)
            attempt, worker = await self._run(leased, worker)
            return attempt

        return run

    async def _run(
        self, leased: _Leased, worker: "_Worker | None"
    ) -> "tuple[Attempt, _Worker | None]":
        """Run *leased* in *worker*, or in another where that is gone; return which did it."""
        while True:
            try:
                # one that ended several workers takes no others of its kind with it
                async with self._suspects if leased.losses >= _ALONE_AFTER else nullcontext():
                    if worker is None or not worker.ready:
                        worker = await self._free_worker()
                    return await worker.run(leased), worker
            except NotRun as error:
                return _not_run(leased, error), None
            except WorkerLost as error:
                leased.waits(None)
                leased.losses += 1
                if leased.losses >= _MOST_LOSSES:
                    self.on_ended()
                    why = (
                        f"each of the {leased.losses} workers that ran it was lost, at last {error}"
                    )
                    return _faulted(leased, why), None

    async def _free_worker(self) -> "_Worker":
        """Return the worker with the fewest attempts, as soon as there is one; NotRun where the run stops."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._stopping:
                raise NotRun("the run stops, and no worker is at it")
            free = [worker for worker in self._workers if self._is_free(worker)]
            if free:
                return min(free, key=lambda worker: len(worker.leased))
            async with self._free:
                await self._free.wait_for(self._may_lease)

    def _may_lease(self) -> bool:
        over = self._stopping or self._failure is not None
        return over or any(map(self._is_free, self._workers))

    def _is_free(self, worker: "_Worker") -> bool:
        most = self._rules.most
        return worker.ready and (most is None or len(worker.leased) < most)

    def lease_of(self, leased: _Leased, sent: RecentTasks[None]) -> Lease:
        """Return *leased* as the message to a worker that was *sent* these tasks."""
        self._jobs += 1
        trial, body = leased.trial, None
        digest = trial.task.digest
        if not sent.use(digest):
            if self.files is not None:
                self.files.offer(trial.task)
            body = plain_json(trial.task)
            sent.put(digest, None, len(body))
        return Lease(
            self._jobs,
            digest,
            body,
            self._candidates[trial.candidate.digest],
            trial.rollout,
            leased.number,
            None if leased.before is None else plain_json(leased.before),
        )

    def on_ended(self) -> None:
        """Note that workers get something done."""
        self._futile = 0

    def on_free(self) -> None:
        """Note that a worker is at one attempt fewer."""
        if self._rules.most is not None and not self.closing:
            self._background(self._tell_free())

    def on_gone(self, worker: "_Worker") -> None:
        """Replace *worker*, which ended by itself."""
        if not self.closing:
            self._replace(worker, "ended")

    def _background(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _replace(self, worker: "_Worker", why: str) -> None:
        """Have *worker* killed, what it had given back, and another one started; once."""
        if worker not in self._workers:
            return
        worker.ready = False
        self._workers.remove(worker)
        self._lost.append(worker)
        self._background(self._replaced(worker, why))

    async def _replaced(self, worker: "_Worker", why: str) -> None:
        open_attempts = len(worker.leased)
        try:
            await run_to_completion(worker.end(0.0))
            if self._on_killed is not None:
                await self._on_killed()
        except Exception as error:  # noqa: BLE001 -- whoever waits for a worker must hear it
            await self._fail(error)
            return
        how, again = worker.how_it_ended, ""
        if open_attempts and not self._stopping:
            again = (
                f"; {open_attempts} {'trial is' if open_attempts == 1 else 'trials are'} run again"
            )
        self._listener(Notice(f"worker {worker.name} {why} ({how}){again}"))
        self._futile += 1
        if self._futile >= _FUTILE + 2 * self._rules.workers:
            await self._fail(
                BakeoffError(f"{self._futile} workers in a row were lost: {why} ({how})")
            )
            return
        await self._grow("a worker could not be replaced")

    def fail(self, error: BaseException) -> None:
        """End the run with *error*."""
        self._background(self._fail(error))

    async def _fail(self, error: BaseException) -> None:
        self._failure = error
        await self._tell_free()

    async def watch_leases(self) -> None:
        """Kill every worker that is silent for longer than its lease."""
        lease_s = self._rules.lease_s
        before = self._loop.time()
        while True:
            await asyncio.sleep(min(lease_s / 4, 1.0))
            now = self._loop.time()
            if now - before > lease_s / 2:  # we were stopped ourselves: they may have spoken
                for worker in self._workers:
                    worker.heard_at = now
            before = now
            for worker in [w for w in self._workers if w.ready]:
                if now - worker.heard_at > lease_s:
                    self._replace(worker, f"was silent for {lease_s:g} s and is killed")

    def on_stop(self) -> None:
        """Start nothing new, neither trials nor workers, and tell those that are there; from any thread."""
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        for task in self._starting:
            task.cancel()
        for worker in self._workers:
            worker.post(Stopping())
        self._background(self._tell_free())


@asynccontextmanager
async def coordinating(coordinator: Coordinator, stop: Stop) -> AsyncIterator[Coordinator]:
    """Start the workers of *coordinator*, and end them with the block."""
    try:
        with stop.calling(coordinator.on_stop):
            await coordinator.start()
            watching = asyncio.create_task(coordinator.watch_leases())
            try:
                yield coordinator
            finally:
                watching.cancel()
    finally:
        await run_to_completion(coordinator.close())


class _Worker:
    """One worker, as the run sees it: the line to it, and what it was leased."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._loop = asyncio.get_running_loop()
        self._carrier: Carrier | None = None
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._said_all: asyncio.Future[None] = self._loop.create_future()
        self._sent: RecentTasks[None] = RecentTasks()
        self.leased: dict[int, _Leased] = {}
        self.ready = False
        self._over = False
        self.how_it_ended = ""
        self.heard_at = self._loop.time()
        self._link = Link(messages_from_worker, {})
        self.post = self._link.post
        self.turns = TurnGiver(coordinator.limiters, self.post)
        self._reservations = Reservations(self.post)
        self._link.handlers |= self.turns.handlers
        self._link.handlers |= {
            Hello: self._on_hello,
            WorkerReady: self._on_ready,
            Broken: self._on_broken,
            Alive: lambda _: None,
            Dropped: self._on_dropped,
            Hold: self._on_hold,
            Settled: self._reservations.settle,
            Billed: self._on_billed,
            Booked: self._on_booked,
            Waits: self._on_waits,
            Output: self._on_output,
            TurnEvent: self._on_turn,
            SpentSoFar: self._on_spent,
            Ended: self._on_ended,
            Crashed: self._on_crashed,
            Closed: self._on_closed,
        }
        self._files: FileGiver | None = None
        if coordinator.files is not None:
            self._files = FileGiver(
                coordinator.files, self.post, self._trial_of, on_failure=coordinator.fail
            )
            self._link.handlers |= self._files.handlers

    @property
    def name(self) -> str:
        return "" if self._carrier is None else self._carrier.name

    async def start(self, launch: Launch) -> None:
        """Start it, and wait until it has built everything."""
        self._carrier = await launch(self._receive, self._on_gone)
        self._link.connect(self._carrier.send)
        try:
            async with asyncio.timeout(_START_S):
                await self._started
        except TimeoutError as error:
            raise BakeoffError(f"worker {self.name} was not ready within {_START_S:g} s") from error
        except WorkerLost as error:
            await self.end(0.0)
            how = self.how_it_ended
            raise BakeoffError(f"worker {self.name} ended before it was ready ({how})") from error

    async def run(self, leased: _Leased) -> Attempt:
        """Return how *leased* ended here; WorkerLost where this worker is gone before."""
        lease = self._coordinator.lease_of(leased, self._sent)
        leased.ended, leased.billed_before = self._loop.create_future(), leased.attempt_bill.total
        self.leased[lease.job] = leased
        self.post(lease)
        try:
            ended = await leased.ended
        except asyncio.CancelledError:
            await self._cancel(lease.job, leased)
            raise
        finally:
            self.leased.pop(lease.job, None)
            self._coordinator.on_free()
        self._coordinator.on_ended()
        return _attempt_of(ended, leased)

    async def _cancel(self, job: int, leased: _Leased) -> None:
        """Cancel an attempt, and wait until nothing more is done for it."""
        if job not in self.leased or not self.ready:
            return
        leased.ended = self._loop.create_future()
        self.post(Cancel(job))
        await asyncio.wait([leased.ended], timeout=_CANCEL_S)
        if leased.ended.done():
            leased.ended.exception()  # seen

    async def end(self, grace_s: float) -> None:
        """Wait so long for it to end by itself, then kill it; then give back what it had."""
        if self._over:
            return
        self.ready, self._over = False, True
        if grace_s and not self._link.closed:
            self.post(End())
            await asyncio.wait([self._said_all], timeout=grace_s)
        if self._carrier is not None:
            self.how_it_ended = await self._carrier.end(grace_s and _EXIT_S)
        self._link.close()
        if self._files is not None:
            self._files.close()
        if self._coordinator.closing:
            self.turns.close()
        else:
            self.turns.worker_is_gone()
        jobs = dict(self.leased)
        for job, bill in self._reservations.close():
            if job in jobs:
                jobs[job].attempt_bill.add(bill)
        for leased in jobs.values():
            if not leased.ended.done():
                leased.ended.set_exception(WorkerLost(f"worker {self.name}: {self.how_it_ended}"))

    def _receive(self, frame: bytes) -> None:
        self.heard_at = self._loop.time()
        self._link.receive(frame)

    def _on_gone(self) -> None:
        if not self._said_all.done():
            self._said_all.set_result(None)
        if not self._started.done():
            self._started.set_exception(WorkerLost())
        elif self.ready:
            self._coordinator.on_gone(self)

    def _trial_of(self, job: int) -> Trial | None:
        return None if (leased := self.leased.get(job)) is None else leased.trial

    def _on_hello(self, hello: Hello) -> None:
        ours = __version__
        if (hello.version, hello.bakeoff) != (VERSION, ours):
            why = f"a worker has bakeoff {hello.bakeoff}, and the run {ours}: install the same"
            self._not_started(UsageError(why))
            return
        self.post(Start(self._coordinator.settings))

    def _on_ready(self, _: WorkerReady) -> None:
        if not self._started.done():
            self._started.set_result(None)
            self.ready = True

    def _on_broken(self, broken: Broken) -> None:
        kind = UsageError if broken.usage else BakeoffError
        self._not_started(kind(f"worker {self.name} cannot begin: {broken.why}"))

    def _not_started(self, error: BakeoffError) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    def _on_dropped(self, dropped: Dropped) -> None:
        self.turns.dropped(dropped)
        self._reservations.dropped(dropped.call)

    def _on_hold(self, hold: Hold) -> None:
        if (leased := self.leased.get(hold.job)) is not None:
            self._reservations.hold(hold, leased.attempt_bill.budget)

    def _on_billed(self, billed: Billed) -> None:
        if (leased := self.leased.get(billed.job)) is not None:
            leased.attempt_bill.add(billed.bill)

    def _on_booked(self, booked: Booked) -> None:
        if (leased := self.leased.get(booked.job)) is None:
            return
        if leased.losses:  # the worker that was lost has told of it
            leased.attempt_bill.total = _less(leased.attempt_bill.total, booked.bill)
            leased.billed_before = _less(leased.billed_before, booked.bill)
        else:
            leased.attempt_bill.budget.book(booked.bill)

    def _on_waits(self, waits: Waits) -> None:
        if (leased := self.leased.get(waits.job)) is not None:
            leased.waits(None if waits.wait is None else Wait(waits.wait))

    def _on_output(self, output: Output) -> None:
        if (leased := self.leased.get(output.job)) is not None:
            leased.listener(TrialOutput(leased.trial, output.text))

    def _on_turn(self, turn: TurnEvent) -> None:
        if (leased := self.leased.get(turn.job)) is not None:
            kind = TurnEnded if turn.over else TurnStarted
            leased.listener(kind(leased.trial, turn.number))

    def _on_spent(self, spent: SpentSoFar) -> None:
        if (leased := self.leased.get(spent.job)) is not None:
            leased.listener(TrialSpent(leased.trial, spent.spent))

    def _on_ended(self, ended: Ended) -> None:
        leased = self.leased.get(ended.job)  # what is late belongs to nobody any more
        if leased is not None and not leased.ended.done():
            leased.ended.set_result(ended)

    def _on_crashed(self, crashed: Crashed) -> None:
        kinds: Mapping[str, type[BakeoffError]] = {"ledger": LedgerError, "usage": UsageError}
        leased = self.leased.get(crashed.job)
        if leased is not None and not leased.ended.done():
            leased.ended.set_exception(kinds.get(crashed.kind, BakeoffError)(crashed.why))

    def _on_closed(self, closed: Closed) -> None:
        self._coordinator.parts.add_closing_words(closed)
        if not self._said_all.done():
            self._said_all.set_result(None)


def _attempt_of(ended: Ended, leased: _Leased) -> Attempt:
    """Return the attempt that a worker sent, with what workers that were lost had spent on it."""
    bill = leased.attempt_bill
    bill.begun = bill.begun or ended.begun
    if ended.refused is not None:
        bill.refused = (BudgetReached if ended.at_budget else NotRun)(ended.refused)
    if ended.attempt is None:
        raise BakeoffError("a worker cancelled an attempt that nobody had cancelled")
    try:
        attempt = _attempt.decode(ended.attempt)
    except msgspec.DecodeError as error:
        return _faulted(leased, f"what the attempt left is no plain data: {error}")
    if leased.billed_before == NO_BILL:
        return attempt
    return replace(attempt, bill=leased.billed_before + attempt.bill)


def _not_run(leased: _Leased, why: NotRun) -> Attempt:
    """Return an attempt that was not begun, or was lost and is not run again; what it cost is kept."""
    bill = leased.attempt_bill
    bill.refused = why
    bill.begun = bill.begun or bill.total != NO_BILL
    return _ended(leased, Status.CANCELLED)


def _less(bill: Bill, part: Bill) -> Bill:
    return Bill(
        cost_usd=None if bill.cost_usd is None else bill.cost_usd - (part.cost_usd or 0.0),
        tokens=bill.tokens - part.tokens,
        unsure_usd=bill.unsure_usd - part.unsure_usd,
        unsure_tokens=bill.unsure_tokens - part.unsure_tokens,
        unpriced=bill.unpriced - part.unpriced,
    )


def _faulted(leased: _Leased, why: str) -> Attempt:
    return replace(_ended(leased, Status.FAULTED), fault=Fault.of(TrialError(why)))


def _ended(leased: _Leased, status: Status) -> Attempt:
    return Attempt(
        number=leased.number,
        status=status,
        started_at=leased.started_at,
        elapsed_s=timestamp() - leased.started_at,
        bill=leased.attempt_bill.total,
    )
