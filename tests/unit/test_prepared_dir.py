"""Prepared folders: what is understood of them, what overrides change, what is told of a mistake."""

import json
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib.digest import tree_digest
from bakeoff.core.task import Task
from bakeoff.core.workspace import Workspace
from bakeoff.formats.prepared import PreparedDir, read_prepared
from support.origin_folder import SECRET_FILES, write_origin_folder
from support.prepared_tasks import TEST_ADD, git, write_overrides, write_prepared, write_repo


def _read(folder: Path, **rest: Any) -> Task:
    return read_prepared(PreparedDir(folder=folder, shown=f"prepared/{folder.name}", **rest))


def _workspace(task: Task) -> Workspace:
    assert task.trouble is None
    assert task.workspace is not None
    return task.workspace


def test_a_prepared_folder_becomes_a_task(tmp_path: Path) -> None:
    folder = write_prepared(
        tmp_path / "fix_add", sensitivity={"level": "public"}, dataset={"version": 3}
    )
    task = _read(folder)
    workspace = _workspace(task)
    assert (task.id, task.name, task.category) == ("fix_add", "Repair add", "coding")
    assert task.messages[0].content == "Make `add` in calc.py add."
    assert (workspace.root, workspace.workdir, workspace.start) == ("/app", "repo", "/app/repo")
    (repo,) = workspace.files
    assert (repo.path, repo.at, repo.commit) == (str(folder / "source"), "repo", None)
    assert {tree.path for tree in workspace.hidden} == {str(folder / "evaluation")}
    assert [tree.at for tree in workspace.hidden] == ["repo/evaluation", "evaluation"]
    assert workspace.reference is not None
    assert (workspace.reference.path, workspace.reference.at) == (
        str(folder / "diff.patch"),
        "repo",
    )
    (scorer,) = task.scorers
    assert scorer.name == "rubrics"
    assert scorer.settings["rubrics"] == [{"id": "adds", "criterion": "add adds", "weight": 1.0}]
    assert scorer.settings["test_scripts"] == [
        {"path": "evaluation/test_add.py", "rubric_id": "adds", "content": TEST_ADD}
    ]
    assert task.metadata["task_dir"] == "prepared/fix_add"
    assert task.metadata["tags"] == ["coding", "tiny"]
    assert task.metadata["sensitivity"] == "public"
    assert task.metadata["dataset"] == {"version": 3}


def test_nothing_that_gives_the_solution_away_is_among_the_files_of_the_agent(
    tmp_path: Path,
) -> None:
    folder = write_prepared(tmp_path / "t")
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    workspace = _workspace(_read(folder))
    assert all(Path(tree.path) != folder for tree in workspace.files)
    assert workspace.image is not None
    assert {"evaluation", "diff.patch", "notes.md", "repo_info.json", "tb_meta.json"} <= set(
        workspace.image.left_out
    )


def test_copies_of_the_secrets_in_the_overlays_are_left_out_and_change_nothing(
    tmp_path: Path,
) -> None:
    folder = write_origin_folder(tmp_path / "data/prepared/t", image="scratch")
    before = _read(folder)
    workspace = _workspace(before)
    (overlay,) = (tree for tree in workspace.files if tree.path.endswith("overlay_files"))
    assert set(SECRET_FILES) <= set(overlay.left_out)
    assert workspace.image is not None
    assert {f"overlay_files/{name}" for name in SECRET_FILES} <= set(workspace.image.left_out)
    assert workspace.reference is not None
    assert workspace.reference.path == str(folder / "overlay_files" / "diff.patch")
    (folder / "overlay_files" / "notes.md").write_text("other notes")
    assert _read(folder).digest == before.digest
    (folder / "overlay_files" / "LM_INSTRUCTIONS.md").write_text("Do something else.")
    assert _read(folder).digest != before.digest


@pytest.mark.parametrize("url", [".", ".."])
def test_a_repository_that_holds_the_prepared_folder_itself_is_refused(
    tmp_path: Path, url: str
) -> None:
    task = _read(write_prepared(tmp_path / "t", repo={"git_url": url}))
    assert task.trouble is not None
    assert "holds the prepared folder with its tests" in task.trouble
    assert "tb_meta.json:" in task.trouble


