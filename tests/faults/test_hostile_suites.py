"""Suites that mean harm, or were made by a careless program: they run, or are refused in a sentence."""

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import UsageError
from support.cli import Ended
from support.cli import bakeoff as command

IDS = [
    "../../x",
    "/etc/passwd",
    "a/b",
    "con",
    "..",
    ".",
    "-rf",
    "--help",
    "$(touch owned)",
    "`touch owned`",
    "a'; DROP TABLE attempt; --",
    "%s %n {0} {task}",
    "x" * 5000,
    "😀" * 300,
    "line\nbreak",
    "nul\x00byte",
    "\u202eright to left",
    "a@b#0",
    "*",
    "[!x]",
    "[red]markup[/red]",
]

Cli = Callable[..., Ended]


def _tree(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder three levels deep, so that a path that climbs is seen in `tmp_path`."""
    home = tmp_path / "one" / "two" / "home"
    home.mkdir(parents=True)
    return home


@pytest.fixture
def cli(home: Path) -> Cli:
    def call(*words: str | Path, code: int = 0) -> Ended:
        ended = command(*words, cwd=home, timeout_s=120)
        assert ended.code == code, (ended.code, ended.err[-2000:])
        assert "Traceback" not in ended.err, ended.err[-2000:]
        assert len(ended.err) < 20_000
        return ended

    return call


def _write(home: Path, tests: list[dict[str, Any]], **rest: Any) -> Path:
    path = home / "suite.json"
    path.write_text(json.dumps({"tests": tests, **rest}), encoding="utf-8")
    return path


def test_ids_that_look_like_paths_or_programs_are_only_ids(cli: Cli, home: Path) -> None:
    tests = [{"id": i, "prompt": "hi", "expected": "hi", "category": i} for i in IDS]
    suite = _write(home, tests, suite_info={"name": "../../../climb/\x00\n" + "n" * 500})
    before = _tree(home.parents[2])
    summary = json.loads(cli("run", suite, "--model", "scripted", "--json").out)
    assert summary["buckets"]["scored"] == len(IDS)
    new = _tree(home.parents[2]) - before
    (run,) = [p for p in new if re.fullmatch(r"one/two/home/runs/[a-z0-9-]+", p)]
    assert all(p == "one/two/home/runs" or p.startswith(run) for p in new)
    assert len(Path(run).name) < 100

    cli("show")
    cli("summarize")
    cli("eval")
    loaded = bakeoff.load_run(home / "runs" / Path(run).name)
    assert {t.task_id for t in loaded.trials()} == set(IDS)
    assert [r.task_id for r in loaded.attempts("../../x")] == ["../../x"]


def test_a_test_with_a_hostile_id_can_be_selected_and_shown(cli: Cli, home: Path) -> None:
    suite = _write(home, [{"id": i, "prompt": "hi"} for i in IDS])
    for chosen in ("../../x", "line\nbreak", "[!x]"):
        cli("run", suite, "-m", "scripted", f"--test={chosen}", "--limit", "1")
        (shown,) = json.loads(cli("show", "latest", chosen, "--json").out)
        assert shown["task_id"] == chosen


def test_a_model_whose_name_is_a_path_writes_nowhere_else(cli: Cli, home: Path) -> None:
    suite = _write(home, [{"id": "a", "prompt": "hi"}])
    run = home / "run.toml"
    run.write_text(
        'name = "/../../up"\nsuites = ["suite.json"]\n'
        '[[models]]\nmodel = "scripted/../../../x"\nname = "/etc/passwd"\n'
    )
    before = _tree(home.parents[2])
    cli("run", run)
    assert suite.is_file()
    assert all(p.startswith("one/two/home/runs") for p in _tree(home.parents[2]) - before)


def test_a_prompt_of_five_megabytes_is_kept_whole(home: Path) -> None:
    prompt = "five megabytes \u00e9 " * 300_000
    suite = _write(home, [{"id": "big", "prompt": prompt, "expected": "megabytes"}])
    run = bakeoff.run(suite, models=["scripted"], output=home / "runs")
    (trial,) = run.trials()
    assert trial.attempt.score == 1.0
    assert trial.attempt.outcome is not None
    assert trial.attempt.outcome.answer == prompt
    assert bakeoff.load_run(run.folder).plan.digest == run.manifest.plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"tests": []}', ".json:1: there are no tests to run"),
        ('{"tests": [{"id": "a", "prompt": "x", "expected": NaN}]}', "NaN is not a JSON value"),
        (
            '{"tests": [{"id": "a", "prompt": "x", "expected": -Infinity}]}',
            "-Infinity is not a JSON",
        ),
        ('{"tests": ' + "[" * 5000 + "]" * 5000 + "}", "nested more than 200 levels deep"),
        (
            '{"tests": [{"id": "a", "prompt": "x", "m": ' + '{"a":' * 900 + "1" + "}" * 901 + "]}",
            "nested",
        ),
        ('{"tests": [{"id": "", "prompt": "x"}]}', "`id` is empty"),
        ('{"tests": [{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}]}', "is defined twice"),
        ('{"tests": null}', "a list is expected, not null"),
        ('"tests"', "a JSON object is expected"),
        ("\x00", "not valid JSON"),
        ('{"tests": [{"id": "a", "prompt": "\ud800"}]}', "not UTF-8 text"),
    ],
    ids=range(11),
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    cli: Cli, home: Path, text: str, message: str
) -> None:
    (home / "suite.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    before = _tree(home)
    ended = cli("run", "suite.json", "--model", "scripted", code=1)
    assert message in ended.err
    assert len(ended.err) < 1000
    assert _tree(home) == before


def test_nesting_that_is_deep_but_not_absurd_goes_all_the_way(home: Path) -> None:
    target: Any = "x"
    for _ in range(150):
        target = [target]
    suite = _write(
        home, [{"id": "a", "prompt": "x", "expected": target, "scorers": [], "m": target}]
    )
    run = bakeoff.run(suite, models=["scripted"], output=home / "runs")
    assert next(iter(run.plan.tasks)).target == target
    assert run.plan.digest == run.manifest.plan


def test_an_expected_value_that_no_scorer_can_use_is_refused_before_anything_runs(
    home: Path,
) -> None:
    suite = _write(home, [{"id": "a", "prompt": "x", "expected": {"a": 1}, "scorers": ["numeric"]}])
    with pytest.raises(UsageError, match="'a'"):
        bakeoff.run(suite, models=["scripted"], output=home / "runs")
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    "pattern",
    [r"(a+)+$", r"(", r"(?P<n>x)(?P<n>y)", "a" * 100_000],
    ids=["catastrophic", "broken", "twice", "huge"],
)
def test_a_pattern_of_a_suite_cannot_hang_the_run(home: Path, pattern: str) -> None:
    scorer = {"scorer": "pattern", "settings": {"pattern": pattern}}
    suite = _write(home, [{"id": "a", "prompt": "a" * 40 + "!", "scorers": [scorer]}])
    try:
        run = bakeoff.run(suite, models=["scripted"], output=home / "runs")
    except UsageError:
        return
    (trial,) = run.trials()
    assert trial.attempt.fault is not None or trial.attempt.score == 0.0


_RUN_MANY = r"""
import re, pathlib, bakeoff
run = bakeoff.run("suite.json", models=["scripted"], output="runs", parallel=64, **{options})
print(run.summary().buckets.planned, run.summary().buckets.scored)
# not ru_maxrss: that begins with what the process had which started this one
status = pathlib.Path("/proc/self/status").read_text()
print(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024)
"""


@pytest.mark.parametrize(("many", "options"), [(100_000, {"limit": 50}), (8_000, {})])
def test_very_many_tests_are_no_trouble(home: Path, many: int, options: dict[str, int]) -> None:
    tests = [{"id": f"t{n}", "prompt": f"say {n}", "expected": str(n)} for n in range(many)]
    _write(home, tests)
    count = options.get("limit", many)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = _RUN_MANY.replace("{options}", repr(options))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=170,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    planned, scored, peak_mb = map(int, done.stdout.split())
    assert (planned, scored) == (count, count)
    assert peak_mb < 500  # the tests themselves, and nothing that grows with the answers
    assert after.ru_utime - before.ru_utime < 60
