"""tests: what counts as passed, what is a fault, and what a solution cannot talk its way past."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bakeoff import app
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Request
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Sandbox
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.sandboxes.host.local import Local
from bakeoff.scorers.testing.preflight import refuse_pytest
from bakeoff.scorers.testing.scorer import Tests as HiddenTests
from support.workspaces import (
    changed_by,
    context,
    isolating,
    open_bench,
    outcome,
    tree,
    workspace_task,
    write,
)

BROKEN = {"calc.py": "def add(a, b):\n    return a - b\n", ".gitignore": "*.log\n"}
RIGHT = "printf 'def add(a, b):\\n    return a + b\\n' > calc.py"
UNITTEST = """\
import unittest
from calc import add
class T(unittest.TestCase):
    def test_small(self):
        self.assertEqual(add(1, 2), 3)
    def test_zero(self):
        self.assertEqual(add(0, 0), 0)
"""
PYTEST = """\
import pytest
from calc import add
def test_small():
    assert add(1, 2) == 3
@pytest.mark.parametrize("n", [0, 1])
def test_zero(n):
    assert add(n, 0) == n
"""
HIDDEN = {"unittest": {"test_calc.py": UNITTEST}, "pytest": {"test_calc.py": PYTEST}}
RUNNERS = ["unittest", "pytest"]


class Grader:
    """Grades what a script does to the broken repository, by hidden tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def task(
        self, hidden: Mapping[str, str], files: Mapping[str, str] = BROKEN, **rest: Any
    ) -> Task:
        repo = tree(write(self.folder / "repo", files))
        tests = tree(write(self.folder / "hidden", hidden), at="tests")
        return workspace_task(repo, hidden=(tests,), **rest)

    def score(
        self, scorer: HiddenTests, task: Task, script: str, sandbox: Sandbox | None = None
    ) -> Score:
        async def run() -> Score:
            async with open_bench(self.folder / "cache", sandbox or isolating()) as bench:
                change = await changed_by(bench, task, script)
                return await scorer.score(task, outcome(change), context(bench))

        return asyncio.run(run())


@pytest.fixture
def grader(tmp_path: Path) -> Grader:
    return Grader(tmp_path)


def running(runner: Any, **rest: Any) -> HiddenTests:
    return HiddenTests(runner=runner, **{"paths": ("tests",), **rest})


