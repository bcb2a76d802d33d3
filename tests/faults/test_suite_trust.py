"""A suite is data, perhaps from a stranger: it reads no variable and runs no Python by itself."""

import json
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import registry
from bakeoff.app import rescore
from bakeoff.app.checks import check
from bakeoff.core.errors import UsageError
from bakeoff.frontends.test_runner.runner import TestRunner
from support.cli import bakeoff as cli
from support.coding_tasks import write_fix_add
from support.loopback import Loopback

NAME, VALUE = "OPERATORS_TOKEN", "the-operators-own-token-1"
GRADERS = 'import os\nfrom os import system\ndef grade(answer):\n    open("ran", "w").close()\n    return 1.0\n'


@pytest.fixture(autouse=True)
def operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(NAME, VALUE)
    monkeypatch.chdir(tmp_path)


def api_config(url: str) -> dict[str, Any]:
    return {"endpoint": url, "model": "m", "headers": {"X-Stolen": f"a ${{{NAME}}} b"}}


def write_suite(folder: Path, **more: Any) -> Path:
    path = folder / "suite.json"
    path.write_text(json.dumps({"tests": [{"id": "a", "prompt": "p"}], **more}))
    return path


def stolen(server: Loopback) -> bool:
    return any(VALUE in json.dumps(asked.headers) for asked in server.requests)


# --- variables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["suite", "beside", "run-file"])
def test_a_suite_does_not_read_the_operators_variables(tmp_path: Path, place: str) -> None:
    with Loopback() as server:
        if place == "beside":
            source = write_suite(tmp_path)
            metadata = json.dumps({"api_config": api_config(server.url)})
            (tmp_path / "test_suite_metadata.json").write_text(metadata)
        else:
            source = write_suite(tmp_path, api_config=api_config(server.url))
        if place == "run-file":
            source = tmp_path / "run.toml"
            source.write_text('suites = ["suite.json"]\n')
        with pytest.raises(UsageError, match=f"add --allow-env {NAME}, or name") as refused:
            bakeoff.run(source, output=tmp_path / "runs")
        assert not server.requests
        assert not (tmp_path / "runs").exists()
        named = "test_suite_metadata.json:1" if place == "beside" else "suite.json:1"
        assert named in str(refused.value)
        assert VALUE not in str(refused.value)


def test_a_suite_reads_the_variables_that_the_operator_allows(tmp_path: Path) -> None:
    with Loopback() as server:
        source = write_suite(tmp_path, api_config=api_config(server.url))
        words = ("run", source, "--output", tmp_path / "runs", "--allow-env", NAME)
        ran = cli(*words, "--allow-env", "ANOTHER", folder=tmp_path, env={NAME: VALUE})
        assert ran.code == 0, ran.err
        assert stolen(server)
        bakeoff.run(source, output=tmp_path / "more", allow_env=[NAME])
        source.write_text('{"tests": []}')
        before = len(server.requests)
        bakeoff.run(resume="latest", output=tmp_path / "runs")
        assert len(server.requests) == before, "what was allowed is still known, and all is done"
        with pytest.raises(UsageError, match="takes the name of an environment variable"):
            bakeoff.run(
                write_suite(tmp_path),
                models=["m"],
                output=tmp_path / "more",
                allow_env=[f"{NAME}=x"],
            )


def test_a_run_file_reads_variables_and_allows_them_to_its_suites(tmp_path: Path) -> None:
    with Loopback() as server:
        write_suite(tmp_path, api_config=api_config(server.url))
        (tmp_path / "run.toml").write_text(f'suites = ["suite.json"]\nallow_env = ["{NAME}"]\n')
        bakeoff.run(tmp_path / "run.toml", output=tmp_path / "runs")
        assert stolen(server)
        server.requests.clear()
        (tmp_path / "run.toml").write_text(
            f'suites = ["suite.json"]\n[[models]]\nmodel = "m"\nbase_url = "{server.url}"\n'
            f'api_key = "${{{NAME}}}"\n'
        )
        bakeoff.run(tmp_path / "run.toml", output=tmp_path / "runs")
        assert stolen(server)


def test_a_dialogue_does_not_read_the_operators_variables_or_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", VALUE)
    case = {"id": "d", "objective": "say hello"}
    with Loopback() as server:
        for role in (
            {"model": "m", "base_url": server.url, "api_key": f"${{{NAME}}}"},
            {"model": "anthropic/m", "base_url": server.url},
        ):
            path = tmp_path / "case.json"
            path.write_text(json.dumps({**case, "roles": {"instructor": role}}))
            with pytest.raises(UsageError, match="a suite may read none by itself"):
                bakeoff.run(path, models=["scripted/echo"], output=tmp_path / "runs")
        assert not server.requests


def test_validate_says_what_a_suite_would_need(tmp_path: Path) -> None:
    graders = tmp_path / "graders.py"
    graders.write_text(GRADERS)
    config = api_config("http://127.0.0.1:9/v1")
    lines = check(write_suite(tmp_path, api_config=config, scorers=["graders:grade"]))
    assert f"it reads the environment variable {NAME}: allow that with --allow-env {NAME}" in lines
    assert "it runs Python of its own (graders:grade): allow that with --trust" in lines


# --- TestRunner ---------------------------------------------------------------------------------


