"""Scripted conversations: each turn goes out with the history, and is scored by itself."""

import json
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.cli import call
from support.loopback import Asked, Loopback, Reply, chat

TURNS: list[dict[str, Any]] = [
    {"say": "My name is Ada.", "expect": "Ada"},
    {"say": "What is 2 + 3?", "expect": 5},
    {"say": "What is my name?", "scorers": [{"scorer": "exact", "settings": {}}], "expect": "Ada"},
]
ANSWERS = ["Hello Ada.", "It is 6.", "Ada"]


def _suite(folder: Path, turns: list[Any], **test: Any) -> Path:
    path = folder / "suite.json"
    path.write_text(json.dumps({"tests": [{"id": "t", "turns": turns, **test}]}))
    return path


def _answer(asked: Asked) -> Reply:
    said = [m["content"] for m in asked.body["messages"] if m["role"] == "user"]
    return chat(ANSWERS[len(said) - 1])


def _run(folder: Path, turns: list[Any], answer: Any = _answer, **test: Any) -> Any:
    options = test.pop("options", {})
    with Loopback(answer) as server:
        run = bakeoff.run(
            _suite(folder, turns, **test),
            models=["m"],
            base_url=server.url,
            output=folder / "runs",
            **options,
        )
        (record,) = run.trials()
        return record.attempt, server.requests, run


def test_every_turn_is_sent_with_the_history_and_scored_alone_and_the_task_as_a_whole(
    tmp_path: Path,
) -> None:
    messages = [{"role": "system", "content": "Be brief."}]
    whole = [{"scorer": "pattern", "settings": {"pattern": "^Ada$"}}]
    attempt, requests, _ = _run(tmp_path, TURNS, messages=messages, scorers=whole)
    assert [m["content"] for m in requests[-1].body["messages"]] == [
        "Be brief.", "My name is Ada.", "Hello Ada.", "What is 2 + 3?", "It is 6.", "What is my name?",
    ]  # fmt: skip
    scores = [(s.turn, s.scorer, s.value) for s in attempt.scores]
    assert scores == [
        (1, "includes", 1.0), (2, "numeric", 0.0), (3, "exact", 1.0), (None, "pattern", 1.0),
    ]  # fmt: skip
    assert attempt.score == 0.75
    assert attempt.passed is False
    assert attempt.outcome.answer == "Ada"
    assert attempt.spent.requests == 3


def test_a_turn_that_fails_ends_the_conversation_only_where_it_says_so(tmp_path: Path) -> None:
    strict = [TURNS[0], {**TURNS[1], "stop_on_failure": True}, TURNS[2]]
    attempt, requests, _ = _run(tmp_path, strict)
    assert len(requests) == 2
    assert [s.value for s in attempt.scores] == [1.0, 0.0, 0.0]
    assert attempt.scores[2].explanation == "the conversation ended before turn 3 was answered"
    assert attempt.outcome.stop_reason == "turn 2 failed"
    passing = [{**TURNS[0], "stop_on_failure": True}, *TURNS[1:]]
    attempt, requests, _ = _run(tmp_path, passing)
    assert len(requests) == 3


def test_a_limit_in_the_middle_scores_the_turns_that_were_answered(tmp_path: Path) -> None:
    options = {"overrides": {"limits.requests": "2"}}
    attempt, _, _ = _run(tmp_path, TURNS, options=options)
    assert attempt.status == "limited"
    assert [s.value for s in attempt.scores] == [1.0, 0.0, 0.0]
    assert [m.role for m in attempt.outcome.transcript] == [
        "assistant", "user", "assistant", "user",
    ]  # fmt: skip


def test_turns_work_with_tools_and_count_the_calls_of_their_own_turn_only(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        sent = asked.body["messages"]
        if sent[-1]["role"] == "tool":
            return chat(f"It says {sent[-1]['content']}.")
        if "weather" not in sent[-1]["content"]:
            return chat("You are welcome.")
        function = {"name": "weather", "arguments": '{"city": "Köln"}'}
        message = {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "type": "function", "function": function}]}  # fmt: skip
        return chat(None, choices=[{"message": message, "finish_reason": "tool_calls"}])

    turns = [
        {"say": "How is the weather?", "expect": "rain"},
        {"say": "Thanks.", "scorers": ["calls"], "expect": []},
        {"say": "And the weather now?", "scorers": ["calls"], "expect": ["weather"]},
    ]
    trajectory = {"scorer": "trajectory", "settings": {"most_calls": 2, "only": ["weather"]}}
    tools = [{"name": "weather", "replies": ["rain", "sun"]}]
    attempt, requests, _ = _run(tmp_path, turns, answer, tools=tools, scorers=[trajectory])
    assert [(s.turn, s.value) for s in attempt.scores] == [(1, 1), (2, 1), (3, 1), (None, 1)]
    assert attempt.outcome.answer == "It says sun."
    assert len(requests) == 5


