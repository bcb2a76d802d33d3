"""Stored answers, scored again: no candidate is asked, and the verdicts change all at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.cli import Ended, bakeoff
from support.loopback import Asked, Loopback, Reply, chat


def _cli(folder: Path, *words: str | Path, code: int = 0) -> Ended:
    ended = bakeoff(*words, cwd=folder)
    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    return ended


def _suite(folder: Path, *, expected: str = "wrong", prompt: str = "say number") -> Path:
    tests = [
        {"id": f"t{n}", "prompt": f"{prompt} {n}", "expected": expected.replace("N", str(n))}
        for n in range(4)
    ]
    path = folder / "suite.json"
    path.write_text(json.dumps({"tests": tests}))
    return path


def _scores(folder: Path) -> dict[str, float | None]:
    shown: list[Any] = json.loads(_cli(folder, "show", "latest", "--json").out)
    return {trial["task_id"]: trial["attempt"]["score"] for trial in shown}


def test_a_corrected_suite_changes_all_verdicts_and_asks_nobody(tmp_path: Path) -> None:
    suite = _suite(tmp_path)
    with Loopback() as server:
        _cli(tmp_path, "run", suite, "-m", "m", "--base-url", server.url)
        assert set(_scores(tmp_path).values()) == {0.0}
        _suite(tmp_path, expected="number N")
        ended = _cli(tmp_path, "eval", "latest", "--source", suite, "--json")
        assert len(server.requests) == 4
    total = json.loads(ended.out)["candidates"][0]["total"]
    assert (total["score"]["mean"], total["passed"], total["buckets"]["scored"]) == (1.0, 4, 4)
    assert set(_scores(tmp_path).values()) == {1.0}
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "summary.json").read_text()) == json.loads(ended.out)


def test_without_a_source_the_runs_own_scoring_is_repeated(tmp_path: Path) -> None:
    suite = _suite(tmp_path, expected="number N")
    before = json.loads(_cli(tmp_path, "run", suite, "-m", "scripted", "--json").out)
    suite.unlink()
    assert json.loads(_cli(tmp_path, "eval", "--json").out) == before


def test_a_corrected_row_is_scored_again_though_its_run_had_prompts_and_it_has_no_id(
    tmp_path: Path,
) -> None:
    rows, words = tmp_path / "rows.csv", ("--model", "scripted/echo", "--json")
    rows.write_text("q,is\nsay one,one\nsay two,wrong\n")
    prompts = ("--prompt", "Please {{q}}", "--prompt", "{{q}}!")
    _cli(tmp_path, "run", rows, "--expected", "is", *prompts, *words)
    rows.write_text("q,is\nsay one,one\nsay two,two\n")
    ended = _cli(tmp_path, "eval", "--source", rows, "--expected", "is")
    assert "not in" not in ended.err
    assert set(_scores(tmp_path).values()) == {1.0}
    refused = _cli(tmp_path, "eval", "--source", rows, code=1)
    assert "columns must be named as they were: --expected, --map" in refused.err
    rows.write_text("q,is\nsay one,wrong\n")
    ended = _cli(tmp_path, "eval", "--source", rows, "--expected", "is")
    assert "1 of the 2 tasks of the run are not in" in ended.err
    assert set(_scores(tmp_path).values()) == {0.0, 1.0}


def test_rows_without_expected_answers_take_nothing_away(tmp_path: Path) -> None:
    rows, words = tmp_path / "rows.csv", ("--map", "prompt=q")
    rows.write_text("q,is\nsay one,one\n")
    _cli(tmp_path, "run", rows, *words, "--expected", "is", "--model", "scripted/echo")
    refused = _cli(tmp_path, "eval", "--source", rows, *words, code=1)
    assert "name the column of the expected answers with --expected" in refused.err


def test_answers_are_checked_by_the_scorers_that_are_named(tmp_path: Path) -> None:
    suite = _suite(tmp_path, expected="number N")
    named = ("--scorer", "exact", "--scorer", "numeric{tolerance=0.5}")
    refused = _cli(tmp_path, "run", suite, "-m", "scripted", *named, code=1)
    assert "scorer 'numeric' needs a number as `expected`" in refused.err
    _cli(tmp_path, "run", suite, "-m", "scripted", "--scorer", "exact")
    assert set(_scores(tmp_path).values()) == {0.0}
    _cli(tmp_path, "eval", "--scorer", "edit-similarity{ignore_case=true}")
    assert all(0 < (score or 0) < 1 for score in _scores(tmp_path).values())
    with_words = _cli(tmp_path, "eval", "--scorer", "exact{", code=2)
    assert "write NAME, or NAME{SETTING=VALUE}" in with_words.err


def test_answers_to_another_question_are_not_scored_with_this_one(tmp_path: Path) -> None:
    suite = _suite(tmp_path)
    _cli(tmp_path, "run", suite, "-m", "scripted")
    _suite(tmp_path, expected="number N", prompt="tell number")
    refused = _cli(tmp_path, "eval", "--source", suite, code=1)
    assert "task 't0' asks something else now (messages differ)" in refused.err
    assert "start a new run" in refused.err
    assert set(_scores(tmp_path).values()) == {0.0}


def test_after_an_eval_a_resume_with_the_corrected_suite_has_nothing_to_do(tmp_path: Path) -> None:
    suite = _suite(tmp_path)
    with Loopback() as server:
        place = ("-m", "m", "--base-url", server.url)
        _cli(tmp_path, "run", suite, *place)
        _suite(tmp_path, expected="number N")
        _cli(tmp_path, "eval", "--source", suite)
        ended = _cli(tmp_path, "run", suite, *place, "--resume", "latest")
        assert len(server.requests) == 4
    assert "differs" not in ended.err
    assert set(_scores(tmp_path).values()) == {1.0}


def test_a_scorer_of_ones_own_can_be_mended_and_applied_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.py").write_text("def rate(answer, target):\n    return 0.0\n")
    run = home / "run.toml"
    run.write_text(
        'models = ["scripted"]\nscorers = ["mine:rate"]\n'
        '[[tasks]]\nid = "a"\nprompt = "hello"\nexpected = "hello"\n'
    )
    _cli(tmp_path, "run", run)
    assert _scores(tmp_path) == {"a": 0.0}
    (home / "mine.py").write_text("def rate(answer, target):\n    return answer == target\n")
    _cli(tmp_path, "eval")
    assert _scores(tmp_path) == {"a": 1.0}
    (home / "mine.py").write_text("def rate(answer, target):\n    raise ValueError('oh no')\n")
    ended = _cli(tmp_path, "eval", "--source", run, code=3)
    assert "fault (scorer) a@scripted/echo#0: " in ended.err
    assert "ValueError: oh no" in ended.err
    assert _scores(tmp_path) == {"a": None}


class _Bench:
    """A server that is the candidate for one model and the judge for another."""

    def __init__(self) -> None:
        self.verdict = json.dumps({"reasoning": "fine", "score": 8})
        self.asked = {"candidate": 0, "judge": 0}

    def __call__(self, asked: Asked) -> Reply:
        who = asked.body["model"]
        self.asked[who] += 1
        return chat(self.verdict if who == "judge" else "an answer")


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    run = tmp_path / "run.toml"
    run.write_text(
        """
