"""Agents that block: the others go on, and a limit ends them, in a process of their own or the wait."""

import asyncio
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Request
from bakeoff.core.ports import Model
from bakeoff.core.record import Attempt, Status
from bakeoff.core.task import Task
from support.cli import BAKEOFF, started, until
from support.plans import tasks


def test_eight_agents_that_block_wait_at_the_same_time(tmp_path: Path) -> None:
    meet = threading.Barrier(8)  # nobody passes before all eight are there

    def agent(task: Task, model: Model) -> str:
        meet.wait(timeout=60)
        return task.id

    run = bakeoff.run(tasks(8), agents=[agent], models=["scripted"], parallel=8,
                      output=tmp_path)  # fmt: skip
    assert {r.attempt.status for r in run.trials()} == {Status.COMPLETED}


def test_one_that_blocks_for_ever_ends_with_its_time_and_holds_up_nothing(tmp_path: Path) -> None:
    over = threading.Event()

    def agent(task: Task, model: Model) -> str:
        over.wait(60)
        return "too late"

    began = time.monotonic()
    given = tasks(2, time_s=0.5)
    run = bakeoff.run(given, agents=[agent], models=["scripted"], output=tmp_path)
    assert time.monotonic() - began < 50
    over.set()
    assert {r.attempt.status for r in run.trials()} == {Status.LIMITED}


def test_what_it_raises_is_its_fault_and_an_async_result_is_awaited(tmp_path: Path) -> None:
    def agent(task: Task, model: Model) -> object:
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


