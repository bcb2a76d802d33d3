"""Rollout configs: every key, models and agents of each entry, globs, and what becomes of mistakes."""

import time
from pathlib import Path

import pytest

from bakeoff import app
from bakeoff.app import pairings
from bakeoff.app.checks import check
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.formats.detect import read_path
from support.prepared_tasks import write_overrides, write_prepared

EVERY_KEY = """
name = "my_benchmark"
description = "for people"
parallel = 4
rollouts = 2
agent = "shell"
sandbox = "bubblewrap"

[models.judged]
model = "scripted/echo"
parameters = { temperature = 0 }

[limits]
requests = 9

[budget]
max_tokens = 1000

[roles]
judge = "scripted"

[[tasks]]
prepared_dir = "prepared/task_1"
model = "gpt-4"
rollouts = 3
apply_overrides = true
overrides = "prepared/task_1/overrides.json"

[[tasks]]
prepared_dir = "prepared/task_1"
model = "claude-3-sonnet"
rollouts = 5
apply_overrides = false
agent = { agent = "codex", settings = { } }

[[tasks]]
prepared_dir = "prepared/task_2"
model = "judged"
environment_variables = { "TIMEOUT_SEC" = "1800", LEVEL = 2 }
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two prepared tasks, and the current one."""
    write_prepared(tmp_path / "prepared" / "task_1")
    write_overrides(tmp_path / "prepared" / "task_1", prompt="Another way.")
    write_prepared(tmp_path / "prepared" / "task_2")
    (tmp_path / "configs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _read(place: Path, text: str) -> RunSpec:
    path = place / "configs" / "bench.toml"
    path.write_text(text)
    return read_path(path.relative_to(place))


def test_every_key_counts(place: Path) -> None:
    brief = _read(place, EVERY_KEY)
    assert (brief.name, brief.parallel, brief.sandbox.name) == ("my_benchmark", 4, "bubblewrap")
    assert brief.conditions.limits.requests == 9
    assert brief.cap.tokens == 1000
    assert set(brief.conditions.roles) == {"judge"}
    with_overrides, plain, swept = brief.pairings
    assert [p.rollouts for p in brief.pairings] == [3, 5, 2]
    assert [p.model.name for p in brief.pairings] == ["gpt-4", "claude-3-sonnet", "scripted/echo"]
    assert [p.agent.name for p in brief.pairings] == ["shell", "codex", "shell"]
    assert with_overrides.task.messages[0].content == "Another way."
    assert plain.task.messages[0].content.startswith("Make `add`")
    assert swept.model.label == "judged"
    assert swept.model.parameters == {"temperature": 0}
    assert swept.agent.environment == {"TIMEOUT_SEC": "1800", "LEVEL": "2"}
    assert swept.agent.time_s == 1800.0
    assert with_overrides.task.metadata["task_dir"] == "prepared/task_1"
    assert len(brief.tasks) == 3


def test_one_folder_with_and_without_overrides_is_two_tasks_with_two_ids(place: Path) -> None:
    ids = [task.id for task in _read(place, EVERY_KEY).tasks]
    assert ids[0] == "task_1"
    assert ids[1].startswith("task_1~")
    assert ids[2] == "task_2"


def test_the_defaults_are_those_of_the_documents(place: Path) -> None:
    brief = _read(place, '[[tasks]]\nprepared_dir = "prepared/task_2"\nmodel = "gpt-4"\n')
    (pairing,) = brief.pairings
    assert (brief.name, brief.parallel, pairing.rollouts) == ("bench", 1, 1)
    assert pairing.agent.name == ""


def test_a_glob_is_every_prepared_folder_it_matches(place: Path) -> None:
    (place / "prepared" / "no_task").mkdir()
    brief = _read(place, '[[tasks]]\nprepared_dir = "prepared/*"\nmodel = "gpt-4"\n')
    assert [p.task.id for p in brief.pairings] == ["task_1", "task_2"]
    with pytest.raises(UsageError, match=r"bench.toml:2: key 'tasks\[0\].prepared_dir': 'nope/\*'"):
        _read(place, '[[tasks]]\nprepared_dir = "nope/*"\nmodel = "gpt-4"\n')


def test_a_path_may_begin_beside_the_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / "bench.toml"
    path.write_text('[[tasks]]\nprepared_dir = "prepared/task_2"\nmodel = "gpt-4"\n')
    monkeypatch.chdir(place / "configs")
    assert read_path(path).pairings[0].task.trouble is None


def test_a_folder_that_is_broken_does_not_stop_the_others(place: Path) -> None:
    (place / "prepared" / "task_1" / "tb_meta.json").unlink()
    brief = _read(place, EVERY_KEY)
    assert [p.task.trouble is None for p in brief.pairings] == [False, False, True]
    assert "prepared/task_1/tb_meta.json is not there" in str(brief.pairings[0].task.trouble)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[tasks]]\nprepared_dir = 'x'\nmodel = 'm'\nrollout = 3\n", ":4: unknown key 'rollout'"),
        ("[[tasks]]\nprepared_dir = 'x'\n", "`model` is missing"),
        ("[[tasks]]\nprepared_dir = 'x'\nmodel = 'm'\nrollouts = 0\n", ":4: key"),
        (
            "[[tasks]]\nprepared_dir='x'\nmodel='m'\nenvironment_variables={TIMEOUT_SEC='-1'}\n",
            ":4: key 'tasks[0].environment_variables': TIMEOUT_SEC must be a number",
        ),
        ("parallell = 2\n[[tasks]]\nprepared_dir = 'x'\nmodel = 'm'\n", "did you mean 'parallel'"),
    ],
)
def test_a_mistake_in_the_config_is_told_with_its_line(place: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        _read(place, text)
    assert str(error.value).startswith("configs/bench.toml")
    assert said in str(error.value)


def test_any_other_toml_is_still_a_run_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('models = ["scripted"]\n[[tasks]]\nid = "a"\nprompt = "say a"\n')
    assert read_path(path).tasks[0].id == "a"


def test_a_sweep_over_the_environment_is_a_sweep_over_candidates(place: Path) -> None:
    path = place / "configs" / "bench.toml"
    path.write_text(
        "".join(
            f'[[tasks]]\nprepared_dir = "prepared/task_2"\nmodel = "scripted"\nagent = "shell"\n'
            f'rollouts = 3\nenvironment_variables = {{ "TIMEOUT_SEC" = "{seconds}" }}\n'
            for seconds in (1800, 3600)
        )
    )
    plan = app.plan(path).plan
    assert len(plan) == 6
    ids = [c.id for c in plan.candidates]
    assert ids[0].startswith("shell+scripted/echo(TIMEOUT_SEC=1800)~")
    assert ids[1].startswith("shell+scripted/echo(TIMEOUT_SEC=3600)~")


def test_the_same_task_for_the_same_candidate_twice_adds_up(place: Path) -> None:
    entry = '[[tasks]]\nprepared_dir = "prepared/task_2"\nmodel = "scripted"\nrollouts = 2\n'
    path = place / "configs" / "bench.toml"
    path.write_text(f'agent = "shell"\n{entry}{entry}')
    plan = app.plan(path).plan
    assert len(plan) == len({t.id for t in plan}) == 4
    assert [t.rollout for t in plan] == [0, 1, 2, 3]


def test_who_is_named_on_the_command_line_wins_and_what_becomes_equal_is_one(place: Path) -> None:
    path = place / "configs" / "bench.toml"
    path.write_text(
        'agent = "shell"\n'
        '[[tasks]]\nprepared_dir = "prepared/*"\nmodel = "gpt-4"\nrollouts = 2\n'
        '[[tasks]]\nprepared_dir = "prepared/*"\nmodel = "claude-3-sonnet"\nrollouts = 3\n'
    )
    plan = app.plan(path, models=["scripted"], agents=["nop", "shell"]).plan
    assert [c.id for c in plan.candidates] == ["nop", "shell+scripted/echo"]
    assert len(plan) == 2 * 2 * 3
    assert len(app.plan(path, rollouts=1, tests=["task_2"]).plan) == 2


def test_an_agent_that_nobody_named_is_chosen_and_said(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place / "configs" / "bench.toml"
    path.write_text('[[tasks]]\nprepared_dir = "prepared/task_2"\nmodel = "scripted"\n')
    monkeypatch.setenv("PATH", str(place))
    prepared = app.plan(path)
    assert [c.agent.name for c in prepared.plan.candidates] == ["shell"]
    assert prepared.notices == ("agent: shell, the built-in one, since codex is not installed",)
    (place / "codex").write_text("#!/bin/sh\n")
    (place / "codex").chmod(0o755)
    assert pairings.default_agent() == "codex"
    assert app.plan(path, agents=["shell"]).notices == ()


def test_hundreds_of_entries_load_fast_since_a_folder_is_read_once(place: Path) -> None:
    path = place / "configs" / "bench.toml"
    entry = '[[tasks]]\nprepared_dir = "prepared/task_2"\nmodel = "scripted"\nenvironment_variables = {{ N = {} }}\nagent = "shell"\n'
    path.write_text(entry.format(0))
    began = time.process_time()
    app.plan(path)
    one = time.process_time() - began
    path.write_text("".join(entry.format(n) for n in range(500)))
    began = time.process_time()
    assert len(app.plan(path).plan) == 500
    # 500 entries of one folder: far less than 500 times one
    assert time.process_time() - began < 100 * one + 1


def test_a_config_is_checked_with_all_that_is_wrong_about_its_folders(place: Path) -> None:
    path = place / "configs" / "bench.toml"
    path.write_text(
        'agent = "shell"\n'
        '[[tasks]]\nprepared_dir = "prepared/task_1"\nmodel = "scripted"\n'
        '[[tasks]]\nprepared_dir = "prepared/none"\nmodel = "scripted/other"\n'
        '[[tasks]]\nprepared_dir = "prepared/nobody"\nmodel = "scripted"\n'
    )
    with pytest.raises(UsageError) as error:
        check(path)
    assert str(error.value).splitlines() == [
        "prepared/none: there is no such folder",
        "prepared/nobody: there is no such folder",
    ]
