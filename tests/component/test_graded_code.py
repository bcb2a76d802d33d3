"""What is graded cannot drive the grade: attacks from inside the tests' process and from below it."""

import asyncio
import py_compile
import sys
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.candidate import AgentSpec
from bakeoff.core.record import Score
from bakeoff.sandboxes.host.local import Local
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

WRONG = "def add(a, b):\n    return a - b\n"
IMPORTED = {
    "unittest": (
        "import unittest\nfrom calc import add\n"
        "class T(unittest.TestCase):\n"
        "    def test_small(self):\n        self.assertEqual(add(1, 2), 3)\n"
        "    def test_lists(self):\n        self.assertEqual([add(n, 0) for n in (1, 2)], [1, 2])\n"
    ),
    "pytest": (
        "from calc import add\n"
        "def test_small():\n    assert add(1, 2) == 3\n"
        "def test_other_side():\n    assert 5 == add(2, 3)\n"
    ),
    "python": "from calc import add\nassert add(1, 2) == 3\nassert [add(2, 2)] == [4]\n",
}
STARTED = (
    "import subprocess, sys, unittest\n"
    "class T(unittest.TestCase):\n"
    "    def test_small(self):\n"
    "        ran = subprocess.run([sys.executable, 'calc.py', '1', '2'], capture_output=True)\n"
    "        self.assertEqual(ran.stdout.strip(), b'3')\n"
)

# They know this harness: where it keeps what it reports with, and what its lines look like.
FORGE_FROM_FRAMES = (
    WRONG
    + """
import gc, os
def _forge():
    for tell in [f for f in gc.get_objects() if getattr(f, "__name__", "") == "tell"]:
        names = ["tests.test_calc.T.test_small", "tests.test_calc.T.test_lists", "tests/test_calc.py",
                 "tests/test_calc.py::test_small", "tests/test_calc.py::test_other_side"]
        tell(collected=names)
        for name in names:
            tell(test=name, phase="call", how="passed", text="")
        tell(over=0)
        os._exit(0)
_forge()
"""
)
EQUAL_TO_ALL = """
class Any(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
    def __repr__(self): return "3"
def add(a, b):
    return Any(7)
"""
PATCHED_RUN = (
    WRONG
    + """
import unittest
def run(self, result=None):
    result.startTest(self)
    result.addSuccess(self)
    result.stopTest(self)
    return result
unittest.TestCase.run = unittest.TestCase.__call__ = run
"""
)
PATCHED_ASSERTIONS = (
    WRONG
    + """
import unittest
for name in dir(unittest.TestCase):
    if name.startswith("assert"):
        setattr(unittest.TestCase, name, lambda self, *args, **kwargs: None)
"""
)
PATCHED_PYTEST = (
    WRONG
    + """
try:
    import _pytest.python, _pytest.runner
    _pytest.python.Function.runtest = lambda self: None
    _pytest.runner.call_runtest_hook = None
except ImportError:
    pass
"""
)
REPLACED_CODE = (
    WRONG
    + """
import gc, types
def nothing(*args): pass
def later():
    for f in gc.get_objects():
        if isinstance(f, types.FunctionType) and f.__name__.startswith("test_"):
            f.__code__ = nothing.__code__
import threading
_original = add
def add(a, b):
    later()
    raise SystemExit(0)
later()
"""
)
DELETED_TESTS = (
    WRONG
    + """
import gc, unittest
import sys
frame = sys._getframe()
while frame:
    module = frame.f_globals.get("__name__", "")
    if module.endswith("test_calc"):
        frame.f_globals["__test__"] = False
        frame.f_globals["load_tests"] = lambda loader, tests, pattern: unittest.TestSuite()
    frame = frame.f_back
"""
)
FAKED_FILE_NAME = (
    WRONG
    + """
import sys
def add(a, b):
    exec(compile("raise SystemExit(0)", sys.argv[0], "exec"))
"""
)
ARGPARSE_EXIT = (
    WRONG
    + """
import argparse
def add(a, b):
    argparse.ArgumentParser().parse_args(["--help"])
"""
)
IN_PROCESS = {
    "a report forged from frames": FORGE_FROM_FRAMES,
    "objects that equal everything": EQUAL_TO_ALL,
    "a patched TestCase.run": PATCHED_RUN,
    "patched assertions": PATCHED_ASSERTIONS,
    "a patched pytest": PATCHED_PYTEST,
    "test functions with other code": REPLACED_CODE,
    "tests that are not collected": DELETED_TESTS,
    "an exit from a faked file name": FAKED_FILE_NAME,
    "an exit through argparse": ARGPARSE_EXIT,
}


