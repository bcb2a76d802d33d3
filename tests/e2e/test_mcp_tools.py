"""Tools of an MCP server: offered, called, recorded and played back; a real server in a process."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from support.loopback import Asked, Loopback, Reply, chat
from support.ports import free_port

pytest.importorskip("mcp")

SERVER = '''
import os, sys, time
from mcp.server import MCPServer

with open("pids", "a") as pids:
    print(os.getpid(), file=pids)

server = MCPServer("weather")
seen = 0

@server.tool()
def weather(city: str, days: int = 1) -> str:
    """The weather of a city."""
    if city == "Atlantis":
        raise ValueError("no such city: Atlantis")
    return f"In {city} it rains for {days} days ☔"

@server.tool()
def count() -> int:
    """How often this was called."""
    global seen
    seen += 1
    return seen

@server.tool()
def token() -> str:
    """A variable of the environment."""
    return os.environ.get("WEATHER_TOKEN", "none") + " " + os.environ.get("OTHER_TOKEN", "none")

@server.tool()
def sleep() -> str:
    """Take too long."""
    time.sleep(120)
    return "awake"

@server.tool()
def die() -> str:
    """End the server."""
    print("I am dying of a cold", file=sys.stderr, flush=True)
    os._exit(3)

if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
'''


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


def _calls(*calls: tuple[str, Any]) -> Any:
    """Answer with these calls, one after another, then with the last result."""

    def answer(asked: Asked) -> Reply:
        results = [m["content"] for m in asked.body["messages"] if m["role"] == "tool"]
        if len(results) == len(calls):
            return chat(f"The tools say: {' | '.join(results)}")
        name, arguments = calls[len(results)]
        function = {"name": name, "arguments": json.dumps(arguments)}
        made = [{"id": f"c{len(results)}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": made}
        return chat(None, choices=[{"message": message, "finish_reason": "tool_calls"}])

    return answer


def _run(folder: Path, tool: Any, answer: Any, *, tests: int = 1, **options: Any) -> Any:
    suite = folder / "suite.json"
    entries = [{"id": f"t{n}", "prompt": "Will it rain?", "tools": [tool]} for n in range(tests)]
    suite.write_text(json.dumps({"tests": entries}))
    options = {"trust": True, **options}
    with Loopback(answer) as loopback:
        run = bakeoff.run(
            suite, models=["m"], base_url=loopback.url, output=folder / "runs", **options
        )
        return [record.attempt for record in run.trials()], loopback.requests


def test_a_servers_tools_are_offered_and_called_and_its_errors_are_told_to_the_model(
    server: Path, tmp_path: Path
) -> None:
    tool = {"command": [sys.executable, "server.py"], "only": ["weather"]}
    calls = _calls(("weather", {"city": "Köln", "days": 2}), ("weather", {"city": "Atlantis"}))
    (attempt,), requests = _run(tmp_path, tool, calls)
    assert attempt.fault is None
    assert "In Köln it rains for 2 days ☔ | " in attempt.outcome.answer
    assert "Error executing tool weather" in attempt.outcome.answer
    assert attempt.outcome.notes == {"tool_errors": 1}
    (offered,) = requests[0].body["tools"]
    assert offered["function"]["name"] == "weather"
    assert offered["function"]["description"] == "The weather of a city."
    assert set(offered["function"]["parameters"]["properties"]) == {"city", "days"}


def test_a_server_is_started_for_each_attempt_so_that_no_state_leaks(
    server: Path, tmp_path: Path
) -> None:
    tool = {"command": f"{sys.executable} server.py"}
    attempts, _ = _run(tmp_path, tool, _calls(("count", {}), ("count", {})), tests=2)
    assert [a.outcome.answer for a in attempts] == ["The tools say: 1 | 2"] * 2


def test_a_suite_may_not_name_a_server_by_itself(server: Path, tmp_path: Path) -> None:
    tool = {"command": [sys.executable, "server.py"]}
    with pytest.raises(bakeoff.UsageError, match=r"suite\.json:1: .*MCP server.*--trust"):
        _run(tmp_path, tool, _calls(), trust=False)


def test_a_server_gets_the_variables_that_are_named_and_no_others(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_TOKEN", "sunny")
    monkeypatch.setenv("OTHER_TOKEN", "private")
    tool = {"command": [sys.executable, "server.py"], "env": ["WEATHER_TOKEN"]}
    (attempt,), _ = _run(tmp_path, tool, _calls(("token", {})))
    assert attempt.outcome.transcript[1].content == "sunny none"


def test_a_server_that_dies_or_cannot_be_started_is_a_fault_with_what_it_printed(
    server: Path, tmp_path: Path
) -> None:
    tool = {"command": [sys.executable, "server.py"], "call_s": 20}
    (attempt,), _ = _run(tmp_path, tool, _calls(("die", {})))
    assert attempt.fault.boundary == "agent"
    assert "dying of a cold" in attempt.fault.message
    assert [call.name for call in attempt.outcome.tool_calls] == ["die"]
    (attempt,), requests = _run(tmp_path, {"command": ["no-such-program"]}, _calls())
    assert attempt.fault.boundary == "agent"
    assert "no-such-program" in attempt.fault.message
    assert not requests
    unknown = {"command": [sys.executable, "server.py"], "only": ["wether"]}
    (attempt,), requests = _run(tmp_path, unknown, _calls())
    assert "has no tool 'wether'" in attempt.fault.message
    assert "weather" in attempt.fault.message
    assert not requests


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_limit_ends_a_call_that_takes_too_long_and_leaves_no_server_behind(
    server: Path, tmp_path: Path
) -> None:
    tool = {"command": [sys.executable, "server.py"]}
    limits = {"limits.time_s": "6"}
    (attempt,), _ = _run(tmp_path, tool, _calls(("sleep", {})), overrides=limits)
    assert attempt.status == "limited"
    assert [call.name for call in attempt.outcome.tool_calls] == ["sleep"]
    (pid,) = map(int, (tmp_path / "pids").read_text().split())
    assert not _lives(pid)


def test_answers_are_recorded_and_played_back_without_a_server(
    server: Path, tmp_path: Path
) -> None:
    tool = {"command": [sys.executable, "server.py"], "recording": "weather.json"}
    calls = _calls(("weather", {"city": "Köln"}), ("count", {}), ("count", {}))
    (live,), first = _run(tmp_path, tool, calls)
    server.unlink()
    for replayed in (tool, {"recording": "weather.json"}):
        (attempt,), again = _run(tmp_path, replayed, calls, trust=False)
        assert attempt.outcome.transcript == live.outcome.transcript
        assert again[0].body["tools"] == first[0].body["tools"]
    (attempt,), _ = _run(tmp_path, tool, _calls(("weather", {"city": "Ulm"})), trust=False)
    assert "there is no reply for these arguments" in attempt.outcome.answer
    assert attempt.outcome.notes == {"tool_errors": 1}


def test_a_recording_that_is_not_there_or_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bakeoff.UsageError, match=r"suite\.json:1: .*there is no such recording"):
        _run(tmp_path, {"recording": "weather.json"}, _calls())
    (tmp_path / "weather.json").write_text('{"tools": 3}')
    with pytest.raises(bakeoff.UsageError, match=r"weather\.json:1"):
        _run(tmp_path, {"recording": "weather.json"}, _calls())


@pytest.fixture
def url(server: Path) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(server), str(port)], cwd=server.parent, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}/mcp"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(address, timeout=1).close()
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.05)
        yield address
    finally:
        process.kill()
        process.wait()


def test_a_server_at_an_address_is_asked_over_http(url: str, tmp_path: Path) -> None:
    (attempt,), _ = _run(tmp_path, {"url": url}, _calls(("weather", {"city": "Köln"})))
    assert attempt.fault is None
    assert attempt.outcome.answer == "The tools say: In Köln it rains for 1 days ☔"
