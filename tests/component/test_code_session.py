"""A Python session in a real box: it lasts, it is capped, it can be interrupted, and it ends."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bakeoff.agents.session.agent import CellResult, CodeSession, SessionSettings
from bakeoff.core.sandbox import BoxSpec, Sandbox
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap
from bakeoff.sandboxes.host.local import Local
from support.container_boxes import sandbox as container
from support.container_engines import engine
from support.parts import require

Talk = Callable[[CodeSession], Awaitable[None]]


@asynccontextmanager
async def session_in(sandbox: Sandbox, folder: Path, **settings: Any) -> AsyncIterator[CodeSession]:
    folder.mkdir(exist_ok=True)
    spec = BoxSpec(label="t", folder=folder, limits=BoxLimits(memory_mb=512))
    box = await sandbox.open(spec)
    session = CodeSession(box, "/app", SessionSettings(**settings))
    try:
        yield session
    finally:
        await session.close()
        await box.close()
        await sandbox.close()


@pytest.fixture(params=["bubblewrap", "local"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    if request.param == "local":
        return Local()
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    return Bubblewrap()


def hold(sandbox: Sandbox, folder: Path, *code: str, **settings: float) -> list[CellResult]:
    async def main() -> list[CellResult]:
        async with session_in(sandbox, folder, **settings) as session:
            return [await session.run(cell) for cell in code]

    return asyncio.run(main())


def test_a_session_that_closes_its_own_folder_is_told_so_and_is_no_fault_of_the_box(
    tmp_path: Path,
) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    wreck = "import os\nos.chmod('.', 0)\nos._exit(0)"
    ended, after = hold(Bubblewrap(), tmp_path / "f", wreck, "1 + 1")
    assert "the session ended (exit code 0)" in (ended.error or "")
    assert "Permission denied" in (after.error or "")


def test_variables_imports_and_files_last(sandbox: Sandbox, tmp_path: Path) -> None:
    cells = hold(
        sandbox,
        tmp_path / "f",
        "import math\nx = 2",
        "def double(n):\n    return 2 * n\ndouble(x) * math.pi",
        "print('hi'); open('a.txt', 'w').write('kept')",
        "print(open('a.txt').read())",
    )
    assert [cell.error for cell in cells] == [None] * 4
    assert [cell.shown() for cell in cells] == [
        "(it printed nothing)",
        "12.566370614359172",
        "hi\n4",
        "kept",
    ]
    assert (tmp_path / "f" / "a.txt").read_text() == "kept"
    assert {f.name for f in (tmp_path / "f").iterdir()} == {"a.txt"}  # nothing of ours in there


def test_an_error_is_told_with_its_line_and_the_session_goes_on(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    first, second, third, fourth = hold(
        sandbox, tmp_path / "f", "y = 1\nprint('before')\n1 / 0", "y", "def f(:", "exit(3)"
    )
    assert first.output == "before\n"
    assert "ZeroDivisionError: division by zero" in (first.error or "")
    assert "line 3" in (first.error or "")
    assert "code_session" not in (first.error or "")
    assert second.shown() == "1"
    assert "SyntaxError" in (third.error or "")
    assert "exit(3) was called" in (fourth.error or "")


def test_output_is_capped_and_that_of_children_is_told(sandbox: Sandbox, tmp_path: Path) -> None:
    long, child = hold(
        sandbox,
        tmp_path / "f",
        "print('a' * 5_000_000 + 'end')",
        "import subprocess; subprocess.run(['sh', '-c', 'echo out; echo err >&2'], check=True).returncode",
        most_output=1000,
    )
    assert len(long.output) < 1200
    assert long.output.startswith("aaa")
    assert long.output.rstrip().endswith("end")
    assert "bytes left out" in long.output
    assert child.shown() == "out\nerr\n0"


def test_a_cell_that_hangs_is_interrupted_and_what_was_there_stays(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    _, hung, after = hold(
        sandbox,
        tmp_path / "f",
        "z = 7",
        "import time\nprint('waiting')\ntime.sleep(1000)",
        "z",
        cell_s=1.0,
    )
    assert hung.output == "waiting\n"
    assert hung.error == "interrupted: it took too long"
    assert after.shown() == "7"


def test_a_cell_that_cannot_be_interrupted_costs_the_session(tmp_path: Path) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    stubborn = (
        "import signal, time\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "z = 1\ntime.sleep(1000)"
    )
    hung, after = hold(Bubblewrap(), tmp_path / "f", stubborn, "'z' in dir()", cell_s=0.5)
    assert "could not be interrupted" in (hung.error or "")
    assert "all variables are gone" in (hung.error or "")
    assert after.shown() == "False"


@pytest.mark.parametrize(
    ("deadly", "why"),
    [
        ("import os; os._exit(5)", "the session ended (exit code 5)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the session ended"),
    ],
)
def test_a_session_that_dies_is_told_and_a_new_one_begins(
    sandbox: Sandbox, tmp_path: Path, deadly: str, why: str
) -> None:
    died, after = hold(sandbox, tmp_path / "f", deadly, "1 + 1")
    assert why in (died.error or "")
    assert after.shown() == "2"


def test_what_a_cell_writes_into_the_drivers_output_harms_only_itself(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    noisy, after = hold(
        sandbox,
        tmp_path / "f",
        "import os\nfor fd in range(3, 20):\n    try:\n        os.write(fd, b'x' * 100 + b'\\n')\n"
        "    except OSError:\n        pass\n'told'",
        "'still here'",
    )
    assert noisy.shown() == "'told'"
    assert after.shown() == "'still here'"


def test_no_process_of_a_session_outlives_it(tmp_path: Path) -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")
    mark = "17171.25"
    hold(Bubblewrap(), tmp_path / "f",
         f"import subprocess; p = subprocess.Popen(['sleep', '{mark}'], start_new_session=True)")  # fmt: skip
    left = [
        p for p in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _read(p).split(b"\0")
    ]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_session_in_a_container_lasts_and_is_interrupted_too(name: str, tmp_path: Path) -> None:
    where = engine(name)
    _, hung, after = hold(
        container(where, where.with_python()),
        tmp_path / "f",
        "z = 7\nopen('a.txt', 'w').write('kept')",
        "import time\nprint('waiting')\ntime.sleep(1000)",
        "print(z, open('a.txt').read())",
        cell_s=2.0,
    )
    assert (hung.output, hung.error) == ("waiting\n", "interrupted: it took too long")
    assert after.shown() == "7 kept"
    assert where.containers() == []
