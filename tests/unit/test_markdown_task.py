"""A task in Markdown: what is read from it, from the folder beside it, and how mistakes are told."""

import subprocess
from pathlib import Path

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.core.task import Task
from bakeoff.formats.markdown_task import read_markdown_task
from bakeoff.formats.text.markdown import read_markdown_file

WHOLE = """\
# Task: Fix the typo in the greeting

**Difficulty**: Easy
**Repo**: greeter
**Issue:** #12
**Time Estimate**: 5 minutes

The program greets people wrongly.

## Requirements
- **Style**: keep it as it is
- Change one word only

## Implementation Details
```python
## Not a section
**Difficulty**: Impossible
```
**Note**: the word is in greet.py.

## Expected Outcome
It says Hello.

## Success Criteria
- [ ] The greeting is spelled right
- [x] Nothing else
  has changed
* Tests pass

## Anything Else
Text.

**File Location**: greet.py
**Not Known**: a thing
"""
UNITTEST = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self): ...\n"


def write(folder: Path, text: str = WHOLE, name: str = "fix_typo.md") -> Path:
    path = folder / name
    if "**Repo**: greeter" in text:
        put(folder / "greeter" / "greet.py", "print('Helo')\n")
    path.write_text(text, encoding="utf-8")
    return path


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def task_at(path: Path, **overrides: str) -> Task:
    (task,) = read_markdown_task(
        path, {k.replace("__", "."): v for k, v in overrides.items()}
    ).tasks
    return task


def mistake(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_markdown_task(path)
    return str(caught.value)


def test_the_whole_text_is_the_instruction_and_the_stem_the_id(tmp_path: Path) -> None:
    task = task_at(write(tmp_path))
    assert [m.content for m in task.messages] == [WHOLE]
    assert (task.id, task.name, task.category) == (
        "fix_typo",
        "Fix the typo in the greeting",
        "easy",
    )


def test_keys_count_before_the_first_section_and_known_ones_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE.replace("**Not Known**: a thing\n", ""))
    assert read_markdown_file(path).keys == {
        "difficulty": "Easy",
        "repo": "greeter",
        "issue": "#12",
        "time_estimate": "5 minutes",
        "file_location": "greet.py",
    }


def test_an_unknown_key_at_the_end_is_prose_and_so_is_what_stands_before_it(tmp_path: Path) -> None:
    assert "file_location" not in read_markdown_file(write(tmp_path)).keys


def test_bold_words_in_the_preamble_without_a_colon_are_no_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "# Task: X\n\n**Careful** with this.\n\n**Repo**: r\n")
    assert read_markdown_file(path).keys == {"repo": "r"}


def test_criteria_are_the_items_of_their_section_with_lines_that_go_on(tmp_path: Path) -> None:
    assert read_markdown_file(write(tmp_path)).criteria == (
        "The greeting is spelled right",
        "Nothing else has changed",
        "Tests pass",
    )


def test_what_stands_in_a_block_of_code_means_nothing(tmp_path: Path) -> None:
    file = read_markdown_file(write(tmp_path))
    assert list(file.sections) == [
        "requirements",
        "implementation details",
        "expected outcome",
        "success criteria",
        "anything else",
    ]
    assert file.keys["difficulty"] == "Easy"


def test_a_text_with_no_form_at_all_is_a_task_too(tmp_path: Path) -> None:
    task = task_at(write(tmp_path, "Just do it.\n"))
    assert (task.name, task.category, task.scorers, dict(task.metadata)) == (None, None, (), {})
    assert task.workspace is not None
    assert task.workspace.files == ()


def test_the_folder_beside_it_brings_files_hidden_tests_and_a_solution(tmp_path: Path) -> None:
    path = write(tmp_path)
    put(tmp_path / "fix_typo" / "repo" / "greet.py", "print('Helo')\n")
    put(tmp_path / "fix_typo" / "tests" / "test_greet.py", UNITTEST)
    put(tmp_path / "fix_typo" / "solution.patch", "--- a\n")
    task = task_at(path)
    assert [spec.name for spec in task.scorers] == ["tests"]
    assert task.workspace is not None
    assert [Path(tree.path).name for tree in task.workspace.files] == ["repo"]
    assert [tree.at for tree in task.workspace.hidden] == ["tests"]
    assert task.workspace.reference is not None
    assert task.workspace.reference.kind == "patch"


def files_of(task: Task) -> list[tuple[str, str]]:
    assert task.workspace is not None
    return [(Path(tree.path).name, tree.at) for tree in task.workspace.files]


def committed(folder: Path) -> str:
    """Make *folder* a repository with one commit of all that is in it, and return the commit."""
    git = ("git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@localhost")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run([*git, *words], check=True, timeout=60)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return head.stdout.strip()


