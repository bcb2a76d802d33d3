"""The command line as a person uses it: a process of its own, a real server, real files."""

import io
import json
import re
import resource
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

import bakeoff
from bakeoff.cli.views.tables import print_summary
from support.cli import BAKEOFF, Ended, not_outliving
from support.cli import bakeoff as run_command
from support.loopback import Asked, Loopback, Reply, chat

ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

Cli = Callable[..., Ended]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run a command in a folder of its own; no traceback and no escape ever reaches a pipe."""

    def call(*words: str | Path, code: int = 0, env: dict[str, str] | None = None) -> Ended:
        ended = run_command(*words, cwd=tmp_path, env=env)
        assert ended.code == code, ended
        assert "Traceback" not in ended.err, ended.err
        assert not ESCAPE.search(ended.out + ended.err), repr(ended)
        return ended

    return call


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Twelve tests in two categories; the echo of each prompt is right for all but one."""
    tests = [
        {
            "id": f"{'odd' if n % 2 else 'even'}_{n:02}",
            "category": "odd" if n % 2 else "even",
            "prompt": f"say number {n:02}",
            "expected": "nothing" if n == 11 else f"number {n:02}",
        }
        for n in range(12)
    ]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"suite_info": {"name": "Twelve"}, "tests": tests}))
    return path


def _data(ended: Ended) -> Any:
    return json.loads(ended.out)


def _asked(server: Loopback) -> list[str]:
    return sorted(asked.prompt for asked in server.requests)


# --- run


def test_a_run_says_how_it_went_and_where_it_is_kept(cli: Cli, suite: Path, tmp_path: Path) -> None:
    with Loopback() as server:
        ended = cli("run", suite, "--model", "m", "--base-url", server.url)
    assert len(server.requests) == 12
    assert "12 planned = 12 scored" in ended.out
    assert "0.917" in ended.out
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"bakeoff show {folder.name}" in ended.out
    assert f"run {folder.name}: 12 trials" in ended.err
    assert {"ledger.sqlite", "manifest.json", "summary.json"} <= {p.name for p in folder.iterdir()}
    assert json.loads((folder / "summary.json").read_text())["buckets"]["scored"] == 12


def test_models_rollouts_and_json_go_together(cli: Cli, suite: Path) -> None:
    with Loopback() as server:
        ended = cli(
            "run", suite, "-m", "one", "-m", "two", "--base-url", server.url, "--rollouts", "2",
            "--json",
        )  # fmt: skip
    assert len(server.requests) == 48
    assert {asked.body["model"] for asked in server.requests} == {"one", "two"}
    summary = _data(ended)
    assert summary["rollouts"] == 2
    assert [c["candidate"] for c in summary["candidates"]] == ["one", "two"]
    assert summary["buckets"]["scored"] == 48
    assert {g["category"] for g in summary["candidates"][0]["categories"]} == {"odd", "even"}


@pytest.mark.parametrize("parallel", [1, 3])
def test_as_many_trials_are_under_way_as_was_said(cli: Cli, suite: Path, parallel: int) -> None:
    def slow(asked: Asked) -> Reply:
        time.sleep(0.05)
        return chat(asked.prompt)

    with Loopback(slow) as server:
        cli("run", suite, "-m", "m", "--base-url", server.url, "--parallel", str(parallel))
    assert server.peak_in_flight == parallel


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--category", "odd"], [1, 3, 5, 7, 9, 11]),
        (["--category", "odd", "--category", "even"], [*range(12)]),
        (["--test", "*_0[12]", "--test", "even_10"], [1, 2, 10]),
        (["--test", "odd_0?", "--limit", "2"], [1, 3]),
        (["--limit", "3"], [0, 1, 2]),
    ],
)
def test_a_selection_asks_for_just_that(
    cli: Cli, suite: Path, words: list[str], asked: list[int]
) -> None:
    with Loopback() as server:
        cli("run", suite, "-m", "m", "--base-url", server.url, *words)
    assert _asked(server) == [f"say number {n:02}" for n in asked]


