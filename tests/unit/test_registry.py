"""Names become parts."""

import importlib.metadata
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from bakeoff import registry
from bakeoff.app import checks
from bakeoff.core.errors import UsageError
from bakeoff.scorers.text import Exact


@pytest.mark.parametrize("kind", ["models", "agents", "scorers"])
def test_every_built_in_name_can_be_found(kind: registry.Kind) -> None:
    for name in registry.BUILT_IN[kind]:
        assert callable(registry.find(kind, name))


def test_a_name_nobody_knows_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"no scorer is called 'exct': did you mean 'exact'\?"):
        registry.find("scorers", "exct")
    with pytest.raises(UsageError, match=r"no agent is called 'zzz': there are: .*direct"):
        registry.find("agents", "zzz")


def test_ones_own_function_is_found_in_the_folder_of_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_registry_a.py").write_text("def score(answer):\n    return 0.25\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "own_registry_b.py").write_text("VALUE = 7\n")
    found = registry.find("scorers", "own_registry_a:score", folders=[tmp_path])
    assert callable(found)
    assert found("x") == 0.25
    assert registry.find("scorers", "own_registry_a.py:score", folders=[tmp_path]) is found
    assert registry.find("scorers", "deep/own_registry_b.py:VALUE", folders=[tmp_path]) == 7
    assert registry.find("scorers", "deep.own_registry_b:VALUE", folders=[tmp_path]) == 7


def test_two_suites_may_each_have_a_file_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "own_registry_twin.py").write_text(f"VALUE = {number}\n")
        assert registry.find("scorers", "own_registry_twin:VALUE", folders=[folder]) == number


@pytest.mark.parametrize(
    ("source", "reference", "message"),
    [
        (None, "own_registry_none:x", r"'own_registry_none:x' cannot be imported: .*No module"),
        ("x = 1\n", "{m}:missing", r"has no 'missing'"),
        ("import own_registry_none\n", "{m}:x", r"cannot be imported: .*No module"),
        ("def x(:\n", "{m}:x", r"cannot be imported: .*invalid syntax"),
        ("1 / 0\n", "{m}:x", r"cannot be imported: .*division by zero"),
        ("import os\nos.nowhere\n", "{m}:x", r"cannot be imported: .*nowhere"),
    ],
)
def test_a_module_that_cannot_be_used_is_the_users_to_fix(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str | None,
    reference: str,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = f"own_registry_{abs(hash(source)):x}"
    if source is not None:
        (tmp_path / f"{module}.py").write_text(source)
    with pytest.raises(UsageError, match=message):
        registry.find("scorers", reference.format(m=module), folders=[tmp_path])


def test_a_file_of_the_users_does_not_hide_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "colorsys.py").write_text("HIDDEN = True\n")
    (tmp_path / "own_registry_c.py").write_text(
        "import colorsys\nV = hasattr(colorsys, 'HIDDEN')\n"
    )
    sys.modules.pop("colorsys", None)
    assert registry.find("scorers", "own_registry_c:V", folders=[tmp_path]) is False


def test_a_plugin_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = EntryPoint("mine", "bakeoff.scorers.text:Exact", "bakeoff.scorers")

    def entry_points(*, group: str) -> EntryPoints:
        return EntryPoints([plugin] if group == plugin.group else [])

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert "mine" in registry.names("scorers")
    assert "mine" not in registry.names("agents")
    assert registry.find("scorers", "mine") is Exact


@dataclass(frozen=True, kw_only=True)
class Knobs:
    size: int
    words: tuple[str, ...] = ()


class Plain:
    def __init__(self, size: int = 1) -> None:
        self.size = size


def test_a_class_is_built_with_its_settings_and_anything_else_is_ready() -> None:
    assert registry.build(Knobs, {"size": 3, "words": ["a"]}, what="x") == Knobs(
        size=3, words=("a",)
    )
    built = registry.build(Plain, {"size": 3}, what="x")
    assert isinstance(built, Plain)
    assert built.size == 3
    assert registry.build(len, {"any": 1}, what="x") is len


@pytest.mark.parametrize(
    ("part", "settings", "message"),
    [
        (Knobs, {"size": 1, "word": []}, r"scorer 'k': unknown setting 'word'; .*'words'"),
        (Knobs, {"size": "1"}, r"scorer 'k': key 'size': a whole number is expected, not a text"),
        (Knobs, {}, r"scorer 'k': it needs the setting 'size'; write it under"),
        (Plain, {"siez": 1}, r"scorer 'k'.*siez"),
    ],
)
def test_wrong_settings_are_the_users_to_fix(
    part: type, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        registry.build(part, settings, what="scorer 'k'")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("my_scorers:brief", True),
        ("pkg.mod:attr", True),
        ("path/file.py:attr", True),
        ("exact", False),
        ("llama3:8b", False),
        ("a:b:c", False),
        ("a: b", False),
        ("", False),
    ],
)
def test_what_is_a_reference(name: str, is_one: bool) -> None:
    assert registry.is_reference(name) is is_one


def test_validate_imports_nobodys_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_trap.py").write_text(
        f"open({str(tmp_path / 'sprung')!r}, 'w').close()\ndef x(*_): return 1\nx.y = x\n"
    )
    run = tmp_path / "run.toml"
    run.write_text(
        "models = ['own_trap:x']\nagents = ['own_trap:x']\n"
        "[[tasks]]\nid = 'a'\nprompt = 'p'\nscorers = ['own_trap:x']\n"
    )
    assert checks.check(run)[0].endswith("valid")
    assert not (tmp_path / "sprung").exists()
