"""`bakeoff explain`: why two candidates differ, and the tasks behind it run again."""

import json
from pathlib import Path
from typing import Any

import pytest

import bakeoff as package
from bakeoff.core.attachment import AttachedBytes
from bakeoff.core.errors import UsageError
from bakeoff.core.record import Status
from bakeoff.core.task import Message, ScorerSpec, Task, Turn
from bakeoff.core.tools import TaskTools, ToolRule, ToolSpec
from bakeoff.core.workspace import Workspace
from bakeoff.formats.suite import read_suite
from bakeoff.formats.suite_writing import write_suite
from support.cli import Ended, bakeoff
from support.loopback import Asked, Loopback, Reply, chat
from support.pictures import RED
from support.plans import attempt, candidate, plan, scored_by, task
from support.reports import write_run

TASKS = 12


def answer(asked: Asked) -> Reply:
    """Model `good` knows everything but one; `bad` a quarter, and the last task ends in a fault."""
    number = int(asked.prompt.split()[-1])
    if asked.body["model"] == "good":
        return chat("?" if number == 5 else f"{number:02}")
    if number == TASKS - 1:
        return Reply(status=400)
    return chat(f"{number:02}" if number % 4 == 0 else "I do not know")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run of two models."""
    root = tmp_path_factory.mktemp("explained")
    tests = [
        {"id": f"t{n:02}", "prompt": f"say {n:02}", "expected": f"{n:02}",
         "category": "even" if n % 2 == 0 else "odd"}
        for n in range(TASKS)
    ]  # fmt: skip
    suite = root / "suite.json"
    suite.write_text(json.dumps({"tests": tests}))
    with Loopback(answer) as server:
        package.run(suite, models=["good", "bad"], base_url=server.url, folder=root / "runs" / "r1")
    return root


def explain(folder: Path, *words: str) -> Ended:
    ended = bakeoff("explain", *words, cwd=folder)
    assert "Traceback" not in ended.err
    return ended


def test_it_says_which_tasks_and_categories_carry_the_gap_and_what_failed(folder: Path) -> None:
    told = explain(folder).out
    assert "r1: good is ahead of bad by 0.636 on 11 tasks" in told
    assert "good does better on 7 tasks, bad on 0; on 4 both have the same score" in told
    assert "left out, because only one of the two has a score: 1 task" in told
    assert "+0.364  57.1 %" in told  # the odd ones
    assert "separates no candidates: 1 task never passed by any candidate: t05" in told
    assert "good 1 times, bad 8 times: scorer includes: not in the answer: " in told
    assert "good 0 times, bad 1 times: fault of the provider: " in told
    assert "(bakeoff show RUN t01@bad#0)" in told


def test_the_order_of_the_two_is_the_sign_of_everything(folder: Path) -> None:
    told: dict[str, Any] = json.loads(explain(folder, "bad", "good", "--json").out)
    assert told["difference"] == pytest.approx(-7 / 11)
    assert sum(part["part"] for part in told["tasks"]) == pytest.approx(-7 / 11)
    assert sum(part["part"] for part in told["categories"]) == pytest.approx(-7 / 11)
    assert told["better"] == "good"
    assert len(told["groups"]["ahead"]) == 7
    found = package.load_run(folder / "runs" / "r1").explain("bad", "good")
    assert found.groups == told["groups"]


def test_a_group_becomes_a_suite_that_runs_as_it_is(folder: Path) -> None:
    ended = explain(folder, "latest", "good", "bad", "--write", "lost.json", "--group", "ahead")
    assert "lost.json: 7 tasks (ahead); run with: bakeoff run lost.json" in ended.out, ended.err
    with Loopback(answer) as server:
        again = bakeoff("run", "lost.json", "--model", "good", "--base-url", server.url,
                        "--output", folder / "again", cwd=folder)  # fmt: skip
    assert again.code == 0, again.err
    run = package.load_run("latest", output=folder / "again")
    assert run.summary().candidates[0].total.score.mean == 1.0
    before = {t.id: t.digest for t in package.load_run(folder / "runs" / "r1").plan.tasks}
    assert all(before[t.id] == t.digest for t in run.plan.tasks)
    assert "lost.json is there already" in explain(folder, "--write", "lost.json").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["latest", "good", "x"], "no candidate 'x' in this run: there are: bad, good"),
        (["latest", "good", "good"], "'good' would be explained against itself"),
        (["a", "b", "c", "d"], "name one run and two candidates"),
        (["--write", "x.json", "--group", "flakey"], "no group 'flakey' with tasks in it"),
        (["--write", "x.toml"], "a suite is a .json file; write x.json"),
    ],
)
def test_mistakes_are_said_with_what_to_do(folder: Path, words: list[str], told: str) -> None:
    ended = explain(folder, *words)
    assert ended.code == 1
    assert told in ended.err


def test_of_many_candidates_two_have_to_be_named_and_flaky_ones_are(tmp_path: Path) -> None:
    given = [task(f"t{n}", scorers=scored_by("exact")) for n in range(6)]
    planned = plan(*given, candidates=[candidate(name) for name in "abc"], rollouts=2)

    def ended(trial: Any) -> Any:
        if trial.task.id == "t4":
            return attempt(score=float(trial.rollout))
        if trial.task.id == "t5" and trial.candidate.id == "b":
            return attempt(status=Status.FAULTED, message="the queue is full: 17 of 17")
        return attempt(score=float(trial.candidate.id == "a"))

    write_run(tmp_path / "runs" / "r1", planned, ended)
    assert "which two candidates? There are: a, b, c" in explain(tmp_path).err
    told = explain(tmp_path, "a", "b").out
    assert "flaky: 1 task" in told
    assert "t4 (3 candidates)" in told
    assert "a 0 times, b 2 times: fault of the provider: the queue is full: 17 of 17" in told


def test_every_kind_of_task_is_written_so_that_it_is_the_same_when_it_is_read(
    tmp_path: Path,
) -> None:
    picture = AttachedBytes.of(RED, "a picture", at=2)
    note = AttachedBytes.of(b"a note", "a note", name="note.txt", at=0)
    scorers = (
        ScorerSpec(name="exact", weight=2.0),
        ScorerSpec(name="length", settings={"max_words": 3}),
    )
    tasks = [
        task("plain", prompt="{{ not a variable }}", target="x", scorers=scorers, pass_threshold=0.5),
        task("settings", parameters={"temperature": 0.5}, time_s=7.0, category="c", group="g",
             vars={"a": 1}, metadata={"tags": ["x"], "timeout_seconds": 7.0}),
        Task(id="said", messages=(Message(role="system", content="be brief"),
             Message(role="user", content="see this", attachments=(note, picture)))),
        Task(id="turns", messages=(Message(role="system", content="s"), Message(role="user", content="one")),
             turns=(Turn(say="one", expect="1"), Turn(say="two", stop_on_failure=True)),
             scorers=(ScorerSpec(name="exact", turn=1), ScorerSpec(name="length", settings={"max_words": 9}))),
        task("tools", tools=TaskTools(tools=(ToolSpec(
            name="weather", parameters={"type": "object", "properties": {}}, replies=("sun",),
            rules=(ToolRule(when={"city": "Rome"}, replies=(1, 2), exact=True),)),), rounds=3)),
        Task(id="both", messages=(Message(role="user", content="chat"),),
                                              prompt="completion"),
    ]  # fmt: skip
    path = tmp_path / "written.json"
    write_suite(path, tasks, name="all kinds")
    read = {t.id: t for t in read_suite(path).tasks}
    for known in tasks:
        assert read[known.id].identity() == known.identity(), known.id
    assert (read["settings"].category, read["settings"].group) == ("c", "g")


def test_a_task_with_files_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="it has files to work on; run the group from its own source"
    ):
        write_suite(tmp_path / "x.json", [task("w", workspace=Workspace())], name="x")
