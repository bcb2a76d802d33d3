"""The documentation: links lead somewhere, examples are valid and print what they say."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

import bakeoff
from bakeoff.app import checks
from bakeoff.formats.detect import json_schema
from bakeoff.formats.suite_companions import read_categories, read_metadata
from bakeoff.frontends.test_runner.settings import read_config
from support.cli import bakeoff as command
from support.doc_blocks import BLOCK, Block, blocks
from support.loopback import Loopback, completion

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED = [*PAGES, *(p for p in (ROOT / "README.md", ROOT / "examples/README.md") if p.is_file())]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_MARK = "\x1e"


ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]


def blocks_of(language: str) -> list[Block]:
    return [block for block in ALL_BLOCKS if block.language == language]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `bakeoff init` leaves it, with example data sets and pictures, and the current one."""
    monkeypatch.chdir(tmp_path)
    for example in ("data", "pictures"):
        unlike = shutil.ignore_patterns("suite.json", "scripted.toml")
        shutil.copytree(ROOT / "examples" / example, tmp_path, ignore=unlike, dirs_exist_ok=True)
    assert command("init").code == 0
    return tmp_path


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))  # as `python -m docs.generate` has it
        yield import_module("docs.generate")


NAMES = [
    "run-file.md", "task-file.md", "dialogue-file.md", "suite-format.md", "cheating.md",
    "bakeoff.schema.json", "suite.schema.json", "task.schema.json", "dialogue.schema.json",
    # argparse words its help differently from 3.13 on
    *(["cli.md"] if sys.version_info < (3, 13) else []),
]  # fmt: skip


def test_every_generated_page_is_looked_at(generator: ModuleType) -> None:
    assert {*NAMES, "cli.md"} == set(generator.pages())


@pytest.mark.parametrize("name", NAMES)
def test_a_generated_page_is_as_the_code_says(generator: ModuleType, name: str) -> None:
    assert generator.stale([name]) == [], "run: make docs"


