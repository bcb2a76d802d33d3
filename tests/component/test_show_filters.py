"""`bakeoff show` finds trials in a large run, quickly."""

import asyncio
import json
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import pytest

import bakeoff
from bakeoff import Message, Request, ScorerSpec, Task, UsageError
from bakeoff.cli import call
from bakeoff.core.record import TrialFilter
from bakeoff.stores.ledger_writer import SqliteStore
from support.plans import attempt, plan, tasks

TASKS = [
    Task(
        id=f"t{number}",
        category="even" if number % 2 == 0 else "odd",
        messages=(Message(role="user", content=f"What is {number} + 1?"),),
        target=f"{number + 1}",
        scorers=(ScorerSpec(name="includes"),),
    )
    for number in range(6)
]


def knows(request: Request) -> str:
    return f"It is {int(request.messages[-1].content.split()[2]) + 1}."


def shaky(request: Request) -> str:
    number = int(request.messages[-1].content.split()[2])
    if number == 4:
        raise RuntimeError("the Line went dead")
    return "no idea" if number in {1, 2} else knows(request)


@pytest.fixture
def run(tmp_path: Path) -> bakeoff.Run:
    return bakeoff.run(TASKS, models=[knows, shaky], output=tmp_path)


def found(run: bakeoff.Run, search: str | None = None, **which: Any) -> list[str]:
    return [line.name for line in run.lines(TrialFilter(**which), search=search)]


def test_each_filter_finds_what_it_says_and_they_add_up(run: bakeoff.Run) -> None:
    assert len(found(run)) == 12
    assert found(run, failed=True) == ["t1@shaky#0", "t2@shaky#0"]
    assert found(run, faulted=True) == ["t4@shaky#0"]
    assert found(run, failed=True, faulted=True) == ["t1@shaky#0", "t2@shaky#0", "t4@shaky#0"]
    assert found(run, failed=True, categories=["odd"]) == ["t1@shaky#0"]
    assert len(found(run, candidates=["knows"])) == 6
    assert found(run, candidates=["knows"], failed=True) == []


def test_text_is_found_in_questions_answers_faults_and_names(run: bakeoff.Run) -> None:
    assert found(run, "WHAT is 3") == ["t3@knows#0", "t3@shaky#0"]
    assert found(run, "No Idea") == ["t1@shaky#0", "t2@shaky#0"]
    assert found(run, "line went dead") == ["t4@shaky#0"]
    assert found(run, "t5@sha") == ["t5@shaky#0"]


def test_a_name_that_is_not_there_is_told_with_the_nearest(run: bakeoff.Run) -> None:
    with pytest.raises(UsageError, match=r"no candidate 'shakey' .*shaky"):
        found(run, candidates=["shakey"])
    with pytest.raises(UsageError, match=r"no category 'evn' .*even"):
        found(run, categories=["evn"])


def test_the_command_prints_what_was_asked_for(
    run: bakeoff.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["show", str(run.folder)]
    assert call([*place, "--failed", "--category", "even"]) == 0
    out = capsys.readouterr().out
    assert "t2@shaky#0  completed   0.00" in out
    assert "no idea" in out
    assert "t1@" not in out
    assert call([*place, "--faulted", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert only["task_id"] == "t4"
    assert only["attempt"]["outcome"] is None
    assert call([*place, "--search", "nothing of the kind"]) == 0
    assert "no recorded trial matches" in capsys.readouterr().out
    assert call([*place, "t1", "--failed"]) == 1
    assert "a filter is for the list" in capsys.readouterr().err


def test_a_long_list_costs_little_more_than_reading_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = plan(*tasks(2_000), rollouts=3)
    folder = tmp_path / "r1"

    async def write() -> None:
        store = SqliteStore(folder)
        store.freeze(given)
        async with asyncio.TaskGroup() as group:
            for trial in given:
                group.create_task(store.append(trial, attempt(answer="so it is " * 30)))
        await store.close()

    asyncio.run(write())
    run = bakeoff.load_run(folder)
    began = process_time()
    whole = msgspec.json.encode(list(run.trials()))
    reading_s = process_time() - began
    began = process_time()
    assert call(["show", str(folder)]) == 0
    showing_s = process_time() - began
    assert len(whole) > 1_000_000
    assert capsys.readouterr().out.count("completed") == 6_000
    assert showing_s < 6 * reading_s, (showing_s, reading_s)
