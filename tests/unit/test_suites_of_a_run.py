"""What a run file names under `suites` is what the command line makes of the same path."""

import json
from pathlib import Path

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.formats.detect import read_source as read

MARKDOWN = (
    "# Task: Fix it\n\n**Difficulty**: Easy\n\nDo it.\n\n## Success Criteria\n\n- [ ] It works\n"
)


def _task_folder(folder: Path) -> None:
    (folder / "tests").mkdir(parents=True)
    (folder / "instruction.md").write_text("Do it.")
    (folder / "tests" / "test_it.py").write_text("def test_it():\n    assert True\n")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "fix.md").write_text(MARKDOWN)
    (tmp_path / "checked.md").write_text(MARKDOWN)
    (tmp_path / "checked" / "tests").mkdir(parents=True)
    (tmp_path / "checked" / "tests" / "test_it.py").write_text("def test_it():\n    assert True\n")
    for name in ("one", "two"):
        _task_folder(tmp_path / "tasks" / name)
    cases = tmp_path / "cases"
    cases.mkdir()
    (cases / "a.toml").write_text('objective = "o"\n[roles]\ninstructor = "scripted/echo"\n')
    (cases / "b.json").write_text(json.dumps({"objective": "p"}))
    (tmp_path / "suite.json").write_text('{"tests": [{"id": "x", "prompt": "p", "expected": "e"}]}')
    return tmp_path


def _through(home: Path, *names: str, more: str = "") -> RunSpec:
    path = home / "run.toml"
    path.write_text(f"suites = {json.dumps(names)}\n{more}")
    return read(path, {})


@pytest.mark.parametrize(
    "name",
    ["fix.md", "checked.md", "tasks", "tasks/one", "cases", "cases/a.toml", "cases/b.json", "suite.json"],
)  # fmt: skip
def test_it_is_the_same_as_on_the_command_line(home: Path, name: str) -> None:
    alone, through = read(home / name, {}), _through(home, name)
    assert alone.tasks
    assert [task.digest for task in through.tasks] == [task.digest for task in alone.tasks]
    assert [task.metadata for task in through.tasks] == [task.metadata for task in alone.tasks]
    assert through.conditions.roles == alone.conditions.roles
    assert set(alone.sources) <= set(through.sources)


def test_all_of_them_may_stand_side_by_side(home: Path) -> None:
    brief = _through(home, "fix.md", "tasks", "cases", "suite.json")
    assert [task.id for task in brief.tasks] == ["fix", "one", "two", "a", "b", "x"]


def test_the_judge_of_the_run_judges_the_criteria_of_a_task_in_markdown(home: Path) -> None:
    assert _through(home, "fix.md").tasks[0].scorers == ()
    judge = '[roles]\njudge = "scripted/echo"\n'
    task, checked = _through(home, "fix.md", "checked.md", more=judge).tasks
    assert [scorer.name for scorer in task.scorers] == ["rubrics"]
    assert [scorer.name for scorer in checked.scorers] == ["tests"]


def test_a_role_of_the_run_goes_before_that_of_a_dialogue(home: Path) -> None:
    roles = '[roles]\ninstructor = "scripted/other"\njudge = "scripted/echo"\n'
    found = _through(home, "cases", more=roles).conditions.roles
    assert {name: spec.name for name, spec in found.items()} == {
        "instructor": "scripted/other",
        "judge": "scripted/echo",
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.md", r"run\.toml:1: key 'suites': .*none\.md does not exist"),
        ("other.toml", r"run\.toml:1: key 'suites': .*other\.toml: a run file cannot name another"),
        ("notes.txt", r"run\.toml:1: key 'suites': .*notes\.txt: unknown kind of file"),
        ("empty", r"empty: there is no task in this folder"),
    ],
)  # fmt: skip
def test_what_is_no_suite_is_told_so(home: Path, name: str, message: str) -> None:
    (home / "other.toml").write_text('suites = ["suite.json"]\n')
    (home / "notes.txt").write_text("hello")
    (home / "empty").mkdir()
    with pytest.raises(UsageError, match=message):
        _through(home, name)
