"""Runs that end when it is sure, from the command line: processes, a server, and a run folder."""

import json
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from support.cli import BAKEOFF, Ended, bakeoff, only_run, started, summary, until
from support.loopback import Asked, Loopback, Reply, chat

TASKS = 120


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    tests = [
        {"id": f"t{n:03}", "prompt": f"say {n:03}", "expected": f"{n:03}"} for n in range(TASKS)
    ]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"tests": tests}))
    return path


def answer(asked: Asked) -> Reply:
    """`good` and `twin` know all, `fair` knows two of three answers, `bad` one of six."""
    number = int(asked.prompt.split()[-1])
    knows = {"fair": number % 3 > 0, "bad": number % 6 == 0}.get(asked.body["model"], True)
    return chat(f"{number:03}" if knows else "I do not know")


def run(suite: Path, server: Loopback, *words: str, models: str = "good bad") -> Ended:
    named = [word for model in models.split() for word in ("--model", model)]
    return bakeoff(
        "run", suite, *named, "--base-url", server.url, "--output", suite.parent / "runs", *words,
        folder=suite.parent,
    )  # fmt: skip


def test_it_ends_when_it_is_sure_and_says_what_was_not_needed(suite: Path, tmp_path: Path) -> None:
    with Loopback(answer) as server:
        ended = run(suite, server, "--adaptive", "--parallel", "4")
        asked = len(server.requests)
        assert ended.code == 0, ended.err
        assert "it ends when the candidates are separated; 240 trials at most" in ended.err
        assert asked < TASKS
        assert f"240 planned = {asked} scored + {240 - asked} not needed" in ended.out
        # an interval alone: the difference that was seen when a run ended early is too large
        more = r"verdict: good solves \d+(\.\d)? to \d+(\.\d)? of 100 tasks more than bad"
        assert re.search(more, ended.out)
        assert "sign test after every task, exact" in ended.out
        assert not re.search(r"\bMDE\b|Holm", ended.out)

        again = run(suite, server, "--adaptive", "--resume", "latest")
        assert again.code == 0, again.err
        assert len(server.requests) == asked  # decided is decided

        told = summary(only_run(tmp_path / "runs"), folder=tmp_path)
        assert told["buckets"]["not_needed"] == 240 - asked
        assert told["buckets"]["not_run"] == 0
        assert [one["total"]["coverage"] for one in told["candidates"]] == [1, 1]
        assert told["pairwise"]["pairs"][0]["settled"] is True


def test_the_rest_is_run_when_the_rule_is_taken_away(suite: Path, tmp_path: Path) -> None:
    with Loopback(answer) as server:
        run(suite, server, "--adaptive")
        ended = run(suite, server, "--resume", "latest")
        assert ended.code == 0, ended.err
        assert len(server.requests) == 2 * TASKS
    told = summary(only_run(tmp_path / "runs"), folder=tmp_path)
    assert told["buckets"]["scored"] == 2 * TASKS
    assert told["pairwise"]["pairs"][0]["test"] == "McNemar, exact"


def test_equals_take_the_whole_suite_unless_a_precision_is_enough(suite: Path) -> None:
    with Loopback(answer) as server:
        ended = run(suite, server, "--adaptive", models="good twin")
        assert len(server.requests) == 2 * TASKS
        assert "no decision" in ended.out
    with Loopback(answer) as server:
        ended = run(suite, server, "--precision", "0.2", "--parallel", "4", models="good twin")
        assert 0 < len(server.requests) < 2 * TASKS
        assert "known to within 0.2" in ended.out


