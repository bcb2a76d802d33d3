"""Deadlines: what asyncio's own promise, with one timer for all."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from bakeoff._lib.clock import paused_deadlines, until, within

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    def run_it(work: Coroutine[object, object, object]) -> object:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(work)

    return run_it


def test_a_block_that_is_done_in_time_is_left_alone(run: Any) -> None:
    async def work() -> str:
        with within(5):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)
        return "done"

    assert run(work()) == "done"


def test_a_block_that_takes_too_long_is_cut(run: Any) -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError), within(0.05):
            await asyncio.sleep(30)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return loop.time() - began

    assert 0.04 < float(run(work())) < 5


def test_no_limit_is_no_limit(run: Any) -> None:
    async def work() -> None:
        with within(None):
            await asyncio.sleep(0.01)

    run(work())


def test_a_moment_that_has_passed_cuts_at_the_first_wait(run: Any) -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError), until(asyncio.get_running_loop().time() - 1):
            await asyncio.sleep(30)

    run(work())


def test_a_deadline_can_follow_one_that_has_passed_before_anybody_waits(run: Any) -> None:
    async def work() -> None:
        passed = asyncio.get_running_loop().time() - 1
        with pytest.raises(TimeoutError), until(passed), within(5):
            await asyncio.sleep(30)

    run(work())


def test_of_two_deadlines_the_earlier_is_the_one_that_cuts(run: Any) -> None:
    async def work(outer: float, inner: float) -> str:
        try:
            with within(outer):
                try:
                    with within(inner):
                        await asyncio.sleep(30)
                except TimeoutError:
                    return "inner"
        except TimeoutError:
            return "outer"
        return "neither"

    assert run(work(5, 0.03)) == "inner"
    assert run(work(0.03, 5)) == "outer"


def test_a_cancellation_from_outside_stays_one(run: Any) -> None:
    async def block() -> None:
        with within(5):
            await asyncio.sleep(30)

    async def work() -> None:
        task = asyncio.create_task(block())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())


def test_an_error_of_the_block_is_not_hidden(run: Any) -> None:
    async def work() -> None:
        with pytest.raises(ValueError, match="mine"), within(5):
            raise ValueError("mine")

    run(work())


def test_many_deadlines_are_kept_with_one_timer(run: Any) -> None:
    async def one(number: int) -> str:
        try:
            # what ends in time has time enough on a busy machine too
            with within(number if number % 2 else 0.02 * (number % 3 + 1)):
                await asyncio.sleep(0.001 if number % 2 else 30)
        except TimeoutError:
            return "cut"
        return "done"

    async def work() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(n)) for n in range(10, 70)]
        return [task.result() for task in tasks]

    assert run(work()) == ["done" if n % 2 else "cut" for n in range(10, 70)]


def test_a_deadline_stands_still_while_its_task_waits_for_what_is_not_its_doing(run: Any) -> None:
    async def work() -> str:
        with within(0.2):
            with paused_deadlines():
                await asyncio.sleep(0.5)
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return "cut after its own time"
        return "never cut"

    with pytest.raises(TimeoutError):
        run(_cut(0.5))
    assert run(work()) == "cut after its own time"


async def _cut(seconds: float) -> None:
    with within(0.2):
        await asyncio.sleep(seconds)