def test_a_resume_asks_only_for_the_rest(cli: Cli, suite: Path, tmp_path: Path) -> None:
    with Loopback() as server:
        place = ("-m", "m", "--base-url", server.url, "--output", tmp_path / "kept")
        cli("run", suite, *place, "--limit", "5")
        assert len(server.requests) == 5
        ended = cli("run", suite, *place, "--resume", "latest")
        assert "5 already done" in ended.err
        assert _asked(server) == [f"say number {n:02}" for n in range(12)]
        cli("run", "--resume", "latest", "--output", tmp_path / "kept")
        assert len(server.requests) == 12
    assert len([*(tmp_path / "kept").iterdir()]) == 1
    assert not (tmp_path / "runs").exists()
    assert "12 planned = 12 scored" in cli("summarize", "--output", tmp_path / "kept").out


def test_a_resume_says_what_differs_and_runs_that_again(cli: Cli, suite: Path) -> None:
    with Loopback() as server:
        place = ("-m", "m", "--base-url", server.url)
        cli("run", suite, *place)
        suite.write_text(suite.read_text().replace("say number 03", "say the number 03"))
        ended = cli("run", suite, *place, "--resume", "latest")
        assert "task 'odd_03' differs in messages" in ended.err
        assert len(server.requests) == 13


def test_a_resume_without_its_source_heeds_what_is_said_about_how_to_run(
    cli: Cli, suite: Path
) -> None:
    def slow(asked: Asked) -> Reply:
        time.sleep(0.03)
        if asked.number < 12:
            return Reply(status=400, body=b"no")
        return chat(asked.prompt)

    with Loopback(slow) as server:
        cli("run", suite, "-m", "m", "--base-url", server.url, "--keep-going", code=3)
        server.peak_in_flight = 0
        cli("run", "--resume", "latest", "--parallel", "1")
        assert len(server.requests) == 24
        assert server.peak_in_flight == 1