OWN = '''
import asyncio, os, subprocess, sys, time
from pathlib import Path
from bakeoff import Message, Outcome, Request

def where(task, model):
    return str(os.getpid())

def meets(task, model, place, how_many):
    """Go on when all are there."""
    folder = Path(place)
    (folder / task.id).touch()
    while len(list(folder.iterdir())) < how_many:
        time.sleep(0.01)
    return "met"

def for_ever(task, model, nap):
    subprocess.Popen(["sleep", nap])
    print("going to sleep", flush=True)
    subprocess.run(["sleep", nap])

def asks(task, model, times=1):
    said = [asyncio.run(model.complete(Request(messages=task.messages))).text for _ in range(times)]
    return Outcome(answer="|".join(said), notes={"by": "asks"})

async def _both(task, model):
    one, two = await asyncio.gather(*(model.complete(Request(messages=task.messages)) for _ in "ab"))
    return one.text + two.text

def asks_two_at_once(task, model):
    return _both(task, model)

def stubborn(task, model):
    try:
        return asks(task, model)
    except Exception as error:
        return f"without: {error}"

async def _hurried(task, model):
    try:
        await asyncio.wait_for(model.complete(Request(messages=task.messages)), 0.2)
    except asyncio.TimeoutError:
        return "late, then " + (await model.complete(Request(messages=task.messages))).text

def hurried(task, model):
    return _hurried(task, model)

def dies_after(task, model):
    import threading
    threading.Timer(0.3, lambda: os._exit(7)).start()
    return "done"

def breaks(task, model):
    raise ValueError("broken here")

def dies(task, model):
    print("the last words")
    sys.stdout.flush()
    os._exit(3)

def wrong(task, model):
    return 42

class Thinker:
    def __init__(self, prefix):
        self.prefix = prefix

    def solve(self, task, kit):
        return self.prefix + asyncio.run(kit.model.complete(Request(messages=task.messages))).text
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path


def run_named(
    own: Path, agent: str, *, count: int = 1, models: tuple[Any, ...] = ("scripted",),
    settings: str = "{}", limits: str = "{}", parallel: int = 8,
) -> list[Attempt]:  # fmt: skip
    """Run tasks with an agent that a file names."""
    asked = "\n".join(f'[[tasks]]\nid = "t{n}"\nprompt = "hello {n}"' for n in range(count))
    (own / "run.toml").write_text(
        f'agents = [{{agent = "mine:{agent}", settings = {settings}}}]\n'
        f"limits = {limits}\nparallel = {parallel}\n{asked}\n"
    )
    run = bakeoff.run(own / "run.toml", models=list(models), output=own / "runs")
    return [record.attempt for record in run.trials()]


def answers(attempts: list[Attempt]) -> list[str]:
    return [
        attempt.outcome.answer if attempt.outcome else str(attempt.fault) for attempt in attempts
    ]


def test_a_named_one_has_a_process_that_is_not_ours_and_takes_the_next_task_too(own: Path) -> None:
    found = set(answers(run_named(own, "where", count=5, parallel=1)))
    assert len(found) == 1
    assert found != {str(os.getpid())}
    assert not Path(f"/proc/{found.pop()}").exists()


def test_eight_named_ones_that_block_are_at_work_at_the_same_time(own: Path) -> None:
    (own / "here").mkdir()
    place = f'{{place = "{own / "here"}", how_many = 8}}'
    assert answers(run_named(own, "meets", count=8, settings=place)) == ["met"] * 8


def test_a_limit_ends_its_process_and_all_it_started(own: Path) -> None:
    nap = str(200_000 + os.getpid())
    began = time.monotonic()
    attempts = run_named(own, "for_ever", count=2, settings=f'{{nap = "{nap}"}}',
                         limits="{time_s = 1.5}")  # fmt: skip
    assert time.monotonic() - began < 60
    assert {attempt.status for attempt in attempts} == {Status.LIMITED}
    assert not sleeping(nap)


def sleeping(nap: str) -> list[str]:
    found = subprocess.run(["pgrep", "-f", f"^sleep {nap}$"], capture_output=True, text=True,
                           check=False)  # fmt: skip
    return found.stdout.split()


def test_what_it_asks_is_metered_and_a_limit_on_it_ends_it(own: Path) -> None:
    (attempt,) = run_named(own, "asks", models=(lambda request: "four",), settings="{times = 2}")
    assert attempt.outcome is not None
    assert attempt.outcome.answer == "four|four"
    assert attempt.outcome.notes == {"by": "asks"}
    assert attempt.spent.requests == 2
    (attempt,) = run_named(own, "asks", models=(lambda request: "four",), settings="{times = 5}",
                           limits="{requests = 3}")  # fmt: skip
    assert attempt.status is Status.LIMITED
    assert attempt.spent.requests == 3


def test_it_may_ask_twice_at_once(own: Path) -> None:
    together = asyncio.Event()
    asked = []

    async def model(request: Request) -> str:
        asked.append(request)
        if len(asked) == 2:
            together.set()
        await asyncio.wait_for(together.wait(), 60)
        return "x"

    assert answers(run_named(own, "asks_two_at_once", models=(model,))) == ["xx"]


def test_an_answer_that_it_did_not_wait_for_leaves_the_line_whole(own: Path) -> None:
    asked = []

    async def model(request: Request) -> str:
        asked.append(request)
        if len(asked) == 1:
            await asyncio.sleep(1)
            return "too late"
        await asyncio.sleep(1.5)  # the first answer arrives meanwhile
        return "in time"

    (attempt,) = run_named(own, "hurried", models=(model,), limits="{time_s = 60}")
    assert attempt.outcome is not None
    assert attempt.outcome.answer == "late, then in time"


def test_a_process_that_died_between_two_tasks_costs_neither(own: Path) -> None:
    (own / "run.toml").write_text(
        'agents = ["mine:dies_after"]\nmodels = ["scripted"]\nparallel = 1\npause_s = 1.5\n'
        'tasks = [{id = "a", prompt = "p"}, {id = "b", prompt = "q"}]\n'
    )
    run = bakeoff.run(own / "run.toml", output=own / "runs")
    assert answers([record.attempt for record in run.trials()]) == ["done", "done"]


def test_a_refusal_may_be_caught_and_is_the_endpoints_fault_otherwise(own: Path) -> None:
    def broken(request: Request) -> str:
        raise ProviderError("out of order")

    assert answers(run_named(own, "stubborn", models=(broken,))) == ["without: out of order"]
    (attempt,) = run_named(own, "asks", models=(broken,))
    assert attempt.fault is not None
    assert (attempt.fault.boundary, attempt.fault.message) == ("provider", "out of order")


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("breaks", "agent 'mine:breaks': ValueError: broken here"),
        ("dies", "its process ended: exit code 3; its output: the last words"),
        ("wrong", "it returned int; return a str or an Outcome"),
    ],
)
def test_how_it_failed_is_told(own: Path, agent: str, told: str) -> None:
    for attempt in run_named(own, agent, count=2, parallel=1):
        assert attempt.fault is not None
        assert attempt.fault.boundary == "agent"
        assert told in attempt.fault.message


def test_an_object_that_blocks_has_a_process_too(own: Path) -> None:
    got = run_named(own, "Thinker", models=(lambda request: "aloud",),
                    settings='{prefix = "I think "}')  # fmt: skip
    assert answers(got) == ["I think aloud"]


def test_where_the_run_is_killed_nothing_goes_on(own: Path) -> None:
    nap = str(300_000 + os.getpid())
    (own / "run.toml").write_text(
        f'agents = [{{agent = "mine:for_ever", settings = {{nap = "{nap}"}}}}]\n'
        'models = ["scripted"]\ntasks = [{id = "t", prompt = "p"}]\n'
    )
    command: list[str | Path] = [*BAKEOFF, "run", own / "run.toml", "--output", own / "runs"]
    with started(command, folder=own / "io") as running:
        until(lambda: len(sleeping(nap)) == 2, timeout_s=60)
        running.process.kill()
        running.wait(30)
    until(lambda: not sleeping(nap))