models = [{ model = "candidate", base_url = "${BENCH}" }]
[roles.judge]
model = "judge"
base_url = "${BENCH}"
[[tasks]]
id = "essay"
prompt = "Write."
scorers = [{ scorer = "judge", settings = { rubric = "Is it good?", scale = 8 } }]
"""
    )
    return run


def test_a_judge_gives_a_structured_verdict(
    tmp_path: Path, judged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _Bench()
    with Loopback(bench) as server:
        monkeypatch.setenv("BENCH", server.url)
        _cli(tmp_path, "run", judged)
        question = next(a for a in server.requests if a.body["model"] == "judge")
    assert bench.asked == {"candidate": 1, "judge": 1}
    assert question.body["response_format"]["type"] == "json_schema"
    assert "an answer" in question.prompt
    (trial,) = json.loads(_cli(tmp_path, "show", "latest", "--json").out)
    (score,) = trial["attempt"]["scores"]
    assert (score["value"], score["explanation"]) == (1.0, "fine")
    assert trial["attempt"]["roles"]["judge"]["requests"] == 1
    assert trial["attempt"]["spent"]["requests"] == 1


def test_a_judge_that_cannot_be_read_is_a_fault_until_it_is_mended(
    tmp_path: Path, judged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _Bench()
    bench.verdict = "I would say it is rather good."
    with Loopback(bench) as server:
        monkeypatch.setenv("BENCH", server.url)
        ended = _cli(tmp_path, "run", judged, code=3)
        assert "fault (scorer) essay@candidate#0: " in ended.err
        assert "1 planned = 0 scored + 1 infrastructure fault" in ended.out
        assert _scores(tmp_path) == {"essay": None}
        asked = bench.asked["candidate"]
        assert bench.asked["judge"] == 2 * asked  # it was asked once more before giving up

        bench.verdict = json.dumps({"reasoning": "poor", "score": 1})
        ended = _cli(tmp_path, "eval", "latest")
        assert bench.asked["candidate"] == asked
    assert "1 planned = 1 scored" in ended.out
    assert _scores(tmp_path) == {"essay": 0.0}