def test_a_setting_overrides_a_run_file_and_a_suite(cli: Cli, suite: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.toml"
    run.write_text('suites = ["suite.json"]\nmodels = ["scripted"]\nrollouts = 5\n')
    data = _data(cli("run", run, "--set", "rollouts=1", "--set", "name=other", "--json"))
    assert (data["rollouts"], data["buckets"]["scored"]) == (1, 12)
    assert data["run"].endswith("-other")
    words = ("--set", 'models=["scripted"]', "--set", "parameters.temperature=1", "--limit", "1")
    assert _data(cli("run", suite, *words, "--json"))["buckets"]["scored"] == 1
    shown = _data(cli("show", "latest", "--json"))
    assert shown[0]["task_id"] == "even_00"


def test_a_dry_run_plans_and_does_nothing(cli: Cli, suite: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    plain = cli("run", suite, "-m", "scripted", "--rollouts", "3", "--dry-run").out
    assert re.search(r"trials +36\n", plain)
    data = _data(cli("run", suite, "-m", "scripted", "--rollouts", "3", "--dry-run", "--json"))
    assert (data["trials"], data["tasks"], data["categories"]) == (36, 12, ["even", "odd"])
    assert sorted(tmp_path.rglob("*")) == before


# --- list, show, summarize


def test_what_there_is_can_be_listed(cli: Cli, suite: Path) -> None:
    assert "there are no runs" in cli("list", "runs").out
    cli("run", suite, "-m", "scripted", "--limit", "2")
    (row,) = _data(cli("list", "runs", "--json"))
    assert (row["planned"], row["done"], row["candidates"]) == (2, 2, "scripted/echo")
    assert row["run"] in cli("list", "runs").out
    assert len(_data(cli("list", "tasks", suite, "--json"))) == 12
    assert "say number 00" in cli("list", "tasks", suite).out
    assert "embedded" in cli("list", "models").out
    assert "direct" in cli("list", "agents").out
    names = {row["scorer"] for row in _data(cli("list", "scorers", "--json"))}
    assert {"exact", "includes", "numeric", "choice", "json", "judge", "pattern"} <= names


def test_a_run_and_each_of_its_trials_can_be_shown(cli: Cli, suite: Path) -> None:
    cli("run", suite, "-m", "scripted", "--rollouts", "2", "--limit", "2")
    run = _data(cli("list", "runs", "--json"))[0]["run"]
    assert "even_00@scripted/echo#1" in cli("show").out
    assert "4 trials planned" in cli("show", run).out
    assert "4 trials planned" in cli("show", run[:12]).out
    whole = cli("show", "latest", "even_00@scripted/echo#0").out
    assert "say number 00" in whole
    assert "expected: number 00" in whole
    assert "score includes 1.000" in whole
    assert len(_data(cli("show", "latest", "even_00", "--json"))) == 2
    (one,) = _data(cli("show", run, "odd_01@scripted/echo#1", "--json"))
    assert one["attempt"]["outcome"]["answer"] == "say number 01"
    words = ("odd_01@scripted/echo#1", "--json")
    assert _data(cli("show", run, "--output", "runs", *words)) == [one]
    assert _data(cli("show", "--json", "--output", "runs", run, words[0])) == [one]
    assert "unexpected argument: more" in cli("show", run, words[0], "more", code=2).err


def test_the_summary_printed_is_the_summary_as_data(cli: Cli, suite: Path, tmp_path: Path) -> None:
    from_run = _data(cli("run", suite, "-m", "scripted", "--json"))
    again = _data(cli("summarize", "latest", "--json"))
    assert again == from_run
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "summary.json").read_text()) == from_run
    assert _data(cli("summarize", folder, "--json")) == from_run
    assert sum(from_run["buckets"].values()) == 12


# --- init, validate, schema


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_narrow_terminal_hides_no_name_and_no_figure(
    suite: Path, tmp_path: Path, width: int
) -> None:
    models = ["scripted/a-rather-long-name-of-a-model", "scripted/b"]
    run = bakeoff.run(suite, models=models, rollouts=2, output=tmp_path / "runs")
    out = Console(file=io.StringIO(), width=width)
    print_summary(run.summary(), out=out)
    told = out.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in told
    titles = r"^(?:compared pairwise|by category|pass@k|speed and cost).*$"
    tables = re.split(titles, told, flags=re.MULTILINE)
    assert len(tables) == 5
    for table in tables:
        rows = (line.split(" ") for line in table.splitlines() if line.startswith(" "))
        letters = "".join("".join(words[1:3]) for words in rows)  # of a list, "A" and the name
        assert "scripted/" in letters or "even" in letters, table
    assert "p50/p95" in told
    assert "0.917" in told


def test_two_models_are_compared_and_a_verdict_is_printed(cli: Cli, tmp_path: Path) -> None:
    tests = [
        {"id": f"t{n}", "prompt": f"say {n}", "expected": "yes" if n < 9 else "no"}
        for n in range(10)
    ]
    (tmp_path / "suite.json").write_text(json.dumps({"tests": tests}))
    (tmp_path / "two.toml").write_text(
        'suites = ["suite.json"]\n'
        '[[models]]\nmodel = "scripted/nay"\nsettings = { replies = ["no"] }\n'
        '[[models]]\nmodel = "scripted/yea"\nsettings = { replies = ["yes"] }\n'
    )
    out = cli("run", "two.toml").out
    assert "compared pairwise" in out
    assert "chance by McNemar, exact" in out
    verdict = "verdict: scripted/yea solves 80 of 100 tasks more than scripted/nay ("
    assert out.splitlines()[-1].startswith(verdict)
    (pair,) = _data(cli("summarize", "latest", "--json"))["pairwise"]["pairs"]
    assert (pair["difference"], pair["better"]) == (-0.8, "scripted/yea")
    assert pair["mcnemar"]["p_exact"] == pytest.approx(22 / 2**10)
    alone = cli("run", "two.toml", "-m", "scripted").out
    assert "compared" not in alone
    assert "verdict" not in alone


