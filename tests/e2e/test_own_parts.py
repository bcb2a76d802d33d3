"""The guides to one's own models, agents, scorers and sandboxes: every block works as it stands.

Their packages are built and installed for real, and so are some that are broken.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

import pytest

import bakeoff
from bakeoff import UsageError, cli
from support.coding_tasks import write_fix_add
from support.doc_blocks import ROOT, blocks
from support.parts import require

GUIDES = ROOT / "docs/guides"
UV = ROOT / ".tools/bin/uv"
KINDS = ["own-models", "own-agents", "own-scorers", "own-sandboxes"]
_MODULES = ("my_", "parrots", "second_thoughts", "brevity", "folder_boxes", "broken_")


@pytest.fixture(autouse=True)
def modules_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in [n for n in sys.modules if n.partition("_own_")[2][9:].startswith(_MODULES)]:
        del sys.modules[name]
    for name in [n for n in sys.modules if n.startswith(_MODULES)]:
        del sys.modules[name]


def write_files(page: str, folder: Path) -> Path:
    """Write every file of the guide called *page*; its package gets its `pyproject.toml`."""
    for block in blocks(GUIDES / f"{page}.md"):
        name = block.kind.removeprefix("file=") if block.kind.startswith("file=") else None
        name = {"run": "own.toml", "package": "pyproject.toml"}.get(block.kind, name)
        if name is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(block.text, encoding="utf-8")
    return folder


def install(project: Path, target: Path) -> None:
    """Build *project* and install it, as anybody would; from here on Python can import it."""
    uv = UV if UV.is_file() else shutil.which("uv")
    require("uv", uv, "make setup")
    where: list[str | Path] = ["--target", target, "--python", sys.executable]
    subprocess.run(
        [str(uv), "pip", "install", "-q", "--offline", "--no-deps", *where, project], check=True
    )
    if str(target) not in sys.path:
        sys.path.insert(0, str(target))
    invalidate_caches()


def scores(run: bakeoff.Run) -> dict[str, str]:
    return {r.name: "fault" if r.attempt.fault else f"{r.attempt.score:.2f}" for r in run.trials()}


@pytest.mark.parametrize("page", ["own-models", "own-agents", "own-scorers"])
def test_the_run_of_a_guide_gives_the_scores_that_it_shows(page: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    (shown,) = [b.text for b in blocks(GUIDES / f"{page}.md") if b.language == "scores"]
    run = bakeoff.run(tmp_path / "own.toml", output=tmp_path / "runs")
    assert scores(run) == dict(line.split() for line in shown.splitlines())


def test_the_mistakes_on_the_page_of_own_scorers_are_told_as_it_says(tmp_path: Path) -> None:
    write_files("own-scorers", tmp_path)
    text = (tmp_path / "own.toml").read_text()
    (console,) = [b.text for b in blocks(GUIDES / "own-scorers.md") if b.language == "console"]
    shown = re.findall(r"^bakeoff: error: (.*)$", console, re.MULTILINE)
    for (right, wrong), message in zip(
        [("text =", "txt ="), ("most =", "mst =")], shown, strict=True
    ):
        (tmp_path / "own.toml").write_text(text.replace(right, wrong))
        with pytest.raises(UsageError, match=re.escape(message)):
            bakeoff.run(tmp_path / "own.toml", output=tmp_path / "runs")


@pytest.mark.parametrize("sandbox", ["my_sandbox:Folders", "folders"])
def test_the_agent_and_the_sandbox_of_the_guides_do_a_coding_task(
    sandbox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files("own-agents", tmp_path)
    if sandbox == "folders":
        project = write_files("own-sandboxes", tmp_path / "project")
        code = (project / "my_sandbox.py").read_text()
        (project / "src/folder_boxes").mkdir(parents=True)
        (project / "src/folder_boxes/__init__.py").write_text(code)
        install(project, tmp_path / "installed")
    else:
        write_files("own-sandboxes", tmp_path)
    task = write_fix_add(tmp_path)
    told: list[str] = []
    run = bakeoff.run(
        task,
        models=["scripted/echo"],
        agents=["my_coder:Sed"],
        sandbox=sandbox,
        output=tmp_path / "runs",
        listener=lambda event: (
            told.append(event.text) if isinstance(event, bakeoff.Notice) else None
        ),
    )
    (record,) = run.trials()
    assert record.attempt.fault is None, record.attempt.fault
    assert record.attempt.score == 1.0
    assert "sandbox 'folders' does not isolate: commands run with your rights" in told


def test_the_package_of_each_guide_is_listed_and_used_under_its_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for page in ("own-models", "own-agents", "own-scorers"):
        install(write_files(page, tmp_path / page), tmp_path / "installed")
    (tmp_path / "run.toml").write_text(
        'models = ["parrots/grey"]\nagents = ["twice"]\nscorers = ["brief"]\n'
        'tasks = [{ id = "a", prompt = "hi" }]\n'
    )
    assert cli.call(["validate", "run.toml"]) == 0
    (record,) = bakeoff.run(tmp_path / "run.toml", output=tmp_path / "runs").trials()
    assert (record.name, record.attempt.score) == ("a@twice+parrots/grey#0", 1.0)
    assert record.attempt.outcome is not None
    assert record.attempt.outcome.answer == "Paris"
    assert record.attempt.spent.requests == 2
    capsys.readouterr()
    for kind, name, what in [
        ("models", "parrots/NAME", "Birds that say one word. (parrots 1.0)"),
        ("agents", "twice", "Asks twice, and gives the second answer. (second-thoughts 1.0)"),
        ("scorers", "brief", "1 for an answer of few words, less for a longer one. (brevity 1.0)"),
    ]:
        assert listed(kind, capsys)[name] == what
    with pytest.raises(UsageError, match="there is no red parrot; there are: grey, green"):
        bakeoff.run(tmp_path / "run.toml", models=["parrots/red"], output=tmp_path / "runs")


FIT = """
from bakeoff import Agent, Context, Model, Sandbox, Scorer
from my_agents import Polite
from my_coder import Sed
from my_models import Moody, Parrot
from my_sandbox import Folders
from my_scorers import StartsWith

