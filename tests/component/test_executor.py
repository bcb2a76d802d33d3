"""The local executor: workers that pull."""

import asyncio
from collections.abc import Iterator

import pytest

from bakeoff.core.ports import Job
from bakeoff.core.stop import Stop
from bakeoff.executors.local import LocalExecutor
from support.plans import plan, tasks


def jobs(count: int, pulled: list[int]) -> Iterator[Job]:
    """Jobs that say when they are taken."""
    for number, trial in enumerate(plan(*tasks(count))):
        pulled.append(number)
        yield Job(trial, 1)


def test_jobs_are_pulled_one_by_one_and_never_ahead_of_the_workers() -> None:
    pulled: list[int] = []
    done = 0
    ahead: list[int] = []

    async def work(_: Job) -> None:
        nonlocal done
        await asyncio.sleep(0)
        ahead.append(len(pulled) - done)
        done += 1

    asyncio.run(LocalExecutor(3).run(jobs(100, pulled), work, Stop()))
    assert done == 100
    assert max(ahead) == 3


def test_a_worker_that_is_free_takes_the_next_job_while_another_is_busy() -> None:
    pulled: list[int] = []
    ended: list[str] = []

    async def work(job: Job) -> None:
        await asyncio.sleep(0.2 if job.trial.task.id == "t0000" else 0)
        ended.append(job.trial.task.id)

    asyncio.run(LocalExecutor(2).run(jobs(20, pulled), work, Stop()))
    assert ended[-1] == "t0000"
    assert len(ended) == 20


def test_fewer_jobs_than_workers_are_all_done() -> None:
    pulled: list[int] = []

    async def work(_: Job) -> None:
        await asyncio.sleep(0)

    asyncio.run(LocalExecutor(50).run(jobs(3, pulled), work, Stop()))
    assert pulled == [0, 1, 2]


def test_a_stop_before_the_start_starts_nothing() -> None:
    pulled: list[int] = []
    stop = Stop()
    stop.request()

    async def work(_: Job) -> None:
        raise AssertionError("it was started")

    asyncio.run(LocalExecutor(2).run(jobs(100, pulled), work, stop))
    assert len(pulled) <= 2


def test_a_stop_while_the_first_jobs_are_taken_is_heeded_by_every_worker() -> None:
    begun: list[str] = []
    stop = Stop()

    async def work(job: Job) -> None:
        begun.append(job.trial.task.id)
        stop.request()

    asyncio.run(LocalExecutor(8).run(jobs(100, []), work, stop))
    assert begun == ["t0000"]


def test_a_pause_between_jobs_ends_early_when_a_stop_is_requested() -> None:
    begun: list[str] = []
    stop = Stop()

    async def scene() -> float:
        loop = asyncio.get_running_loop()

        async def work(job: Job) -> None:
            begun.append(job.trial.task.id)
            loop.call_later(0.05, stop.request)

        began = loop.time()
        await LocalExecutor(1, pause_s=30).run(jobs(5, []), work, stop)
        return loop.time() - began

    assert asyncio.run(scene()) < 1
    assert begun == ["t0000"]


def test_an_error_ends_every_worker_and_is_not_swallowed() -> None:
    pulled: list[int] = []

    async def work(job: Job) -> None:
        if job.trial.task.id == "t0003":
            raise RuntimeError("broken")
        await asyncio.sleep(0.01)

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(LocalExecutor(4).run(jobs(100, pulled), work, Stop()))
    assert caught.group_contains(RuntimeError, match="broken")
    assert len(pulled) == 4