def test_init_gives_something_that_validates_and_runs(cli: Cli, tmp_path: Path) -> None:
    assert "now try: bakeoff run first/bakeoff.toml" in cli("init", "first").out
    assert "first/bakeoff.toml: valid" in cli("validate", "first/bakeoff.toml").out
    ended = cli("run", "first/bakeoff.toml", "-m", "scripted")
    assert "3 planned = 3 scored" in ended.out
    refused = cli("init", "first", code=1)
    assert "already has bakeoff.toml, suite.json, my_scorers.py; nothing was written" in refused.err
    cli("init")
    assert (tmp_path / "my_scorers.py").is_file()


def test_validate_tells_what_would_be_planned(cli: Cli, suite: Path) -> None:
    out = cli("validate", suite).out
    assert "12 tasks in 2 categories" in out
    assert "no model is named" in out
    assert "12 trials" in cli("validate", suite, "--model", "m", "--base-url", "http://x/v1").out


def test_the_schema_accepts_the_template_and_rejects_a_typo(cli: Cli) -> None:
    schema = _data(cli("schema"))
    assert schema == _data(cli("schema", "run"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    template = files("bakeoff.templates").joinpath("bakeoff.toml").read_text(encoding="utf-8")
    data = tomllib.loads(template)
    validator.validate(data)
    assert not validator.is_valid({**data, "rolouts": 2})
    assert not validator.is_valid({**data, "rollouts": 0})
    assert not validator.is_valid({**data, "limits": {"time": 1}})


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("kind", "files_of_it"),
    [
        ("task", sorted(EXAMPLES.glob("tasks/*/task.toml"))),
        ("dialogue", sorted(EXAMPLES.glob("dialogues/cases/*.toml"))),
    ],
)
def test_the_schemas_of_tasks_and_dialogues_accept_the_examples(
    cli: Cli, kind: str, files_of_it: list[Path]
) -> None:
    schema = _data(cli("schema", kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert len(files_of_it) > 3
    for file in files_of_it:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        validator.validate(data)
        assert not validator.is_valid({**data, "tiem_s": 60})
        assert not validator.is_valid({**data, "time_s": 0})


# --- mistakes


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["rnu"], 2, "no command 'rnu'; did you mean 'run'?"),
        (["run", "--modle", "x"], 2, "no option is called '--modle'; did you mean '--model'?"),
        (["run", "--modle=x"], 2, "no option is called '--modle'; did you mean '--model'?"),
        (["show", "a", "b", "c"], 2, "unexpected argument: c"),
        (["run", "suite.json", "--rollouts", "0"], 2, "must be 1 or more, not 0"),
        (["run", "suite.json", "--set", "rollouts"], 2, "write KEY=VALUE"),
        (["list", "things"], 2, "invalid choice: 'things'"),
        (["run"], 1, "nothing to run: name a suite, a run file, or a run to resume (--resume)"),
        (["run", "none.json", "-m", "scripted"], 1, "none.json cannot be read: No such file"),
        (["run", "suite.txt", "-m", "scripted"], 1, "A suite ends in .json, a run file in .toml"),
        (["run", "suite.json"], 1, "no model is named: add --model provider/name"),
        (
            ["run", "suite.json", "-m", "openay/x"],
            1,
            "model 'openay/x': no provider is called 'openay'",
        ),
        (["run", "suite.json", "-m", "openai/x"], 1, "variable OPENAI_API_KEY is not set"),
        (
            ["run", "suite.json", "-m", "scripted", "--prices", "p/none.toml"],
            1,
            "error: p/none.toml cannot be read: No such file",
        ),
        (["batch", "--task", "p/none"], 1, "error: p/none: there is no such file or folder"),
        (
            ["run", "suite.json", "-m", "scripted", "--sandbox", "dokcer"],
            1,
            "no sandbox is called 'dokcer': did you mean 'docker'?",
        ),
        (["run", "suite.json", "-m", "scripted", "--test", "x"], 1, "no test 'x'"),
        (["run", "suite.json", "-m", "scripted", "--category", "o"], 1, "no category 'o'"),
        (["run", "suite.json", "-m", "scripted", "--resume", "x"], 1, "there are no runs in runs"),
        (["run", "bad.toml"], 1, "bad.toml:2: unknown key 'rolouts'; did you mean 'rollouts'?"),
        (["run", "suite.json", "--set", "modles=1"], 1, "unknown key 'modles'"),
        (["validate", "bad.toml"], 1, "bad.toml:2: unknown key 'rolouts'"),
        (
            ["run", "suite.json", "-m", "scripted", "--output", "suite.json"],
            1,
            "no run can be kept",
        ),
        (["show", "x"], 1, "there are no runs in runs; start one with: bakeoff run SUITE"),
        (["eval"], 1, "there are no runs in runs"),
        (["list", "tasks"], 1, "tasks of what? Write: bakeoff list tasks SUITE"),
    ],
)
def test_a_mistake_is_one_message_that_says_what_to_do(
    cli: Cli, suite: Path, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "bad.toml").write_text("name = 'x'\nrolouts = 3\n")
    ended = cli(*words, code=code)
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""
    assert not (tmp_path / "runs").exists()


