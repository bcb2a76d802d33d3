"""Validation: sound tasks are told from those that measure nothing, in real boxes."""

import json
from pathlib import Path

import pytest

from bakeoff import cli
from bakeoff.agents.cheating import GROUPS, TRICKS
from bakeoff.app.validation import Finding, How, Verdict, validate_tasks
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Notice, RunEnded
from bakeoff.core.stop import Stop
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from support.batch_scene import write_task
from support.cheat_tasks import AS_A_PROGRAM, TELLING
from support.coding_tasks import RIGHT, write_fix_add
from support.parts import require

EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"
FEW = ("conftest", "exit-zero", "exit-at-exit", "patched-unittest", "decoy-aware")


def write_sound(folder: Path, *, name: str = "fix-add", settings: str = "") -> Path:
    """Write a task whose tests call the solution as a program."""
    task = write_fix_add(folder, name=name, settings=settings)
    (task / "tests" / "test_calc.py").write_text(AS_A_PROGRAM)
    return task


def validated(
    path: Path,
    sandbox: str = "bubblewrap",
    *,
    tests: tuple[str, ...] = (),
    tricks: tuple[str, ...] = FEW,
) -> list[Finding]:
    if sandbox == "bubblewrap":
        why = Bubblewrap.available()
        require("bubblewrap", why is None, why or "apt install bubblewrap")
    return validate_tasks(path, How(sandbox=sandbox, tests=tests, parallel=4, tricks=tricks))


@pytest.mark.parametrize("sandbox", ["bubblewrap", "local"])
def test_a_sound_task_is_proven(sandbox: str, tmp_path: Path) -> None:
    (finding,) = validated(write_sound(tmp_path), sandbox)
    assert finding.lines() == ["fix-add: oracle 1.00, nop 0.00, cheat 0.00  SOUND"]
    assert finding.passes()