def test_what_the_image_cannot_see_does_not_make_another_image(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "t")
    (folder / "Dockerfile").write_text("FROM scratch\n")
    before = _workspace(_read(folder)).image
    (folder / "notes.md").write_text("other notes")
    assert _workspace(_read(folder)).image == before
    (folder / "Dockerfile").write_text("FROM busybox\n")
    assert _workspace(_read(folder)).image != before


def test_files_of_keys_are_no_part_of_the_image(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "t")
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    (folder / "tools").mkdir()
    (folder / "tools" / "make.sh").touch()
    (folder / ".env.example").write_text("KEY=")
    before = _workspace(_read(folder)).image
    assert before is not None
    for name in (".env", ".env.local", "tools/.env"):
        (folder / name).write_text("KEY=sk-canary")
    image = _workspace(_read(folder)).image
    assert image is not None
    assert {".env", ".env.local", "tools/.env"} <= set(image.left_out)
    assert ".env.example" not in image.left_out
    assert image.identity() == before.identity()


def test_a_repository_is_taken_at_its_commit_from_a_path_a_bundle_or_a_url(tmp_path: Path) -> None:
    commit = write_repo(tmp_path / "origin")
    git(tmp_path / "origin", "bundle", "create", "-q", str(tmp_path / "r.bundle"), "HEAD")
    for number, (url, path) in enumerate(
        [
            (str(tmp_path / "origin"), str(tmp_path / "origin")),
            ("../origin", str(tmp_path / "origin")),
            (f"file://{tmp_path}/origin", str(tmp_path / "origin")),
            ("../r.bundle", str(tmp_path / "r.bundle")),
            ("https://example.org/x.git", "https://example.org/x.git"),
            ("git@example.org:x/y.git", "git@example.org:x/y.git"),
        ]
    ):
        repo = {
            "git_url": url,
            "start_commit_sha": commit.upper(),
            "subdir": "src/",
            "sparse_checkout": ["src", "docs"],
        }
        (tree,) = _workspace(_read(write_prepared(tmp_path / f"t{number}", repo=repo))).files
        assert (tree.path, tree.commit, tree.subdir, tree.sparse, tree.at) == (
            path,
            commit,
            "src",
            ("src", "docs"),
            "repo",
        )


def test_the_overlay_is_laid_over_the_repository_and_its_instructions_win(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "t")
    for name in ("overlay_files", "overlay_repo_files"):
        (folder / name).mkdir()
    (folder / "overlay_files" / "LM_INSTRUCTIONS.md").write_text("Read me.")
    task = _read(folder)
    assert task.messages[0].content == "Read me."
    assert [(Path(t.path).name, t.at) for t in _workspace(task).files] == [
        ("source", "repo"),
        ("overlay_files", ""),
        ("overlay_repo_files", "repo"),
    ]


def test_every_key_of_the_overrides_counts_and_the_folder_is_not_written(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "t")
    (folder / "overlay_files").mkdir()
    (folder / "overlay_files" / "LM_INSTRUCTIONS.md").write_text("The old words.")
    (folder / "other").mkdir()
    before = _read(folder)
    write_overrides(
        folder,
        lm_instructions="Do it so.",
        overlay_files={"hint.txt": "look at the sign"},
        overlay_repo_files={"docs/a.md": "a"},
        inject_files=[{"path": "x/y.py", "content": "y"}, {"path": "/app/top.txt", "content": "t"}],
        remove_repo_paths=["tests/**/*.py", "/app/repo/old"],
        rubrics=[{"id": "new", "criterion": "c", "weight": 2}],
        test_scripts=[{"path": "t.py", "rubric_id": "new", "content": "pass"}],
        repo={"git_url": "other"},
        environment_variables={"LEVEL": 3, "TIMEOUT_SEC": "90"},
    )
    digest = tree_digest(folder)
    task = _read(folder)
    workspace = _workspace(task)
    assert task.messages[0].content == "Do it so."
    assert workspace.texts == {
        "hint.txt": "look at the sign",
        "LM_INSTRUCTIONS.md": "Do it so.",
        "repo/docs/a.md": "a",
        "repo/x/y.py": "y",
        "top.txt": "t",
    }
    assert workspace.removed == ("repo/tests/**/*.py", "repo/old")
    assert Path(workspace.files[0].path).name == "other"
    assert workspace.environment == {"LEVEL": "3", "TIMEOUT_SEC": "90"}
    assert task.time_s == 90.0
    assert task.scorers[0].settings == {
        "rubrics": [{"id": "new", "criterion": "c", "weight": 2.0}],
        "test_scripts": [{"path": "t.py", "rubric_id": "new", "content": "pass"}],
    }
    assert task.metadata["overrides"] is True
    assert tree_digest(folder) == digest
    assert _read(folder, apply_overrides=False).digest == before.digest


