"""Bakeoff's own task folder: what each file and each key becomes, and how mistakes are told."""

import pickle
import time
from pathlib import Path

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.core.task import Message, ScorerSpec
from bakeoff.core.workspace import BoxLimits, Image, Reference
from bakeoff.formats.detect import read_task_folder, read_tasks

UNITTEST = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self): ...\n"
PYTEST = "def test_it():\n    assert True\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

EVERY_KEY = f"""\
id = "own-id"
name = "A name"
category = "debugging"
group = "parser"
tags = ["small", "python"]
metadata = {{ author = "me" }}
time_s = 90
pass_threshold = 0.5
check = "python3 -m unittest"
protected = ["Makefile", "ci/**"]
scorers = ["judge", {{ scorer = "includes", weight = 0.5, settings = {{ text = "x" }} }}]

[repo]
url = "https://example.org/r.git"
commit = "{COMMIT}"
subdir = "lib"
sparse = ["lib", "docs"]

[box]
image = "python:3.11-slim"
setup = ["pip install -e ."]
setup_s = 30
root = "/work/"
workdir = "lib"
environment = {{ LANG = "C.UTF-8" }}
network = true
memory_mb = 512
processes = 64
disk_mb = 0
cpus = 1.5

[tests]
runner = "pytest"
paths = ["tests/test_it.py"]
named = ["tests/test_it.py::test_it"]
time_s = 20
partial = true
environment = {{ SEED = "1" }}
weight = 2

[[rubrics]]
id = "clear"
criterion = "It reads well."
weight = 3
evaluation_criteria = "1 is poor"

[[rubrics]]
id = "short"
criterion = "It is short."
tests = ["short.sh"]
"""


def task_folder(parent: Path, name: str = "fix", **files: str) -> Path:
    """Write a task of these files (`__` is a slash, `_dot_` a dot) over a small whole one."""
    folder = parent / name
    whole = {"instruction_dot_md": "Do it.\n", "tests__test_it_dot_py": UNITTEST, **files}
    for path, text in whole.items():
        file = folder / path.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def wrong(folder: Path, settings: str) -> str:
    """Return what is said of *settings*, without the path of the folder."""
    (folder / "task.toml").write_text(settings)
    with pytest.raises(UsageError) as told:
        read_task_folder(folder)
    return str(told.value).replace(str(folder.resolve()), "T")


def test_a_mistake_is_told_with_the_path_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = task_folder(tmp_path)
    (folder / "task.toml").write_text("tiem_s = 1\n")
    with pytest.raises(UsageError, match=r"^fix/task\.toml:1: unknown key 'tiem_s'"):
        read_task_folder(Path("fix"))
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    with pytest.raises(UsageError, match=r"^\.\./fix/task\.toml:1: unknown key 'tiem_s'"):
        read_task_folder(Path("../fix"))


def test_an_instruction_and_a_test_make_a_task(tmp_path: Path) -> None:
    folder = task_folder(tmp_path, files__a_dot_py="a = 1\n")
    task = read_task_folder(folder)
    assert (task.id, task.time_s, task.pass_threshold) == ("fix", 1800.0, 1.0)
    assert task.messages == (Message(role="user", content="Do it.\n"),)
    assert task.scorers == (
        ScorerSpec(
            name="tests",
            settings={"runner": "unittest", "time_s": 600.0, "paths": ["tests/test_it.py"]},
        ),
    )
    workspace = task.workspace
    assert workspace is not None
    assert [(t.path, t.at) for t in workspace.files] == [(str(folder / "files"), "")]
    assert [(t.path, t.at) for t in workspace.hidden] == [(str(folder / "tests"), "tests")]
    assert (workspace.root, workspace.network, workspace.whole_box) == ("/app", False, False)
    assert workspace.limits == BoxLimits()
    assert workspace.reference is None