def test_calls_that_nothing_answers_do_not_break_the_next_turn(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        if len(asked.body["messages"]) > 1:
            return chat("ok")
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return chat(None, choices=[{"message": message, "finish_reason": "tool_calls"}])

    turns = [{"say": "Look!", "scorers": ["calls"], "expect": ["look"]}, {"say": "Well?"}]
    attempt, requests, _ = _run(tmp_path, turns, answer, tools=[{"name": "look"}])
    sent = requests[1].body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "user"]
    assert attempt.score == 1.0


def test_a_run_can_be_scored_again_turn_by_turn(tmp_path: Path) -> None:
    _, requests, run = _run(tmp_path, TURNS)
    lenient = [TURNS[0], {**TURNS[1], "expect": 6}, TURNS[2]]
    bakeoff.rescore(run, _suite(tmp_path, lenient))
    (record,) = run.trials()
    assert [(s.turn, s.value) for s in record.attempt.scores] == [(1, 1), (2, 1), (3, 1)]
    assert len(requests) == 3


def test_scores_of_turns_are_in_show_the_report_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, run = _run(tmp_path, TURNS)
    monkeypatch.chdir(tmp_path)
    assert call(["show", run.id, "t"]) == 0
    shown = capsys.readouterr().out
    assert "turn 2: What is 2 + 3? (expected: 5)" in shown
    assert "score turn 1: includes 1.000" in shown
    assert "score turn 2: numeric 0.000" in shown
    (page,) = bakeoff.report(run)
    assert "turn 2: numeric 0.00" in page.read_text()
    assert call(["show", run.id, "t", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert [s["turn"] for s in record["attempt"]["scores"]] == [1, 2, 3]


def test_values_are_filled_into_every_turn(tmp_path: Path) -> None:
    turns = [{"say": "I am {{name}}."}, {"say": "Who is {{name}}?"}]
    _, requests, _ = _run(tmp_path, turns, lambda _: chat("ok"), vars={"name": "Ada {{x}}"})
    sent = [m["content"] for m in requests[-1].body["messages"] if m["role"] == "user"]
    assert sent == ["I am Ada {{x}}.", "Who is Ada {{x}}?"]


@pytest.mark.parametrize(
    ("turns", "test", "message"),
    [
        ([], {}, "turns"),
        ([{"say": "x"}], {"prompt": "y"}, "a test with `turns` has no `prompt`"),
        ([{"say": "x", "expected": "y"}], {}, "expect"),
        ([{"say": "x", "scorers": ["exact"]}], {}, "exact"),
    ],
)
def test_a_mistake_in_a_turn_is_refused_before_any_request(
    tmp_path: Path, turns: Any, test: Any, message: str
) -> None:
    suite = _suite(tmp_path, turns, **test)
    with Loopback() as server, pytest.raises(bakeoff.UsageError, match=message) as raised:
        bakeoff.run(suite, models=["m"], base_url=server.url, output=tmp_path / "runs")
    assert "suite.json:1" in str(raised.value)
    assert not server.requests


def test_turns_and_tools_stand_in_a_run_file_too(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        """
models = [{ model = "scripted/x", settings = { rules = [
  { match = "weather", calls = [{ name = "weather", arguments = { city = "Rome" } }] },
  { match = "^dry$", reply = "It is dry." } ] } }]
[[tasks]]
id = "t"
tools = [{ name = "weather", rules = [{ when = { city = "Rome" }, reply = "dry" }] }]
turns = [{ say = "How is the weather?", expect = "dry" }, { say = "Bye.", expect = "Bye" }]
"""
    )
    (record,) = bakeoff.run(path, output=tmp_path / "runs").trials()
    assert [(s.turn, s.value) for s in record.attempt.scores] == [(1, 1.0), (2, 1.0)]
    assert [c.parsed for c in record.attempt.outcome.tool_calls] == [{"city": "Rome"}]


def test_a_suite_with_turns_can_be_validated_and_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(_suite(tmp_path, TURNS))
    assert call(["validate", path]) == 0
    assert call(["run", path, "--model", "scripted/x", "--dry-run"]) == 0
    _suite(tmp_path, [{"say": "x", "scorers": ["numeric"], "expect": "no number"}])
    assert call(["validate", path]) != 0
    assert "suite.json:1: task 't': scorer 'numeric'" in capsys.readouterr().err