def test_evaluation_in_the_overrides_changes_only_what_it_says(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "t")
    rubrics = [{"id": "adds", "criterion": "stricter", "weight": 3}]
    write_overrides(folder, evaluation={"rubrics": rubrics})
    settings = _read(folder).scorers[0].settings
    assert settings["rubrics"] == [{"id": "adds", "criterion": "stricter", "weight": 3.0}]
    assert [s["path"] for s in settings["test_scripts"]] == ["evaluation/test_add.py"]


def test_an_overrides_file_of_its_own_takes_the_place_of_the_one_in_the_folder(
    tmp_path: Path,
) -> None:
    folder = write_prepared(tmp_path / "t")
    write_overrides(folder, prompt="in the folder")
    (tmp_path / "elsewhere").mkdir()
    other = write_overrides(tmp_path / "elsewhere", prompt="elsewhere")
    assert _read(folder).messages[0].content == "in the folder"
    assert _read(folder, overrides=other).messages[0].content == "elsewhere"


def test_tests_without_a_rubric_are_one_rubric(tmp_path: Path) -> None:
    scripts = [{"path": "evaluation/test_add.py"}]
    task = _read(write_prepared(tmp_path / "t", evaluation={"test_scripts": scripts}))
    settings = task.scorers[0].settings
    assert settings["rubrics"] == [{"id": "tests", "criterion": "All tests pass.", "weight": 1.0}]
    assert settings["test_scripts"][0]["rubric_id"] == "tests"


def test_a_test_that_lies_in_the_repository_is_named_without_its_text(tmp_path: Path) -> None:
    scripts = [{"path": "tests/test_own.py", "rubric_id": "adds"}]
    evaluation = {"rubrics": [{"id": "adds"}], "test_scripts": scripts}
    task = _read(write_prepared(tmp_path / "t", evaluation=evaluation))
    assert task.scorers[0].settings["test_scripts"] == [
        {"path": "tests/test_own.py", "rubric_id": "adds"}
    ]