def graded(folder: Path, hidden: str, solution: str, **settings: Any) -> Score:
    """Grade *solution* as calc.py by *hidden* as tests/test_calc.py, in bubblewrap if not said."""
    sandbox = settings.pop("sandbox", None) or isolating()
    repo = tree(write(folder / "repo", {"calc.py": WRONG}))
    beside = settings.pop("beside", {})
    assert isinstance(beside, dict)
    tests = tree(write(folder / "hidden", {"test_calc.py": hidden, **beside}), at="tests")
    written = write(folder / "solution", {"calc.py": solution})
    task = workspace_task(repo, hidden=(tests,))
    runner = settings.pop("runner", "unittest")
    scorer = HiddenTests(runner=runner, paths=("tests/test_calc.py",), **settings)

    async def run() -> Score:
        async with open_bench(folder / "cache", sandbox) as bench:
            text = (written / "calc.py").read_text()
            change = await changed_by(
                bench, task, f"cat > calc.py <<'END_OF_IT'\n{text}END_OF_IT\n"
            )
            return await scorer.score(task, outcome(change), context(bench))

    return asyncio.run(run())


@pytest.mark.parametrize("trick", IN_PROCESS)
@pytest.mark.parametrize("runner", IMPORTED)
def test_code_in_the_process_of_the_tests_cannot_make_itself_pass(
    tmp_path: Path, runner: str, trick: str
) -> None:
    given = graded(tmp_path, IMPORTED[runner], IN_PROCESS[trick], runner=runner)
    assert given.value == 0.0, given
    assert given.explanation


@pytest.mark.parametrize("runner", IMPORTED)
def test_a_right_solution_passes_whichever_way_the_decoys_fall(tmp_path: Path, runner: str) -> None:
    right = "def add(a, b):\n    return a + b\n"
    for number in range(4):
        given = graded(tmp_path / str(number), IMPORTED[runner], right, runner=runner)
        assert given.value == 1.0, given
        assert given.details["decoys"]["failed"] >= 1


def test_tolerant_comparisons_early_returns_and_expected_failures_are_no_false_alarm(
    tmp_path: Path,
) -> None:
    hidden = """\
import pytest
from unittest.mock import ANY
from calc import add, Money
def test_approx():
    assert add(1, 2) == pytest.approx(3, abs=1e6)
def test_any():
    assert add(1, 2) == ANY
def test_returns_early():
    if add(1, 1) == 2:
        return
    assert add(0, 0) == 1
def test_expects_a_failure():
    with pytest.raises(AssertionError):
        assert add(1, 1) == 3
def test_own_equality():
    assert Money(3) == 3
@pytest.mark.parametrize("n", [1, 2])
def test_loop(n):
    for k in range(n):
        assert add(k, n) == k + n
@pytest.fixture
def test_like_a_test():
    return 1
def test_no_equality(test_like_a_test):
    assert add(test_like_a_test, 1) > 1
"""
    solution = (
        "def add(a, b):\n    return a + b\n"
        "class Money:\n    def __init__(self, n): self.n = n\n"
        "    def __eq__(self, other): return self.n == other\n"
    )
    for number in range(3):
        given = graded(tmp_path / str(number), hidden, solution, runner="pytest")
        assert (given.value, given.explanation) == (1.0, None), given


