"""Instruct suites: each test says the same by `prompt` and by `messages`."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import TestRunner
from bakeoff.formats.detect import read_source as read
from bakeoff.frontends.test_runner.settings import close_log
from support.cli import bakeoff as cli
from support.loopback import Asked, Loopback, Reply, chat, completion

FIXTURE = Path(__file__).parents[1] / "fixtures" / "instruct_suite"
ANSWER = (
    "First, I verify the numbers. Then step 1: because both agree, therefore 7% is the result, "
    "as I can confirm and check."
)


def answer(asked: Asked) -> Reply:
    return chat(ANSWER) if asked.path.endswith("/chat/completions") else completion(ANSWER)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(answer) as loopback:
        yield loopback


@pytest.fixture
def suite(tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The suite as a person has it, with its metadata; only the server is ours."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(FIXTURE, tmp_path / "test_definitions")
    metadata = folder / "test_suite_metadata.json"
    url = f"{server.url}/chat/completions"
    metadata.write_text(
        metadata.read_text().replace("http://localhost:8004/v1/chat/completions", url)
    )
    yield folder / "instruct_tests_complete.json"
    close_log()


def cases(suite: Path) -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = json.loads(suite.read_text())["tests"]
    return tests


def test_an_instruct_suite_runs_through_the_test_runner(suite: Path, server: Loopback) -> None:
    runner = TestRunner()
    assert runner.load_test_suite(str(suite))
    results = runner.execute_concurrent(workers=2)
    tests = cases(suite)
    assert [(r.test_id, r.success) for r in results] == [(t["id"], True) for t in tests]
    asked = {a.body["messages"][0]["content"] for a in server.requests}
    assert asked == {t["prompt"] for t in tests}
    assert {a.path for a in server.requests} == {"/v1/chat/completions"}
    written = (suite.parents[1] / "test_results" / "linux_test_01_completion.txt").read_text()
    assert tests[2]["prompt"] in written
    # 100 is not reached: first, then, step and therefore (40), "step 1", "then … therefore" (40)
    (score,) = results[0].scores
    assert score["details"]["reasoning_pattern"] == 80
    assert score["details"]["expected_indicators"] == {
        "therefore": True,
        "because": True,
        "it follows": False,
    }


def test_an_instruct_suite_runs_on_the_command_line_without_a_note(
    suite: Path, server: Loopback, tmp_path: Path
) -> None:
    ended = cli("run", suite, "--output", tmp_path / "runs", folder=tmp_path)
    assert ended.code == 0, ended.err
    assert len(server.requests) == len(cases(suite))
    assert "`prompt`" not in ended.err + ended.out


def test_where_both_differ_chat_is_sent_messages_and_completions_prompt_with_a_note(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    tests = [{"id": i, "prompt": f"Q: {i}?\nA:", "messages": messages} for i in ("a", "b")]
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"tests": tests}, indent=1))
    run_file = tmp_path / "run.toml"
    run_file.write_text(
        '[[tasks]]\nid = "a"\nprompt = "Q: a?\\nA:"\nmessages = [{role = "user", content = "Why?"}]\n'
    )
    said = "one thing by `prompt` and another by `messages`"
    for source, note in (
        (suite, f"{suite}:5: 2 tasks, 'a' first, ask {said}"),
        (run_file, f"{run_file}:3: 'a' asks {said}"),
    ):
        brief = read(source, {})
        assert [n for n in brief.notices if n.startswith(note)]
    for api, key in (("chat/completions", "messages"), ("completions", "prompt")):
        server.requests.clear()
        run = bakeoff.run(suite, models=["m"], base_url=f"{server.url}/{api}", output="runs")
        assert not run.summary().buckets.faults
        bodies = [a.body for a in server.requests]
        expected = [messages] * 2 if key == "messages" else ["Q: a?\nA:", "Q: b?\nA:"]
        assert sorted((b[key] for b in bodies), key=str) == expected
        assert not {"messages", "prompt"} - {key} & bodies[0].keys()


def test_the_file_of_a_result_holds_the_prompt_that_was_sent(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = tmp_path / "suite.json"
    test = {"id": "a", "prompt": "Q:\nA:", "messages": [{"role": "user", "content": "Why?"}]}
    suite.write_text(json.dumps({"tests": [test]}))
    for api, asked in (("chat/completions", "Why?"), ("completions", "Q:\nA:")):
        runner = TestRunner()
        assert runner.load_test_suite(str(suite))
        runner.configure_api(f"{server.url}/{api}", "m")
        assert runner.execute_single_test("a").success
        text = (tmp_path / "test_results" / "a_completion.txt").read_text()
        assert text.split("COMPLETION:")[0] == f"PROMPT:\n{'-' * 20}\n{asked}\n\n"
    close_log()