@pytest.mark.parametrize("named", ["sample_project", "`sample_project`", "Sample project", "sample_project (Python)",
                                   "[the sample](sample_project)"])  # fmt: skip
def test_the_folder_that_the_repo_line_names_is_taken_from_beside_the_file(
    tmp_path: Path, named: str
) -> None:
    put(tmp_path / "sample_project" / "calc.py", "x = 1\n")
    task = task_at(write(tmp_path, f"# Task: X\n\n**Repo**: {named}  \n\nRepair calc.py.\n"))
    assert files_of(task) == [("sample_project", "")]


def test_else_it_is_taken_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "here" / "sample_project" / "calc.py", "x = 1\n")
    (tmp_path / "tasks").mkdir()
    path = write(tmp_path / "tasks", "# Task: X\n\n**Repo**: sample_project\n")
    assert "no folder 'sample_project' for the agents to work on" in mistake(path)
    monkeypatch.chdir(tmp_path / "here")
    assert files_of(task_at(path)) == [("sample_project", "")]


def test_a_folder_lies_under_its_name_where_the_text_calls_its_files_so(tmp_path: Path) -> None:
    put(tmp_path / "sample_project" / "src" / "calc.py", "x = 1\n")
    text = "# Task: X\n\n**Repo**: sample_project\n\nRepair `sample_project/src/calc.py`.\n"
    assert files_of(task_at(write(tmp_path, text))) == [("sample_project", "sample_project")]


def test_the_current_project_is_the_working_folder_at_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "project" / "a.py", "x = 1\n")
    tasks = tmp_path / "project" / "tasks"
    put(tasks / "odd[1]" / "tests" / "test_a.py", UNITTEST)
    path = write(tasks, "# Task: X\n\n**Repo**: Your current project  \n", name="odd[1].md")
    head = committed(tmp_path / "project")
    put(tmp_path / "project" / "a.py", "x = 2\n")
    monkeypatch.chdir(tmp_path / "project")
    brief = read_markdown_task(path)
    (task,) = brief.tasks
    assert task.workspace is not None
    (tree,) = task.workspace.files
    assert (tree.path, tree.commit, tree.subdir) == (str(tmp_path / "project"), head, None)
    assert task.workspace.removed == ("tasks/odd\\[1]",), "what is hidden is in the same repository"
    (notice,) = brief.notices
    assert f"at commit {head[:12]}; 1 file has changes that are not committed" in notice
    monkeypatch.chdir(tasks)
    (tree,) = task_at(path).workspace.files
    assert tree.subdir == "tasks"


def test_a_current_project_without_a_commit_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = mistake(write(tmp_path, "# Task: X\n\n**Repo**: Your current project\n"))
    assert "fix_typo.md:3: `**Repo**`: 'Your current project' is the working folder" in told
    assert "no git repository with a commit; put the files into fix_typo/repo/" in told
    assert "`repo: {path: ../folder}`" in told


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("gone", "there is no folder 'gone' for the agents to work on"),
        ("https://example.org/x.git", "repo: {url: https://example.org/x.git, commit: "),
        ("git@example.org:a/x.git", "is fetched at a commit, and none is named"),
    ],
)
def test_a_repo_line_that_names_no_folder_is_refused_with_its_line(
    tmp_path: Path, named: str, told: str
) -> None:
    found = mistake(write(tmp_path, f"---\ncheck: x\n---\n# Task: X\n\n**Repo**: {named}\n"))
    assert "fix_typo.md:6: `**Repo**`: " in found
    assert told in found


@pytest.mark.parametrize("named", ["none", "N/A", "an empty one", "New project", ""])
def test_no_files_can_be_said_on_purpose(tmp_path: Path, named: str) -> None:
    assert files_of(task_at(write(tmp_path, f"# Task: X\n\n**Repo**: {named}\n"))) == []


def test_files_of_its_own_go_before_what_the_repo_line_says(tmp_path: Path) -> None:
    put(tmp_path / "fix_typo" / "repo" / "a.py", "")
    assert files_of(task_at(write(tmp_path, "# Task: X\n\n**Repo**: gone\n"))) == [("repo", "")]


def test_a_path_in_front_matter_begins_where_the_file_is_else_in_its_folder(tmp_path: Path) -> None:
    put(tmp_path / "x" / "a.py", "")
    put(tmp_path / "tasks" / "fix_typo" / "inside" / "a.py", "")
    for value, name in (("../x", "x"), ("inside", "inside"), ("fix_typo/inside", "inside")):
        path = write(tmp_path / "tasks", f"---\nrepo: {{path: {value}}}\n---\n# Task: X\n")
        assert files_of(task_at(path)) == [(name, "")]
    told = mistake(write(tmp_path / "tasks", "---\nrepo: {path: ../y}\n---\n# Task: X\n"))
    assert told == f"{tmp_path}/tasks/fix_typo.md:2: key 'repo.path': {tmp_path}/y does not exist"


