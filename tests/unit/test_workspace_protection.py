"""Which edits reach the grade, and which leave everything as it was."""

import pytest

from bakeoff.core.errors import SandboxError
from bakeoff.workspaces.patch import Edit
from bakeoff.workspaces.protection import Protection


def added(path: str, content: bytes = b"x", mode: bytes = b"100644") -> Edit:
    return Edit(path.encode(), mode, content)


def gone(path: str) -> Edit:
    return Edit(path.encode(), b"000000", None)


def link(path: str, to: bytes = b"/tmp") -> Edit:
    return added(path, to, b"120000")


def undone(
    *edits: Edit, base: dict[str, bytes] | None = None, protection: Protection | None = None
) -> set[str]:
    before = {path.encode(): content for path, content in (base or {}).items()}
    counting, held = (protection or Protection()).split(edits, before, before.__getitem__)
    names = {path.decode() for path in held}
    assert {edit.path.decode() for edit in counting} == {e.path.decode() for e in edits} - names
    return names


@pytest.mark.parametrize(
    "path",
    [
        *(
            "conftest.py",
            "a/b/conftest.py",
            "conftest.py/x",
            "pytest.ini",
            ".pytest.ini",
            "tox.ini",
        ),
        *(
            "x/sitecustomize.py",
            "usercustomize.py",
            "lib/site-packages/b.pth",
            "x.egg-info/entry_points.txt",
        ),
        ".venv/lib/python3.11/site-packages/pytest/__init__.py",
    ],
)
def test_files_that_decide_how_tests_are_run_stay_as_they_were(path: str) -> None:
    assert undone(added(path), added("solution.py")) == {path}
    assert undone(gone(path), base={path: b""}) == {path}


@pytest.mark.parametrize(
    "path", ["setup.py", "pyproject.toml", "conftest.txt", "src/x.py", "a.pt", "model.pth"]
)
def test_other_files_count(path: str) -> None:
    assert undone(added(path)) == set()


def test_a_virtual_environment_stays_as_it_was_unless_the_task_is_about_it() -> None:
    base = {"env3/pyvenv.cfg": b"home = /usr/bin\n", "env3/bin/python": b""}
    edits = [added("env3/bin/python"), added("env3/pyvenv.cfg"), added("other/bin/python")]
    assert undone(*edits, base=base) == {"env3/bin/python", "env3/pyvenv.cfg"}
    assert undone(added("mine/pyvenv.cfg"), added("mine/bin/x")) == {
        "mine/pyvenv.cfg",
        "mine/bin/x",
    }
    trusting = Protection(trusts_system=True)
    assert undone(*edits, base=base, protection=trusting) == set()
    assert undone(added("queue.py"), added("x/site-packages/a.py"), protection=trusting) == set()
    assert undone(added("conftest.py"), protection=trusting) == {"conftest.py"}


@pytest.mark.parametrize("prompt", ["Write calc.py.", "Write pkg/__init__.py."])
def test_the_workspace_itself_is_not_made_a_package(prompt: str) -> None:
    protection = Protection(tops=(b"", b"src", b"work"), asked_for=prompt)
    edits = [added("__init__.py"), added("work/__init__.py"), added("pkg/__init__.py")]
    held = undone(*edits, added("src/__init__.py"), protection=protection)
    assert held == {"__init__.py", "work/__init__.py"}
    asked = Protection(asked_for="Put an `__init__.py` beside it.")
    assert undone(added("__init__.py"), protection=asked) == set()
    assert undone(added("__init__.py"), base={"__init__.py": b""}) == set()


def test_setup_cfg_counts_unless_it_speaks_to_pytest_before_or_after() -> None:
    plain, speaks = b"[metadata]\nname = x\n", b"[tool:pytest]\naddopts = -x\n"
    assert undone(added("setup.cfg", plain)) == set()
    assert undone(added("setup.cfg", speaks)) == {"setup.cfg"}
    assert undone(added("setup.cfg", plain), base={"setup.cfg": speaks}) == {"setup.cfg"}
    assert undone(gone("setup.cfg"), base={"setup.cfg": plain}) == set()


@pytest.mark.parametrize(
    "edit",
    [
        *(added("json.py"), added("pytest.py"), added("unittest/__init__.py"), link("pytest")),
        *(added("_pytest/__init__.py"), added("random.cpython-311-x86_64-linux-gnu.so")),
        added("src/logging.py"),
    ],
)
def test_a_new_module_that_hides_one_of_pythons_is_undone(edit: Edit) -> None:
    assert undone(edit, protection=Protection(tops=(b"", b"src"))) == {edit.path.decode()}


def test_all_of_a_package_that_hides_one_of_pythons_is_undone() -> None:
    edits = [added("unittest/__init__.py"), added("unittest/case.py"), added("unit/case.py")]
    assert undone(*edits) == {"unittest/__init__.py", "unittest/case.py"}


@pytest.mark.parametrize(
    ("edit", "base"),
    [
        (added("pkg/json.py"), {}),  # not at the top: nobody imports it as json
        (added("queue.py"), {"queue.py": b"was there"}),
        (added("code"), {}),
        (added("test/data.txt"), {}),
    ],
)
def test_what_hides_nothing_new_counts(edit: Edit, base: dict[str, bytes]) -> None:
    assert undone(edit, base=base) == set()


def test_a_module_that_the_task_asks_for_by_its_file_counts() -> None:
    asked = Protection(asked_for="Write a queue in `queue.py`.")
    assert undone(added("queue.py"), added("heapq.py"), protection=asked) == {"heapq.py"}


def test_protected_paths_stay_and_nothing_comes_in_their_place() -> None:
    tests = Protection(patterns=("tests/**", "data/*.json"))
    base = {"tests/test_a.py": b"", "data/x.json": b"", "data/x.txt": b""}
    edits = [gone("tests/test_a.py"), added("tests/new.py"), gone("data/x.json")]
    assert undone(*edits, gone("data/x.txt"), base=base, protection=tests) == {
        "tests/test_a.py",
        "tests/new.py",
        "data/x.json",
    }
    instead = [gone("tests/test_a.py"), link("tests")]
    assert undone(*instead, base=base, protection=tests) == {"tests/test_a.py", "tests"}


def test_nothing_comes_in_the_place_of_a_folder_that_protected_files_will_lie_in() -> None:
    later = Protection(patterns=("a/b/check.sh",))
    assert undone(link("a"), protection=later) == {"a"}
    assert undone(link("a/b"), added("a/c"), protection=later) == {"a/b"}


def test_a_folder_in_the_place_of_a_protected_file_is_undone() -> None:
    base = {"conftest.py": b""}
    edits = [gone("conftest.py"), added("conftest.py/inner.py"), added("other.py")]
    assert undone(*edits, base=base) == {"conftest.py", "conftest.py/inner.py"}


def test_a_pattern_that_leads_out_is_a_clear_fault() -> None:
    with pytest.raises(SandboxError, match="protected path cannot be kept"):
        undone(added("x"), protection=Protection(patterns=("../x",)))
