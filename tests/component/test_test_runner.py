"""The `TestRunner` class against a real server: the seed's examples, every key, every promise."""

import asyncio
import inspect
import json
import logging
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bakeoff import APIConfiguration, ExecutionProgress, TestResult, TestRunner, UsageError
from bakeoff.frontends.test_runner.settings import close_log
from support.loopback import Answerer, Asked, Loopback, Reply, chat, completion, delta, sse

EXAMPLES = Path(__file__).parents[2] / "examples" / "reasoning"
QUICK = {"execution_defaults": {"sequential_delay": 0.0}, "api_defaults": {"retry_attempts": 0}}


def answer_either_api(asked: Asked) -> Reply:
    if asked.path.endswith("/chat/completions"):
        return chat(f"re: {asked.prompt}")
    return completion(f"re: {asked.prompt}")


def case(test_id: str, **more: Any) -> dict[str, Any]:
    return {"id": test_id, "prompt": f"ask {test_id}", **more}


@dataclass(kw_only=True)
class Bench:
    """A folder to work in, a server to ask, and short ways to write files."""

    folder: Path
    server: Loopback
    arrivals: dict[str, list[float]] = field(default_factory=dict)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answering(self, answer: Answerer) -> None:
        def noted(asked: Asked) -> Reply:
            with self.lock:
                self.arrivals.setdefault(asked.prompt, []).append(time.perf_counter())
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                return answer(asked)
            finally:
                with self.lock:  # before anything is sent: the client cannot be faster
                    self.at_once -= 1

        self.server.answer = noted

    def write(self, name: str, data: Any) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data))
        return str(path)

    def runner(
        self,
        *tests: dict[str, Any],
        config: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        suite: dict[str, Any] | None = None,
    ) -> TestRunner:
        runner = TestRunner(self.write("config.json", QUICK if config is None else config))
        content = {"tests": list(tests) or [case("a"), case("b"), case("c")], **(suite or {})}
        assert runner.load_test_suite(self.write("suite.json", content))
        api = {"endpoint": f"{self.server.url}/chat/completions", "model": "m"}
        extra = metadata or {}
        api |= extra.get("api_config", {})
        assert runner.load_test_metadata(self.write("meta.json", {**extra, "api_config": api}))
        return runner

    def saved(self, name: str, folder: str = "test_results") -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.folder / folder / name).read_text())
        return data


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.chdir(tmp_path)
    with Loopback() as server:
        bench = Bench(folder=tmp_path, server=server)
        bench.answering(answer_either_api)
        yield bench
    close_log()


@pytest.fixture
def examples(bench: Bench) -> Bench:
    """The example files, as a person has them; only the server and the pause are ours."""
    shutil.copytree(EXAMPLES / "test_definitions", bench.folder / "test_definitions")
    path = bench.folder / "test_definitions" / "test_suite_metadata.json"
    metadata = json.loads(path.read_text())
    metadata["api_config"]["endpoint"] = f"{bench.server.url}/completions"
    metadata["global_settings"]["delay_between_tests"] = 0.0
    path.write_text(json.dumps(metadata))
    shutil.copy(EXAMPLES / "test_runner_config.json", bench.folder / "custom_config.json")
    return bench


def suite_ids() -> list[str]:
    data = json.loads((EXAMPLES / "test_definitions/reasoning_tests_complete.json").read_text())
    return [test["id"] for test in data["tests"]]


# --- the three usage examples of the document, word for word ---


def test_the_basic_sequential_example_works_as_written(examples: Bench) -> None:
    runner = TestRunner()
    runner.load_test_suite("test_definitions/reasoning_tests_complete.json")
    runner.load_test_metadata("test_definitions/test_suite_metadata.json")

    results = runner.execute_sequential()
    runner.save_results(results)

    assert [r.test_id for r in results] == suite_ids()
    assert all(r.success for r in results)
    assert examples.most_at_once == 1
    assert examples.server.requests[0].path == "/v1/completions"
    folder = examples.folder / "test_results"
    assert len(list(folder.glob("*_result.json"))) == len(results)
    assert len(list(folder.glob("*_completion.txt"))) == len(results)
    (batch,) = folder.glob("batch_results_*.json")
    assert re.fullmatch(r"batch_results_\d{8}_\d{6}\.json", batch.name)
    assert len(list((folder / "runs").iterdir())) == 1


def test_the_category_example_works_as_written(examples: Bench) -> None:
    runner = TestRunner()
    runner.load_test_suite("test_definitions/reasoning_tests_complete.json")

    # Execute only mathematical reasoning tests
    results = runner.execute_category("mathematical_reasoning")
    runner.save_results(results, "math_results/")

    assert [r.test_id for r in results] == [i for i in suite_ids() if i.startswith("math_")]
    assert all(r.success for r in results)
    assert (examples.folder / "math_results" / "math_01_result.json").is_file()


def test_the_custom_configuration_example_works_as_written(examples: Bench) -> None:
    runner = TestRunner("custom_config.json")
    runner.configure_api(
        endpoint=f"{examples.server.url}/completions",
        model="my-custom-model",
        headers={"Authorization": "Bearer token"},
    )

    results = runner.execute_concurrent(workers=5)

    assert [r.test_id for r in results] == suite_ids()
    assert all(r.success for r in results)
    assert examples.most_at_once <= 5
    asked = examples.server.requests[0]
    assert asked.headers["Authorization"] == "Bearer token"
    assert asked.body["model"] == "my-custom-model"
    assert (examples.folder / "test_runner.log").read_text().count(" tests done, ") == len(results)


