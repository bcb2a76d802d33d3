"""Files of other tools are handed over: the message has the line that does the same, and it runs."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.formats.detect import read_path
from support.cli import bakeoff as command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guides" / "coming-from-other-tools.md").read_text(encoding="utf-8")
THEIRS = re.findall(r"^```(?:yaml|text)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
OURS = re.findall(r"^```console\n\$ (.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)
RUN_FILES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NAMES = ("promptfooconfig.yaml", "task.py", "questions.yaml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "data" / "questions.csv", tmp_path)
    Path("short.txt").write_text("In one word: {{question}}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (0, "bakeoff run questions.csv --prompt short.txt --prompt 'Think step by step. {{question}}' "
            "--model openai/gpt-4.1-mini --model ollama/qwen3:8b"),
        (1, "bakeoff run questions.csv --map prompt=input --expected target"),
        (2, r"bakeoff run hf://me/questions:test --prompt 'Question: {{question}}\nAnswer:' --expected answer"),
    ],
)  # fmt: skip
def test_the_message_has_the_line_that_does_the_same(folder: Path, number: int, line: str) -> None:
    path = folder / NAMES[number]
    path.write_text(THEIRS[number])
    with pytest.raises(UsageError, match="side by side") as raised:
        read_path(path)
    assert line in str(raised.value)


@pytest.mark.parametrize("text", ["a: 1", "- 1", ": :", "print('hello')"])
def test_any_other_file_is_unknown_as_before(folder: Path, text: str) -> None:
    for name in ("other.yaml", "other.py"):
        (folder / name).write_text(text)
        with pytest.raises(UsageError, match="unknown kind of file"):
            read_path(folder / name)


@pytest.mark.parametrize("line", OURS)
def test_each_of_our_lines_runs(folder: Path, line: str) -> None:
    words = shlex.split(line)
    at = words.index("--model")
    done = command(*words[1:at], "--model", "scripted/echo", "--limit", "3", "--json")
    assert done.code == 0, done.err


@pytest.mark.parametrize("text", RUN_FILES)
def test_each_of_our_run_files_runs(folder: Path, text: str) -> None:
    Path("run.toml").write_text(text)
    done = command("run", "run.toml", "--model", "scripted/echo", "--limit", "3", "--json")
    assert done.code == 0, done.err
