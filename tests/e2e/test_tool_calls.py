"""A model that answers with tool calls: they are kept, shown, and can be scored, now or later."""

import json
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.cli import call
from bakeoff.core.task import ToolCall
from support.loopback import Loopback, Reply, chat, delta, sse

CALLS: list[tuple[str, Any]] = [("weather", {"city": "Köln", "days": 2}), ("time", {})]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
EXPECTED = [{"name": "weather", "arguments": {"city": "Köln"}}, "time"]


def _calls() -> list[dict[str, Any]]:
    return [
        {
            "index": number,
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(CALLS)
    ]


def _reply(text: str | None) -> Reply:
    message = {"role": "assistant", "content": text, "tool_calls": _calls()}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return chat(None, choices=[choice])


def _suite(folder: Path, **test: Any) -> Path:
    path = folder / "suite.json"
    entry = {"id": "t", "prompt": "Will it rain?", "parameters": {"tools": TOOLS}, **test}
    path.write_text(json.dumps({"tests": [entry]}))
    return path


def _run(server: Loopback, suite: Path, text: str | None = None, **rest: Any) -> bakeoff.Run:
    server.answer = lambda _: _reply(text)
    output = suite.parent / "runs"
    return bakeoff.run(suite, models=["m"], base_url=server.url, output=output, **rest)


def _attempt(run: bakeoff.Run) -> Any:
    (record,) = run.trials()
    return record.attempt


def test_tool_calls_are_kept_with_the_trial_and_are_the_answer_where_there_is_no_text(
    tmp_path: Path,
) -> None:
    with Loopback() as server:
        outcome = _attempt(_run(server, _suite(tmp_path))).outcome
    assert [(c.name, json.loads(c.arguments)) for c in outcome.tool_calls] == CALLS
    assert outcome.transcript[-1].tool_calls == outcome.tool_calls
    assert json.loads(outcome.answer) == [{"name": n, "arguments": a} for n, a in CALLS]
    assert outcome.stop_reason == "tool_calls"


def test_a_text_beside_tool_calls_stays_the_answer(tmp_path: Path) -> None:
    with Loopback() as server:
        outcome = _attempt(_run(server, _suite(tmp_path), text="I will look.")).outcome
    assert outcome.answer == "I will look."
    assert [call.name for call in outcome.tool_calls] == ["weather", "time"]


def test_tool_calls_of_a_stream_are_kept_too(tmp_path: Path) -> None:
    with Loopback() as server:
        event = {"choices": [{"delta": {"tool_calls": _calls()}}]}
        server.answer = lambda _: sse(event, delta("", "tool_calls"))
        model = bakeoff.ModelSpec(
            provider="openai-compatible", name="m", base_url=server.url, settings={"stream": True}
        )
        run = bakeoff.run(_suite(tmp_path), models=[model], output=tmp_path / "runs")
    assert [call.name for call in _attempt(run).outcome.tool_calls] == ["weather", "time"]


@pytest.mark.parametrize("text", [None, "I will look."])
def test_a_run_that_scored_no_calls_can_have_them_scored_by_eval(
    tmp_path: Path, text: str | None
) -> None:
    with Loopback() as server:
        run = _run(server, _suite(tmp_path), text=text)
        assert _attempt(run).score is None
        scored = _suite(tmp_path, expected=EXPECTED, scorers=["tool-calls"])
        bakeoff.rescore(run, scored)
        assert len(server.requests) == 1
    assert _attempt(run).score == 1.0
    wrong = _suite(tmp_path, expected=["weather"], scorers=["tool-calls"])
    bakeoff.rescore(run, wrong)
    assert _attempt(run).score == 0.0


def test_a_scorer_of_ones_own_is_given_the_calls_it_names(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def asks(tool_calls, city):\n"
        "    first = tool_calls[0]\n"
        "    return first.name == 'weather' and first.parsed['city'] == city\n"
    )
    scorer = {"scorer": "mine:asks", "settings": {"city": "Köln"}}
    with Loopback() as server:
        run = _run(server, _suite(tmp_path, scorers=[scorer]), trust=True)
    assert _attempt(run).score == 1.0


def test_show_and_the_report_print_the_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback() as server:
        run = _run(server, _suite(tmp_path), text="I will look.")
    monkeypatch.chdir(tmp_path)
    assert call(["show", run.id, "t"]) == 0
    shown = capsys.readouterr().out
    assert 'calls weather {"city": "K' in shown
    assert "calls time {}" in shown
    (page,) = bakeoff.report(run)
    assert "<b>weather</b>" in page.read_text()


def test_arguments_that_are_no_json_are_kept_as_they_were_written() -> None:
    call = ToolCall(id="1", name="weather", arguments="{city: Köln")
    assert call.parsed is None
    answer = bakeoff.Completion(text="", tool_calls=(call,)).answer
    assert json.loads(answer) == [{"name": "weather", "arguments": "{city: Köln"}]
