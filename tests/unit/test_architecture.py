"""docs/architecture.md says nothing of the code that is not so."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bakeoff"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Return the part of the page under the heading *title*."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_path_on_the_page_exists() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", PAGE))
    assert len(named) > 50
    assert not [
        name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()
    ]


def test_the_tree_names_every_package_and_no_other() -> None:
    tree = section("The tree").split("```")[1]
    named: set[str] = set()
    parents: list[str] = []
    for indent, name in re.findall(r"^( {2,})([\w.]+/?) ", tree, re.MULTILINE):
        depth = len(indent) // 2 - 1
        parents[depth:] = [name]
        named.add("".join(parents))
    packages = {
        f"{path.parent.relative_to(SOURCE).as_posix()}/"
        for path in SOURCE.rglob("__init__.py")
        if path.parent != SOURCE
    }
    modules = {path.name for path in SOURCE.glob("*.py")} - {"__main__.py"}
    assert named == packages | modules


def test_the_order_of_imports_is_the_one_that_lint_checks() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    layers = next(
        contract["layers"]
        for contract in contracts["importlinter"]["contracts"]
        if contract["id"] == "layers"
    )
    shown = re.findall(r"^\d+\. (.*)$", section("The tree"), re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", line)) for line in shown] == [
        set(layer.split(" | ")) for layer in layers
    ]


def test_the_ten_steps_are_called_in_this_order_and_defined_where_the_page_says() -> None:
    steps = re.findall(
        r"^\| \d+ \| `(\w+)` \| `([\w/.]+)` \|", section("The ten steps"), re.MULTILINE
    )
    assert len(steps) == 10
    for name, file in steps:
        assert name in functions(SOURCE / file), f"{file} defines no {name}"
    calls = called(SOURCE / "app" / "run.py", "prepare_run", "execute_run")
    assert [call for call in calls if call in dict(steps)] == [name for name, _ in steps]


@pytest.mark.parametrize(
    "row", re.findall(r"^\| \*\*.*$", section("The words"), re.MULTILINE), ids=lambda row: row[4:24]
)
def test_a_word_is_defined_where_the_page_says(row: str) -> None:
    words, _, where = row.strip("| ").split(" | ")
    homes = [SOURCE / path for path in re.findall(r"`([\w/.]+)`", where)]
    files = [file for home in homes for file in ([home] if home.is_file() else home.rglob("*.py"))]
    defined = {name for file in files for name in classes(file)}
    for word in re.findall(r"[*`]+(\w+)[*`]+", words):
        assert any(word.casefold() in name.casefold() for name in defined), f"{word}: {where}"


def functions(file: Path) -> set[str]:
    """Return the names of the functions that *file* defines at its top."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def classes(file: Path) -> set[str]:
    """Return the names of the classes that *file* defines."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def called(file: Path, *inside: str) -> list[str]:
    """Return the functions that the functions *inside* of *file* call by name, in order."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = {node.name: node for node in tree.body if isinstance(node, kinds)}
    calls = [
        node
        for name in inside
        for node in ast.walk(bodies[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    ordered = sorted(calls, key=lambda call: (call.lineno, call.col_offset))
    return [call.func.id for call in ordered if isinstance(call.func, ast.Name)]