def test_every_key_has_its_place(tmp_path: Path) -> None:
    folder = task_folder(tmp_path, task_dot_toml=EVERY_KEY, tests__short_dot_sh="exit 0\n")
    task = read_task_folder(folder)
    assert (task.id, task.name) == ("own-id", "A name")
    assert (task.category, task.group) == ("debugging", "parser")
    assert task.metadata == {"author": "me", "tags": ["small", "python"]}
    assert (task.time_s, task.pass_threshold) == (90, 0.5)
    tests, rubrics, judge, includes = task.scorers
    assert tests == ScorerSpec(
        name="tests",
        weight=2,
        settings={
            "runner": "pytest",
            "paths": ["tests/test_it.py"],
            "named": ["tests/test_it.py::test_it"],
            "time_s": 20,
            "partial": True,
            "environment": {"SEED": "1"},
        },
    )
    assert rubrics == ScorerSpec(
        name="rubrics",
        settings={
            "rubrics": [
                {
                    "id": "clear",
                    "criterion": "It reads well.",
                    "weight": 3,
                    "evaluation_criteria": "1 is poor",
                },
                {"id": "short", "criterion": "It is short.", "weight": 1.0},
            ],
            "test_scripts": [
                {"path": "tests/short.sh", "rubric_id": "short", "content": "exit 0\n"}
            ],
        },
    )
    assert judge == ScorerSpec(name="judge")
    assert includes == ScorerSpec(name="includes", weight=0.5, settings={"text": "x"})
    workspace = task.workspace
    assert workspace is not None
    (repo,) = workspace.files
    assert (repo.path, repo.commit) == ("https://example.org/r.git", COMMIT)
    assert (repo.subdir, repo.sparse) == ("lib", ("lib", "docs"))
    assert workspace.image == Image(name="python:3.11-slim")
    assert (workspace.root, workspace.start) == ("/work", "/work/lib")
    assert workspace.setup == ("pip install -e .",)
    assert workspace.environment == {"LANG": "C.UTF-8"}
    assert workspace.network
    assert workspace.limits == BoxLimits(
        memory_mb=512, processes=64, disk_mb=None, cpus=1.5, setup_s=30
    )
    assert workspace.check == "python3 -m unittest"
    assert {"Makefile", "ci/**"} <= set(workspace.protected)


def test_the_place_of_the_hidden_tests_is_protected(tmp_path: Path) -> None:
    workspace = read_task_folder(task_folder(tmp_path)).workspace
    assert workspace is not None
    assert workspace.protected == ("tests",)
    deeper = task_folder(tmp_path, "deeper", task_dot_toml='[box]\nworkdir = "a/b/"\n')
    workspace = read_task_folder(deeper).workspace
    assert workspace is not None
    assert (workspace.protected, workspace.hidden[0].at) == (("a/b/tests",), "a/b/tests")


@pytest.mark.parametrize(
    ("files", "runner"),
    [
        ({"tests__test_it_dot_py": UNITTEST}, "unittest"),
        ({"tests__test_it_dot_py": f"import os, pytest\n{UNITTEST}"}, "pytest"),
        ({"tests__test_it_dot_py": PYTEST}, "pytest"),
        ({"tests__test_it_dot_py": f"import pytest\n{UNITTEST}"}, "pytest"),
        ({"tests__test_other_dot_py": PYTEST}, "pytest"),
        ({"tests__check_dot_sh": "exit 0"}, "script"),
        ({"tests__check_dot_py": "exit(0)"}, "python"),
        ({"task_dot_toml": '[tests]\ncommand = "make check"\n'}, "script"),
    ],
)
def test_the_files_in_tests_tell_how_they_are_run(
    files: dict[str, str], runner: str, tmp_path: Path
) -> None:
    (tests,) = read_task_folder(task_folder(tmp_path, **files)).scorers
    assert tests.settings["runner"] == runner
    command = "sh tests/check.sh" if "tests__check_dot_sh" in files else "make check"
    assert tests.settings.get("command") == (command if runner == "script" else None)
    if runner == "python":
        assert tests.settings["paths"] == ["tests/check.py"]


def test_tests_of_rubrics_are_not_run_as_hidden_tests_too(tmp_path: Path) -> None:
    settings = '[[rubrics]]\nid = "a"\ncriterion = "c"\ntests = ["test_it.py"]\n'
    (only,) = read_task_folder(task_folder(tmp_path, task_dot_toml=settings)).scorers
    assert only.name == "rubrics"