def test_a_run_or_trial_that_is_not_there_is_told_with_the_nearest(cli: Cli, suite: Path) -> None:
    cli("run", suite, "-m", "scripted", "--limit", "1")
    assert "no run 'nothing' in runs: there are: " in cli("show", "nothing", code=1).err
    assert "no trial 'nothing' is recorded" in cli("show", "latest", "nothing", code=1).err


def test_a_server_that_is_not_there_ends_the_run_and_is_no_zero(cli: Cli, suite: Path) -> None:
    ended = cli(
        "run", suite, "-m", "m", "--base-url", "http://127.0.0.1:9/v1", "--limit", "2",
        "--give-up-after", "0.1s", code=6,
    )  # fmt: skip
    assert "given up: http://127.0.0.1:9: no answer for " in ended.err
    assert "nothing answers at http://127.0.0.1:9: connection refused" in ended.err
    assert "continue with: bakeoff run " in ended.err
    assert "2 planned = 0 scored + 2 not run" in ended.out
    assert re.search(r"m[\s│]+–[\s│]+–[\s│]+0%", ended.out), ended.out


def test_faults_end_with_the_command_that_tries_just_those_again(cli: Cli, suite: Path) -> None:
    def one_is_refused(asked: Asked) -> Reply:
        refused = asked.prompt == "say number 03" and len(server.requests) <= 12
        return Reply(status=400, body=b"no") if refused else chat(asked.prompt)

    with Loopback(one_is_refused) as server:
        ended = cli("run", suite, "-m", "m", "--base-url", server.url, "--parallel", "1", code=3)
        (command,) = re.findall(r"run those again with: bakeoff (.*)$", ended.err, re.MULTILINE)
        cli(*shlex.split(command))
    assert len(server.requests) == 13
    assert server.requests[-1].prompt == "say number 03"


