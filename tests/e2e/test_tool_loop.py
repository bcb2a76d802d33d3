"""Tests that offer tools: calls are answered, counted, bounded, shown and scored."""

import json
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.cli import call
from support.loopback import Asked, Loopback, Reply, chat

WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def _calls(*calls: tuple[str, Any]) -> Reply:
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(a)}}
        for n, (name, a) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": made}
    return chat(None, choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])


def _suite(folder: Path, **test: Any) -> Path:
    path = folder / "suite.json"
    path.write_text(json.dumps({"tests": [{"id": "t", "prompt": "Will it rain?", **test}]}))
    return path


def _run(folder: Path, answer: Any, *, options: Any = None, **test: Any) -> Any:
    """Return the attempt at one test, and what the server was sent."""
    with Loopback(answer) as server:
        run = bakeoff.run(
            _suite(folder, **test),
            models=["m"],
            base_url=server.url,
            output=folder / "runs",
            **(options or {}),
        )
        (record,) = run.trials()
        return record.attempt, server.requests, run


def _twice(*calls: tuple[str, Any]) -> Any:
    return lambda asked: _calls(*calls) if asked.number == 0 else chat("It rains.")


def _results(asked: Asked) -> list[tuple[str, str]]:
    sent = asked.body["messages"]
    return [(m["tool_call_id"], m["content"]) for m in sent if m["role"] == "tool"]


def test_parallel_calls_are_answered_by_rules_and_fixed_replies(tmp_path: Path) -> None:
    rules = [{"when": {"city": "Köln"}, "reply": {"rain": True}}]
    time = {"name": "time", "replies": ["9:00", "9:01"]}
    calls = [("weather", {"city": "Köln", "days": 2}), ("time", {}), ("time", {}), ("time", {})]
    attempt, requests, _ = _run(
        tmp_path, _twice(*calls), tools=[{**WEATHER, "rules": rules, "reply": "?"}, time]
    )
    assert _results(requests[1]) == [
        ("c0", '{"rain": true}'), ("c1", "9:00"), ("c2", "9:01"), ("c3", "9:01"),
    ]  # fmt: skip
    outcome = attempt.outcome
    assert outcome.answer == "It rains."
    assert [m.role for m in outcome.transcript] == ["assistant", *["tool"] * 4, "assistant"]
    assert [c.name for c in outcome.tool_calls] == ["weather", "time", "time", "time"]
    assert attempt.spent.requests == 2
    (first, _) = requests[0].body["tools"]
    assert first == {"type": "function", "function": WEATHER}


def test_a_tool_without_an_answer_is_offered_and_its_call_is_the_answer(tmp_path: Path) -> None:
    calls = [{"name": "weather", "arguments": {"city": "Bonn"}}]
    attempt, requests, _ = _run(
        tmp_path,
        _twice(("weather", {"city": "Bonn"})),
        tools=[WEATHER],
        scorers=[{"scorer": "calls", "settings": {"calls": calls}}],
    )
    assert len(requests) == 1
    assert attempt.score == 1.0
    assert json.loads(attempt.outcome.answer) == calls