def test_the_generator_says_which_page_is_stale(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(generator, "REFERENCE", tmp_path)
    assert generator.main(["--check"]) == 1
    assert "docs/reference/cli.md is stale" in capsys.readouterr().err
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def test_every_line_of_the_threat_model_names_a_test_that_there_is() -> None:
    page = (DOCS / "background" / "threat-model.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    absent = [
        f"{file}::{name}"
        for file, name in named
        if f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert absent == []
    assert len(named) >= 40


def test_every_page_is_on_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {(DOCS / link).resolve() for link in _LINK.findall(index)}
    assert [p for p in PAGES if p.resolve() not in linked and p.name != "README.md"] == []


@pytest.mark.parametrize("block", blocks_of("toml"), ids=str)
def test_a_run_file_in_the_docs_is_valid(block: Block, folder: Path) -> None:
    if block.kind in {"fragment", "package", "run"}:  # what is run is run in test_own_parts
        return
    path = folder / "example.toml"
    path.write_text(block.text, encoding="utf-8")
    assert checks.check(path)[0] == f"{path}: valid"


@pytest.mark.parametrize("block", blocks_of("json"), ids=str)
def test_json_in_the_docs_is_what_it_says(block: Block, folder: Path) -> None:
    path = folder / "example.json"
    path.write_text(block.text, encoding="utf-8")
    readers = {
        "suite": checks.check,
        "categories": read_categories,
        "metadata": read_metadata,
        "config": read_config,
    }
    assert block.kind in {*readers, "fragment"}, "say what it is behind ```json"
    json.loads(block.text)
    if block.kind in readers:
        readers[block.kind](path)


def run_session(page: Path, folder: Path, **replaced: str) -> None:
    """Run the Python blocks of *page* as one session; each must print what the page says."""
    session = [b for b in blocks(page) if b.language == "python" and not b.kind]
    assert session
    code = "".join(f"{block.text}\nprint({_MARK!r}, flush=True)\n" for block in session)
    for old, new in replaced.items():
        code = code.replace(old, new)
    (folder / "session.py").write_text(code, encoding="utf-8")
    env = {**os.environ, "MY_API_KEY": "a-key-of-nobody"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    ended = subprocess.run(
        [sys.executable, "session.py"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    for block, printed in zip(session, ended.stdout.split(f"{_MARK}\n"), strict=False):
        assert printed == (block.output or ""), str(block)


def test_the_python_api_page_is_a_session_that_runs(folder: Path) -> None:
    run_session(DOCS / "guides/python-api.md", folder)


def test_the_queries_of_the_ledger_page_can_be_asked(folder: Path) -> None:
    page = DOCS / "reference" / "ledger.md"
    queries = re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(queries) >= 4
    run = bakeoff.run(
        [bakeoff.Task(id="a", messages=(bakeoff.Message(role="user", content="?"),))],
        models=["scripted/echo"],
        output=folder / "runs",
    )
    with closing(sqlite3.connect(run.folder / "ledger.sqlite")) as db:
        answers = [db.execute(query).fetchall() for query in queries]
        columns = {name for _, name, *_ in db.execute("PRAGMA table_info(trial)")}
    assert answers[0] == [("scripted/echo", 1, None, None)]
    assert answers[1][0][0] == "a@scripted/echo#0"
    told = page.read_text(encoding="utf-8").partition("names instead of numbers:")[2]
    assert set(re.findall(r"`(\w+)`", told.partition("```")[0])) == columns


def test_the_page_on_prompts_is_a_session_that_runs(folder: Path) -> None:
    run_session(DOCS / "guides/prompts.md", folder)


def test_the_page_on_how_many_tasks_is_a_session_that_runs(folder: Path) -> None:
    run_session(DOCS / "guides/how-many-tasks.md", folder)


def test_the_summary_page_reads_a_summary(folder: Path) -> None:
    bakeoff.run("suite.json", models=["scripted/echo"])
    run_session(DOCS / "reference/summary-json.md", folder)


def test_the_test_runner_page_is_a_session_that_runs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/reasoning", tmp_path, dirs_exist_ok=True)
    with Loopback(lambda _: completion("Answer: 50")) as server:
        run_session(
            DOCS / "guides/test-runner.md", tmp_path, **{"http://localhost:8004/v1": server.url}
        )


def test_every_dependency_has_its_reason_and_no_other_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.match(r"[\w-]+", line)[0] for line in needed}
    page = (DOCS / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:`\w+` \| )?([\w-]+) \|", page, re.MULTILINE)
    assert names == set(rows) - {"package", "extra"}


def test_a_task_file_in_the_docs_has_keys_that_there_are() -> None:
    (block,) = [b for b in blocks(DOCS / "guides/coding-tasks.md") if b.language == "toml"]
    schema = jsonschema.Draft202012Validator(json_schema("task"))
    schema.validate(tomllib.loads(block.text))


def test_python_on_other_pages_compiles() -> None:
    for block in blocks_of("python"):
        compile(block.text, str(block), "exec")


def test_the_files_that_init_writes_are_valid(folder: Path) -> None:
    assert checks.check(folder / "bakeoff.toml")[0].endswith(": valid")


@pytest.mark.parametrize(
    "command", ["run", "list", "show", "summarize", "power", "eval", "validate"]
)
def test_options_in_console_blocks_exist(command: str) -> None:
    known = bakeoff_help(command)
    for block in blocks_of("console"):
        for line in block.text.splitlines():
            if line.startswith(f"$ bakeoff {command} "):
                for option in re.findall(r"(?<= )--[a-z-]+", line.split(" > ")[0]):
                    assert option in known, f"{block}: {line}"


def bakeoff_help(command: str) -> str:
    text: str = import_module(f"bakeoff.cli.{command}_command").parser().format_help()
    return text
