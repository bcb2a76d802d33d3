"""A solution's new modules never take the place of what the tests import from Python or the box."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bakeoff.core.record import Score
from bakeoff.core.workspace import Tree
from bakeoff.scorers.testing.scorer import Tests as HiddenTests
from support.workspaces import (
    changed_by,
    context,
    isolating,
    open_bench,
    outcome,
    pytest_for_boxes,
    tree,
    workspace_task,
    write,
)

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
LIBRARY = {
    "checker/__init__.py": "from helper import same\n",
    "helper.py": "from operator import eq as same\n",
}
USES_THE_LIBRARY = {
    "pytest": "import checker\nfrom calc import add\ndef test_small():\n    assert checker.same(add(1, 2), 3)\n",
    "unittest": (
        "import unittest\nimport checker\nfrom calc import add\n"
        "class T(unittest.TestCase):\n"
        "    def test_small(self):\n        self.assertTrue(checker.same(add(1, 2), 3))\n"
    ),
    "python": "import checker\nfrom calc import add\nassert checker.same(add(1, 2), 3)\n",
}
USES_PYTHON = (
    "import unittest, json, base64\nfrom calc import add\n"
    "class T(unittest.TestCase):\n"
    "    def test_small(self):\n        self.assertTrue(json.dumps(add(1, 2)) == '3')\n"
)
ALWAYS = "def same(a, b):\n    return True\n"


@pytest.fixture(scope="module")
def with_pytest(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return pytest_for_boxes(tmp_path_factory.mktemp("pytest") / "packages")


def graded(
    folder: Path,
    hidden: str,
    solution: Mapping[str, str],
    *,
    runner: Any = "unittest",
    prompt: str = "Mend it.",
    python_path: str = "/opt/library:/opt/pytest",
    more: tuple[Tree, ...] = (),
) -> Score:
    """Grade *solution*, files of the agent, by *hidden*, in a box with a library of its own."""
    repo = tree(write(folder / "repo", {"calc.py": WRONG, "lib/own.py": "", "queue_.py": ""}))
    tests = tree(write(folder / "hidden", {"test_calc.py": hidden}), at="tests")
    library = tree(write(folder / "library", LIBRARY), at="/opt/library")
    task = workspace_task(repo, hidden=(tests, library, *more), prompt=prompt)
    scorer = HiddenTests(
        runner=runner, paths=("tests/test_calc.py",), environment={"PYTHONPATH": python_path}
    )
    lines = [
        f"mkdir -p $(dirname {path}); cat > {path} <<'END_OF_IT'\n{text}END_OF_IT\n"
        for path, text in solution.items()
    ]

    async def run() -> Score:
        async with open_bench(folder / "cache", isolating()) as bench:
            change = await changed_by(bench, task, "".join(lines))
            return await scorer.score(task, outcome(change), context(bench))

    return asyncio.run(run())


@pytest.mark.parametrize("shadow", ["checker.py", "checker/__init__.py", "helper.py"])
@pytest.mark.parametrize("runner", USES_THE_LIBRARY)
def test_a_module_of_the_box_goes_before_a_new_one_of_the_solution(
    tmp_path: Path, with_pytest: Tree, runner: str, shadow: str
) -> None:
    solution = {"calc.py": WRONG, shadow: ALWAYS}
    hidden = USES_THE_LIBRARY[runner]
    given = graded(tmp_path, hidden, solution, runner=runner, more=(with_pytest,))
    assert given.value == 0.0, given
    assert given.details["hidden_by_box"] == [shadow.partition("/")[0].removesuffix(".py")]
    assert "assert" in given.details["output"].lower()


def test_new_modules_of_the_solution_count_where_the_box_has_none_or_the_task_asks_for_them(
    tmp_path: Path,
) -> None:
    solution = {"calc.py": "from plus import add\n", "plus.py": RIGHT}
    hidden = USES_THE_LIBRARY["unittest"]
    assert graded(tmp_path / "own", hidden, solution).value == 1.0
    asked = {"calc.py": RIGHT, "helper.py": "def same(a, b):\n    return a == b == 3\n"}
    given = graded(tmp_path / "asked", hidden, asked, prompt="Write helper.py.")
    assert given.value == 1.0
    assert "hidden_by_box" not in given.details


@pytest.mark.parametrize(
    "shadow", ["lib/json.py", "lib/json/__init__.py", "lib/ast.py", "lib/base64.py"]
)
def test_a_folder_of_pythonpath_brings_no_module_of_pythons_own_name(
    tmp_path: Path, shadow: str
) -> None:
    forging = (
        "import builtins, unittest\n"
        "unittest.TestCase.assertTrue = lambda *args: None\n"
        "def dumps(*args): return '3'\n"
    )
    solution = {"calc.py": WRONG, shadow: forging, "lib/fine.py": ""}
    given = graded(tmp_path, USES_PYTHON, solution, python_path="lib:/opt/library")
    assert given.value == 0.0, given
    assert given.details["undone"] == [shadow]
    assert given.details["counts"]["failed"] == 1, given


def test_programs_that_the_tests_start_have_the_pythonpath_that_was_asked_for(
    tmp_path: Path,
) -> None:
    hidden = (
        "import os, subprocess, sys, unittest\nimport own, checker\n"
        "class T(unittest.TestCase):\n"
        "    def test_path(self):\n"
        "        ran = subprocess.run([sys.executable, '-c', 'import own, checker'])\n"
        "        self.assertEqual(ran.returncode, 0)\n"
        "        self.assertEqual(os.environ['PYTHONPATH'], 'lib:/opt/library')\n"
    )
    given = graded(tmp_path, hidden, {"calc.py": RIGHT}, python_path="lib:/opt/library")
    assert given.value == 1.0, given


def test_a_root_init_file_does_not_make_the_workspace_a_package_of_pytest(
    tmp_path: Path, with_pytest: Tree
) -> None:
    solution = {"calc.py": RIGHT, "__init__.py": "print('the workspace was imported')\n"}
    hidden = "from calc import add\ndef test_small():\n    assert add(1, 2) == 3\n"
    given = graded(tmp_path, hidden, solution, runner="pytest", more=(with_pytest,))
    assert given.value == 1.0, given
    assert given.details["undone"] == ["__init__.py"]
    assert "the workspace was imported" not in given.details["output"]


def test_a_change_that_breaks_the_python_of_its_tests_scores_0_and_is_no_fault(
    tmp_path: Path,
) -> None:
    repo = tree(
        write(tmp_path / "repo", {"calc.py": RIGHT, "run": '#!/bin/sh\nexec python3 "$@"\n'})
    )
    tests = tree(write(tmp_path / "hidden", {"test_calc.py": USES_PYTHON}), at="tests")
    task = workspace_task(repo, hidden=(tests,))
    scorer = HiddenTests(runner="unittest", command="sh run", paths=("tests/test_calc.py",))

    async def run() -> Score:
        async with open_bench(tmp_path / "cache", isolating()) as bench:
            change = await changed_by(bench, task, "echo 'exit 1' > run")
            return await scorer.score(task, outcome(change), context(bench))

    given = asyncio.run(run())
    assert given.value == 0.0
    assert "Python could not be started" in given.explanation