def test_a_mistake_of_the_model_is_told_to_it_and_counted(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        if asked.number:
            return chat("done")
        broken = {"name": "weather", "arguments": "{city"}
        reply = json.loads(_calls(("wether", {}), ("weather", {"city": "Ulm"})).body)
        reply["choices"][0]["message"]["tool_calls"].append(
            {"id": "c9", "type": "function", "function": broken}
        )
        return Reply(body=json.dumps(reply).encode(), headers={"Content-Type": "application/json"})

    rules = [{"when": {"city": "Köln"}, "reply": "rain"}]
    attempt, requests, _ = _run(tmp_path, answer, tools=[{**WEATHER, "rules": rules}])
    unknown, unfitting, broken = (json.loads(text)["error"] for _, text in _results(requests[1]))
    assert "no tool 'wether'" in unknown
    assert "weather" in unknown
    assert unfitting == "there is no reply for these arguments"
    assert broken == "the arguments are not a JSON object"
    assert attempt.outcome.notes == {"tool_errors": 3}
    assert attempt.outcome.tool_calls[-1].arguments == "{city"
    assert attempt.status == "completed"


def test_rounds_are_bounded_and_the_calls_that_were_too_many_are_kept(tmp_path: Path) -> None:
    attempt, requests, _ = _run(
        tmp_path,
        lambda _: _calls(("weather", {})),
        tools=[{**WEATHER, "reply": "?"}],
        tool_rounds=3,
    )
    assert len(requests) == 4
    assert len(attempt.outcome.tool_calls) == 4
    assert attempt.outcome.stop_reason == "3 rounds of tool calls are spent"


def test_a_limit_on_requests_ends_the_loop_and_keeps_what_was_said(tmp_path: Path) -> None:
    attempt, requests, _ = _run(
        tmp_path,
        lambda _: _calls(("weather", {})),
        tools=[{**WEATHER, "reply": "?"}],
        options={"overrides": {"limits.requests": "2"}},
    )
    assert len(requests) == 2
    assert attempt.status == "limited"
    assert len(attempt.outcome.tool_calls) == 2


FUNCTIONS = """
def weather(city, days=1):
    return {"city": city, "rain": days > 1}

async def broken(city):
    raise KeyError(city)
"""


def test_a_python_function_answers_calls_and_only_where_it_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(FUNCTIONS)
    tools = [{**WEATHER, "function": "my_tools:weather"}]
    calls = _twice(("weather", {"city": "Köln", "days": 2}), ("weather", {"town": "Köln"}))
    with pytest.raises(bakeoff.UsageError, match=r"suite\.json:\d+.*my_tools:weather.*--trust"):
        _run(tmp_path, calls, tools=tools)
    attempt, requests, _ = _run(tmp_path, calls, tools=tools, options={"trust": True})
    first, second = (json.loads(text) for _, text in _results(requests[1]))
    assert first == {"city": "Köln", "rain": True}
    assert "city" in second["error"]
    assert attempt.outcome.notes == {"tool_errors": 1}


def test_a_function_that_breaks_is_a_fault_with_its_traceback_not_a_zero(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(FUNCTIONS)
    attempt, _, _ = _run(
        tmp_path,
        _twice(("weather", {"city": "Köln"})),
        tools=[{**WEATHER, "function": "my_tools:broken"}],
        expected="rain",
        options={"trust": True},
    )
    assert attempt.status == "faulted"
    assert attempt.score is None
    assert attempt.fault.boundary == "agent"
    assert "my_tools:broken" in attempt.fault.message
    assert "my_tools.py" in attempt.fault.traceback
    assert [c.name for c in attempt.outcome.tool_calls] == ["weather"]


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ({"tools": [{"description": "x"}]}, "a tool needs a `name`"),
        ({"tools": [{"name": "two words"}]}, "letters, digits"),
        ({"tools": [WEATHER, WEATHER]}, "two tools are called 'weather'"),
        ({"tools": [{**WEATHER, "rules": [{"when": {}}]}]}, "a rule needs a `reply`"),
        ({"tools": [{**WEATHER, "replies": []}]}, "`replies` is empty"),
        ({"tools": [{**WEATHER, "parameters": {"type": "string"}}]}, "are an object"),
        ({"tools": [{**WEATHER, "parameters": {"type": 3}}]}, "not a JSON schema"),
        ({"tools": [{**WEATHER, "function": "weather"}]}, "module:attr"),
        ({"tools": [{**WEATHER, "repli": "?"}]}, "repl"),
        ({"tool_rounds": 3}, "`tool_rounds` is for tests with `tools`"),
        ({"tools": [WEATHER], "parameters": {"tools": []}}, "`tools` and `parameters.tools`"),
        ({"tools": [WEATHER], "api_type": "completions"}, "takes no `tools`"),
    ],
)
def test_a_mistake_in_the_tools_is_refused_with_its_place_before_any_request(
    tmp_path: Path, test: Any, message: str
) -> None:
    with Loopback() as server, pytest.raises(bakeoff.UsageError) as raised:
        bakeoff.run(_suite(tmp_path, **test), models=["m"], base_url=server.url)
    assert message in str(raised.value)
    assert "suite.json:1" in str(raised.value)
    assert not server.requests


def test_an_agent_that_knows_no_tools_is_refused(tmp_path: Path) -> None:
    suite = _suite(tmp_path, tools=[WEATHER])
    with pytest.raises(bakeoff.UsageError, match="offers tools, which agent 'human'"):
        bakeoff.run(suite, models=["scripted/x"], agents=["human"], output=tmp_path / "runs")


def test_show_the_report_and_json_have_calls_replies_and_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, _, run = _run(
        tmp_path,
        _twice(("weather", {"city": "Ulm"}), ("nothing", {})),
        tools=[{**WEATHER, "reply": "dry <b>"}],
    )
    monkeypatch.chdir(tmp_path)
    assert call(["show", run.id, "t"]) == 0
    shown = capsys.readouterr().out
    for line in ("tools: weather", 'calls weather {"city": "Ulm"}', "tool answers c0", "dry <b>"):
        assert line in shown
    assert "tool calls that were answered with an error: 1" in shown
    (page,) = bakeoff.report(run)
    assert "tool answers c0" in page.read_text()
    assert "dry &lt;b&gt;" in page.read_text()
    assert call(["show", run.id, "t", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    messages = record["attempt"]["outcome"]["transcript"]
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ["c0", "c1"]
    assert len(attempt.outcome.tool_calls) == 2


def test_tools_are_part_of_what_makes_a_task_and_no_tools_change_nothing() -> None:
    from bakeoff.core.task import Message, Task
    from bakeoff.core.tools import TaskTools, ToolSpec

    plain = Task(id="t", messages=(Message(role="user", content="x"),))
    one = TaskTools(tools=(ToolSpec(name="a"),))
    other = TaskTools(tools=(ToolSpec(name="a", replies=("x",)),))
    digests = {
        Task(id="t", messages=plain.messages, tools=tools).digest for tools in (None, one, other)
    }
    assert len(digests) == 3
    assert "tools" not in plain.identity()
    assert "turns" not in plain.identity()
