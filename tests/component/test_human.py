"""A person as the agent, at a real terminal: a child process with a pseudo-terminal of its own."""

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from support.terminal import Terminal, at_terminal
from support.trial_room import broken_repo

PLAYER = Path(__file__).parents[1] / "support" / "human_at_work.py"
_MOST_S = 60.0


def at_work(folder: Path, wait_for: str) -> AbstractContextManager[Terminal]:
    return at_terminal([sys.executable, str(PLAYER), str(folder), wait_for])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return broken_repo(tmp_path / "app")


def test_a_person_repairs_the_file_with_a_shell_in_the_box(folder: Path) -> None:
    with at_work(folder, "shell") as terminal:
        terminal.wait_for("Fix the failing test.")
        terminal.wait_for("$ ")
        terminal.type("mkdir sub && cd sub\n")
        at = terminal.wait_for("/sub $ ")
        terminal.type("false\n")
        at = terminal.wait_for("[exit 1]", after=at)
        terminal.type("sed -i 's/a - b/a + b/' ../calc.py; exit 3\n")
        at = terminal.wait_for("[exit 3]", after=at)
        terminal.type("printf '\\033[31mred'\n")
        terminal.wait_for("\N{REPLACEMENT CHARACTER}[31mred", after=at)
        terminal.type("exit\n")
        assert terminal.end() == 0
    assert "outcome: done" in terminal.seen
    assert "a + b" in (folder / "calc.py").read_text()


def test_the_end_of_input_ends_the_shell(folder: Path) -> None:
    with at_work(folder, "shell") as terminal:
        terminal.wait_for("$ ")
        terminal.type("\x04")
        assert terminal.end() == 0


@pytest.mark.parametrize("how", ["enter", "mark"])
def test_a_person_changes_the_folder_and_says_so(folder: Path, how: str) -> None:
    mark = Path(f"{folder}.done")
    with at_work(folder, "folder") as terminal:
        terminal.wait_for(f"Change the files in {folder}")
        terminal.wait_for(f"make {mark}")
        (folder / "calc.py").write_text("def add(a, b):\n    return a + b\n")
        if how == "enter":
            terminal.type("\n")
        else:
            mark.touch()
        assert terminal.end() == 0
    assert "outcome: done" in terminal.seen
    assert not mark.exists()


def test_a_person_who_takes_too_long_is_cut_like_anybody(folder: Path) -> None:
    with at_work(folder, "too-late") as terminal:
        terminal.wait_for("$ ")
        assert terminal.end() == 0
    assert "outcome: TimeoutError" in terminal.seen


def test_without_a_terminal_it_is_a_usage_error(folder: Path) -> None:
    said = subprocess.run(
        [sys.executable, str(PLAYER), str(folder), "shell"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,  # away from the terminal that the tests may be run at
        timeout=_MOST_S,
        check=False,
    )
    assert "needs a terminal" in said.stdout, said.stderr
