"""Runs that a person gave names to."""

import json
from pathlib import Path

import pytest

import bakeoff
from bakeoff import Message, Request, ScorerSpec, Task, UsageError
from bakeoff.cli import call

TASKS = [
    Task(
        id=f"t{number:03}",
        messages=(Message(role="user", content=f"say {number}"),),
        target=f"say {number}",
        scorers=(ScorerSpec(name="exact"),),
    )
    for number in range(40)
]


def right(request: Request) -> str:
    return request.messages[-1].content


def wrong(request: Request) -> str:
    return "what?"


def flaky(request: Request) -> str:
    if request.messages[-1].content.endswith("7"):
        raise RuntimeError("no")
    return right(request)


def listed(output: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    capsys.readouterr()
    assert call(["list", "runs", "--json", "--output", str(output)]) == 0
    return {row["run"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_name_finds_the_newest_run_that_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bakeoff.run(TASKS, models=[wrong], output=tmp_path, name="main")
    second = bakeoff.run(TASKS, models=[right], output=tmp_path, name="main")
    third = bakeoff.run(TASKS, models=[right], output=tmp_path)
    assert "-main" in second.id
    assert bakeoff.load_run("main", output=tmp_path).id == second.id
    compared = bakeoff.compare("main", "latest", output=tmp_path)
    assert (compared.before, compared.after) == (second.id, third.id)
    place = ["--output", str(tmp_path)]
    for words in (
        ["show", "main"],
        ["summarize", "main"],
        ["report", "main"],
        ["eval", "main"],
        ["check", "main"],
        ["compare", "main", "latest"],
    ):
        assert call([*words, *place]) == 0, words
    assert second.id in capsys.readouterr().out
    with pytest.raises(UsageError, match="did you mean 'main'"):
        bakeoff.load_run("mian", output=tmp_path)


def test_a_name_stays_when_its_run_is_resumed_and_can_be_given_then(tmp_path: Path) -> None:
    first = bakeoff.run(TASKS, models=[right], output=tmp_path, limit=2, name="nightly")
    again = bakeoff.run(TASKS, models=[right], output=tmp_path, resume="nightly")
    assert (again.id, again.manifest.run_name) == (first.id, "nightly")
    named = bakeoff.run(TASKS, models=[right], output=tmp_path, resume="nightly", name="v2")
    assert bakeoff.load_run("v2", output=tmp_path).id == named.id == first.id


@pytest.mark.parametrize("name", ["latest", "", "a/b", "-x", "x" * 61, "a b", "..\n"])
def test_what_cannot_be_a_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="a run cannot be called"):
        bakeoff.run(TASKS, models=[right], output=tmp_path, name=name)
    assert not list(tmp_path.iterdir())


def test_the_list_says_name_score_and_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = bakeoff.run(TASKS, models=[right, wrong], output=tmp_path, name="both")
    broken = bakeoff.run(TASKS, models=[flaky], output=tmp_path)
    rows = listed(tmp_path, capsys)
    assert rows[done.id]["name"] == "both"
    assert rows[done.id]["score"] == "1.000, 0.000"
    assert rows[done.id]["state"] == "done"
    assert rows[broken.id]["state"] == "4 faulted"
    assert rows[broken.id]["score"] == "1.000"
    assert call(["list", "runs", "--output", str(tmp_path)]) == 0
    assert "both" in capsys.readouterr().out


def test_a_run_that_was_decided_early_is_not_listed_as_unfinished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = bakeoff.run(TASKS, models=[right, wrong], output=tmp_path, adaptive=True, parallel=1)
    buckets = run.summary().buckets
    assert buckets.not_needed > 0
    row = listed(tmp_path, capsys)[run.id]
    assert row["state"] == f"decided, {buckets.not_needed} not needed"


def test_what_is_left_of_a_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop = bakeoff.Stop()

    def stopping(request: Request) -> str:
        stop.request()
        return right(request)

    run = bakeoff.run(TASKS, models=[stopping], output=tmp_path, stop=stop, parallel=1)
    assert listed(tmp_path, capsys)[run.id]["state"] == "39 left"


def test_a_name_given_on_the_command_line_works_in_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text('{"tests": [{"id": "a", "prompt": "a", "expected": "a"}]}')
    output = ["--output", str(tmp_path / "runs")]
    for name in ("main", "next"):
        assert call(["run", str(suite), "-m", "scripted", "--name", name, *output]) == 0
    for words in (["show", "main"], ["summarize", "next"], ["compare", "main", "next"],
                  ["report", "main"], ["check", "main"], ["run", "--resume", "next"]):  # fmt: skip
        assert call([*words, *output]) == 0, (words, capsys.readouterr())
