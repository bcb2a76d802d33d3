"""The processes that most tests of commands run in: they see what a newly started Python sees."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bakeoff.cli import COMMANDS
from support.cli import BAKEOFF, run, started, until

LOOKS = """
import atexit, json, os, random, sys, time
atexit.register(print, "last words", flush=True)
seen = {
    "argv": sys.argv, "path": sys.path, "cwd": os.getcwd(), "name": __name__,
    "environment": dict(os.environ), "zone": time.strftime("%Z", time.gmtime(0)), "hour": time.localtime(0)[3],
    "leads a session": os.getsid(0) == os.getpid(), "input": sys.stdin.read(),
    "streams": [(s.encoding, s.errors, s.isatty(), s.fileno()) for s in (sys.stdout, sys.stderr)],
}
print(json.dumps(seen), file=sys.stderr)
print("random", random.random(), os.getpid())
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("how", [["-m", "looks"], ["looks.py"]], ids=["module", "script"])
def test_a_forked_program_sees_what_a_new_one_sees(how: list[str], tmp_path: Path) -> None:
    (tmp_path / "looks.py").write_text(LOOKS)
    words, env = [sys.executable, *how, "7"], {"TZ": "Asia/Tokyo", "OF_ITS_OWN": "x"}
    forked = run(words, cwd=tmp_path, env=env)
    with started(words, folder=tmp_path / "new", cwd=tmp_path, env=env) as running:
        new = running.wait()
    assert forked.code == new.code == 7
    assert json.loads(forked.err) == json.loads(new.err)
    assert forked.out.endswith("last words\n")
    again = run(words, cwd=tmp_path, env=env)
    assert again.out != forked.out, "neither its chance nor its process is another's"


@pytest.mark.parametrize(
    ("code", "ends_with", "says"),
    [
        ("raise ValueError('what it was')", 1, "ValueError: what it was\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, ""),
        ("raise SystemExit('a message')", 1, "a message\n"),
    ],
)
def test_a_forked_program_ends_as_a_new_one_does(
    code: str, ends_with: int, says: str, tmp_path: Path
) -> None:
    (tmp_path / "ends.py").write_text(code)
    forked = run([sys.executable, "ends.py"], cwd=tmp_path)
    new = subprocess.run(
        [sys.executable, "ends.py"], cwd=tmp_path, capture_output=True, check=False
    )
    assert forked.code == new.returncode == ends_with
    assert forked.err.endswith(says)
    assert new.stderr.decode().endswith(says)


HANGS = """
import subprocess, time
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""


def _ended(folder: Path) -> bool:
    (out,) = folder.glob("*.out")
    return not Path(f"/proc/{out.read_text().strip()}/exe").exists()


def test_a_forked_program_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    with pytest.raises(subprocess.TimeoutExpired):
        run([sys.executable, "hangs.py"], folder=tmp_path / "out", cwd=tmp_path, timeout_s=2)
    until(lambda: _ended(tmp_path / "out"))


def test_a_forked_program_does_not_outlive_a_test_that_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    folder = tmp_path / "out"

    def interrupt() -> None:
        until(lambda: any(file.stat().st_size for file in folder.glob("*.out")))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    # a shell that runs the tests in the background has them ignore Ctrl-C
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run([sys.executable, "hangs.py"], folder=folder, cwd=tmp_path)
        thread.join(60)
    finally:
        signal.signal(signal.SIGINT, before)
    until(lambda: _ended(folder))


def test_what_only_a_new_python_heeds_is_given_to_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text("import sys; print(sys.stdout.encoding, sys.flags.optimize)")
    env = {"PYTHONIOENCODING": "iso8859-1", "PYTHONOPTIMIZE": "2"}
    assert run([sys.executable, "says.py"], cwd=tmp_path, env=env).out == "iso8859-1 2\n"


@pytest.mark.parametrize("command", [*COMMANDS, "--version", "--help", "nonsense"])
def test_every_command_is_the_same_in_a_new_process(command: str, tmp_path: Path) -> None:
    words = [*BAKEOFF, command, *(["--help"] if command in COMMANDS else [])]
    forked = run(words, cwd=tmp_path)
    new = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (forked.code, forked.out, forked.err) == (new.returncode, new.stdout, new.stderr)