def test_a_solution_is_files_or_a_script_or_a_patch(tmp_path: Path) -> None:
    def reference(name: str, **files: str) -> Reference | None:
        workspace = read_task_folder(task_folder(tmp_path, name, **files)).workspace
        return workspace.reference if workspace else None

    assert reference("a", solution__x_dot_py="x") == Reference(
        kind="files", path=str(tmp_path / "a/solution")
    )
    assert reference("b", solution__solve_dot_sh="x", solution__y="y") == Reference(
        kind="script", path=str(tmp_path / "b/solution/solve.sh")
    )
    assert reference("c", solution_dot_patch="diff") == Reference(
        kind="patch", path=str(tmp_path / "c/solution.patch")
    )
    with pytest.raises(UsageError, match=r"solution/ or solution\.patch, not both"):
        reference("d", solution_dot_patch="diff", solution__y="y")


def test_a_repository_may_be_a_folder_beside_the_task(tmp_path: Path) -> None:
    (tmp_path / "shared" / "lib").mkdir(parents=True)
    (tmp_path / "shared" / "lib" / "a.py").write_text("a = 1\n")
    settings = '[repo]\npath = "../shared"\nsubdir = "lib"\n'
    folder = task_folder(tmp_path, task_dot_toml=settings, files__b_dot_py="b = 2\n")
    workspace = read_task_folder(folder).workspace
    assert workspace is not None
    assert [t.path for t in workspace.files] == [
        str(tmp_path / "shared/lib"),
        str(folder / "files"),
    ]


def test_a_dockerfile_comes_with_the_folder_it_lies_in(tmp_path: Path) -> None:
    settings = '[box]\ndockerfile = "box/Dockerfile"\n'
    folder = task_folder(tmp_path, task_dot_toml=settings, box__Dockerfile="FROM scratch\n")
    workspace = read_task_folder(folder).workspace
    assert workspace is not None
    assert workspace.image is not None
    assert workspace.image.context is not None
    assert workspace.image.context.path == str(folder / "box")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("id = x\n", "T/task.toml:1: not valid TOML: "),
        ('\nnaem = "x"', "T/task.toml:2: unknown key 'naem'; did you mean 'name'?"),
        ("[box]\n\nmemory = 1", "T/task.toml:3: unknown key 'memory'; did you mean 'memory_mb'?"),
        (
            '[box]\nnetwork = "no"',
            "T/task.toml:2: key 'box.network': true or false or a list is expected",
        ),
        (
            '[box]\nnetwork = ["https://pypi.org/simple"]',
            "T/task.toml:2: key 'box.network': 'https://pypi.org/simple' is no host; write a name",
        ),
        ("time_s = 0", "T/task.toml:1: key 'time_s': a number over 0 is expected, not 0"),
        (
            '[tests]\nrunner = "nose"',
            "T/task.toml:2: key 'tests.runner': 'nose' is not allowed here; there are: pytest,",
        ),
        (
            '[repo]\nurl = "u"\ncommit = "main"',
            "T/task.toml:3: key 'repo.commit': 'main' may point to other files later; give all 40 digits",
        ),
        ('[repo]\nurl = "u"', "T/task.toml:1: key 'repo': a repository needs its `commit`"),
        ('[repo]\nurl = "u"\npath = "p"', "T/task.toml:1: key 'repo': give exactly one of"),
        ('[repo]\npath = "gone"', "T/task.toml:2: key 'repo.path': T/gone does not exist"),
        (
            '[box]\nworkdir = "../x"',
            "T/task.toml:2: key 'box.workdir': '../x' leads out of the workspace",
        ),
        (
            '[box]\nimage = "a"\ndockerfile = "b"',
            "T/task.toml:2: key 'box.image': give `image` or `dockerfile`",
        ),
        (
            '[box]\ndockerfile = "box/Dockerfile"',
            "T/task.toml:2: key 'box.dockerfile': T/box/Dockerfile does not exist",
        ),
        (
            '[box]\ndockerfile = "instruction.md"',
            "T/task.toml:2: key 'box.dockerfile': the files next to it may get into the image",
        ),
        (
            '[[rubrics]]\nid = "a"\ncriterion = "c"\ntests = ["gone.sh"]',
            "T/task.toml:4: key 'rubrics[0].tests': tests/gone.sh does not exist",
        ),
        (
            '[[rubrics]]\nid = "a"\ncriterion = "c"\n[[rubrics]]\nid = "a"\ncriterion = "d"',
            "T/task.toml:5: key 'rubrics[1].id': 'a' is defined twice",
        ),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(settings: str, told: str, tmp_path: Path) -> None:
    assert wrong(task_folder(tmp_path), settings).startswith(told)


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    folder = task_folder(tmp_path)
    (folder / "tests" / "test_it.py").unlink()
    assert wrong(folder, "").startswith("T: nothing says whether the work is right; put hidden")
    assert "T/tests: a check.sh is needed" in wrong(folder, '[tests]\nrunner = "script"')
    assert "no test_*.py is there for pytest" in wrong(folder, '[tests]\nrunner = "pytest"')
    (folder / "instruction.md").write_text("  \n")
    assert wrong(folder, "").startswith("T/instruction.md is empty; write the agent's instructions")
    (folder / "instruction.md").write_bytes(b"\xff\xfe")
    assert wrong(folder, "").startswith("T/instruction.md is not UTF-8 text")
    (folder / "instruction.md").unlink()
    assert wrong(folder, "").startswith("T/instruction.md cannot be read: No such file")
    with pytest.raises(UsageError, match="there is no such folder"):
        read_task_folder(tmp_path / "gone")