def test_each_task_is_told_of_when_the_last_one_has_tried_it(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_sound(tmp_path, name=name)
    told: list[str | None] = []

    def on_output(event: Event) -> None:
        if isinstance(event, RunEnded):
            told.append(None)

    found = lambda finding: told.append(finding.task)  # noqa: E731 -- it fits on a line
    how = How(sandbox="local", parallel=4, listener=on_output, on_finding=found, tricks=FEW)
    findings = validate_tasks(tmp_path, how)
    assert sorted(told[:2], key=str) == ["one", "two"]  # before the end of the run, each once
    assert told[2:] == [None]
    assert [finding.task for finding in findings] == ["one", "two"]


def test_each_way_in_which_a_task_measures_nothing_is_told(tmp_path: Path) -> None:
    wrong = write_sound(tmp_path, name="a-wrong-reference")
    (wrong / "solution" / "calc.py").write_text("def add(a, b):\n    return 7\n")
    free = write_sound(tmp_path, name="b-solved-already")
    (free / "files" / "calc.py").write_text(RIGHT)
    weak = write_sound(tmp_path, name="c-exit-code-alone")
    (weak / "tests" / "test_calc.py").unlink()
    (weak / "tests" / "check.sh").write_text(
        "python3 -c 'import calc; assert calc.add(2, 3) == 5'\n"
    )
    open_ = write_sound(tmp_path, name="d-no-reference")
    (open_ / "solution" / "calc.py").unlink()
    (open_ / "solution").rmdir()
    a, b, c, d = validated(tmp_path)
    assert (a.oracle, a.nop, a.cheat, a.passes()) == (0.0, 0.0, 0.0, False)
    assert "the reference scores 0.00, not 1: 0 of 1 tests passed" in a.problems[0]
    assert (b.oracle, b.nop, b.passes()) == (1.0, 1.0, False)
    assert b.problems == ("doing nothing passes with 1.00: the tests do not need the work",)
    assert (c.oracle, c.nop, c.cheat, c.passes()) == (1.0, 0.0, 1.0, False)
    assert c.scored == ("exit-zero", "exit-at-exit")
    (told,) = c.problems
    assert told.startswith("cheat-exit-zero, cheat-exit-at-exit score 1.00: code that ends its")
    assert (d.oracle, d.nop, d.cheat, d.passes()) == (None, 0.0, 0.0, True)
    assert d.lines()[0] == "d-no-reference: no reference solution, nop 0.00, cheat 0.00  SOUND"


def test_a_task_whose_tests_import_the_solution_is_told_what_it_cannot_exclude(
    tmp_path: Path,
) -> None:
    (finding,) = validated(write_fix_add(tmp_path))
    assert finding.lines() == [
        "fix-add: oracle 1.00, nop 0.00, cheat 0.00  SOUND, with a limit: tests-import-solution",
        "  tests-import-solution: the tests import the solution into their own process, so an agent "
        "that knows how this harness grades can pass without the work (cheat-decoy-aware scores 1.00); "
        "to exclude that, let the tests call the solution as a program and compare what it prints",
    ]
    assert finding.scored == ("decoy-aware",)
    assert finding.verdict is Verdict.SOUND_WITH_LIMIT
    assert finding.passes()
    assert not finding.passes(strict=True)
    stored = json.loads(json.dumps(finding.as_json()))
    assert (stored["verdict"], stored["cheat"]) == ("sound-with-limit", 0.0)
    assert stored["limit"]["name"] == "tests-import-solution"


@pytest.mark.soak
def test_a_task_with_a_limit_is_no_failure_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("bubblewrap", Bubblewrap.available() is None, "apt install bubblewrap")
    assert cli.call(["validate", str(write_fix_add(tmp_path)), "--sandbox", "bubblewrap"]) == 0
    assert "SOUND, with a limit: tests-import-solution" in capsys.readouterr().out


def test_what_is_only_for_tasks_is_refused_for_a_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.call(["validate", str(tmp_path / "suite.json"), "--strict"]) == 1
    assert "--json and --strict are for tasks (folders, .md)" in capsys.readouterr().err


def test_a_generic_trick_that_scores_is_never_only_a_limit(tmp_path: Path) -> None:
    task = write_fix_add(tmp_path)
    (task / "tests" / "test_calc.py").rename(task / "tests" / "calc_test.py")
    (task / "tests" / "check.sh").write_text("python3 -m unittest tests/calc_test.py\n")
    (finding,) = validated(task, tricks=("patched-unittest", "decoy-aware"))
    assert finding.verdict is Verdict.NOT_SOUND
    assert set(finding.scored) == {"patched-unittest", "decoy-aware"}
    assert finding.cheat == 1.0
    assert finding.problems[0].startswith("cheat-patched-unittest scores 1.00: tests that import")


def test_tricks_against_this_harness_are_never_played_together_with_generic_ones() -> None:
    for names in GROUPS.values():
        assert len({TRICKS[name].knows_harness for name in names}) == 1


def test_the_tricks_of_a_group_that_scores_are_played_one_by_one(tmp_path: Path) -> None:
    weak = write_fix_add(tmp_path)
    (weak / "tests" / "test_calc.py").unlink()
    (weak / "tests" / "check.sh").write_text(
        "python3 -c 'import calc; assert calc.add(2, 3) == 5'\n"
    )
    told: list[Finding] = []
    tricks = ("exit-at-exit", "patched-exit", "conftest")
    how = How(sandbox="local", tricks=tricks, on_finding=told.append)
    (finding,) = validate_tasks(weak, how)
    assert finding.scored == ("exit-at-exit",)
    assert told == [finding]


def test_a_trick_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trick is called 'exit-zeros'"):
        validate_tasks(write_fix_add(tmp_path), How(sandbox="local", tricks=("exit-zeros",)))


def test_a_folder_of_tasks_in_markdown_is_validated_whole(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_task(tmp_path / name)
        (tmp_path / name / "add.md").rename(tmp_path / name / f"{name}.md")
        (tmp_path / name / "add").rename(tmp_path / name / name)
    findings = validated(tmp_path, "local", tricks=("conftest",))
    assert [finding.lines()[0] for finding in findings] == [
        f"{name}: oracle 1.00, nop 0.00, cheat 0.00  SOUND" for name in ("one", "two")
    ]


def test_a_fault_is_not_a_zero(tmp_path: Path) -> None:
    folder = write_fix_add(tmp_path, settings='[tests]\ncommand = "no-such-program-anywhere"\n')
    (finding,) = validated(folder, "local")
    assert (finding.oracle, finding.nop, finding.cheat) == (None, None, None)
    assert finding.lines()[0] == "fix-add: oracle -, nop -, cheat -  NOT SOUND"
    (told,) = finding.problems
    assert told.startswith("no score for oracle, nop, cheat-conftest, cheat-exit-zero, ")
    assert "scorer 'tests': 'no-such-program-anywhere' could not be started" in told


def test_a_validation_that_was_stopped_proves_nothing(tmp_path: Path) -> None:
    stop = Stop()
    stop.request()
    (finding,) = validate_tasks(write_fix_add(tmp_path), How(sandbox="local", stop=stop))
    assert not finding.passes()
    assert finding.problems[0].startswith("no score for oracle, nop, cheat-files")
    assert finding.problems[0].endswith(": not run")


def test_only_the_tasks_that_are_asked_for_are_run(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_fix_add(tmp_path, name=name)
    assert [finding.task for finding in validated(tmp_path, "local", tests=("two",))] == ["two"]


def test_a_task_for_the_judge_alone_cannot_be_proven(tmp_path: Path) -> None:
    folder = write_fix_add(tmp_path, settings='scorers = ["judge"]\n')
    (folder / "tests" / "test_calc.py").unlink()
    with pytest.raises(UsageError, match="scored by a judge alone, which cannot be validated"):
        validated(folder, "local")


def test_it_is_said_that_local_does_not_isolate_and_the_run_can_be_kept(tmp_path: Path) -> None:
    said: list[Event] = []
    folder = write_sound(tmp_path)
    how = How(sandbox="local", output=tmp_path / "kept", listener=said.append, tricks=FEW)
    assert validate_tasks(folder, how)[0].passes()
    assert any("does not isolate" in event.text for event in said if isinstance(event, Notice))
    assert len(list((tmp_path / "kept").iterdir())) == 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()))
def test_the_examples_are_sound(name: str) -> None:
    (finding,) = validated(EXAMPLES / name, tricks=TELLING)
    assert finding.lines() == [f"{name}: oracle 1.00, nop 0.00, cheat 0.00  SOUND"]
