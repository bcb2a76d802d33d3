"""Nobody reads what is printed, or it cannot be written: the run goes on, and its results are whole."""

import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import bakeoff
from support.cli import BAKEOFF, not_outliving, only_run

PROGRAM = shlex.join([*BAKEOFF, "run", "suite.json", "--model", "scripted/echo"])
TESTS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tests = [{"id": f"t{n}", "prompt": f"say {n}", "expected": str(n)} for n in range(TESTS)]
    (tmp_path / "suite.json").write_text(json.dumps({"tests": tests}))
    return tmp_path


def scored(folder: Path) -> int:
    """How many trials of the one run have a score."""
    run = bakeoff.load_run(only_run(folder / "runs"))
    assert len(run.plan) == TESTS
    return run.summary().buckets.scored


@pytest.mark.parametrize(
    ("streams", "code", "kept"),
    [
        (">&- 2>err", 0, "err"),
        (">out 2>&-", 0, "out"),
        ("<&- >&- 2>&-", 0, None),
        (">out 2>/dev/full", 0, "out"),
        (">/dev/full 2>err", 1, "err"),
        (">/dev/full 2>/dev/full", 1, None),
        ("2>err | true", 1, "err"),
        ("2>&1 >out | true", 0, "out"),
    ],
)
def test_a_run_whose_output_cannot_be_written_goes_on(
    folder: Path, streams: str, code: int, kept: str | None
) -> None:
    command = f"set -o pipefail; {PROGRAM} {streams}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert scored(folder) == TESTS
    text = ""
    if kept is not None:
        text = (folder / kept).read_text()
        assert "Traceback" not in text
        assert ("scripted/echo" if kept == "out" else f"{TESTS} trials in ") in text
    if streams == ">/dev/full 2>err":
        assert text.endswith("standard output could not be written: No space left on device\n")


@pytest.mark.parametrize(
    "script", ["runner.py", "benchmark/batch_runner.py", "scripts/eval_rollouts.py"]
)
def test_the_scripts_say_that_their_output_could_not_be_written(script: str) -> None:
    program = shlex.join([sys.executable, script, "--help"])
    for streams, code, told in (
        (">/dev/full", 1, "standard output could not be written: No space left on device"),
        (">&-", 0, ""),
    ):
        done = subprocess.run(
            ["bash", "-c", f"{program} {streams}"],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr.removeprefix("bakeoff: error: ").strip()) == (
            code,
            told,
        )


def test_output_never_lands_in_a_ledger_that_took_the_number_of_a_closed_stream(
    folder: Path,
) -> None:
    program = (
        "import os, bakeoff; [os.close(n) for n in (0, 1, 2)]; "
        "bakeoff.run('suite.json', models=['scripted/echo'], output='runs'); "
        "os.write(1, b'x' * 5000); os.write(2, b'x' * 5000)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, timeout=60, check=False)
    assert done.returncode == 0
    assert scored(folder) == TESTS


def test_a_program_around_a_test_runner_may_close_its_streams(folder: Path) -> None:
    program = (
        "from bakeoff import TestRunner; runner = TestRunner(); "
        "assert runner.load_test_suite('suite.json'); "
        "results = runner.execute_concurrent(); "
        "open('results', 'w').write(results[0].error_message)"
    )
    command = f"{shlex.join([sys.executable, '-c', program])} <&- >&- 2>&-"
    done = subprocess.run(["bash", "-c", command], cwd=folder, timeout=60, check=False)
    assert done.returncode == 0
    assert "no API is configured" in (folder / "results").read_text()


@pytest.mark.parametrize("columns", [20, 1])
def test_a_terminal_that_is_too_narrow_shows_what_it_can(folder: Path, columns: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 10, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}}
    process = subprocess.Popen(
        shlex.split(PROGRAM),
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(theirs)
    with not_outliving(process):
        shown = _all_of(ours)
        assert process.wait(60) == 0, shown
    assert "Traceback" not in shown
    assert scored(folder) == TESTS


def _all_of(terminal: int) -> str:
    """Read a terminal until its last writer is gone."""
    read = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # that is how a terminal ends
            break
        if not piece:
            break
        read += piece
    os.close(terminal)
    return read.decode(errors="replace")
