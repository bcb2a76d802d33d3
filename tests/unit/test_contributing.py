"""What the files for contributors say is so: paths exist, commands are there, versions agree."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from bakeoff._lib.version import __version__
from bakeoff.registry import BUILT_IN

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md")
FOLDERS = ("src/", "tests/", "docs/", "examples/", "perf/", ".github/", ".ci/")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text()


def there(path: Path) -> bool:
    """Whether *path* is a file, or a folder with more in it than what Python compiled."""
    return path.is_file() or any(file.suffix not in {"", ".pyc"} for file in path.rglob("*"))


def settings(name: str) -> Any:
    return yaml.safe_load(read(name))


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_is_named_exists(page: str) -> None:
    named = re.findall(r"`([\w./-]+)`", read(page))
    linked = re.findall(r"\]\(([\w./-]+)\)", read(page))
    paths = {path for path in named if path.startswith(FOLDERS) or path.endswith(".md")} | {*linked}
    assert paths or page.startswith(".github")
    assert [path for path in sorted(paths) if not there(ROOT / path)] == []


def test_every_path_in_a_command_exists() -> None:
    words = re.findall(r"^\$ (.*)$", read("CONTRIBUTING.md"), re.MULTILINE)
    files = [word for line in words for word in line.split() if word.startswith("tests/")]
    assert files
    assert [path for path in files if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", ".github/PULL_REQUEST_TEMPLATE.md"])
def test_every_make_target_that_is_named_is_there(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", read(page)))
    assert named
    assert named <= targets


def test_every_kind_of_part_has_its_line_in_how_to_add() -> None:
    text = read("CONTRIBUTING.md")
    assert [kind for kind in BUILT_IN if f'`BUILT_IN["{kind}"]`' not in text] == []


def test_the_folders_of_the_tests_are_all_explained() -> None:
    folders = {
        f"`tests/{path.name}/`"
        for path in (ROOT / "tests").iterdir()
        if path.is_dir() and path.name not in {"__pycache__", "fixtures"}
    }
    assert {name for name in folders if name not in read("CONTRIBUTING.md")} == set()


def test_the_pythons_that_are_tested_are_those_that_are_named_as_supported() -> None:
    workflow = settings(".github/workflows/test.yml")
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: "
    named = [
        text.removeprefix(prefix) for text in PROJECT["classifiers"] if text.startswith(prefix)
    ]
    assert tested == [text for text in named if re.fullmatch(r"3\.\d+", text)]
    assert PROJECT["requires-python"] == f">={tested[0]}"
    assert f"({tested[0]} to {tested[-1]} are supported)" in read("CONTRIBUTING.md")


def test_the_workflow_may_only_read_and_pins_every_action() -> None:
    workflow = settings(".github/workflows/test.yml")
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", action) for action in used)


def test_the_citation_says_what_the_package_says() -> None:
    citation = settings("CITATION.cff")
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]
    assert citation["abstract"] == PROJECT["description"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["authors"][0]["name"] in read("LICENSE")


def test_the_hooks_run_the_programs_of_the_lock_file() -> None:
    (local,) = settings(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    linted = read("Makefile").split("\nlint:")[1].split("\n\n")[0]
    for hook in local["hooks"]:
        program = hook["entry"].removeprefix(".tools/bin/uv run --no-sync ").split()[0]
        assert f"$(RUN) {program}" in linted