def test_a_folder_of_task_folders_is_a_suite(tmp_path: Path) -> None:
    suite = tmp_path / "mine"
    for name in ("b", "a", "_draft", ".hidden"):
        task_folder(suite, name)
    (suite / "notes").mkdir()
    (suite / "README.md").write_text("about")
    brief = read_tasks(suite)
    assert brief.name == "mine"
    assert [task.id for task in brief.tasks] == ["a", "b"]
    assert [source.path for source in brief.sources] == [str(suite / "a"), str(suite / "b")]
    assert [source.digest for source in brief.sources] == [task.digest for task in brief.tasks]
    assert [task.id for task in read_tasks(suite / "b").tasks] == ["b"]


def test_all_that_is_wrong_in_a_suite_is_told_at_once(tmp_path: Path) -> None:
    task_folder(tmp_path, "a", task_dot_toml='id = "same"')
    task_folder(tmp_path, "b", task_dot_toml='id = "same"')
    task_folder(tmp_path, "c", task_dot_toml="nothing = 1")
    with pytest.raises(UsageError) as told:
        read_tasks(tmp_path)
    twice, unknown = str(told.value).splitlines()
    assert "b: task 'same' is defined twice" in twice
    assert "c/task.toml:1: unknown key 'nothing'" in unknown
    with pytest.raises(UsageError, match="there is no task in this folder"):
        read_tasks(tmp_path / "a" / "tests")
    with pytest.raises(UsageError, match="there is no such folder"):
        read_tasks(tmp_path / "gone")


def test_a_task_is_plain_data_and_every_path_in_it_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = task_folder(tmp_path, files__a="a", solution__a="b")
    monkeypatch.chdir(tmp_path)
    task = read_task_folder(Path("fix"))
    assert pickle.loads(pickle.dumps(task)) == task
    workspace = task.workspace
    assert workspace is not None
    assert workspace.reference is not None
    paths = [*(t.path for t in (*workspace.files, *workspace.hidden)), workspace.reference.path]
    assert all(path.startswith(str(folder)) for path in paths)


def test_the_identity_is_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    here = read_task_folder(task_folder(tmp_path / "one", files__a="a"))
    there = task_folder(tmp_path / "two", files__a="a", solution__a="not part of it")
    assert read_task_folder(there).digest == here.digest
    for path, text in (("files/a", "b"), ("tests/test_it.py", UNITTEST + "#"), ("files/n", "")):
        before = read_task_folder(there).digest
        (there / path).write_text(text)
        assert read_task_folder(there).digest != before


def test_a_thousand_tasks_are_read_within_seconds(tmp_path: Path) -> None:
    for number in range(1000):
        task_folder(tmp_path, f"t{number:04}", files__a="a" * 1000, task_dot_toml="time_s = 5\n")
    began = time.process_time()  # what others do on the machine does not count
    assert len(read_tasks(tmp_path).tasks) == 1000
    assert time.process_time() - began < 15