BELOW = {
    "the memory of the tests": """
import os, re
for pid in {os.getppid(), int(open(f"/proc/{os.getppid()}/stat").read().split(")")[1].split()[1])}:
    try:
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            print("mem", pid, "opened")
    except OSError as error:
        print("mem", pid, error.errno)
""",
    "the open files of the tests": """
import os
for name in range(30):
    try:
        os.write(os.open(f"/proc/{os.getppid()}/fd/{name}", os.O_WRONLY), b"x")
        print("fd opened", name)
    except OSError:
        pass
""",
    "ptrace": """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print("attached" if libc.ptrace(16, os.getppid(), 0, 0) == 0 else "refused")
""",
}


@pytest.mark.parametrize("what", BELOW)
def test_a_program_that_the_tests_start_reaches_nothing_of_them(tmp_path: Path, what: str) -> None:
    hidden = STARTED + "        self.assertTrue(False, ran.stdout)\n"
    probing = f"{BELOW[what]}\nprint('probed')\n"
    hidden = hidden.replace(
        "self.assertEqual(ran.stdout.strip(), b'3')", "print(ran.stdout.decode())"
    )
    output = graded(tmp_path, hidden, probing).details["output"]
    assert "probed" in output
    assert "opened" not in output
    assert "attached" not in output


def test_a_solution_that_stops_its_grader_scores_0_and_is_no_fault(tmp_path: Path) -> None:
    stopping = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nos.kill(os.getpid(), 9)\n"
    given = graded(tmp_path, IMPORTED["unittest"], stopping, time_s=2.0)
    assert given.value == 0.0


def test_a_solution_that_hangs_its_tests_scores_0_with_the_reason(tmp_path: Path) -> None:
    hanging = "import time\ntime.sleep(600)\n"
    given = graded(tmp_path, IMPORTED["unittest"], hanging, time_s=1.0)
    assert given.value == 0.0
    assert "did not end within 1 s" in given.explanation


def test_what_is_expected_cannot_be_written_by_what_is_tested(tmp_path: Path) -> None:
    hidden = (
        "from pathlib import Path\nfrom calc import add\n"
        "EXPECTED = Path(__file__).with_name('expected.txt')\n"
        "def test_small():\n    assert str(add(1, 2)) == EXPECTED.read_text()\n"
    )
    writing = """
import os
def add(a, b):
    for attempt in (lambda: open("tests/expected.txt", "a").write("x"),
                    lambda: os.remove("tests/expected.txt"),
                    lambda: os.rename("tests/expected.txt", "tests/gone.txt"),
                    lambda: os.rename("tests", "elsewhere")):
        try:
            attempt()
        except OSError:
            continue
        return "written"
    return a + b
"""
    given = graded(tmp_path, hidden, writing, runner="pytest", beside={"expected.txt": "3"})
    assert given.value == 1.0, given


LOOKING = """
import glob, os
seen = [p for p in glob.glob("**/*", recursive=True) + glob.glob("/proc/*/fd/*") if os.path.isfile(p)]
def read(path):
    try:
        return open(path, "rb").read(100_000)
    except OSError:
        return b""
print("tests" if os.path.exists("tests/test_calc.py") else "no tests",
      "expected" if any(b"-".join([b"what", b"is", b"expected"]) in read(path) for path in seen) else "nothing")
"""


@pytest.mark.parametrize("readable", [False, True])
@pytest.mark.parametrize("runner", ["unittest", "pytest", "python"])
def test_a_program_that_the_tests_start_cannot_read_in_them_what_they_expect(
    tmp_path: Path, runner: str, readable: bool
) -> None:
    hidden = (
        "import subprocess, sys, unittest\n"
        "class T(unittest.TestCase):\n"
        "    def test_it(self):\n"
        "        done = subprocess.run([sys.executable, 'calc.py'], capture_output=True, text=True)\n"
        f"        self.assertEqual(done.stdout, {'tests expected' if readable else 'tests nothing'!r} + chr(10))\n"
        "WORD = 'what-is-expected'\n"
        "if __name__ == '__main__':\n"
        "    unittest.main()\n"
    )
    given = graded(tmp_path, hidden, LOOKING, runner=runner, readable=readable)
    assert given.value == 1.0, given