# --- the surface ---


def test_signatures_are_those_of_the_document() -> None:
    def positional(method: Callable[..., Any]) -> list[tuple[str, Any]]:
        parameters = list(inspect.signature(method).parameters.values())[1:]
        return [(p.name, p.default) for p in parameters if p.kind is not p.KEYWORD_ONLY]

    needed = inspect.Parameter.empty
    assert positional(TestRunner.__init__) == [("config_path", None)]
    assert positional(TestRunner.load_test_suite) == [("suite_path", needed)]
    assert positional(TestRunner.load_test_metadata) == [("metadata_path", needed)]
    assert positional(TestRunner.configure_api) == [
        ("endpoint", needed),
        ("model", needed),
        ("headers", None),
    ]
    assert positional(TestRunner.execute_single_test) == [("test_id", needed)]
    assert positional(TestRunner.execute_sequential) == [("test_ids", None)]
    assert positional(TestRunner.execute_concurrent) == [("test_ids", None), ("workers", 3)]
    assert positional(TestRunner.execute_category) == [("category", needed)]
    assert positional(TestRunner.save_results) == [("results", needed), ("output_dir", None)]
    assert positional(TestRunner.get_progress) == positional(TestRunner.cancel_execution) == []


def test_the_data_classes_have_the_documented_fields_in_order() -> None:
    names = [f.name for f in fields(TestResult)]
    assert names[:12] == [
        "test_id",
        "test_name",
        "success",
        "response_text",
        "execution_time",
        "prompt_tokens",
        "completion_tokens",
        "tokens_per_second",
        "error_message",
        "timestamp",
        "api_response",
        "scores",
    ]
    assert [f.name for f in fields(ExecutionProgress)] == [
        "total_tests",
        "completed_tests",
        "successful_tests",
        "failed_tests",
        "current_test",
        "estimated_remaining_time",
        "average_execution_time",
    ]
    assert [f.name for f in fields(APIConfiguration)] == [
        "endpoint",
        "model",
        "headers",
        "timeout",
        "retry_attempts",
        "retry_delay",
    ]
    assert not TestRunner.__test__
    assert not TestResult.__test__


