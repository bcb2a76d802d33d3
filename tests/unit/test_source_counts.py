"""What `perf/house.py` counts, on packages small enough to count by hand."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _measurement(name: str) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))  # as `python -m perf.house` has it
        yield import_module(f"perf.{name}")


@pytest.fixture(scope="module")
def shape() -> Iterator[ModuleType]:
    yield from _measurement("source_shape")


@pytest.fixture(scope="module")
def calls() -> Iterator[ModuleType]:
    yield from _measurement("trial_path")


def _package(folder: Path, **files: str) -> Path:
    """Write `made_up`; in the names of *files*, two underscores are a folder."""
    package = folder / "made_up"
    for name, text in {"__init__": "", **files}.items():
        path = package / f"{name if name == '__init__' else name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(dedent(text), encoding="utf-8")
    return package


def test_every_kind_of_import_makes_an_importer(tmp_path: Path, shape: ModuleType) -> None:
    package = _package(
        tmp_path,
        low="VALUE = 1",
        typed="class Typed: ...",
        late="def run(): ...",
        near="NEAR = 1",
        registered="class Part: ...",
        alone="",
        sub__user="""
            from typing import TYPE_CHECKING
            import made_up.low
            from made_up import late as renamed
            from ..near import NEAR
            if TYPE_CHECKING:
                from made_up.typed import Typed
            def work():
                from made_up.late import run
            """,
        registry="""
            '''Speaks of made_up.alone in passing.'''
            from made_up.low import VALUE
            PARTS = {"part": "made_up.registered:Part"}
            """,
    )
    modules = shape.read_modules(package)
    user, registry = "made_up.sub.user", "made_up.registry"
    users = {name.removeprefix("made_up."): who for name, who in shape.importers(modules).items()}
    assert users["low"] == {user, registry}
    assert users["typed"] == users["late"] == users["near"] == {user}
    assert users["registered"] == {registry}
    assert users["alone"] == set()
    assert shape.importers(modules, strings=False)["made_up.registered"] == set()
    counts = shape.describe(package)
    assert (counts["files"], counts["packages"]) == (10, {"sub": 2})
    # of eight modules that are no package: typed, late and near, and with strings registered
    assert counts["single_importers"] == 4
    assert counts["single_importer_percent"] == 50.0
    assert counts["single_importer_percent_by_statement"] == 37.5


def test_a_class_name_counts_where_two_modules_define_it(tmp_path: Path, shape: ModuleType) -> None:
    twice = "class Reply: ...\nclass _Reply: ...\n"
    package = _package(tmp_path, a=twice, b=twice + "class Once: ...\n")
    assert shape.repeated_classes(shape.read_modules(package)) == {
        "Reply": ["made_up.a", "made_up.b"]
    }


def test_the_same_six_lines_are_one_duplicate_and_five_are_none(
    tmp_path: Path, shape: ModuleType
) -> None:
    lines = [f"value_{number} = {number}" for number in range(8)]
    package = _package(
        tmp_path,
        a="\n".join(["import os", '"""Prose."""', *lines[:7]]),
        b="\n".join([*lines[:3], "# a comment", "", *lines[3:7], "other = 1"]),
        c="\n".join(["first = 1", *lines[3:8]]),
    )
    blocks = shape.duplicate_blocks(shape.read_modules(package))
    assert [str(block) for block in blocks] == ["7 lines: made_up.a:3 = made_up.b:1"]


def test_a_term_is_found_in_names_and_not_in_prose(tmp_path: Path, shape: ModuleType) -> None:
    package = _package(
        tmp_path,
        rate_limits='"""Backoff is spoken of."""\nclass HTTPRateLimit:\n    def wait(self): ...\n',
        other="jitter = 1\nasync def _with_rate_limit(): ...\nclass SourceLocation: ...\n",
    )
    modules = shape.read_modules(package)
    assert shape.named_things(modules, "rate limit") == [
        "made_up.rate_limits",
        "made_up.rate_limits:HTTPRateLimit",
        "made_up.other:_with_rate_limit",
    ]
    assert shape.named_things(modules, "source location") == ["made_up.other:SourceLocation"]
    assert shape.named_things(modules, "backoff") == shape.named_things(modules, "jitter") == []


def test_a_path_is_the_functions_that_are_called_before_and_after_the_trial_begins(
    tmp_path: Path, calls: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = _package(
        tmp_path,
        events="""
            from dataclasses import dataclass
            @dataclass
            class TrialStarted:
                trial: int
            """,
        plan="""
            def at_import(): ...
            at_import()
            def prepare():
                return [number for number in range(3)]
            def never(): ...
            """,
        engine="""
            from made_up.events import TrialStarted
            class Engine:
                def run(self):
                    TrialStarted(1)
                    return self.step() + self.step()
                def step(self):
                    return 1
            """,
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = calls.Calls(package)
    outer = sys.getprofile()
    sys.setprofile(seen)
    try:
        from made_up.engine import Engine  # type: ignore[import-not-found]
        from made_up.plan import prepare  # type: ignore[import-not-found]

        prepare()
        Engine().run()
    finally:
        sys.setprofile(outer)
    assert seen.functions == [
        ("plan.py", "prepare"),
        ("engine.py", "Engine.run"),
        ("engine.py", "Engine.step"),
    ]
    assert seen.before == 2


# --- the package itself ---------------------------------------------------------------------------


def test_no_public_class_name_of_bakeoff_has_two_meanings(shape: ModuleType) -> None:
    assert shape.repeated_classes(shape.read_modules(ROOT / "src/bakeoff")) == {}


def test_the_usual_term_finds_a_thing_of_that_name(shape: ModuleType) -> None:
    modules = shape.read_modules(ROOT / "src/bakeoff")
    assert [term for term in shape.TERMS if not shape.named_things(modules, term)] == []
