"""The README: every command in it is run as it stands, its Python runs, its suite is valid."""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.app import checks
from support.cli import Ended
from support.cli import bakeoff as command
from support.doc_blocks import ROOT, Block, blocks
from support.loopback import Asked, Loopback, Reply, chat

BLOCKS = list(blocks(ROOT / "README.md"))
DEADLINE_S = 120
_TAGS = json.dumps({"models": [{"name": "qwen3:8b"}]}).encode()
_ANSWER = json.dumps({"model": "qwen3:8b", "message": {"content": "Paris"}, "done": True}).encode()


def commands(program: str) -> list[list[str]]:
    """Return the words of every line of the console blocks that starts *program*."""
    console = (block.text for block in BLOCKS if block.language == "console")
    typed = (line[2:] for text in console for line in text.splitlines() if line.startswith("$ "))
    words = [shlex.split(line, comments=True) for line in typed]
    return [line[1:] for line in words if line[0] == program]


def only(language: str) -> Block:
    (block,) = [block for block in BLOCKS if block.language == language]
    return block


def _answer(asked: Asked) -> Reply:
    """Answer as an Ollama does, or as OpenAI."""
    if asked.path == "/api/tags":
        return Reply(headers={"Content-Type": "application/json"}, body=_TAGS)
    if asked.path.startswith("/api/"):
        return Reply(headers={"Content-Type": "application/json"}, body=_ANSWER)
    return chat("Paris")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A server that is both the Ollama and the OpenAI of whoever types the commands."""
    with Loopback(_answer, gets=True) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url.removesuffix("/v1"))
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-nobody")
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def test_every_command_of_the_first_five_minutes_works_in_this_order(
    server: Loopback, folder: Path
) -> None:
    typed = [words for words in commands("bakeoff") if "examples/tasks" not in words]
    assert [words[0] for words in typed[:4]] == ["init", "run", "report", "show"]
    for words in typed:
        ended = _type(words)
        assert ended.code == 0, f"{shlex.join(words)}: {ended.out}{ended.err}"
    assert any(asked.path == "/api/chat" for asked in server.requests)
    assert any(asked.path.endswith("/chat/completions") for asked in server.requests)


def _type(words: list[str]) -> Ended:
    """Run a command; a run that names no model gets the scripted one: `init` may find any."""
    if words[0] == "run" and "--model" not in words:
        words = [*words, "--model", "scripted"]
    return command(*words)


def test_the_commands_for_coding_tasks_are_understood(server: Loopback, folder: Path) -> None:
    typed = [words for words in commands("bakeoff") if "examples/tasks" in words]
    assert [words[0] for words in typed] == ["validate", "run"]  # test_cheating.py validates them
    planned = command(*typed[1], "--dry-run")
    if shutil.which("codex"):
        assert planned.code == 0, planned.err
    else:
        assert "agent 'codex' is not installed; install it with: npm install" in planned.err
    at = typed[1].index("codex")
    without = [*typed[1][: at - 1], *typed[1][at + 1 :]]
    planned = command(*without, "--dry-run")
    assert planned.code == 0, planned.err
    assert "tasks            4" in planned.out


@pytest.mark.parametrize("target", sorted(words[0] for words in commands("make")))
def test_every_make_target_exists(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_suite_is_valid_and_the_python_runs_on_it(folder: Path) -> None:
    (folder / "suite.json").write_text(only("json").text, encoding="utf-8")
    assert checks.check(folder / "suite.json")[0].endswith(": valid")
    code = only("python").text.replace('"embedded"', '"scripted"')
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    mean, *interval = ended.stdout.split(maxsplit=1)
    assert float(mean) == 0.0
    assert interval


def test_every_block_is_run_here() -> None:
    assert {block.language for block in BLOCKS} == {"console", "json", "python"}
    assert all(words[0] for words in (*commands("bakeoff"), *commands("make")))