def test_interrupted_and_resumed_it_decides_as_if_it_had_not_been(
    suite: Path, tmp_path: Path
) -> None:
    with Loopback(answer) as server:
        run(suite, server, "--adaptive", "--parallel", "1")
        whole = len(server.requests)
    (done,) = (tmp_path / "runs").iterdir()
    done.rename(tmp_path / "done")
    with Loopback(answer) as server:
        words: list[str | Path] = ["run", suite, "--model", "good", "--model", "bad", "--base-url", server.url,
                 "--output", tmp_path / "runs", "--adaptive", "--parallel", "1"]  # fmt: skip
        with started([*BAKEOFF, *words], folder=tmp_path) as running:
            until(lambda: len(server.requests) >= 6)
            running.send(signal.SIGKILL)
            running.wait()
        ended = run(suite, server, "--adaptive", "--parallel", "1", "--resume", "latest")
        assert ended.code == 0, ended.err
        seen = {(asked.body["model"], asked.prompt) for asked in server.requests}
        assert len(seen) == whole
    assert f"{whole} scored + {2 * TASKS - whole} not needed" in ended.out


def test_for_the_best_alone_losers_are_dropped_and_the_source_may_follow(
    suite: Path, tmp_path: Path
) -> None:
    with Loopback(answer) as server:
        named = [word for model in ("good", "bad", "fair") for word in ("--model", model)]
        ended = bakeoff(
            "run", *named, "--base-url", server.url, "--output", tmp_path / "runs",
            "--adaptive", "best", suite, "--parallel", "4", folder=tmp_path,
        )  # fmt: skip
        assert ended.code == 0, ended.err
        assert "it ends when the best candidate is known; 360 trials at most" in ended.err
        asked = Counter(each.body["model"] for each in server.requests)
        assert asked["bad"] < asked["fair"] < TASKS
        assert "verdict: good is the best of 3" in ended.out
        assert "not needed" in ended.out
        # what `--adaptive` could take for its value is the source: only its own words are
        again = bakeoff(
            "run", *named, "--base-url", server.url, "--output", tmp_path / "pairs",
            "--adaptive", suite, "--looks", "10", folder=tmp_path,
        )  # fmt: skip
        assert "are separated, looked at 10 times; 360 trials at most" in again.err
        assert "sign test at 10 looks, exact" in again.out


def test_a_plan_says_that_it_may_end_early(suite: Path) -> None:
    words: list[str | Path] = [
        "run",
        suite,
        "-m",
        "good",
        "-m",
        "bad",
        "--base-url",
        "http://127.0.0.1:9/v1",
    ]
    ended = bakeoff(*words, "--precision", "0.1", "--dry-run", folder=suite.parent)
    assert ended.code == 0, ended.err
    assert (
        "it ends when the candidates are separated, or their difference known to within 0.1; "
        "240 trials at most" in ended.out
    )
    told = json.loads(bakeoff(*words, "--adaptive", "--dry-run", "--json", folder=suite.parent).out)
    assert told["adaptive"] == {"precision": None, "seed": 0, "goal": "pairs", "looks": None}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--adaptive",), "there is only one: name another model or agent"),
        (("--model", "n", "--precision", "5"), "must be between 0 and 1, such as 0.05, not 5"),
        (("--model", "n", "--precision", "few"), "'few' is not a number"),
        (("--model", "n", "--set", "adaptive.precision=2"), "adaptive.precision"),
        (
            ("--model", "n", "--set", "adaptive.sure=1"),
            "unknown key 'sure'; there are: goal, looks",
        ),
        (("--model", "n", "--set", "adaptive.goal=worst"), "adaptive.goal"),
        (("--model", "n", "--looks", "0"), "--looks"),
    ],
)
def test_what_cannot_be_is_said(suite: Path, words: tuple[str, ...], told: str) -> None:
    source = suite
    if "--set" in words:
        source = suite.parent / "run.toml"
        source.write_text('suites = ["suite.json"]\n[adaptive]\nprecision = 0.1\n')
    ended = bakeoff(
        "run", source, "--model", "m", "--base-url", "http://127.0.0.1:9/v1", *words,
        "--output", suite.parent / "runs", folder=suite.parent,
    )  # fmt: skip
    assert ended.code in {1, 2}
    assert told in ended.err
    assert "Traceback" not in ended.err
    assert not (suite.parent / "runs").exists()