def test_what_the_tests_say_is_part_of_the_task(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "t")
    before = _read(folder).digest
    (folder / "evaluation" / "test_add.py").write_text(TEST_ADD + "# more\n")
    assert _read(folder).digest != before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"task_id": 3}, "key 'task_id': a text is expected, not 3"),
        ({"lm": {}}, "nothing says what is to be done"),
        ({"repo": {"git_url": "nowhere"}}, "key 'repo.git_url': 'nowhere' is not there"),
        (
            {"repo": {"git_url": "https://example.org/r", "start_commit_sha": "abc"}},
            "key 'repo.start_commit_sha': write the whole commit, not 'abc'",
        ),
        (
            {"repo": {"git_url": "source", "start_commit_sha": "0" * 40}},
            "is not a git repository",
        ),
        ({"repo": {"git_url": "source", "subdir": "../.."}}, "must be a path inside its folder"),
        ({"evaluation": {}}, "nothing says whether the work is right"),
        (
            {"evaluation": {"rubrics": [{"id": "a"}, {"id": "a"}]}},
            "rubric 'a' is there twice",
        ),
        ({"evaluation": {"rubrics": [{"id": "a", "weight": 0}]}}, "all rubrics have weight 0"),
        ({"evaluation": {"rubrics": [{"id": "a", "weight": -1}]}}, "rubrics[0].weight"),
        (
            {
                "evaluation": {
                    "rubrics": [{"id": "a"}],
                    "test_scripts": [{"path": "x", "rubric_id": "b"}],
                }
            },
            "test script 'x' is for rubric 'b'; there are: a",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_its_trouble_and_names_the_file(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    task = _read(write_prepared(tmp_path / "broken", **changed))
    assert task.trouble is not None
    assert task.trouble.startswith(str(tmp_path / "broken" / "tb_meta.json"))
    assert said in task.trouble
    assert (task.workspace, task.metadata["task_dir"]) == (None, "prepared/broken")


def test_a_missing_folder_a_missing_file_and_bad_json_are_troubles_too(tmp_path: Path) -> None:
    assert _read(tmp_path / "gone").trouble == f"{tmp_path}/gone: there is no such folder"
    (tmp_path / "empty").mkdir()
    missing = _read(tmp_path / "empty").trouble
    assert missing is not None
    assert missing.startswith(f"{tmp_path}/empty/tb_meta.json is not there")
    folder = write_prepared(tmp_path / "bad")
    (folder / "tb_meta.json").write_text('{\n "task_id": "x",\n "n": }')
    bad = _read(folder).trouble
    assert bad is not None
    assert bad.startswith(f"{folder}/tb_meta.json:3: not valid JSON")
    (folder / "tb_meta.json").write_text("[]")
    assert "a JSON object is expected, not a list" in str(_read(folder).trouble)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"promt": "x"}, "unknown key 'promt'; did you mean 'prompt'?"),
        ({"prompt": "x", "lm_instructions": "y"}, "write `prompt` or `lm_instructions`, not both"),
        ({"overlay_files": {"../x": ""}}, "'../x' must be a path inside its folder"),
        ({"inject_files": [{"path": "/etc/x", "content": ""}]}, "'/etc/x' must be a path inside"),
        ({"remove_repo_paths": ["../*"]}, "'../*' must be a path inside"),
        ({"remove_repo_paths": ["/"]}, "'/' must be a path inside"),
        ({"environment_variables": {"TIMEOUT_SEC": "soon"}}, "TIMEOUT_SEC must be a number"),
        ({"environment_variables": {"A=B": "1"}}, "'A=B' cannot be the name"),
    ],
)
def test_what_is_wrong_with_the_overrides_is_trouble_unless_they_are_left_out(
    tmp_path: Path, overrides: dict[str, Any], said: str
) -> None:
    folder = write_prepared(tmp_path / "t")
    path = write_overrides(folder, **overrides)
    trouble = _read(folder).trouble
    assert trouble is not None
    assert trouble.startswith(str(path))
    assert said in trouble
    assert _read(folder, apply_overrides=False).trouble is None


def test_an_overrides_file_that_is_named_and_not_there_is_trouble(tmp_path: Path) -> None:
    task = _read(write_prepared(tmp_path / "t"), overrides=tmp_path / "none.json")
    assert task.trouble == f"{tmp_path}/none.json cannot be read: No such file or directory"


def test_a_reference_may_be_written_from_the_root(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "t")
    text = (folder / "diff.patch").read_text()
    (folder / "diff.patch").write_text(
        text.replace("a/calc", "a/repo/calc").replace("b/", "b/repo/")
    )
    reference = _workspace(_read(folder)).reference
    assert reference is not None
    assert reference.at == ""


def test_a_task_without_a_repository_works_at_the_root(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "t", repo=None)
    assert _workspace(_read(folder)).workdir == ""
    write_overrides(folder, overlay_repo_files={"a.txt": "x"})
    assert _workspace(_read(folder)).workdir == "repo"
    meta = json.loads((folder / "tb_meta.json").read_text())
    assert meta["repo"] is None