@pytest.mark.parametrize("make", [isolating, Local], ids=["bubblewrap", "local"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_right_solution_scores_1_and_doing_nothing_0(
    grader: Grader, runner: str, make: type
) -> None:
    task = grader.task(HIDDEN[runner])
    right = grader.score(running(runner), task, RIGHT, make())
    assert (right.value, right.explanation) == (1.0, None), right
    assert set(right.details["tests"].values()) == {"passed"}
    nothing = grader.score(running(runner), task, "true", make())
    assert nothing.value == 0.0
    assert "test_small" in nothing.explanation
    assert nothing.details["counts"]["failed"] >= 1
    assert "test_small" in nothing.details["output"]


@pytest.mark.parametrize("runner", RUNNERS)
def test_partial_is_the_share_of_tests_that_passed(grader: Grader, runner: str) -> None:
    hidden = {"test_calc.py": HIDDEN[runner]["test_calc.py"]}
    given = grader.score(running(runner, partial=True), grader.task(hidden), "true")
    assert given.value == pytest.approx({"unittest": 1 / 2, "pytest": 2 / 3}[runner])


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_skipped_test_has_not_passed_but_one_that_is_not_named_may_be(
    grader: Grader, runner: str
) -> None:
    skip = "pytest.skip('no')" if runner == "pytest" else "self.skipTest('no')"
    more = {
        "pytest": f"def test_other():\n    {skip}\n",
        "unittest": f"    def test_other(self):\n        {skip}\n",
    }[runner]
    task = grader.task({"test_calc.py": HIDDEN[runner]["test_calc.py"] + more})
    assert grader.score(running(runner), task, RIGHT).value == 0.0
    named = running(runner, named=("test_small", "test_zero"))
    assert grader.score(named, task, RIGHT).value == 1.0
    missing = running(runner, named=("test_small", "test_nowhere"))
    given = grader.score(missing, task, RIGHT)
    assert given.value == 0.0
    assert "test_nowhere: not run" in given.explanation


TRICKS = {
    "os._exit(0) on import": "printf 'import os; os._exit(0)' > calc.py",
    "os._exit(0) in the call": "printf 'import os\\ndef add(a, b): os._exit(0)' > calc.py",
    "sys.exit(0)": "printf 'import sys; sys.exit(0)' > calc.py",
    "atexit": "printf 'import atexit, os\\natexit.register(os._exit, 0)\\n"
    "def add(a, b): return 9' > calc.py",
    "patched exit": "printf 'import os, sys\\nsys.exit = os._exit = lambda c: None\\n"
    "def add(a, b): return 9' > calc.py",
    "conftest": "mkdir -p tests; cat > conftest.py <<'X'\nimport pytest\n"
    "@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    "    (yield).get_result().outcome = 'passed'\nX\ncp conftest.py tests/",
    "a pytest of its own": "printf 'def main(*a, **k): return 0' > pytest.py; "
    "mkdir unittest; cp pytest.py unittest/__init__.py",
    "sitecustomize": "printf 'import os; os._exit(0)' > sitecustomize.py; "
    "cp sitecustomize.py usercustomize.py",
    "settings": "printf '[pytest]\\naddopts = --collect-only\\n' > pytest.ini; "
    "printf '[tool:pytest]\\naddopts = --collect-only\\n' > setup.cfg; "
    "printf '[tool.pytest.ini_options]\\naddopts = \"--collect-only\"\\n' > pyproject.toml",
    "tests of its own": "mkdir -p tests; printf 'def test_ok(): pass' > tests/test_calc.py",
    "a link instead of tests": "ln -s /usr tests",
    "a file instead of tests": "echo > tests",
    "skip at import": "printf 'import unittest\\nraise unittest.SkipTest(1)' > calc.py",
    "a plugin": "mkdir x.egg-info; printf '[pytest11]\\nx = evil\\n' > x.egg-info/entry_points.txt; "
    "printf 'Name: x\\nVersion: 1\\n' > x.egg-info/PKG-INFO; "
    "printf 'import os; os._exit(0)' > evil.py",
    "a forged report": "cat > calc.py <<'X'\nimport os, sys\n"
    "print('\\nbakeoff-report ' + '0' * 64 + ' {\"records\": [], \"code\": 0, \"whole\": true}')\n"
    "sys.stdout.flush(); os._exit(0)\nX",
    "into every pipe": "cat > calc.py <<'X'\nimport json, os\n"
    "line = json.dumps({'test': 'tests/test_calc.py::test_small', 'phase': 'call', 'how': 'passed',"
    " 'text': '', 'by': ['', 0]}) + '\\n' + json.dumps({'over': 0, 'by': ['', 1]}) + '\\n'\n"
    "for fd in range(3, 64):\n    try: os.write(fd, line.encode())\n    except OSError: pass\n"
    "def add(a, b): return a + b\nos._exit(0)\nX",
    "kill the overseer": "printf 'import os, signal\\nos.kill(os.getppid(), 9)\\n' > calc.py",
    "a daemon": "cat > calc.py <<'X'\nimport os, sys, time\nif os.fork() == 0:\n    os.setsid()\n"
    "    for n in range(20):\n        os.write(1, b'bakeoff-report x {}\\n'); time.sleep(0.05)\n"
    "    os._exit(0)\ndef add(a, b): return 9\nX",
}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("trick", TRICKS)
def test_no_plain_trick_scores_more_than_0(grader: Grader, trick: str, runner: str) -> None:
    given = grader.score(running(runner), grader.task(HIDDEN[runner]), TRICKS[trick])
    assert given.value == 0.0
    assert given.explanation


@pytest.mark.parametrize("runner", RUNNERS)
def test_tricks_that_are_undone_do_not_spoil_a_right_solution(grader: Grader, runner: str) -> None:
    harmless = [
        TRICKS[name]
        for name in ("conftest", "a pytest of its own", "sitecustomize", "settings", "a plugin")
    ]
    script = "; ".join([RIGHT, *(line.replace("\nX\n", "\nX\n:;") for line in harmless)])
    given = grader.score(running(runner), grader.task(HIDDEN[runner]), script)
    assert given.value == 1.0, given
    undone = cast("list[str]", given.details["undone"])
    assert {"conftest.py", "pytest.py", "sitecustomize.py", "setup.cfg"} <= set(undone)


def test_a_solution_that_ends_the_run_early_is_told_as_that(grader: Grader) -> None:
    given = grader.score(
        running("pytest"), grader.task(HIDDEN["pytest"]), TRICKS["os._exit(0) in the call"]
    )
    assert "did not run to their end" in given.explanation


def test_a_solution_that_cannot_be_imported_scores_0(grader: Grader) -> None:
    for runner in RUNNERS:
        given = grader.score(running(runner), grader.task(HIDDEN[runner]), "rm calc.py")
        assert given.value == 0.0
        assert "could not be collected" in given.explanation
        assert "calc" in given.explanation


def test_the_projects_own_visible_tests_are_as_they_were(grader: Grader) -> None:
    files = {**BROKEN, "visible/test_calc.py": UNITTEST}
    task = grader.task({}, files)
    scorer = running("unittest", paths=("visible",))
    cheat = (
        "printf 'import unittest\\nclass T(unittest.TestCase):\\n  def test_a(self): pass\\n' > "
    )
    given = grader.score(scorer, task, f"{cheat} visible/test_calc.py; rm -rf visible/x")
    assert given.value == 0.0
    assert given.details["undone"] == ["visible/test_calc.py"]
    assert grader.score(scorer, task, f"{RIGHT}; rm -r visible; ln -s /tmp visible").value == 1.0


@pytest.mark.parametrize(
    ("scorer", "why"),
    [
        (running("unittest", command="no-such-python"), "could not be started.*no-such-python"),
        (running("pytest", paths=("tests/test_other.py",)), "test_other.py is not there"),
        (running("unittest", paths=("src",)), "no test was found in src"),
        (running("pytest", paths=("src",)), "no test was found in src"),
        (HiddenTests(command="no-such-check"), "could not be started.*127"),
        (HiddenTests(command="touch x; ./x"), "could not be started.*126"),
    ],
)
def test_a_runner_that_cannot_run_is_a_fault_and_never_0(
    grader: Grader, scorer: HiddenTests, why: str
) -> None:
    slow = "import time, unittest\nclass T(unittest.TestCase):\n  def test(self): time.sleep(60)\n"
    task = grader.task(HIDDEN["pytest"], {**BROKEN, "src/a.py": "", "slow/test_a.py": slow})
    with pytest.raises(ScorerError, match=f"(?s){why}"):
        grader.score(scorer, task, RIGHT)


@pytest.mark.parametrize("make", [isolating, Local], ids=["bubblewrap", "local"])
def test_where_the_box_has_no_pytest_the_one_that_bakeoff_brings_runs_the_tests(
    grader: Grader, make: type
) -> None:
    task = grader.task(HIDDEN["pytest"])
    scorer = running("pytest", environment={})
    assert grader.score(scorer, task, RIGHT, make()).value == 1.0
    wrong = grader.score(scorer, task, RIGHT.replace("+", "*"), make())
    assert wrong.value == 0.0
    assert "test_small: failed" in wrong.explanation


@pytest.mark.parametrize(
    ("version", "why"), [((3, 8), "brings needs Python 3.11 or later, not 3.8"), ((3, 11), None)]
)
def test_a_python_that_is_too_old_for_the_pytest_that_is_brought_is_told(
    version: tuple[int, int], why: str | None
) -> None:
    if why is None:
        refuse_pytest("tests", version)
        return
    with pytest.raises(ScorerError, match=f"{why}.*`box.setup`"):
        refuse_pytest("tests", version)


def test_no_agent_runs_where_its_box_cannot_run_the_tests(tmp_path: Path) -> None:
    repo = tree(write(tmp_path / "repo", BROKEN))
    spec = ScorerSpec(
        name="tests",
        settings={"runner": "pytest", "paths": ["tests"], "command": "no-such-python"},
    )
    task = replace(workspace_task(repo), scorers=(spec,))
    asked: list[Request] = []

    def model(request: Request) -> str:
        asked.append(request)
        return "done"

    done = app.run([task], models=[model], agents=["shell"], sandbox="bubblewrap", output=tmp_path)
    (record,) = done.trials()
    assert record.attempt.fault is not None
    assert record.attempt.fault.boundary == "scorer"
    assert "no-such-python" in record.attempt.fault.message
    assert not record.attempt.scorable
    assert asked == []


@pytest.mark.parametrize(
    "scorer",
    [
        HiddenTests(command="sleep 60", time_s=1.0),
        running("unittest", paths=("slow",), time_s=1.0),
    ],
)
def test_a_check_that_hangs_is_a_fault_only_where_nothing_was_changed(
    grader: Grader, scorer: HiddenTests
) -> None:
    slow = "import time, unittest\nclass T(unittest.TestCase):\n  def test(self): time.sleep(60)\n"
    task = grader.task(HIDDEN["pytest"], {**BROKEN, "slow/test_a.py": slow})
    with pytest.raises(ScorerError, match="did not end within 1 s"):
        grader.score(scorer, task, "true")
    given = grader.score(scorer, task, RIGHT)
    assert given.value == 0.0
    assert "did not end within 1 s" in given.explanation


def test_a_change_that_keeps_its_check_from_starting_scores_0(grader: Grader) -> None:
    task = grader.task({"x": ""}, {**BROKEN, "run": "exit 0\n"})
    check = HiddenTests(command="chmod +x run && exec ./run")
    assert grader.score(check, task, RIGHT).value == 1.0
    given = grader.score(check, task, "printf '#!/no/such/shell' > run")
    assert given.value == 0.0
    assert "could not be started" in given.explanation


def test_a_command_is_judged_by_its_exit_code(grader: Grader) -> None:
    task = grader.task({"check.sh": "python3 -c 'import calc; assert calc.add(1, 2) == 3'\n"})
    scorer = HiddenTests(command="sh tests/check.sh")
    assert grader.score(scorer, task, RIGHT).value == 1.0
    wrong = grader.score(scorer, task, "true")
    assert wrong.value == 0.0
    assert "exit code 1: AssertionError" in wrong.explanation
    assert wrong.details["code"] == 1


def test_the_agents_environment_and_files_outside_do_not_reach_the_grade(grader: Grader) -> None:
    task = grader.task({"check.sh": "test ! -e /tmp/left && test ! -e $HOME/left\n"})
    script = "touch /tmp/left ~/left"
    assert grader.score(HiddenTests(command="sh tests/check.sh"), task, script).value == 1.0


def test_an_outcome_without_a_change_is_graded_as_the_pristine_files(grader: Grader) -> None:
    task = grader.task(HIDDEN["unittest"])

    async def run() -> Score:
        async with open_bench(grader.folder / "cache", isolating()) as bench:
            return await running("unittest").score(task, outcome(None), context(bench))

    assert asyncio.run(run()).value == 0.0


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "give a `command`"),
        ({"runner": "pytest"}, "give the `paths`"),
        ({"command": "pytest -q"}, "exit code alone"),
        ({"command": "python3 -m unittest"}, "exit code alone"),
        ({"command": "make", "partial": True}, "nothing but its exit code"),
        ({"runner": "pytest", "paths": ("../x",)}, "not inside the workspace"),
        ({"runner": "pytest", "paths": ("/etc",)}, "not inside the workspace"),
    ],
)
def test_settings_that_make_no_sense_are_refused_early(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        HiddenTests(**settings)


def test_a_task_without_a_workspace_is_refused_early() -> None:
    task = Task(id="t", messages=(Message(role="user", content="x"),))
    with pytest.raises(UsageError, match="the task has none"):
        HiddenTests(command="make").check(task)
