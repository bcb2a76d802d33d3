"""Candidates of several endpoints in one run, at real servers: who waits for whom."""

import asyncio
import json
import threading
import time
from pathlib import Path

import bakeoff
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.events import Event, TrialEnded
from bakeoff.core.outcome import Wait
from bakeoff.core.ports import Job
from bakeoff.core.stop import Stop
from bakeoff.executors.local import LocalExecutor
from support.loopback import Asked, Loopback, Reply, chat
from support.plans import plan, task, tasks

TASKS = 24


class Ends:
    """When the trials of each model ended."""

    def __init__(self) -> None:
        self.at: dict[str, list[float]] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, TrialEnded):
            self.at.setdefault(event.trial.candidate.model.name, []).append(time.monotonic())


def run_at(
    folder: Path, servers: dict[str, Loopback], *, parallel: int = 4
) -> tuple[Ends, bakeoff.Run]:
    """Give every task to a model at each of the servers."""
    suite, ends = folder / "suite.json", Ends()
    tests = [{"id": f"t{number}", "prompt": f"say {number}"} for number in range(TASKS)]
    suite.write_text(json.dumps({"suite_info": {"name": "lanes"}, "tests": tests}))
    models = [
        ModelSpec(provider="openai-compatible", name=name, base_url=server.url)
        for name, server in servers.items()
    ]
    done = bakeoff.run(
        suite, models=models, output=folder / "runs", listener=ends, parallel=parallel
    )
    return ends, done


def test_a_slow_endpoint_does_not_hold_up_the_candidates_of_another(tmp_path: Path) -> None:
    def slowly(_: Asked) -> Reply:
        time.sleep(0.25)
        return chat("ok")

    with Loopback(slowly) as slow, Loopback() as fast:
        ends, _ = run_at(tmp_path, {"troubled": slow, "healthy": fast})
    assert len(ends.at["troubled"]) == len(ends.at["healthy"]) == TASKS
    behind = sum(at > ends.at["healthy"][-1] for at in ends.at["troubled"])
    assert behind >= TASKS / 2


def test_an_endpoint_that_is_down_does_not_hold_up_the_candidates_of_another(
    tmp_path: Path,
) -> None:
    others_done = threading.Event()

    def refused(_: Asked) -> Reply:
        if others_done.is_set():
            return chat("ok")
        return Reply(status=503, headers={"Retry-After": "1"}, body=b"down")

    asked = 0

    def counted(_: Asked) -> Reply:
        nonlocal asked
        asked += 1
        if asked == TASKS:
            others_done.set()
        return chat("ok")

    with Loopback(refused) as down, Loopback(counted) as up:
        ends, done = run_at(tmp_path, {"troubled": down, "healthy": up})
    assert ends.at["healthy"][-1] < ends.at["troubled"][0]
    assert len(ends.at["troubled"]) == TASKS
    assert done.summary().buckets.model_error == 0


def test_a_retry_that_waits_lets_another_trial_run(tmp_path: Path) -> None:
    lock = threading.Lock()
    failed: set[str] = set()

    def answer(asked: Asked) -> Reply:
        with lock:
            if asked.prompt in {"say 6", "say 10", "say 14", "say 18"} - failed:
                failed.add(asked.prompt)
                return Reply(status=500, headers={"Retry-After": "3"}, body=b"oops")
        return chat("ok")

    with Loopback(answer) as server:
        ends, _ = run_at(tmp_path, {"m": server}, parallel=4)
    retried = ends.at["m"][-4:]  # each waited for at least three seconds
    assert retried[0] - ends.at["m"][-5] > 1
    assert len(ends.at["m"]) == TASKS


def test_a_job_that_waits_for_its_endpoint_is_replaced_by_one_of_another_lane_only() -> None:
    begun: list[str] = []
    peak = at_work = 0

    async def main() -> None:
        go = asyncio.Event()

        async def work(job: Job) -> None:
            nonlocal peak, at_work
            begun.append(job.trial.task.id)
            assert job.on_wait is not None
            if job.trial.task.id.startswith("t"):
                job.on_wait(Wait.ENDPOINT)
                await go.wait()
                job.on_wait(None)
                return
            at_work += 1
            peak = max(peak, at_work)
            await asyncio.sleep(0.001)
            at_work -= 1
            if sum(name.startswith("u") for name in begun) == 50:
                go.set()

        queued = [Job(trial, 1) for trial in plan(*tasks(50))]
        others = [Job(trial, 1) for trial in plan(*(task(f"u{n:04}") for n in range(50)))]
        await LocalExecutor(4).run(queued, work, Stop(), other_lanes=[others])

    asyncio.run(asyncio.wait_for(main(), 20))
    before_release = begun[: begun.index("u0049")]
    assert sum(name.startswith("t") for name in before_release) <= 4
    assert len(begun) == 100
    assert peak == 4