def test_in_test_runner_only_the_operators_files_read_variables(tmp_path: Path) -> None:
    with Loopback() as server:
        suite = write_suite(tmp_path, api_config=api_config(server.url))
        runner = TestRunner()
        runner.load_test_suite(str(suite))
        (result,) = runner.execute_sequential()
        assert not result.success
        assert '"suite_access": {"allow_env": ["OPERATORS_TOKEN"]}' in result.error_message
        assert not server.requests

        (tmp_path / "mine.json").write_text(json.dumps({"api_config": api_config(server.url)}))
        assert runner.load_test_metadata(str(tmp_path / "mine.json"))
        (result,) = runner.execute_sequential()
        assert result.success, result.error_message
        assert stolen(server)

        server.requests.clear()
        allowed = {"suite_access": {"allow_env": [NAME]}}
        (tmp_path / "config.json").write_text(json.dumps(allowed))
        runner = TestRunner(str(tmp_path / "config.json"))
        runner.load_test_suite(str(suite))
        (result,) = runner.execute_sequential()
        assert result.success, result.error_message
        assert stolen(server)


def test_in_test_runner_what_configure_api_says_is_the_operators(tmp_path: Path) -> None:
    with Loopback() as server:
        config = {**api_config(server.url), "api_key": "${HOME}"}
        suite = write_suite(tmp_path, api_config=config)
        runner = TestRunner()
        runner.load_test_suite(str(suite))
        runner.configure_api(server.url, "m", {"X-Mine": f"${{{NAME}}}"})
        (result,) = runner.execute_sequential()
        assert result.success, result.error_message
        headers = server.requests[0].headers
        assert headers["X-Mine"] == VALUE
        assert "Authorization" not in headers


# --- Python -------------------------------------------------------------------------------------


def refused_scorer(source: Path, tmp_path: Path, **options: Any) -> str:
    with pytest.raises(UsageError) as refused:
        bakeoff.run(source, models=["scripted/echo"], output=tmp_path / "runs", **options)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "runs").exists()
    return str(refused.value)


@pytest.mark.parametrize("place", ["suite", "test", "run-file", "task-folder", "dialogue"])
def test_a_suite_runs_no_python_without_trust(tmp_path: Path, place: str) -> None:
    for folder in (tmp_path, tmp_path / "fix-add"):
        folder.mkdir(exist_ok=True)
        (folder / "graders.py").write_text(GRADERS)
    match place:
        case "suite":
            source = write_suite(tmp_path, scorers=["graders:grade"])
        case "test":
            test = {"id": "a", "prompt": "p", "scorers": ["graders:grade"]}
            source = write_suite(tmp_path, tests=[test])
        case "run-file":
            write_suite(tmp_path, scorers=["graders:grade"])
            source = tmp_path / "run.toml"
            source.write_text('suites = ["suite.json"]\n')
        case "task-folder":
            (tmp_path / "fix-add" / "graders.py").unlink()
            (tmp_path / "fix-add").rmdir()
            source = write_fix_add(tmp_path, settings='scorers = ["graders:grade"]\n')
        case _:
            source = tmp_path / "case.json"
            case = {"id": "a", "objective": "o", "scorers": ["graders:grade"]}
            source.write_text(json.dumps(case))
    message = refused_scorer(source, tmp_path)
    assert "the scorer 'graders:grade' is Python that would run on this machine" in message
    assert "add --trust" in message


def test_a_suite_runs_its_python_where_the_operator_trusts_it(tmp_path: Path) -> None:
    (tmp_path / "graders.py").write_text(GRADERS)
    suite = write_suite(tmp_path, scorers=["graders:grade"])
    models = ["scripted/echo"]
    run = bakeoff.run(suite, models=models, output=tmp_path / "runs", trust=True)
    assert [r.attempt.passed for r in run.trials()] == [True]
    assert (tmp_path / "ran").exists()
    (tmp_path / "run.toml").write_text('suites = ["suite.json"]\ntrust = true\n')
    bakeoff.run(tmp_path / "run.toml", models=models, output=tmp_path / "runs")
    write_suite(tmp_path)
    (tmp_path / "run.toml").write_text('suites = ["suite.json"]\nscorers = ["graders:grade"]\n')
    bakeoff.run(tmp_path / "run.toml", models=models, output=tmp_path / "runs")
    bakeoff.run(suite, models=models, scorers=["graders:grade"], output=tmp_path / "runs")
    anew = write_suite(tmp_path, scorers=["graders:grade"])
    with pytest.raises(UsageError, match="add --trust"):
        rescore("latest", anew, output=tmp_path / "runs")
    rescore("latest", anew, output=tmp_path / "runs", trust=True)


@pytest.mark.parametrize(
    "scorer",
    [
        "os:system",
        "builtins:eval",
        "subprocess:call",
        "os.path:exists",
        "graders:system",
        "os.py:system",
    ],
)
def test_nothing_of_the_standard_library_is_a_scorer_even_with_trust(
    tmp_path: Path, scorer: str
) -> None:
    (tmp_path / "graders.py").write_text(GRADERS)
    test = {"id": "a", "prompt": "touch ran", "scorers": [scorer]}
    message = refused_scorer(write_suite(tmp_path, tests=[test]), tmp_path, trust=True)
    assert f"{scorer!r} is part of Python's standard library" in message


def test_a_file_of_ones_own_may_have_the_name_of_a_standard_module(tmp_path: Path) -> None:
    (tmp_path / "statistics.py").write_text("def grade(answer):\n    return 1.0\n")
    assert callable(registry.find("scorers", "statistics:grade", folders=[tmp_path]))
