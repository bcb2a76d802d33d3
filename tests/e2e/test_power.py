"""Planning a run from the command line: a pilot that was run, and what a dry run foresees."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import bakeoff as package
from support.cli import Ended, bakeoff
from support.loopback import Asked, Loopback, Reply, chat

TASKS = 24


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    tests = [
        {"id": f"t{n:02}", "prompt": f"say {n:02}", "expected": f"{n:02}"} for n in range(TASKS)
    ]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"tests": tests}))
    return path


def fickle() -> Callable[[Asked], Reply]:
    """A server whose models know some tasks better than others, `good` most of them."""
    chance = Random(1)

    def answer(asked: Asked) -> Reply:
        number = int(asked.prompt.split()[-1])
        knows = number / TASKS + (0.2 if asked.body["model"] == "good" else 0.0)
        return chat(f"{number:02}" if chance.random() < knows else "I do not know")

    return answer


def told(*words: str | Path, folder: Path, code: int = 0) -> Ended:
    ended = bakeoff(*words, folder=folder)
    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    return ended


@pytest.fixture
def runs(suite: Path) -> Path:
    """A folder with one run: two models, three rollouts."""
    output = suite.parent / "runs"
    with Loopback(fickle()) as server:
        told(
            "run", suite, "--model", "good", "--model", "bad", "--base-url", server.url,
            "--rollouts", "3", "--parallel", "1", "--output", output, folder=suite.parent,
        )  # fmt: skip
    return output


def test_a_pilot_says_how_many_tasks_the_next_run_takes(runs: Path, tmp_path: Path) -> None:
    text = told("power", "0.1", "--run", "latest", "--output", runs, folder=tmp_path).out
    assert text.startswith("to see a difference of 0.1 between two candidates\n")
    assert f"{TASKS} tasks show" in text
    assert "fewest trials: 1 rollout of each of " in text
    assert "good and bad, on 24 tasks with 3 rollouts" in text
    assert "a chance of 80 % to detect it" in text

    ended = told(
        "power", "0.1", "--run", "latest", "--pair", "bad,good", "--output", runs, "--json",
        folder=tmp_path,
    )  # fmt: skip
    data = json.loads(ended.out)
    plan = package.power(0.1, run="latest", output=runs)
    assert [size["tasks"] for size in data["sizes"]] == [size.tasks for size in plan.sizes]
    assert [size["rollouts"] for size in data["sizes"]] == [1, 2, 3, 4, 8, 16]
    assert data["pilot"]["pair"] == ["good", "bad"]
    low, high = data["sizes"][0]["likely"]
    assert low < data["sizes"][0]["tasks"] < high


def test_a_summary_says_what_more_rollouts_would_buy(runs: Path, tmp_path: Path) -> None:
    text = told("summarize", "--output", runs, folder=tmp_path).out
    split = package.summarize("latest", output=runs).candidates[0].variance
    assert split.se_twice_rollouts is not None
    now = split.se(tasks=TASKS, rollouts=3)
    assert now is not None
    assert (
        f"good: twice the rollouts would shrink the error by "
        f"{100 * (1 - split.se_twice_rollouts / now):.0f} %, twice the tasks by 29 %; either takes about "
    ) in text
    data = json.loads(told("summarize", "--output", runs, "--json", folder=tmp_path).out)
    assert data["candidates"][0]["variance"]["icc"] == split.icc


def test_a_dry_run_says_the_least_difference_it_can_see(suite: Path, tmp_path: Path) -> None:
    two: list[str | Path] = [
        "run",
        suite,
        "--model",
        "scripted/a",
        "--model",
        "scripted/b",
        "--dry-run",
    ]
    text = told(*two, folder=tmp_path).out
    data = json.loads(told(*two, "--json", folder=tmp_path).out)["least_difference"]
    assert (data["tasks"], data["rollouts"], data["candidates"]) == (TASKS, 1, 2)
    assert f"\nleast difference {data['detectable']:.2g} between two, with a chance of 80 %" in text
    assert "(assumed: mean score 0.5, noise 0.67, correlation 0.5)" in text
    few = told(*two, "--limit", "5", folder=tmp_path).out
    assert "least difference none: too few tasks with a score (5)" in few
    assert "least difference" not in told(*two, "--adaptive", folder=tmp_path).out
    assert "least difference" not in told(*two[:4], "--dry-run", folder=tmp_path).out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("power", 2, "missing: DIFFERENCE"),
        ("power much", 2, "'much' is not a number, such as 0.05"),
        ("power 5", 1, "5 points of a hundred are 0.05"),
        ("power 0", 1, "difference is 0.0; give a number"),
        ("power -0.1", 1, "difference is -0.1; give a number"),
        ("power 0.1 --rollouts 0", 2, "must be 1 or more"),
        ("power 0.1 --candidates 1", 1, "candidates is 1; give a whole number from 2"),
        ("power 0.1 --pair a", 2, "write the names of two candidates, A,B"),
        ("power 0.1 --pair a,b", 1, "name the run as well"),
        ("power 0.1 --run nope", 1, "no run"),
        ("power 0.1 --alfa 0.1", 2, "did you mean '--alpha'?"),
    ],
)
def test_a_mistake_is_told_in_a_line(words: str, code: int, message: str, tmp_path: Path) -> None:
    ended = bakeoff(*words.split(), folder=tmp_path)
    assert ended.code == code, ended
    assert message in ended.err
    assert ended.err.count("\n") == 1