def test_what_is_listed_is_told_in_full(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    no_docker = {"DOCKER_HOST": f"unix://{tmp_path}/none/docker.sock"}
    told = " ".join(cli("list", "sandboxes", env=no_docker).out.split())
    assert re.search(r"docker .*install|docker isolates", told), told
    assert "…" not in told


def test_a_pipe_that_closes_early_is_no_error_message(suite: Path) -> None:
    words: list[str | Path] = [*BAKEOFF, "list", "tasks", suite]
    pipes = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with not_outliving(pipes) as first:
        assert first.stdout is not None
        first.stdout.close()
        _, err = first.communicate(timeout=60)
    assert err == b""


# --- hostile text

HOSTILE = "\x1b[2J\x1b]0;owned\x07 [red]x[/red] [/] [link=file:///etc]y[/link] \u202eevil\u202c \x9b31m\r gone"


@pytest.fixture
def hostile(cli: Cli, tmp_path: Path) -> Cli:
    suite = {"tests": [{"id": "t\x1b[1m", "prompt": HOSTILE, "expected": "x", "category": HOSTILE}]}
    (tmp_path / "hostile.json").write_text(json.dumps(suite))
    with Loopback(lambda _: chat(HOSTILE)) as server:
        cli("run", "hostile.json", "-m", "m[bold]\x1b[1m", "--base-url", server.url)
    return cli


def test_hostile_answers_are_shown_as_text(hostile: Cli) -> None:
    out = hostile("show", "latest", "t\x1b[1m").out
    assert "[red]x[/red] [/] [link=file:///etc]y[/link]" in out
    assert "[red]x[/red] [/]" in hostile("show").out
    hostile("summarize")
    hostile("list", "runs")
    hostile("list", "tasks", "hostile.json")
    (shown,) = _data(hostile("show", "latest", "t\x1b[1m", "--json"))
    assert shown["attempt"]["outcome"]["answer"] == HOSTILE


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["validate", "hostile.json", "-m", "m\x1b[1m", "--base-url", "http://x"], 0),
        (["run", "hostile.json", "-m", "m\x1b[1m", "--base-url", "http://x", "--dry-run"], 0),
        (["show", "latest", "no\x1b[1m"], 1),
        (["run", "no\x1b[1m.json"], 1),
        (["run", "no\x1b[1m.txt"], 1),
        (["no\x1b[1m"], 2),
    ],
)
def test_hostile_names_are_told_as_text(
    cli: Cli, tmp_path: Path, words: list[str], code: int
) -> None:
    test = {"id": "t", "prompt": "x", "category": HOSTILE}
    (tmp_path / "hostile.json").write_text(json.dumps({"tests": [test]}))
    cli(*words, code=code)


def test_a_server_that_answers_with_escapes_is_a_harmless_fault(cli: Cli, suite: Path) -> None:
    with Loopback(lambda _: Reply(status=400, body=b"\x1b[2J[red]no[/red]")) as server:
        ended = cli("run", suite, "-m", "m", "--base-url", server.url, "--limit", "1", code=3)
    assert "[red]no[/red]" in ended.err
    assert "1 model error" in ended.out


# --- help

HEAVY = ("aiohttp", "msgspec", "scipy", "numpy", "rich", "asyncio", "jsonschema")


def test_help_is_there_for_everything(cli: Cli) -> None:
    text = cli("--help").out
    assert text == cli().out
    for command in ("run", "list", "show", "summarize", "eval", "init", "validate", "schema"):
        assert f"\n  {command} " in text
        assert f"usage: bakeoff {command}" in cli(command, "--help").out
    for code in ("0 ", "1 ", "2 ", "3 ", "130 "):
        assert f"\n  {code}" in text
    assert re.fullmatch(r"bakeoff \d+\.\d+\.\d+\S*\n", cli("--version").out)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["rnu"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bakeoff", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()
    }
    assert "bakeoff" in imported
    assert not imported & set(HEAVY)


def _cpu_s(words: list[str]) -> float:
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        best = min(best, spent)
    return best


def test_help_feels_instant() -> None:
    python = _cpu_s([sys.executable, "-c", "pass"])
    spent = _cpu_s([*BAKEOFF, "--help"])
    assert spent < 0.150
    assert spent < 6 * python
