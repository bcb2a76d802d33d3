"""`bakeoff history`: the runs of a suite over time, what changed, and an exit code for a timer."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import bakeoff as package
from bakeoff._lib.redact import Redactor
from bakeoff.core.candidate import Candidate, Conditions, Limits, ModelSpec, PromptSpec
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt
from bakeoff.core.run_spec import Manifest, Source
from bakeoff.core.task import Task
from bakeoff.stores.folders import read_manifest, write_manifest
from support.cli import Ended, bakeoff
from support.plans import attempt, candidate, plan, scored_by, tasks
from support.reports import write_run

TASKS = tasks(60, scorers=scored_by("exact"))


def write(
    runs: Path, number: int, *, drop: float = 0.0, planned: Plan | None = None,
    model: str | None = None, seed: int = 0, **manifest: Any,
) -> Path:  # fmt: skip
    """Write the run of one night, in which tasks are solved by chance, and less often by a *drop*."""
    chance = Random(number + 1000 * seed)

    def ended(trial: Trial) -> Attempt:
        p = (int(trial.task.id[1:]) % 10) / 9 - drop
        solved = attempt(score=float(chance.random() < p))
        assert solved.outcome is not None
        return replace(solved, outcome=replace(solved.outcome, model=model))

    planned = planned or plan(*TASKS, candidates=[candidate("a")], rollouts=2)
    folder = write_run(runs / f"r{number:02}", planned, ended, name="nightly")
    known: Manifest = read_manifest(folder)
    when = f"2026-11-{number + 1:02}T05:00:00+00:00"
    write_manifest(folder, replace(known, **{"created_at": when, **manifest}), Redactor())
    return folder


def history(folder: Path, *words: str) -> Ended:
    ended = bakeoff("history", *words, "--output", folder / "runs", cwd=folder)
    assert "Traceback" not in ended.err
    return ended


@pytest.fixture(scope="module")
def drifted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten nights; before the eighth, another model came under the same name."""
    folder = tmp_path_factory.mktemp("drifted")
    for number in range(10):
        changed = number >= 7
        write(
            folder / "runs",
            number,
            drop=0.3 * changed,
            model="gpt-2026-11" if changed else "gpt-2026-05",
        )
    return folder


def test_a_change_is_named_with_its_run_and_with_what_else_changed_there(drifted: Path) -> None:
    ended = history(drifted)
    assert ended.code == 0, ended.err
    assert "nightly: 10 runs" in ended.out
    text = " ".join(ended.out.split())
    assert "change: from r07 on, scores are lower by 0." in text
    assert "With that run: answered by gpt-2026-11, before by gpt-2026-05" in text
    assert text.count("change: ") == 1


def test_a_timer_is_told_by_the_exit_code_with_the_run_that_brought_it_to_light(
    tmp_path: Path,
) -> None:
    for number in range(9):
        write(tmp_path / "runs", number, drop=0.4 * (number >= 8))
        code = history(tmp_path, "nightly", "--fail-on-change").code
        assert code == (5 if number == 8 else 0), number
    write(tmp_path / "runs", 9, drop=0.4)
    assert history(tmp_path, "nightly", "--fail-on-change").code == 0, "it was told already"


def test_json_has_every_run_and_python_has_the_same(drifted: Path) -> None:
    told: dict[str, Any] = json.loads(history(drifted, "--json").out)
    (suite,) = told["suites"]
    (series,) = suite["candidates"]
    assert [point["run"] for point in series["points"]] == [f"r{n:02}" for n in range(10)]
    assert series["points"][0]["score"]["interval"]["level"] == 0.95
    (change,) = series["changes"]
    assert (change["run"], change["point"]["at"]) == ("r07", 7)
    found = package.history("nightly", output=drifted / "runs")
    assert found.suites[0].candidates[0].changes[0].run == "r07"
    assert not found.changed_now
    few = package.history(output=drifted / "runs", last=4).suites[0]
    assert few.runs == ("r06", "r07", "r08", "r09")


def test_a_broken_run_is_named_and_left_out(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "runs", number)
    (tmp_path / "runs" / "r01" / "ledger.sqlite").write_bytes(b"no ledger" * 100)
    ended = history(tmp_path)
    assert ended.code == 0
    assert "nightly: 2 runs" in ended.out
    assert "left out: r01: " in ended.out
    assert "no change that is sure in 2 runs" in ended.out


def test_what_was_not_the_same_is_marked_at_the_run_where_it_changed(tmp_path: Path) -> None:
    runs, known = tmp_path / "runs", candidate("a")
    judge = ModelSpec(provider="openai", name="judge-2")
    asked: Candidate = replace(known, prompt=PromptSpec(name="p", text="Think. {{prompt}}"))

    def under(*given: Task, who: Candidate = known, conditions: Conditions | None = None) -> Plan:
        planned = plan(*given, candidates=[who])
        return planned if conditions is None else replace(planned, conditions=conditions)

    write(runs, 0, planned=under(*TASKS), sources=(Source(path="/x/suite.json", digest="1"),))
    changed = (replace(TASKS[0], target="x"), *TASKS[2:])
    write(runs, 1, planned=under(*changed), sources=(Source(path="/x/suite.json", digest="2"),))
    write(runs, 2, planned=under(*changed, who=asked), served={"python/a": {"digest": "1"}})
    other = Conditions(limits=Limits(time_s=9), roles={"judge": judge})
    write(runs, 3, planned=under(*changed, who=asked, conditions=other),
          served={"python/a": {"digest": "2"}}, bakeoff="9.9.9")  # fmt: skip
    text = " ".join(history(tmp_path).out.split())
    for mark in (
        "r01: another content of suite.json",
        "r01: tasks: 1 changed (t0000), 1 gone (t0001)",
        "r02: differs in prompt",
        "r03: limits.time_s is not set and 9",
        "r03: the judge is nobody and openai/judge-2",
        "r03: served as something else",
        "r03: bakeoff is 0.1.0 and 9.9.9",
    ):
        assert mark in text, mark


def test_a_suite_is_named_by_its_runs_or_by_its_file(tmp_path: Path) -> None:
    source = Source(path=str(tmp_path / "suite.json"), digest="1")
    write(tmp_path / "runs", 0, sources=(source,))
    for name in ("nightly", "suite.json", str(tmp_path / "suite.json")):
        assert "nightly: 1 run" in history(tmp_path, name).out, name
    for words, told in (
        (("nihgtly",), "no run of 'nihgtly' in "),
        (("nightly", "--candidate", "x"), "no candidate 'x' in these runs"),
        (("/elsewhere/suite.json",), "no run of '/elsewhere/suite.json'"),
    ):
        ended = history(tmp_path, *words)
        assert (ended.code, told in ended.err) == (1, True), ended.err
    (tmp_path / "empty").mkdir()
    assert "there are no runs in" in history(tmp_path / "empty").err