def test_importing_the_class_opens_nothing_and_touches_no_logging(tmp_path: Path) -> None:
    code = (
        "from bakeoff import TestRunner; import logging; "
        "assert not logging.getLogger().handlers; "
        "assert not logging.getLogger('bakeoff.test_runner').handlers"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert not list(tmp_path.iterdir())


# --- loading ---


def test_a_load_that_fails_returns_false_and_logs_what_to_do(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    runner = TestRunner()
    assert not runner.load_test_suite("nowhere.json")
    assert not runner.load_test_suite(bench.write("twice.json", {"tests": [case("a"), case("a")]}))
    assert not runner.load_test_metadata(bench.write("m.json", {"api_config": {"model": "m"}}))
    assert "nowhere.json cannot be read" in caplog.text
    assert "test 'a' is defined twice" in caplog.text
    assert "endpoint" in caplog.text


EXECUTIONS: tuple[Callable[[TestRunner], object], ...] = (
    lambda runner: runner.execute_sequential(),
    lambda runner: runner.execute_sequential(["a"]),
    lambda runner: runner.execute_concurrent(workers=2),
    lambda runner: runner.execute_single_test("a"),
    lambda runner: runner.execute_category("math"),
)


@pytest.mark.parametrize("execute", EXECUTIONS)
def test_after_a_suite_that_failed_to_load_no_other_suite_is_run(
    examples: Bench, execute: Callable[[TestRunner], object]
) -> None:
    runner = TestRunner()
    broken = examples.write("broken.json", {"tests": [case("a"), case("a")]})
    assert not runner.load_test_suite(broken)
    with pytest.raises(
        UsageError, match=r"no test suite is loaded.*broken\.json:1: test 'a' is defined"
    ):
        execute(runner)
    assert not examples.server.requests


def test_after_a_failed_load_the_suite_of_before_is_not_run_and_a_good_load_mends_it(
    bench: Bench,
) -> None:
    runner = bench.runner(case("a", category="math"))
    assert not runner.load_test_suite("nowhere.json")
    for execute in EXECUTIONS:
        with pytest.raises(UsageError, match=r"nowhere\.json cannot be read"):
            execute(runner)
    assert not bench.server.requests
    assert runner.load_test_suite(str(bench.folder / "suite.json"))
    assert [r.test_id for r in runner.execute_sequential()] == ["a"]


def test_after_metadata_that_failed_to_load_nothing_goes_to_the_endpoint_of_other_files(
    examples: Bench,
) -> None:
    runner = TestRunner()
    assert runner.load_test_suite("test_definitions/reasoning_tests_complete.json")
    assert not runner.load_test_metadata("nowhere.json")
    with pytest.raises(UsageError, match=r"the metadata was not loaded.*nowhere\.json cannot be"):
        runner.execute_single_test("math_01")
    assert not examples.server.requests
    runner.configure_api(examples.server.url, "m")
    assert runner.execute_single_test("math_01").success


def test_two_tests_never_share_a_file_whatever_the_template(bench: Bench) -> None:
    config = {**QUICK, "output_settings": {"filename_template": "{category}_{test_id}.json"}}
    tests = [case("c", category="a_b"), case("b_c", category="a"), case("d", category="a")]
    results = bench.runner(*tests, config=config).execute_sequential()
    assert all(result.success for result in results)
    files = sorted(path for path in (bench.folder / "test_results").glob("*.json"))
    assert sorted(json.loads(file.read_text())["test_id"] for file in files) == ["b_c", "c", "d"]
    assert bench.folder / "test_results" / "a_d.json" in files


def test_a_config_with_an_unknown_key_is_refused_with_the_nearest_right_one(bench: Bench) -> None:
    path = bench.write("bad.json", {"api_defaults": {"retry_atempts": 3}})
    with pytest.raises(UsageError, match="'retry_atempts'; did you mean 'retry_attempts'"):
        TestRunner(path)
    with pytest.raises(UsageError, match="did you mean 'output_settings'"):
        TestRunner(bench.write("bad.json", {"output_setings": {}}))
    with pytest.raises(UsageError, match=r"'api_defaults\.timeout'"):
        TestRunner(bench.write("bad.json", {"api_defaults": {"timeout": 0}}))


def test_a_one_file_suite_brings_its_own_api_and_categories(bench: Bench) -> None:
    suite = {
        "api_config": {"endpoint": bench.server.url, "model": "m", "type": "completions"},
        "test_categories": {"first": {"test_ids": ["a"]}},
        "tests": [case("a"), case("b")],
    }
    runner = TestRunner()
    assert runner.load_test_suite(bench.write("one.json", suite))
    assert [r.test_id for r in runner.execute_category("first")] == ["a"]
    assert bench.server.requests[0].path == "/v1/completions"


def test_a_suite_keeps_its_own_settings_beside_a_metadata_file(bench: Bench) -> None:
    api = {"endpoint": bench.server.url, "model": "m"}
    bench.write("test_suite_metadata.json", {"api_config": api})
    runner = TestRunner()
    content = {"global_settings": {"output_directory": "mine"}, "tests": [case("a")]}
    runner.load_test_suite(bench.write("suite.json", content))
    assert runner.execute_single_test("a").success
    assert (bench.folder / "mine" / "a_result.json").is_file()


# --- results ---


def test_a_result_says_what_was_answered_and_measured(bench: Bench) -> None:
    runner = bench.runner(case("a", name="First", expected="ask a"))
    result = runner.execute_single_test("a")
    assert (result.test_id, result.test_name, result.success) == ("a", "First", True)
    assert result.response_text == "re: ask a"
    assert (result.prompt_tokens, result.completion_tokens) == (7, 3)
    assert result.tokens_per_second == pytest.approx(3 / result.execution_time)
    assert result.error_message is None
    assert result.api_response["id"] == "x"
    assert result.scores[0]["scorer"] == "includes"
    assert result.scores[0]["value"] == 1.0
    assert result.time_to_first_token is None


def test_a_wrong_answer_is_still_a_success_of_the_call(bench: Bench) -> None:
    result = bench.runner(case("a", expected="nothing of the kind")).execute_single_test("a")
    assert result.success
    assert result.scores[0]["value"] == 0.0


def test_an_answer_without_token_counts_has_zero_of_them(bench: Bench) -> None:
    bench.answering(lambda _: chat("hi", usage=None))
    result = bench.runner(case("a")).execute_single_test("a")
    assert result.success
    assert (result.prompt_tokens, result.completion_tokens, result.tokens_per_second) == (0, 0, 0)


def test_an_answer_without_text_is_not_an_answer(bench: Bench) -> None:
    bench.answering(lambda _: chat(""))
    result = bench.runner(case("a")).execute_single_test("a")
    assert not result.success
    assert result.error_message == "the answer has no text (finish reason: stop)"


def test_a_fault_is_told_in_the_error_message(bench: Bench) -> None:
    bench.answering(lambda _: Reply(status=401, body=b"who are you"))
    result = bench.runner(case("a")).execute_single_test("a")
    assert not result.success
    assert "HTTP 401" in (result.error_message or "")
    assert result.api_response == {}


def test_a_scorer_that_fails_leaves_the_answer_a_success(bench: Bench) -> None:
    (bench.folder / "own_checks.py").write_text("def broken(answer):\n    raise OSError('gone')\n")
    config = {**QUICK, "suite_access": {"trust": True}}
    runner = bench.runner(case("a", scorers=["own_checks:broken"]), config=config)
    result = runner.execute_single_test("a")
    assert result.success
    assert result.response_text == "re: ask a"
    assert "gone" in (result.error_message or "")
    assert result.scores == []


def test_a_streamed_test_measures_the_time_to_the_first_token(bench: Bench) -> None:
    def slowly() -> Iterator[bytes]:
        time.sleep(0.15)
        yield b"".join(sse(delta("he")).chunks or ())
        time.sleep(0.4)
        yield b"".join(sse(delta("llo", "stop"), "data: [DONE]\n\n").chunks or ())

    bench.answering(lambda _: Reply(headers={"Content-Type": "text/event-stream"}, chunks=slowly()))
    result = bench.runner(case("a", parameters={"stream": True})).execute_single_test("a")
    assert bench.server.requests[0].body["stream"] is True
    assert result.response_text == "hello"
    assert result.time_to_first_token is not None
    assert 0.1 < result.time_to_first_token < result.execution_time - 0.1
    choice = result.api_response["choices"][0]
    assert choice["message"]["content"] == "hello"
    assert result.api_response["model"] == "loopback"


def test_results_come_in_suite_order_however_they_finish(bench: Bench) -> None:
    def later_is_faster(asked: Asked) -> Reply:
        time.sleep({"ask a": 0.3, "ask b": 0.15}.get(asked.prompt, 0))
        return chat("ok")

    bench.answering(later_is_faster)
    results = bench.runner().execute_concurrent(["c", "a", "b", "a"], workers=3)
    assert [r.test_id for r in results] == ["a", "b", "c"]


def test_it_works_inside_a_running_event_loop(bench: Bench) -> None:
    runner = bench.runner()

    async def cell() -> list[TestResult]:
        return runner.execute_sequential()

    assert len(asyncio.run(cell())) == 3


# --- what cannot be run ---


def test_an_unknown_test_is_a_failed_result(bench: Bench) -> None:
    runner = bench.runner(case("math_01"), case("math_02"))
    result = runner.execute_single_test("math_1")
    assert not result.success
    assert result.error_message == "no test 'math_1'; did you mean 'math_01'?"
    both = runner.execute_sequential(["nope", "math_02"])
    assert [(r.test_id, r.success) for r in both] == [("math_02", True), ("nope", False)]
    assert runner.get_progress().failed_tests == 1
    assert runner.execute_sequential([]) == []


def test_an_unknown_category_is_an_empty_list_and_the_log_names_those_there_are(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.write("categories.json", {"categories": {"listed": {"test_ids": ["a", "ghost"]}}})
    runner = bench.runner(case("a"), case("b", category="own"))
    assert runner.execute_category("nope") == []
    assert "no category 'nope'; there are: listed, own" in caplog.text
    assert [r.test_id for r in runner.execute_category("listed")] == ["a"]
    assert "ghost" in caplog.text


def test_without_an_api_every_test_fails_with_what_to_do(bench: Bench) -> None:
    runner = TestRunner()
    runner.load_test_suite(bench.write("suite.json", {"tests": [case("a"), case("b")]}))
    assert runner.api_configuration is None
    results = runner.execute_sequential()
    assert [r.success for r in results] == [False, False]
    assert "call configure_api(endpoint, model)" in (results[0].error_message or "")


@pytest.mark.parametrize("execute", EXECUTIONS)
def test_without_any_suite_nothing_is_run_and_the_error_says_which_was_looked_for(
    bench: Bench, execute: Callable[[TestRunner], object], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UsageError, match=r"reasoning_tests_complete\.json cannot be read"):
        execute(TestRunner())
    assert "reasoning_tests_complete.json cannot be read" in caplog.text
    assert not bench.server.requests


def test_a_setting_that_makes_no_sense_fails_the_tests_and_not_the_program(bench: Bench) -> None:
    runner = bench.runner(case("a", scorers=["exakt"]))
    assert "did you mean 'exact'" in (runner.execute_single_test("a").error_message or "")
    result = bench.runner(case("a")).execute_concurrent(workers=0)[0]
    assert result.error_message == "workers must be 1 or more, not 0"


# --- the endpoint ---


def test_the_url_says_which_api_is_meant_and_a_runtime_url_wins(bench: Bench) -> None:
    metadata = {"api_config": {"endpoint": f"{bench.server.url}/completions"}}
    runner = bench.runner(case("a"), metadata=metadata)
    runner.execute_single_test("a")
    metadata["api_config"]["type"] = "completions"
    runner = bench.runner(case("a"), metadata=metadata)
    runner.configure_api(f"{bench.server.url}/chat/completions", "other")
    runner.execute_single_test("a")
    assert [(r.path, r.body["model"]) for r in bench.server.requests] == [
        ("/v1/completions", "m"),
        ("/v1/chat/completions", "other"),
    ]


def test_headers_for_one_endpoint_are_not_sent_to_another(bench: Bench) -> None:
    metadata = {
        "api_config": {"endpoint": "http://other.invalid/v1", "headers": {"X-Key": "for-other"}}
    }
    runner = bench.runner(case("a"), metadata=metadata)
    runner.configure_api(bench.server.url, "m")
    assert runner.execute_single_test("a").success
    assert "X-Key" not in bench.server.requests[0].headers
    here = {"api_config": {"endpoint": bench.server.url, "headers": {"X-Key": "for-here"}}}
    runner = bench.runner(case("a"), metadata=here)
    runner.configure_api(bench.server.url, "m2")
    runner.execute_single_test("a")
    assert bench.server.requests[1].headers["X-Key"] == "for-here"


@pytest.mark.parametrize("secret", ["sk-very-secret-1", 'sk-"very\\secret'])
def test_a_secret_header_is_in_no_file_and_no_log(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setenv("SECRET_KEY", secret)
    bench.answering(lambda asked: chat(f"you said {asked.headers['Authorization']}"))
    runner = bench.runner(case("a"), config={"logging": {"file": "log/run.log"}})
    runner.configure_api(bench.server.url, "m", {"Authorization": "Bearer ${SECRET_KEY}"})
    result = runner.execute_single_test("a")
    assert secret in result.response_text
    assert runner.save_results([result], "again")
    assert runner.api_configuration is not None
    assert "SECRET" not in repr(runner.api_configuration)
    forms = (secret.encode(), json.dumps(secret)[1:-1].encode())
    for path in bench.folder.rglob("*"):
        assert not path.is_file() or not any(f in path.read_bytes() for f in forms), path


# --- api_defaults, and what wins over them ---


def failing_times(bench: Bench, config: dict[str, Any], **runner: Any) -> list[float]:
    bench.answering(lambda _: Reply(status=503, body=b"busy"))
    result = bench.runner(case("a"), config=config, **runner).execute_single_test("a")
    assert "HTTP 503" in (result.error_message or "")
    return bench.arrivals["ask a"]


def test_retries_are_as_many_as_configured_and_wait_longer_each_time(bench: Bench) -> None:
    api = {"retry_attempts": 3, "retry_delay": 0.04, "retry_backoff": 3.0}
    times = failing_times(bench, {"api_defaults": api})
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) == 3
    assert gaps[0] >= 0.02
    assert gaps[1] >= 0.06
    assert gaps[2] >= 0.18


def test_retries_stop_when_the_server_recovers(bench: Bench) -> None:
    bench.answering(
        lambda asked: chat("back") if asked.number == 2 else Reply(status=429, body=b"slow down")
    )
    runner = bench.runner(case("a"), config={"api_defaults": {"retry_delay": 0.01}})
    assert runner.execute_single_test("a").response_text == "back"
    assert len(bench.server.requests) == 3


def test_the_metadata_says_how_often_to_retry_over_the_config(bench: Bench) -> None:
    config = {"api_defaults": {"retry_attempts": 5, "retry_delay": 0.0}}
    metadata = {"global_settings": {"default_retry_attempts": 1}}
    assert len(failing_times(bench, config, metadata=metadata)) == 2


def test_what_configure_api_says_wins_over_metadata_and_config(bench: Bench) -> None:
    bench.answering(lambda _: Reply(status=503, body=b"busy"))
    metadata = {"global_settings": {"default_retry_attempts": 5, "default_timeout_seconds": 9}}
    config = {"api_defaults": {"retry_delay": 30.0}}
    runner = bench.runner(
        case("a", metadata={"timeout_seconds": 8}), config=config, metadata=metadata
    )
    runner.configure_api(bench.server.url, "n", timeout=7, retry_attempts=2, retry_delay=0.0)
    assert runner.api_configuration == APIConfiguration(
        endpoint=bench.server.url,
        model="n",
        headers={},
        timeout=7,
        retry_attempts=2,
        retry_delay=0.0,
    )
    runner.execute_single_test("a")
    assert len(bench.server.requests) == 3
    with pytest.raises(UsageError, match="endpoint"):
        runner.configure_api("", "n")


@pytest.mark.parametrize(
    ("config_s", "metadata", "test_s", "runtime_s", "expected"),
    [
        (0.2, {}, None, None, "0.2"),
        (9.0, {"api_config": {"timeout": 0.21}}, None, None, "0.21"),
        (9.0, {"global_settings": {"default_timeout_seconds": 0.22}}, None, None, "0.22"),
        (9.0, {"global_settings": {"default_timeout_seconds": 9}}, 0.23, None, "0.23"),
        (9.0, {"api_config": {"timeout": 9}}, 9, 0.24, "0.24"),
        (0.01, {"api_config": {"timeout": 0.01}}, 0.25, None, "0.25"),
    ],
)
def test_the_strongest_timeout_holds(
    bench: Bench,
    config_s: float,
    metadata: dict[str, Any],
    test_s: float | None,
    runtime_s: float | None,
    expected: str,
) -> None:
    done = threading.Event()

    def hang(_: Asked) -> Reply:
        done.wait(5)
        return chat("late")

    bench.answering(hang)
    own = {"metadata": {"timeout_seconds": test_s}} if test_s else {}
    config = {"api_defaults": {"timeout": config_s}}
    runner = bench.runner(case("a", **own), config=config, metadata=metadata)
    if runtime_s:
        runner.configure_api(bench.server.url, "m", timeout=runtime_s)
    result = runner.execute_single_test("a")
    done.set()
    assert not result.success
    assert result.error_message == f"the time limit of {expected} s ran out"
    assert float(expected) - 0.05 < result.execution_time < float(expected) + 2


# --- execution_defaults, and what wins over them ---


def pauses(bench: Bench) -> list[float]:
    times = [bench.arrivals[f"ask {name}"][0] for name in "abc"]
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize(
    ("config_s", "metadata_s", "argument_s", "expected"),
    [(0.2, None, None, 0.2), (5.0, 0.15, None, 0.15), (5.0, 5.0, 0.1, 0.1), (5.0, 0.0, None, 0)],
)
def test_sequential_tests_wait_for_each_other_and_pause_between(
    bench: Bench,
    config_s: float,
    metadata_s: float | None,
    argument_s: float | None,
    expected: float,
) -> None:
    settings = {} if metadata_s is None else {"delay_between_tests": metadata_s}
    runner = bench.runner(
        config={"execution_defaults": {"sequential_delay": config_s}},
        metadata={"global_settings": settings},
    )
    assert len(runner.execute_sequential(delay=argument_s)) == 3
    assert bench.most_at_once == 1
    assert all(expected - 0.05 < gap < expected + 1 for gap in pauses(bench))


def test_there_is_no_pause_after_the_last_test(bench: Bench) -> None:
    runner = bench.runner(config={"execution_defaults": {"sequential_delay": 30.0}})
    began = time.perf_counter()
    runner.execute_sequential(["b"])
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("config_n", "modes", "argument", "expected"),
    [
        (None, {}, None, 3),
        (2, {}, None, 2),
        (2, {"default_workers": 4}, None, 4),
        (2, {"default_workers": 4}, 3, 3),
        (5, {}, 3, 3),
        (2, {"max_workers": 2}, 6, 2),
        (6, {"max_workers": 4}, None, 4),
    ],
)
def test_the_strongest_number_of_workers_holds(
    bench: Bench,
    config_n: int | None,
    modes: dict[str, int],
    argument: int | None,
    expected: int,
) -> None:
    full = threading.Barrier(expected)

    def together(_: Asked) -> Reply:
        full.wait(3)  # breaks where fewer than expected are asked at once
        time.sleep(0.05)  # time for one too many to show
        return chat("ok")

    bench.answering(together)
    runner = bench.runner(
        *[case(f"t{n}") for n in range(expected * 2)],
        config={"execution_defaults": {"concurrent_workers": config_n} if config_n else {}},
        metadata={"execution_modes": {"concurrent": modes}},
    )
    if argument is None:
        results = runner.execute_concurrent()
    else:
        results = runner.execute_concurrent(workers=argument)
    assert len(results) == expected * 2
    assert bench.most_at_once == expected


@pytest.mark.parametrize("reporting", [True, False])
def test_progress_reporting_is_a_log_line_for_each_test(
    bench: Bench, caplog: pytest.LogCaptureFixture, reporting: bool
) -> None:
    config = {
        "execution_defaults": {"progress_reporting": reporting, "sequential_delay": 0.0},
    }
    bench.runner(config=config).execute_sequential()
    assert caplog.text.count("of 3 tests done") == (3 if reporting else 0)


@pytest.mark.parametrize("where", ["config", "metadata"])
def test_raw_responses_are_saved_nowhere_when_they_are_not_wanted(bench: Bench, where: str) -> None:
    bench.answering(lambda _: chat("ok", system_fingerprint="raw-marker"))
    wish = {"save_raw_responses": False}
    config = {"execution_defaults": wish if where == "config" else {}}
    metadata = {"global_settings": wish if where == "metadata" else {}}
    runner = bench.runner(case("a"), config=config, metadata=metadata)
    results = runner.execute_sequential()
    assert runner.save_results(results)
    assert results[0].api_response["choices"]
    assert bench.saved("a_result.json")["api_response"] == {}
    for path in bench.folder.rglob("*"):
        assert not path.is_file() or b"raw-marker" not in path.read_bytes(), path


def test_raw_responses_are_saved_by_default(bench: Bench) -> None:
    bench.runner(case("a")).execute_single_test("a")
    assert bench.saved("a_result.json")["api_response"]["id"] == "x"


# --- output_settings and the files ---


def test_each_result_is_written_before_the_next_test_is_asked(bench: Bench) -> None:
    there: list[bool] = []

    def look(asked: Asked) -> Reply:
        if asked.prompt == "ask b":
            folder = bench.folder / "test_results"
            there.append((folder / "a_result.json").is_file())
            there.append((folder / "a_completion.txt").is_file())
        return chat("ok")

    bench.answering(look)
    bench.runner().execute_sequential()
    assert there == [True, True]


def test_the_completion_file_has_its_three_blocks(bench: Bench) -> None:
    runner = bench.runner(case("a"))
    result = runner.execute_single_test("a")
    assert (bench.folder / "test_results" / "a_completion.txt").read_text() == (
        "PROMPT:\n--------------------\nask a\n\n"
        "COMPLETION:\n--------------------\nre: ask a\n\n"
        "METRICS:\n--------------------\n"
        f"Duration: {result.execution_time:.2f}s\n"
        "Prompt Tokens: 7\n"
        "Completion Tokens: 3\n"
        f"Tokens per Second: {result.tokens_per_second:.2f} T/s\n"
    )


def test_a_batch_file_sums_up_and_two_saves_in_a_second_are_two_files(bench: Bench) -> None:
    bench.answering(lambda asked: chat("ok") if asked.prompt != "ask b" else Reply(status=400))
    runner = bench.runner()
    results = runner.execute_sequential()
    assert runner.save_results(results, "out")
    assert runner.save_results(results[:1], "out")
    files = sorted(
        (bench.folder / "out").glob("batch_results_*.json"), key=lambda p: p.stat().st_size
    )
    assert len(files) == 2
    batch = json.loads(files[1].read_text())
    seconds = sum(r.execution_time for r in results)
    assert batch["execution_summary"] == {
        "total_tests": 3,
        "successful_tests": 2,
        "failed_tests": 1,
        "total_execution_time": pytest.approx(seconds),
        "average_test_time": pytest.approx(seconds / 3),
    }
    assert [r["test_id"] for r in batch["individual_results"]] == ["a", "b", "c"]
    assert runner.save_results([], "empty")


def test_the_metadata_says_where_results_go_over_the_config(bench: Bench) -> None:
    config = {"output_settings": {"results_directory": "from_config"}}
    runner = bench.runner(case("a"), config=config)
    runner.save_results([runner.execute_single_test("a")])
    assert (bench.folder / "from_config" / "a_result.json").is_file()
    assert (bench.folder / "from_config" / "runs").is_dir()
    runner = bench.runner(
        case("a"),
        config=config,
        metadata={"global_settings": {"output_directory": "from_metadata"}},
    )
    runner.save_results([runner.execute_single_test("a")])
    assert len(list((bench.folder / "from_metadata").glob("batch_results_*.json"))) == 1


def test_a_template_names_the_result_file(bench: Bench) -> None:
    config = {
        "output_settings": {"filename_template": "{category}/{test_id}_{model}_{timestamp}.json"}
    }
    runner = bench.runner(case("a", category="sums"), config=config)
    result = runner.execute_single_test("a")
    assert runner.save_results([result])  # the same result has the same name
    [path] = (bench.folder / "test_results" / "sums").iterdir()
    assert path.name.startswith("a_m_20")
    assert not (bench.folder / "test_results" / "a_result.json").exists()
    assert (bench.folder / "test_results" / "a_completion.txt").is_file()


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{test_ix}.json", "did you mean 'test_id'"),
        ("{test_id.__class__}.json", "there are: category, model, test_id"),
        ("{timestamp}.json", "must have {test_id}"),
        ("{test_id}.txt", "must end in .json"),
        ("../{test_id}.json", "inside the results directory"),
        ("/tmp/{test_id}.json", "inside the results directory"),
        ("..\\{test_id}.json", "inside the results directory"),
    ],
)
def test_a_template_that_cannot_be_right_is_refused(
    bench: Bench, template: str, complaint: str
) -> None:
    path = bench.write("bad.json", {"output_settings": {"filename_template": template}})
    with pytest.raises(UsageError, match="filename_template") as error:
        TestRunner(path)
    assert complaint in str(error.value)


