"""One writer per run folder."""

import re
import signal
import socket
import threading
from pathlib import Path

from bakeoff.app import load_run
from support.cli import BAKEOFF, bakeoff, only_run, started, until
from support.loopback import Asked, Loopback, Reply, chat
from support.plans import write_suite


def test_a_second_writer_is_refused_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    gate = threading.Event()

    def answer(asked: Asked) -> Reply:
        gate.wait(30)
        return chat(asked.prompt)

    output = tmp_path / "runs"
    suite = write_suite(tmp_path / "suite.json", 6)
    with Loopback(answer) as server:
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
        with started([*BAKEOFF, *words], folder=tmp_path) as first:
            until(lambda: server.in_flight == 6)
            name = only_run(output).name
            second = bakeoff(*words, "--resume", name, folder=tmp_path)
            first.send(signal.SIGKILL)
            first.wait(5)
        gate.set()
        third = bakeoff(*words, "--resume", name, folder=tmp_path)
    assert second.code == 1
    assert "Traceback" not in second.err
    told = re.search(r"pid (\d+) on (\S+), for \d+ s", second.err)
    assert told is not None, second.err
    assert (int(told[1]), told[2]) == (first.pid, socket.gethostname())
    assert third.code == 0, third.err
    assert sum(1 for _ in load_run(output=output).trials()) == 6


def test_reading_goes_on_while_another_process_writes(tmp_path: Path) -> None:
    gate = threading.Event()

    def answer(asked: Asked) -> Reply:
        if asked.number >= 4:
            gate.wait(30)
        return chat(asked.prompt)

    output = tmp_path / "runs"
    suite = write_suite(tmp_path / "suite.json", 6)
    with Loopback(answer) as server:
        words: list[str | Path] = ["run", suite, "--model", "m", "--base-url", server.url, "--output", output,
                 "--parallel", "2"]  # fmt: skip
        with started([*BAKEOFF, *words], folder=tmp_path) as running:
            until(lambda: len(server.requests) == 6)
            # the last of the four may still be on its way to the disk
            until(lambda: load_run(output=output).summary().buckets.scored == 4)
            assert load_run(output=output).summary().buckets.not_run == 2
            gate.set()
            assert running.wait(10).code == 0
