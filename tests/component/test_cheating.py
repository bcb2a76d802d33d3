"""Every trick of the cheater, on a task of every format: it scores where the docs say so, else 0."""

import json
from pathlib import Path

import pytest

import bakeoff
from bakeoff import cli
from bakeoff.agents.cheating import GROUPS, TRICKS
from bakeoff.agents.cheating.trick import FORMATS
from bakeoff.app.validation import Finding, How, validate_tasks
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from support.cheat_tasks import TASKS, write_for_containers
from support.container_engines import engine
from support.parts import require

ROOT = Path(__file__).parents[2]
WITHOUT_CONTAINERS = [name for name in FORMATS if name != "harbor"]
WITHOUT_THE_COMMAND = [name for name in WITHOUT_CONTAINERS if name != "unittest"]
IN_CONTAINERS = ("program", "harbor")
PART = ("files", "system-programs", "exit-codes", "patched-run", "processes-above", "while-graded")
BUNDLED = sorted(
    path
    for pattern in (
        "examples/tasks/*/instruction.md",
        "examples/rollouts/prepared/*/tb_meta.json",
        "examples/batch/*.md",
        "benchmark/tasks/*/*.md",
    )
    for path in ROOT.glob(pattern)
)
"""A file of each task that comes with the project."""


def played(path: Path, how: How) -> list[Finding]:
    if how.sandbox == "bubblewrap":
        why = Bubblewrap.available()
        require("bubblewrap", why is None, why or "apt install bubblewrap")
    return validate_tasks(path, how)


def in_containers(
    name: str, path: Path, how: How, monkeypatch: pytest.MonkeyPatch
) -> list[Finding]:
    on = engine(name)
    on.with_python()
    for variable, value in on.environment.items():
        if variable not in {"PATH", "HOME"}:
            monkeypatch.setenv(variable, value)
    findings = validate_tasks(path, how)
    assert on.containers() == []
    return findings


def known(form: str) -> set[str]:
    return {name for name, trick in TRICKS.items() if form in trick.scores_in}


def check(finding: Finding, form: str, played: set[str]) -> None:
    assert set(finding.scored) == known(form) & played, finding.lines()
    assert (finding.oracle, finding.nop) == (1.0, 0.0), finding.lines()
    told = [line for line in finding.problems if not line.startswith("cheat-")]
    assert told == [], "a trick that gets no score at all would be left out of the mean"


def test_there_are_many_tricks_each_with_a_task_in_every_format() -> None:
    assert len(TRICKS) >= 60
    assert TASKS.keys() == FORMATS.keys()
    assert all(set(trick.scores_in) <= FORMATS.keys() for trick in TRICKS.values())
    assert sorted(name for group in GROUPS.values() for name in group) == sorted(TRICKS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", WITHOUT_THE_COMMAND)
def test_no_trick_scores_but_where_the_docs_say_so(form: str, tmp_path: Path) -> None:
    (finding,) = played(TASKS[form](tmp_path), How(sandbox="bubblewrap", parallel=4))
    check(finding, form, set(TRICKS))


@pytest.mark.timeout(600)
def test_where_only_a_known_trick_scores_the_command_fails_if_it_is_asked_to_be_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every trick again, on tests that import the solution, and through the command."""
    require("bubblewrap", Bubblewrap.available() is None, "apt install bubblewrap")
    words = ["validate", str(TASKS["unittest"](tmp_path)), "--sandbox", "bubblewrap", "--json"]
    assert cli.call([*words, "--strict"]) == 1
    (stored,) = json.loads(capsys.readouterr().out)
    assert set(stored["scored"]) == known("unittest") == {"decoy-aware"}
    assert stored["verdict"] == "sound-with-limit"
    assert (stored["problems"], stored["cheat"]) == ([], 0.0)
    assert (stored["oracle"], stored["nop"]) == (1.0, 0.0)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", WITHOUT_CONTAINERS)
def test_no_trick_scores_alone_but_where_the_docs_say_so(form: str, tmp_path: Path) -> None:
    how = How(sandbox="bubblewrap", parallel=4, alone=True)
    (finding,) = played(TASKS[form](tmp_path), how)
    check(finding, form, set(TRICKS))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", IN_CONTAINERS)
def test_tricks_do_not_score_in_containers(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tricks = [name for group in PART for name in GROUPS[group]]
    how = How(sandbox="docker", parallel=2, tricks=tricks)
    (finding,) = in_containers("docker", write_for_containers(form, tmp_path), how, monkeypatch)
    check(finding, form, set(tricks))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["docker", "podman"])
@pytest.mark.parametrize("form", ["program", "unittest", "pytest", "script", "harbor"])
def test_no_trick_scores_in_containers_but_where_the_docs_say_so(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = How(sandbox=name, parallel=2)
    (finding,) = in_containers(name, write_for_containers(form, tmp_path), how, monkeypatch)
    check(finding, form, set(TRICKS))


HELD_OPEN = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
print(6)
"""
ALL_MEMORY = "kept = []\nwhile True:\n    kept.append(bytearray(50_000_000))\n"
FORKS = "import os\nwhile True:\n    os.fork()\n"


@pytest.mark.parametrize("code", [HELD_OPEN, ALL_MEMORY, FORKS], ids=["output", "memory", "forks"])
def test_a_solution_that_keeps_its_tests_from_ending_scores_0(code: str, tmp_path: Path) -> None:
    require("bubblewrap", Bubblewrap.available() is None, "apt install bubblewrap")
    task = TASKS["program"](tmp_path)
    limits = "[tests]\ntime_s = 3\n[box]\nmemory_mb = 256\nprocesses = 64\n"
    (task / "task.toml").write_text(limits)
    (task / "solution" / "calc.py").write_text(code)
    (record,) = bakeoff.run(
        task,
        agents=["oracle"],
        models=["scripted"],
        sandbox="bubblewrap",
        output=tmp_path / "runs",
    ).trials()
    assert record.attempt.fault is None
    assert record.attempt.score == 0.0


def test_every_bundled_task_is_among_those_that_are_tried() -> None:
    """A pattern that matches nothing would prove nothing."""
    tried = [path.relative_to(ROOT).parts[:2] for path in BUNDLED]
    assert {place: tried.count(place) for place in sorted(set(tried))} == {
        ("benchmark", "tasks"): 8,
        ("examples", "batch"): 1,
        ("examples", "rollouts"): 4,
        ("examples", "tasks"): 4,
    }


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "path", BUNDLED, ids=lambda path: str(path.relative_to(ROOT).with_suffix(""))
)
def test_no_trick_scores_alone_on_a_bundled_task(path: Path) -> None:
    folder_of_one = path.name in {"instruction.md", "tb_meta.json"}
    how = How(sandbox="bubblewrap", parallel=4, alone=True)
    (finding,) = played(path.parent if folder_of_one else path, how)
    assert finding.lines()[0].endswith("oracle 1.00, nop 0.00, cheat 0.00  SOUND"), finding