@pytest.mark.parametrize("template", [None, "{category}/{test_id}-{model}.json"])
def test_hostile_ids_stay_inside_the_results_directory(bench: Bench, template: str | None) -> None:
    ids = ["../../evil", "/etc/evil", "a/b", "*", "{model}", "x" * 500, "..", "nul\u0000", "é\n#"]
    config = {
        **QUICK,
        "output_settings": {"results_directory": "deep/er/out", "filename_template": template},
    }
    runner = bench.runner(*[case(i, category=i) for i in ids], config=config)
    results = runner.execute_sequential()
    assert [r.test_id for r in results] == ids
    assert runner.save_results(results)
    written = {p for p in bench.folder.rglob("*") if p.is_file() and "evil" in p.name}
    assert all(p.is_relative_to(bench.folder / "deep" / "er" / "out") for p in written)
    made = list((bench.folder / "deep/er/out").rglob("*_completion.txt"))
    assert len(made) == len(ids)
    assert {p.name for p in bench.folder.iterdir()} == {
        "deep",
        "config.json",
        "meta.json",
        "suite.json",
    }
    assert [r.test_id for r in runner.execute_sequential(["*"])] == ["*"]


def test_metadata_and_indentation_of_a_result_file_can_be_turned_off(bench: Bench) -> None:
    test = case("a", category="sums", metadata={"domain": "math"}, parameters={"max_tokens": 9})
    bench.runner(test).execute_single_test("a")
    path = bench.folder / "test_results" / "a_result.json"
    assert bench.saved("a_result.json")["metadata"] == {
        "category": "sums",
        "domain": "math",
        "parameters": {"max_tokens": 9},
    }
    assert len(path.read_text().splitlines()) > 10
    config = {"output_settings": {"include_metadata": False, "pretty_print": False}}
    bench.runner(test, config=config).execute_single_test("a")
    assert "metadata" not in bench.saved("a_result.json")
    assert len(path.read_text().splitlines()) == 1