@pytest.mark.parametrize("runner", ["unittest", "pytest"])
def test_compiled_files_of_the_box_are_used_and_those_in_the_workspace_are_not(
    tmp_path: Path, runner: str
) -> None:
    library = write(tmp_path / "library", {"of_the_box.py": "WORD = 'compiled'\n"})
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(library / "of_the_box.py"), invalidation_mode=unchecked)
    write(library, {"of_the_box.py": "WORD = 'source'\n"})
    planting = (
        "import py_compile\n"
        "unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH\n"
        "open('planted.py', 'w').write('WORD = \"compiled\"')\n"
        "import sys\n"
        "place = f'__pycache__/planted.{sys.implementation.cache_tag}.pyc'\n"
        "py_compile.compile('planted.py', place, invalidation_mode=unchecked)\n"
    )
    hidden = (
        "import calc, unittest, of_the_box\n"
        "open('planted.py', 'w').write('WORD = \"source\"')\n"
        "import planted\n"
        "class T(unittest.TestCase):\n"
        "    def test_words(self):\n"
        "        self.assertEqual([of_the_box.WORD, planted.WORD], ['compiled', 'source'])\n"
    )
    given = graded(
        tmp_path,
        hidden,
        planting,
        runner=runner,
        sandbox=Local(),
        command=sys.executable,
        environment={"PYTHONPATH": str(library)},
    )
    assert given.value == 1.0, given


def test_a_failure_is_still_told_with_the_line_of_the_test(tmp_path: Path) -> None:
    for runner in ("unittest", "pytest"):
        given = graded(tmp_path / runner, IMPORTED[runner], WRONG, runner=runner)
        assert given.value == 0.0
        assert "add(1, 2)" in given.details["output"], given


def test_a_change_too_large_to_be_taken_scores_0_and_is_no_fault(tmp_path: Path) -> None:
    task = tmp_path / "huge"
    write(task / "files", {"a.txt": "one\n"})
    write(task / "tests", {"check.sh": "true\n"})
    write(task, {"instruction.md": "Write less.\n"})
    (run,) = bakeoff.run(
        task,
        agents=[AgentSpec(name="command", settings={"command": "truncate -s 3G sparse"})],
        models=["scripted"],
        sandbox="bubblewrap",
        output=tmp_path / "runs",
    ).trials()
    assert run.attempt.fault is None
    assert run.attempt.score == 0.0
    assert "more than 64 MB" in run.attempt.scores[0].explanation


def test_a_program_cannot_rewrite_the_script_that_checks_it(tmp_path: Path) -> None:
    probing = (
        "import os\n"
        "try:\n"
        "    os.open(f'/proc/{os.getppid()}/mem', os.O_RDWR)\n"
        "    print('opened')\n"
        "except OSError as error:\n"
        "    print('refused', error.errno)\n"
    )
    repo = tree(write(tmp_path / "repo", {"calc.py": WRONG}))
    check = tree(write(tmp_path / "hidden", {"check.sh": "python3 calc.py; exit 1\n"}), at="tests")
    task = workspace_task(repo, hidden=(check,))

    async def run() -> Score:
        async with open_bench(tmp_path / "cache", isolating()) as bench:
            change = await changed_by(bench, task, f"cat > calc.py <<'END'\n{probing}END\n")
            scorer = HiddenTests(command="sh tests/check.sh")
            return await scorer.score(task, outcome(change), context(bench))

    printed = asyncio.run(run()).details["output"]
    assert "refused" in printed
    assert "opened" not in printed
