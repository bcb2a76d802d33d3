"""The run's side of its workers, with workers that say what a test wants."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bakeoff._lib.version import __version__
from bakeoff.core.budget import Bill
from bakeoff.core.candidate import Conditions
from bakeoff.core.errors import SandboxError
from bakeoff.core.events import Event, ignore
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, Status
from bakeoff.core.stop import Stop
from bakeoff.engine.budget import AttemptBill
from bakeoff.executors.coordinator import Coordinator, WorkerRules, coordinating
from bakeoff.executors.link import Carrier, Launch
from bakeoff.executors.wire import (
    VERSION,
    Billed,
    Broken,
    Closed,
    End,
    Hello,
    Lease,
    RunSettings,
    Start,
    WorkerReady,
    encode_frame,
    messages_to_worker,
)
from bakeoff.models.limits.settings import Limiters
from support.plans import candidate, trial


class Parts:
    limiters = Limiters()

    def refuse_given_up(self, trial: Trial) -> None: ...

    def add_closing_words(self, words: Closed) -> None: ...


class Worker:
    """The far end of a line: takes what it is leased, and does nothing about it."""

    name = "a worker"

    def __init__(self, receive: Callable[[bytes], None], on_gone: Callable[[], None]) -> None:
        self._receive = receive
        self.die = on_gone
        self.leased = asyncio.Event()
        self.jobs: list[int] = []

    def say(self, *messages: object) -> None:
        self._receive(encode_frame(list(messages)))

    def send(self, frame: bytes) -> None:
        for message in messages_to_worker(frame):
            if isinstance(message, Start):
                self.say(WorkerReady())
            elif isinstance(message, Lease):
                self.jobs.append(message.job)
                self.leased.set()
            elif isinstance(message, End):
                self.say(Closed((), ()))

    async def end(self, grace_s: float) -> str:
        return "ended"


class Workers:
    """Starts workers; from the second on, one has no place and never starts."""

    def __init__(self, most: int = 1) -> None:
        self.most = most
        self.there: list[Worker] = []

    async def __call__(
        self, receive: Callable[[bytes], None], on_gone: Callable[[], None]
    ) -> Carrier:
        if len(self.there) == self.most:
            await asyncio.Event().wait()
        worker = Worker(receive, on_gone)
        self.there.append(worker)
        asyncio.get_running_loop().call_soon(worker.say, Hello(VERSION, __version__))
        return worker


def coordinator(launch: Launch, **more: Any) -> Coordinator:
    settings = RunSettings(
        run="r", folder="/", path=(), folders=(), env_file=None, prices=None, candidates=(candidate(),),
        conditions=Conditions(), capped=False, sandbox=None, has_attachments=False, record=None,
        replay=None, cache=None,
    )  # fmt: skip
    rules = WorkerRules(workers=1)
    return Coordinator(launch, settings, Parts(), rules=rules, **({"listener": ignore} | more))


def run(what: Awaitable[None]) -> None:
    async def within_seconds() -> None:
        async with asyncio.timeout(20):
            await what

    asyncio.run(within_seconds())


async def attempted(given: Coordinator, bill: AttemptBill) -> Attempt:
    return await given.runs(trial())(
        None, number=1, attempt_bill=bill, listener=ignore, on_wait=None
    )


def test_a_stop_ends_the_wait_for_a_first_worker_that_never_comes() -> None:
    async def scene() -> None:
        stop, bill = Stop(), AttemptBill()
        asyncio.get_running_loop().call_later(0.01, stop.request)
        async with coordinating(coordinator(Workers(most=0)), stop) as running:
            attempt = await attempted(running, bill)
        assert attempt.status is Status.CANCELLED
        assert bill.not_run

    run(scene())


@pytest.mark.parametrize("billed", [False, True])
def test_a_trial_whose_worker_is_lost_after_a_stop_is_not_begun_again(billed: bool) -> None:
    async def scene() -> None:
        stop, bill, workers = Stop(), AttemptBill(), Workers()
        async with coordinating(coordinator(workers), stop) as running:
            under_way = asyncio.create_task(attempted(running, bill))
            (worker,) = workers.there
            await worker.leased.wait()
            if billed:
                worker.say(Billed(worker.jobs[0], Bill(tokens=7)))
            stop.request()
            worker.die()
            attempt = await under_way
        assert attempt.status is Status.CANCELLED
        assert bill.not_run is not billed  # what it cost is recorded
        assert attempt.bill.tokens == (7 if billed else 0)

    run(scene())


def test_a_lost_worker_whose_boxes_cannot_be_cleaned_up_ends_the_run_with_the_reason() -> None:
    async def broken() -> None:
        raise SandboxError("the engine is gone")

    async def scene() -> None:
        workers = Workers()
        async with coordinating(coordinator(workers, on_killed=broken), Stop()) as running:
            under_way = asyncio.create_task(attempted(running, AttemptBill()))
            (worker,) = workers.there
            await worker.leased.wait()
            worker.die()
            with pytest.raises(SandboxError, match="the engine is gone"):
                await under_way

    run(scene())


def test_what_a_worker_says_twice_or_too_late_is_no_mistake_of_the_run() -> None:
    events: list[Event] = []

    async def scene() -> None:
        workers = Workers(most=2)
        async with coordinating(coordinator(workers, listener=events.append), Stop()) as running:
            (worker,) = workers.there
            worker.say(WorkerReady(), Hello(VERSION + 1, __version__), Broken("late", usage=True))
            worker.die()
            worker.die()
            bill = AttemptBill()
            under_way = asyncio.create_task(attempted(running, bill))
            while len(workers.there) < 2:
                await asyncio.sleep(0)
            await workers.there[1].leased.wait()
            under_way.cancel()
        assert len(events) == 1  # it was lost once

    run(scene())
