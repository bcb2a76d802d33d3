"""Which format a file or a folder is in is decided in one place, by what is in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.formats.detect import Format, format_of, read_path

FILES = {
    "suite.json": ('{"tests": []}', Format.SUITE),
    "broken.json": ("{", Format.SUITE),
    "talk.json": ('{"objective": "a"}', Format.DIALOGUE),
    "talk.toml": ('objective = "a"', Format.DIALOGUE),
    "run.toml": ('models = ["embedded"]', Format.RUN_FILE),
    "broken.toml": ("[", Format.RUN_FILE),
    "rollouts.toml": ('[[tasks]]\nprepared_dir = "a"', Format.ROLLOUTS),
    "misspelt.toml": ('[[tasks]]\nprepare_dir = "a"', Format.ROLLOUTS),
    "base.toml": ('[benchmark]\nbenchmark_dir = "a"', Format.AGENT_BENCHMARK),
    "agent.toml": ('model = "a"', Format.BENCHMARK_AGENT),
    "task.md": ("# Do it", Format.MARKDOWN_TASK),
    "notes.txt": ("", Format.UNKNOWN),
}


@pytest.mark.parametrize("name", FILES)
def test_the_format_of_a_file(tmp_path: Path, name: str) -> None:
    text, expected = FILES[name]
    (tmp_path / name).write_text(text)
    assert format_of(tmp_path / name) is expected
    assert format_of((tmp_path / name).rename(tmp_path / name.upper())) is expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("a.json",), Format.DIALOGUE),
        (("a.json", "instruction.md"), Format.TASK_FOLDER),
        (("fix/instruction.md",), Format.TASK_FOLDER),
        ((), Format.TASK_FOLDER),
    ],
)
def test_the_format_of_a_folder(tmp_path: Path, files: tuple[str, ...], expected: Format) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"objective": "a"}' if name.endswith("json") else "Do it")
    assert format_of(tmp_path) is expected


@pytest.mark.parametrize("key", ["objectve", "benchmrk"])
def test_a_misspelt_key_that_tells_the_format_is_named(tmp_path: Path, key: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f'name = "a"\n{key} = "b"\n')
    with pytest.raises(UsageError, match=rf"a.toml:2: unknown key '{key}'; did you mean"):
        read_path(path)


def test_a_suite_brings_the_reader_of_no_other_format() -> None:
    """In a process of its own: here they are all imported already."""
    code = (
        "import sys; from pathlib import Path; from bakeoff.formats.detect import read_path\n"
        "try: read_path(Path('gone.json'))\n"
        "except Exception: pass\n"
        "print(*(m for m in sys.modules if m.startswith('bakeoff.formats.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {"agent_bench", "dialogue", "harbor", "markdown_task", "prepared", "rollouts"}
    assert "bakeoff.formats.suite" in done.stdout.split()
    assert not {f"bakeoff.formats.{name}" for name in others} & set(done.stdout.split())
