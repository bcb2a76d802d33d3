"""Validation: sound tasks are told from those that measure nothing, in real boxes."""

from pathlib import Path

import pytest

from bakeoff.api.validation import Finding, How, validate_tasks
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Notice, RunEnded
from bakeoff.core.stop import Stop
from bakeoff.sandboxes.bubblewrap import Bubblewrap
from support.coding_tasks import RIGHT, write_fix_add
from support.parts import require

EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"
AS_A_PROGRAM = """\
import subprocess
import sys
import unittest


class Adding(unittest.TestCase):
    def test_two_and_three_are_five(self):
        code = "import calc; print(calc.add(2, 3))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(done.stdout, "5\\n")
"""


def validated(
    path: Path, sandbox: str = "bubblewrap", *, tests: tuple[str, ...] = ()
) -> list[Finding]:
    if sandbox == "bubblewrap":
        why = Bubblewrap.available()
        require("bubblewrap", why is None, why or "apt install bubblewrap")
    return validate_tasks(path, How(sandbox=sandbox, tests=tests, parallel=4))


@pytest.mark.parametrize("sandbox", ["bubblewrap", "local"])
def test_a_sound_task_is_proven(sandbox: str, tmp_path: Path) -> None:
    folder = write_fix_add(tmp_path)
    (folder / "tests" / "test_calc.py").write_text(AS_A_PROGRAM)
    (finding,) = validated(folder, sandbox)
    assert finding.lines() == ["fix-add: oracle 1.00, nop 0.00, cheat 0.00  ok"]
    assert finding.ok


def test_each_task_is_told_of_when_the_last_one_has_tried_it(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_fix_add(tmp_path, name=name)
    told: list[str | None] = []

    def hears(event: Event) -> None:
        if isinstance(event, RunEnded):
            told.append(None)

    how = How(sandbox="local", parallel=4, listener=hears, found=lambda f: told.append(f.task))
    findings = validate_tasks(tmp_path, how)
    assert sorted(told[:2], key=str) == ["one", "two"]  # before the end of the run, each once
    assert told[2:] == [None]
    assert [finding.task for finding in findings] == ["one", "two"]


def test_each_way_in_which_a_task_measures_nothing_is_told(tmp_path: Path) -> None:
    wrong = write_fix_add(tmp_path, name="a-wrong-reference")
    (wrong / "solution" / "calc.py").write_text("def add(a, b):\n    return 7\n")
    free = write_fix_add(tmp_path, name="b-solved-already")
    (free / "files" / "calc.py").write_text(RIGHT)
    weak = write_fix_add(tmp_path, name="c-exit-code-alone")
    (weak / "tests" / "test_calc.py").unlink()
    (weak / "tests" / "check.sh").write_text(
        "python3 -c 'import calc; assert calc.add(2, 3) == 5'\n"
    )
    open_ = write_fix_add(tmp_path, name="d-no-reference")
    (open_ / "solution" / "calc.py").unlink()
    (open_ / "solution").rmdir()
    a, b, c, d = validated(tmp_path)
    assert (a.oracle, a.nop, a.cheat, a.ok) == (0.0, 0.0, 0.0, False)
    assert "the reference scores 0.00, not 1: 1 of 2 tests passed" in a.problems[0]
    assert (b.oracle, b.nop, b.ok) == (1.0, 1.0, False)
    assert b.problems == ("doing nothing passes with 1.00: the tests do not need the work",)
    assert (c.oracle, c.nop, c.cheat, c.ok) == (1.0, 0.0, 1.0, False)
    assert any("cheat-exit scores 1.00: code that ends its process" in p for p in c.problems)
    assert (d.oracle, d.nop, d.cheat, d.ok) == (None, 0.0, 0.0, True)
    assert d.lines()[0] == "d-no-reference: no reference solution, nop 0.00, cheat 0.00  ok"


def test_a_fault_is_not_a_zero(tmp_path: Path) -> None:
    folder = write_fix_add(tmp_path, settings='[tests]\ncommand = "no-such-program-anywhere"\n')
    (finding,) = validated(folder, "local")
    assert (finding.oracle, finding.nop, finding.cheat) == (None, None, None)
    assert finding.lines()[0] == "fix-add: oracle -, nop -, cheat -  NOT SOUND"
    (told,) = finding.problems
    assert told.startswith("no score for oracle, nop, cheat, cheat-tests, cheat-hooks, ")
    assert "scorer 'tests': 'no-such-program-anywhere' could not be started" in told


def test_a_validation_that_was_stopped_proves_nothing(tmp_path: Path) -> None:
    stop = Stop()
    stop.request()
    (finding,) = validate_tasks(write_fix_add(tmp_path), How(sandbox="local", stop=stop))
    assert not finding.ok
    assert finding.problems[0].startswith("no score for oracle, nop, cheat")
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
    folder = write_fix_add(tmp_path)
    how = How(sandbox="local", output=tmp_path / "kept", listener=said.append)
    assert validate_tasks(folder, how)[0].ok
    assert any("does not isolate" in event.text for event in said if isinstance(event, Notice))
    assert len(list((tmp_path / "kept").iterdir())) == 1


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()))
def test_the_examples_are_sound(name: str) -> None:
    (finding,) = validated(EXAMPLES / name)
    assert finding.lines() == [f"{name}: oracle 1.00, nop 0.00, cheat 0.00  ok"]