def test_the_tests_of_a_task_are_taken_out_of_a_repository_that_holds_them(tmp_path: Path) -> None:
    put(tmp_path / "fix_typo" / "tests" / "test_greet.py", UNITTEST)
    for value, removed in (
        (".", ("fix_typo",)),
        ("fix_typo", ("tests", "solution", "solution.patch", "task.toml")),
    ):
        path = write(tmp_path, f"---\nrepo: {{path: {value}}}\n---\n# Task: X\n")
        task = task_at(path)
        assert task.workspace is not None
        assert task.workspace.removed == removed


def test_no_time_limit_is_read_where_none_is_written(tmp_path: Path) -> None:
    assert task_at(write(tmp_path)).time_s is None
    assert task_at(write(tmp_path, f"---\ntime_s: 60\n---\n{WHOLE}")).time_s == 60


def test_front_matter_holds_settings_and_is_never_told_to_the_agent(tmp_path: Path) -> None:
    front = "---\nid: own\ntests:\n  command: sh secret_check.sh\nbox:\n  memory_mb: 64\n---\n\n"
    task = task_at(write(tmp_path, front + WHOLE))
    assert task.id == "own"
    assert [m.content for m in task.messages] == [WHOLE]
    assert task.scorers[0].settings["command"] == "sh secret_check.sh"
    assert task.workspace is not None
    assert task.workspace.limits.memory_mb == 64


def test_settings_may_stand_in_the_folder_but_not_in_both_places(tmp_path: Path) -> None:
    put(tmp_path / "fix_typo" / "task.toml", "time_s = 7\n")
    assert task_at(write(tmp_path)).time_s == 7
    assert "not both" in mistake(write(tmp_path, f"---\ntime_s: 60\n---\n{WHOLE}"))


def test_without_a_check_the_criteria_go_to_the_judge_if_there_is_one(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert task_at(path).scorers == ()
    (scorer,) = task_at(path, roles__judge="embedded").scorers
    assert scorer.name == "rubrics"
    rubrics = scorer.settings["rubrics"]
    assert isinstance(rubrics, list)
    assert rubrics[0]["criterion"] == "The greeting is spelled right"


def test_without_criteria_the_judge_is_told_the_expected_outcome(tmp_path: Path) -> None:
    text = "# Task: X\n\n## Expected Outcome\nIt says Hello.\n"
    (scorer,) = task_at(write(tmp_path, text), roles__judge="embedded").scorers
    rubrics = scorer.settings["rubrics"]
    assert isinstance(rubrics, list)
    assert [r["criterion"] for r in rubrics] == ["It says Hello."]


def test_a_hidden_check_is_not_given_up_for_a_judge(tmp_path: Path) -> None:
    put(tmp_path / "fix_typo" / "tests" / "test_greet.py", UNITTEST)
    task = task_at(write(tmp_path), roles__judge="embedded")
    assert [spec.name for spec in task.scorers] == ["tests"]


def test_a_mistake_is_told_with_the_path_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.md").write_text("---\nchek: x\n---\n# Task: a\n")
    with pytest.raises(UsageError, match=r"^a\.md:2: unknown key 'chek'"):
        read_markdown_task(Path("a.md"))
    Path("b.md").write_text("# Task: b\n")
    Path("b").mkdir()
    Path("b/task.toml").write_text("chek = 1\n")
    with pytest.raises(UsageError, match=r"^b/task\.toml:1: unknown key 'chek'"):
        read_markdown_task(Path("b.md"))


def test_settings_of_a_run_apply_to_it_as_to_any_other(tmp_path: Path) -> None:
    brief = read_markdown_task(write(tmp_path), {"limits.time_s": "5", "rollouts": "3"})
    assert (brief.conditions.limits.time_s, brief.rollouts) == (5, 3)
    assert brief.name == "fix_typo"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("---\nid: x\n---\n", "is empty"),
        ("---\nid: x\n# Task\n", ":1: the front matter that begins here"),
        ("---\nid: x\ntime: 3\n---\n# Task\n", ":3: unknown key 'time'; did you mean 'time_s'?"),
        ("---\nid: x\nid: y\n---\n# Task\n", ":3: key 'id' is repeated here"),
        ("---\n- a\n---\n# Task\n", "such as `category:`"),
        ("---\nrepo: {url: x}\n---\n# Task\n", ":2: key 'repo': a repository needs its `commit`"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    assert told in mistake(write(tmp_path, text))


def test_a_file_that_is_not_there_or_not_text_is_told(tmp_path: Path) -> None:
    assert "cannot be read" in mistake(tmp_path / "none.md")
    (tmp_path / "binary.md").write_bytes(b"# Task \xff\n")
    assert "not UTF-8" in mistake(tmp_path / "binary.md")