def test_results_with_half_characters_can_be_saved(bench: Bench) -> None:
    runner = bench.runner(case("a"))
    result = runner.execute_single_test("a")
    result.response_text = "half \ud83d"
    assert runner.save_results([result])
    assert bench.saved("a_result.json")["response_text"] == "half \ufffd"


def test_a_save_that_fails_returns_false(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    runner = bench.runner(case("a"))
    result = runner.execute_single_test("a")
    (bench.folder / "taken").write_text("a file, not a folder")
    assert not runner.save_results([result], "taken")
    result.api_response = {"not": object()}
    assert not runner.save_results([result])
    assert caplog.text.count("the results cannot be saved") == 2


def test_a_results_directory_that_cannot_be_made_fails_the_tests(bench: Bench) -> None:
    (bench.folder / "taken").write_text("a file, not a folder")
    config = {"output_settings": {"results_directory": "taken"}}
    result = bench.runner(case("a"), config=config).execute_single_test("a")
    assert "no run can be kept in" in (result.error_message or "")


def test_files_that_cannot_be_written_do_not_end_the_run(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (bench.folder / "test_results" / "a_result.json").mkdir(parents=True)
    results = bench.runner().execute_sequential()
    assert [r.success for r in results] == [True, True, True]
    assert "no files for test a" in caplog.text
    assert (bench.folder / "test_results" / "b_result.json").is_file()


# --- logging ---


def own_handlers() -> list[logging.Handler]:
    handlers = logging.getLogger("bakeoff.test_runner").handlers
    return [h for h in handlers if type(h).__module__.startswith("bakeoff")]


def test_the_log_has_the_configured_file_level_and_format(bench: Bench) -> None:
    settings = {"level": "warning", "format": "<%(levelname)s> %(message)s", "file": "log/own.log"}
    bench.answering(lambda asked: chat("ok") if asked.prompt != "ask b" else Reply(status=400))
    runner = bench.runner(config={**QUICK, "logging": settings})
    runner.execute_sequential()
    lines = (bench.folder / "log" / "own.log").read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("<WARNING> test b failed: HTTP 400")


def test_a_second_runner_adds_no_second_handler_and_closes_the_first_file(bench: Bench) -> None:
    config = bench.write("c.json", {"logging": {"file": "one.log"}})
    TestRunner(config)
    first = [h for h in own_handlers() if isinstance(h, logging.FileHandler)]
    TestRunner(config).load_test_suite("nowhere.json")
    assert len(own_handlers()) == 2
    assert first[0].stream is None, "closed"
    assert (bench.folder / "one.log").read_text().count("nowhere.json") == 1
    runner = TestRunner()
    assert len(own_handlers()) == 1
    runner.close()
    assert own_handlers() == []
    assert logging.getLogger().level == logging.WARNING, "the root logger is not ours"


def test_a_log_that_cannot_work_is_refused(bench: Bench) -> None:
    for settings, complaint in [
        ({"level": "INFOO"}, "did you mean 'INFO'"),
        ({"format": "%(nonsense"}, "logging.format"),
        ({"file": str(bench.folder)}, "cannot be opened"),
    ]:
        with pytest.raises(UsageError, match=complaint):
            TestRunner(bench.write("c.json", {"logging": settings}))


def test_a_script_without_logging_sees_progress_on_standard_error(bench: Bench) -> None:
    suite = bench.write("suite.json", {"tests": [case("a\u001b[31m")]})
    code = (
        "from bakeoff import TestRunner; r = TestRunner(); "
        f"r.load_test_suite({suite!r}); r.configure_api({bench.server.url!r}, 'm'); "
        "r.execute_sequential()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "1 of 1 tests done" in done.stderr
    assert "\u001b" not in done.stderr


# --- progress, callbacks, cancelling ---


def test_progress_can_be_read_from_another_thread_while_tests_run(bench: Bench) -> None:
    asked_b, resume = threading.Event(), threading.Event()

    def hold(asked: Asked) -> Reply:
        if asked.prompt == "ask b":
            asked_b.set()
            resume.wait(5)
        return chat("ok") if asked.prompt != "ask c" else Reply(status=400)

    bench.answering(hold)
    runner = bench.runner()
    assert runner.get_progress() == ExecutionProgress(0, 0, 0, 0, None, 0.0, 0.0)
    worker = threading.Thread(target=runner.execute_sequential, daemon=True)
    worker.start()
    assert asked_b.wait(5)
    during = runner.get_progress()
    with pytest.raises(UsageError, match="already"):
        runner.execute_single_test("a")
    resume.set()
    worker.join(60)
    assert not worker.is_alive()
    assert (during.total_tests, during.completed_tests, during.current_test) == (3, 1, "b")
    assert during.average_execution_time > 0
    assert during.estimated_remaining_time > 0
    after = runner.get_progress()
    assert (after.completed_tests, after.successful_tests, after.failed_tests) == (3, 2, 1)
    assert (after.current_test, after.estimated_remaining_time) == (None, 0.0)


def test_callbacks_hear_of_each_test_and_their_mistakes_do_not_matter(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[int] = []
    attribute: list[int] = []

    def broken(_: ExecutionProgress) -> None:
        raise RuntimeError("callback bug")

    runner = bench.runner()
    runner.progress_callback = lambda progress: attribute.append(progress.completed_tests)
    runner.add_progress_callback(broken)
    runner.add_progress_callback(lambda progress: heard.append(progress.completed_tests))
    assert len(runner.execute_sequential()) == 3
    assert heard == attribute == [1, 2, 3]
    assert "callback bug" in caplog.text


def test_cancelling_in_a_callback_returns_what_is_finished(bench: Bench) -> None:
    runner = bench.runner()
    assert not runner.cancel_execution(), "nothing is running"
    answers: list[bool] = []
    runner.progress_callback = lambda _: answers.append(runner.cancel_execution())
    results = runner.execute_sequential()
    assert [r.test_id for r in results] == ["a"]
    assert answers == [True]
    assert len(bench.server.requests) == 1
    assert not runner.cancel_execution()
    runner.progress_callback = None
    assert len(runner.execute_sequential()) == 3, "the next execution is not cancelled"


def test_cancelling_from_another_thread_lets_running_tests_finish(bench: Bench) -> None:
    runner = bench.runner(*[case(f"t{n}") for n in range(6)])
    both = threading.Barrier(2)

    def cancel_then_answer(_: Asked) -> Reply:
        both.wait(5)
        runner.cancel_execution()
        return chat("finished")

    bench.answering(cancel_then_answer)
    results = runner.execute_concurrent(workers=2)
    assert [(r.test_id, r.response_text) for r in results] == [
        ("t0", "finished"),
        ("t1", "finished"),
    ]
    assert len(bench.server.requests) == 2
    progress = runner.get_progress()
    assert (progress.total_tests, progress.completed_tests) == (6, 2)


def test_cancelling_ends_a_pause_at_once(bench: Bench) -> None:
    runner = bench.runner(config={"execution_defaults": {"sequential_delay": 30.0}})
    runner.progress_callback = lambda _: threading.Timer(0.1, runner.cancel_execution).start()
    began = time.perf_counter()
    assert len(runner.execute_sequential()) == 1
    assert time.perf_counter() - began < 5
