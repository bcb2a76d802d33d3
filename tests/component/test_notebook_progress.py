"""A run in a notebook says how far it is; elsewhere it is silent."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import bakeoff
from bakeoff.core.events import Event


def suite(folder: Path) -> Path:
    path = folder / "suite.json"
    tests = [{"id": f"t{n}", "prompt": f"{n}", "expected": f"{n % 2}"} for n in range(8)]
    path.write_text(json.dumps({"tests": tests}))
    return path


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a cell shows, one after another: what of IPython a notebook's kernel offers."""
    shown: list[str] = []

    class Handle:
        def display(self, text: str) -> None:
            shown.append(text)

        update = display

    shell, display = ModuleType("IPython"), ModuleType("IPython.display")
    contents: dict[str, Any] = {"HTML": lambda text: text, "DisplayHandle": Handle}
    vars(display).update(contents)
    vars(shell)["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_cell_shows_how_far_the_run_is_and_ends_with_the_whole(
    cell: list[str], tmp_path: Path
) -> None:
    def model(request: bakeoff.Request) -> str:
        number = request.messages[-1].content
        if number == "3":
            raise ValueError("out of order")
        return number

    bakeoff.run(suite(tmp_path), models=[model], output=tmp_path)
    assert cell[0] == ""
    assert "0 of 8 trials" in cell[1]
    assert re.fullmatch(
        r'<progress max="8" value="8"></progress> 8 of 8 trials · \d passed · 1 faulted', cell[-1]
    )


def test_a_listener_of_ones_own_is_all_that_listens(cell: list[str], tmp_path: Path) -> None:
    events: list[Event] = []
    bakeoff.run(suite(tmp_path), models=["scripted/echo"], output=tmp_path, listener=events.append)
    assert events
    assert cell == []


def test_a_plain_shell_of_ipython_is_no_notebook(
    cell: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("IPython.get_ipython", SimpleNamespace)
    bakeoff.run(suite(tmp_path), models=["scripted/echo"], output=tmp_path)
    assert cell == []
