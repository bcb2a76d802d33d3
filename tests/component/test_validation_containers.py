"""Validation in real containers: our own task folders, and Harbor's, whose change is a whole box."""

from pathlib import Path

import pytest

from bakeoff.app.validation import Finding, How, validate_tasks
from support.cheat_tasks import AS_A_PROGRAM
from support.coding_tasks import write_fix_add
from support.container_engines import PYTHON, Engine, engine

TRICKS_HERE = (
    "conftest",
    "reward-files",
    "daemon",
    "exit-zero",
    "patched-unittest",
    "edited-tests",
)
HARBOR = {
    "task.toml": """\
version = "1.0"
[metadata]
category = "files"
[agent]
timeout_sec = 120.0
[verifier]
timeout_sec = 60.0
[environment]
allow_internet = false
memory_mb = 512
storage_mb = 512
""",
    "instruction.md": "Write `hello, world` into /srv/greeting/hello.txt.\n",
    "environment/Dockerfile": "FROM {image}\nWORKDIR /app\nCOPY words.txt .\n",
    "environment/words.txt": "hello\nworld\n",
    "tests/test.sh": """\
#!/bin/sh
if [ "$(/bin/cat /srv/greeting/hello.txt)" = "$(/bin/cat /tests/expected.txt)" ]; then
  echo 1 >/logs/verifier/reward.txt
else
  echo 0 >/logs/verifier/reward.txt
fi
""",
    "tests/expected.txt": "hello, world\n",
    "solution/solve.sh": """\
mkdir -p /srv/greeting
cp /solution/answer.txt /srv/greeting/hello.txt
""",
    "solution/answer.txt": "hello, world\n",
}


def validated(folder: Path, on: Engine, monkeypatch: pytest.MonkeyPatch) -> Finding:
    """Validate the one task in *folder* with containers of *on*, which must all be gone after it."""
    for name, value in on.environment.items():
        if name not in {"PATH", "HOME"}:
            monkeypatch.setenv(name, value)
    how = How(sandbox=on.name, parallel=2, tricks=TRICKS_HERE)  # all of them: test_cheating.py
    (finding,) = validate_tasks(folder, how)
    assert on.containers() == []
    return finding


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_sound_task_is_proven_in_containers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = engine(name)
    on.with_python()
    folder = write_fix_add(tmp_path, settings=f'[box]\nimage = "{PYTHON}"\n')
    (folder / "tests" / "test_calc.py").write_text(AS_A_PROGRAM)
    finding = validated(folder, on, monkeypatch)
    assert finding.lines() == ["fix-add: oracle 1.00, nop 0.00, cheat 0.00  SOUND"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_task_in_harbors_format_is_proven(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = engine(name)
    folder = tmp_path / "hello"
    for path, text in HARBOR.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("{image}", on.with_python()))
    finding = validated(folder, on, monkeypatch)
    assert finding.lines() == ["hello: oracle 1.00, nop 0.00, cheat 0.00  SOUND"]
