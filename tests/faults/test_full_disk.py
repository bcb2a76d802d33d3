"""A full disk: the run stops with one clear message, keeps what it acknowledged, and goes on later."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.app import load_run
from bakeoff.core.record import Status
from support.cli import BAKEOFF, Ended, acknowledging, started
from support.loopback import Asked, Loopback, Reply, chat
from support.parts import require
from support.plans import write_suite

COUNT = 40


def mount(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["mount", *words], capture_output=True, check=False)


class SmallDisk:
    """A file system of a few pages in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def leave(self, kib: int) -> None:
        """Fill the disk up but for *kib* KiB."""
        stat = os.statvfs(self.folder)
        free = stat.f_bavail * stat.f_frsize
        (self.folder / "ballast").write_bytes(b"x" * (free - kib * 1024))

    def make_room(self) -> None:
        done = mount("-o", "remount,size=64m", str(self.folder))
        assert done.returncode == 0, done.stderr


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    done = mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    require("a file system of its own", done.returncode == 0, "running the tests as root")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def wordy(length: int) -> Loopback:
    """A server whose answers repeat the prompt and then go on, and cannot be compressed."""

    def answer(asked: Asked) -> Reply:
        return chat(f"{asked.prompt} {random.Random(asked.prompt).randbytes(length // 2).hex()}")

    return Loopback(answer)


def completed(output: Path) -> set[str]:
    trials = load_run(output=output).trials()
    return {r.name for r in trials if r.attempt.status is Status.COMPLETED}


def assert_stopped_clearly(ended: Ended) -> None:
    assert ended.code == 1, ended
    assert "Traceback" not in ended.err, ended.err
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("bakeoff: error: "), ended.err
    assert "full" in last or "No space left" in last


@pytest.mark.parametrize("length", [40_000, 700_000], ids=["in the ledger", "in blobs"])
def test_a_full_disk_stops_the_run_and_keeps_what_was_acknowledged(
    disk: SmallDisk, tmp_path: Path, length: int
) -> None:
    suite, output = write_suite(tmp_path / "suite.json", COUNT), disk.folder / "runs"
    with wordy(length) as server:
        words = acknowledging(suite, server.url, output, parallel=2)
        with started(words, folder=tmp_path) as running:
            first = running.wait()
        assert_stopped_clearly(first)
        assert "ledger.sqlite cannot be written" in first.err
        acknowledged = set(first.out.split())
        assert acknowledged <= completed(output)
        disk.make_room()
        seen = len(server.requests)
        words = acknowledging(suite, server.url, output, parallel=2, resume="latest")
        with started(words, folder=tmp_path) as running:
            second = running.wait()
        again = {f"t{asked.prompt[-4:]}@m#0" for asked in server.requests[seen:]}
    assert second.code == 0, second.err
    assert length > 100_000 or acknowledged
    assert not acknowledged & again
    run = load_run(output=output)
    assert run.summary().buckets.scored == COUNT
    assert all(len(r.attempt.outcome.answer) > length for r in run.trials() if r.attempt.outcome)


@pytest.mark.parametrize("kib", [0, 96, 260])
def test_wherever_the_disk_is_full_the_message_is_clear_and_the_run_can_be_finished(
    disk: SmallDisk, tmp_path: Path, kib: int
) -> None:
    disk.leave(kib)
    suite, output = write_suite(tmp_path / "suite.json", COUNT), disk.folder / "runs"
    with wordy(40_000) as server:
        words: list[str | Path] = [
            "run",
            suite,
            "--model",
            "m",
            "--base-url",
            server.url,
            "--output",
            output,
        ]
        with started([*BAKEOFF, *words], folder=tmp_path) as running:
            assert_stopped_clearly(running.wait())
        disk.make_room()
        resume = ["--resume", "latest"] if list(output.glob("*/manifest.json")) else []
        with started([*BAKEOFF, *words, *resume], folder=tmp_path) as running:
            second = running.wait()
    assert second.code == 0, second.err
    assert load_run(output=output).summary().buckets.scored == COUNT
