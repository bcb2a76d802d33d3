"""Functions as agents that block: the others go on, and a limit ends the wait."""

import threading
import time
from pathlib import Path

import bakeoff
from bakeoff.core.ports import Asks
from bakeoff.core.record import Status
from bakeoff.core.task import Task
from support.plans import tasks


def test_eight_agents_that_block_wait_at_the_same_time(tmp_path: Path) -> None:
    meet = threading.Barrier(8)  # nobody passes before all eight are there

    def agent(task: Task, model: Asks) -> str:
        meet.wait(timeout=60)
        return task.id

    run = bakeoff.run(tasks(8), agents=[agent], models=["scripted"], parallel=8,
                      output=tmp_path)  # fmt: skip
    assert {r.attempt.status for r in run.trials()} == {Status.COMPLETED}


def test_one_that_blocks_for_ever_ends_with_its_time_and_holds_up_nothing(tmp_path: Path) -> None:
    over = threading.Event()

    def agent(task: Task, model: Asks) -> str:
        over.wait(60)
        return "too late"

    began = time.monotonic()
    given = tasks(2, time_s=0.5)
    run = bakeoff.run(given, agents=[agent], models=["scripted"], output=tmp_path)
    assert time.monotonic() - began < 50
    over.set()
    assert {r.attempt.status for r in run.trials()} == {Status.LIMITED}


def test_what_it_raises_is_its_fault_and_an_async_result_is_awaited(tmp_path: Path) -> None:
    def agent(task: Task, model: Asks) -> object:
        if task.id == "t0000":
            raise ValueError("broken here")
        if task.id == "t0001":
            raise StopIteration
        return _later()

    async def _later() -> str:
        return "soon"

    run = bakeoff.run(tasks(3), agents=[agent], models=["scripted"], output=tmp_path)
    first, second, third = (record.attempt for record in run.trials())
    assert first.fault is not None
    assert "ValueError: broken here" in first.fault.message
    assert second.fault is not None
    assert third.outcome is not None
    assert third.outcome.answer == "soon"