agents: list[Agent] = [Polite(), Sed()]
models: list[Model] = [Parrot(), Moody()]
sandboxes: list[Sandbox] = [Folders()]
scorers: list[Scorer] = [StartsWith(text="x")]


def given(context: Context) -> Model:
    return context.model
"""


def test_a_strict_type_checker_finds_that_the_parts_of_the_guides_fit_the_ports(
    tmp_path: Path,
) -> None:
    require("mypy", find_spec("mypy"), "make setup")
    for page in KINDS:
        write_files(page, tmp_path)
    (tmp_path / "fit.py").write_text(FIT)
    done = subprocess.run(
        # as `make lint` does, so that what it knows of bakeoff is used again
        [sys.executable, "-m", "mypy", "--strict", tmp_path / "fit.py"],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def listed(kind: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What `bakeoff list` says of each thing of *kind*."""
    assert cli.call(["list", kind, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {next(iter(row.values())): list(row.values())[-1] for row in rows}


BROKEN = {
    "models": ("broken_x:build", "def build(spec):\n    return 7\n"),
    "agents": ("broken_x:missing", ""),
    "scorers": ("broken_x:score", "import nowhere_to_be_found\n"),
    "sandboxes": ("broken_x:Boxes", "raise SystemExit(3)\n"),
}
SAID = {
    "models": "model 'odd/x': its plug-in made a int; make an object with `complete`",
    "agents": r"agent 'odd' of broken-agents 1.0 cannot be loaded from 'broken_agents:missing': Attr",
    "scorers": r"scorer 'odd' of broken-scorers 1.0 cannot be loaded .*: ModuleNotFoundError: No module",
    "sandboxes": r"sandbox 'odd' of broken-sandboxes 1.0 cannot be loaded .*: SystemExit: 3; fix or",
}


def test_a_broken_plug_in_is_one_clear_line_and_never_a_dead_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, (reference, code) in BROKEN.items():
        module = f"broken_{kind}"
        source = tmp_path / kind / "src" / module
        source.mkdir(parents=True)
        (source / "__init__.py").write_text(code)
        (tmp_path / kind / "pyproject.toml").write_text(
            f'[project]\nname = "broken-{kind}"\nversion = "1.0"\n'
            f'[project.entry-points."bakeoff.{kind}"]\n'
            f'odd = "{reference.replace("broken_x", module)}"\n'
            '[build-system]\nrequires = ["uv_build"]\nbuild-backend = "uv_build"\n'
        )
        install(tmp_path / kind, tmp_path / "installed")
    for kind in ("agents", "scorers", "sandboxes"):
        assert re.search(SAID[kind], listed(kind, capsys)["odd"])
    assert "odd/NAME" in listed("models", capsys)
    task = write_fix_add(tmp_path)
    whole = {"models": ["scripted"], "agents": ["direct"], "scorers": ["exact"], "sandbox": "local"}
    broken = {"models": ["odd/x"], "agents": ["odd"], "scorers": ["odd"], "sandbox": "odd"}
    for kind, key in zip(BROKEN, broken, strict=True):
        source_of = task if kind == "sandboxes" else [_task()]
        with pytest.raises(UsageError, match=SAID[kind]):
            bakeoff.run(source_of, **{**whole, key: broken[key]}, output=tmp_path / "runs")  # type: ignore[arg-type]
    run = bakeoff.run([_task()], models=["scripted"], scorers=["exact"], output=tmp_path / "runs")
    assert run.summary().buckets.scored == 1
    assert cli.call(["clean"]) == 0


def _task() -> bakeoff.Task:
    return bakeoff.Task(id="a", messages=(bakeoff.Message(role="user", content="hi"),), target="hi")
