"""The tests' own timeout: a test that is stuck fails, and the next one runs."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

STUCK = """\
import asyncio
import time
from pathlib import Path

RELEASED, GAVE_UP = Path("released"), Path("gave-up")


def never() -> None:
    end = time.monotonic() + 60
    while not RELEASED.exists():
        if time.monotonic() > end:
            GAVE_UP.touch()
            return
        time.sleep(0.01)


def test_whose_clean_up_waits_for_a_thread():
    async def main():
        await asyncio.to_thread(never)

    asyncio.run(main())


def test_after_it():
    RELEASED.touch()
    assert not GAVE_UP.exists()
"""


def test_a_test_whose_clean_up_is_stuck_too_is_ended_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "test_stuck.py").write_text(STUCK)
    alone = ("-c", "/dev/null", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *alone, "-p", "support.alarms", "--timeout", "1"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
