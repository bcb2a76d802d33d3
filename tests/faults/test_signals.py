"""Ctrl-C once, twice, SIGTERM, SIGHUP: a clean stop, no orphans, and a resume command that works."""

import os
import pty
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bakeoff.app import load_run
from bakeoff.core.record import Status
from support.cli import BAKEOFF, Ended, Running, bakeoff, processes_of_session, started, until
from support.loopback import Asked, Loopback, Reply, chat
from support.parts import require
from support.plans import write_suite

PARALLEL, COUNT = 4, 20
HELD_S = 60  # the server holds its answers for so long, unless the gate is opened
AT_ONCE_S = 15  # on a busy machine; to wait for an answer would take far longer


@dataclass
class Scene:
    """A run of 20 trials, 4 at once, whose server answers nobody before the gate is opened."""

    folder: Path
    gate: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def server(self) -> Iterator[Loopback]:
        def answer(asked: Asked) -> Reply:
            self.gate.wait(HELD_S)
            return chat(asked.prompt)

        with Loopback(answer) as server:
            try:
                yield server
            finally:
                self.gate.set()

    @property
    def output(self) -> Path:
        return self.folder / "my runs"  # with a space: the resume command must quote it

    def words(self, server: Loopback) -> list[str | Path]:
        suite = write_suite(self.folder / "suite.json", COUNT)
        return ["run", suite, "--model", "m", "--base-url", server.url,
                "--parallel", str(PARALLEL), "--output", self.output]  # fmt: skip

    def recorded(self) -> set[str]:
        trials = load_run(output=self.output).trials()
        return {r.task_id for r in trials if r.attempt.status is Status.COMPLETED}

    def finish(self, ended: Ended, server: Loopback) -> None:
        """Run exactly the command that was printed, and see that it does the rest."""
        self.gate.set()
        before = self.recorded()
        seen = len(server.requests)
        again = bakeoff(*ended.resume_command, folder=self.folder)
        assert again.code == 0, again.err
        assert len(self.recorded()) == COUNT
        assert len(server.requests) - seen == COUNT - len(before)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def at_work(server: Loopback, running: Running) -> None:
    until(lambda: server.in_flight == PARALLEL or running.process.poll() is not None)
    assert server.in_flight == PARALLEL, running.err


def test_the_first_ctrl_c_finishes_what_is_under_way_and_starts_nothing(scene: Scene) -> None:
    with scene.server() as server:
        with started([*BAKEOFF, *scene.words(server)], folder=scene.folder) as running:
            at_work(server, running)
            running.send(signal.SIGINT)
            until(lambda: "stopping" in running.err)
            scene.gate.set()
            ended = running.wait(10)
        assert ended.code == 130
        assert "Traceback" not in ended.err
        assert len(server.requests) == PARALLEL
        assert len(scene.recorded()) == PARALLEL
        scene.finish(ended, server)


def test_the_second_ctrl_c_stops_at_once_and_leaves_no_process(scene: Scene) -> None:
    with scene.server() as server:
        with started([*BAKEOFF, *scene.words(server)], folder=scene.folder) as running:
            at_work(server, running)
            running.send(signal.SIGINT)
            until(lambda: "stopping" in running.err)
            running.send(signal.SIGINT)
            began = time.monotonic()
            ended = running.wait(20)
            assert time.monotonic() - began < AT_ONCE_S
            assert not processes_of_session(running.pid)
        assert ended.code == 130
        assert "Traceback" not in ended.err
        assert scene.recorded() == set()
        scene.finish(ended, server)


def test_a_hail_of_ctrl_c_does_not_damage_the_ledger(scene: Scene) -> None:
    with scene.server() as server:
        scene.gate.set()
        with started([*BAKEOFF, *scene.words(server)], folder=scene.folder) as running:
            until(lambda: server.requests)
            for _ in range(20):
                if running.process.poll() is None:
                    running.send(signal.SIGINT)
                time.sleep(0.002)
            ended = running.wait(10)
        assert ended.code in {0, 130}, "it may have been done before the first"
        assert "Traceback" not in ended.err
        if ended.code == 130:
            scene.finish(ended, server)


def test_ctrl_c_while_the_results_are_told_ends_with_130_and_no_traceback(scene: Scene) -> None:
    with scene.server() as server:
        scene.gate.set()
        for late_s in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
            with started([*BAKEOFF, *scene.words(server)], folder=scene.folder) as running:
                until(lambda: f"{COUNT} trials in" in running.err)
                time.sleep(late_s)
                while running.process.poll() is None:
                    running.send(signal.SIGINT)
                    time.sleep(0.005)
                ended = running.wait(10)
            assert ended.code in {0, 130}
            assert "Traceback" not in ended.err


@pytest.fixture
def hangups_are_heard() -> Iterator[None]:
    """Let programs hear SIGHUP, also where the tests were started with `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangups_are_heard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_stops_at_once_with_the_resume_command(
    scene: Scene, number: signal.Signals
) -> None:
    with scene.server() as server:
        with started([*BAKEOFF, *scene.words(server)], folder=scene.folder) as running:
            at_work(server, running)
            running.send(number)
            began = time.monotonic()
            ended = running.wait(20)
            assert time.monotonic() - began < AT_ONCE_S
            assert not processes_of_session(running.pid)
        assert ended.code == 130
        assert "Traceback" not in ended.err
        scene.finish(ended, server)


def test_a_stop_during_retries_does_not_wait_for_the_endpoint_to_come_back(scene: Scene) -> None:
    with Loopback(lambda _: Reply(status=503, headers={"Retry-After": "25"})) as server:
        with started([*BAKEOFF, *scene.words(server)], folder=scene.folder) as running:
            until(lambda: len(server.requests) >= PARALLEL)
            running.send(signal.SIGINT)
            until(lambda: "stopping" in running.err)
            running.send(signal.SIGINT)
            ended = running.wait(5)
        assert ended.code == 130
        # nothing is sent again, and no trial begins; while the first ones waited for their
        # retries others ran, until the endpoint counted as down
        prompts = [asked.prompt for asked in server.requests]
        assert len(prompts) == len(set(prompts)) <= 2 * PARALLEL


def test_after_ctrl_c_a_request_that_waits_for_its_turn_is_not_sent(scene: Scene) -> None:
    with Loopback() as server:
        suite = write_suite(scene.folder / "suite.json", COUNT)
        file = scene.folder / "slow.toml"
        file.write_text(
            f'suites = ["{suite.name}"]\nparallel = 8\n'
            f'models = [{{model = "m", base_url = "{server.url}", settings = {{rpm = 120}}}}]\n'
        )
        words: list[str | Path] = ["run", file, "--output", scene.output]
        with started([*BAKEOFF, *words], folder=scene.folder) as running:
            until(lambda: len(server.requests) == 3)
            running.send(signal.SIGINT)
            sent = len(server.requests)
            ended = running.wait(3)  # the eight that had a worker would take four seconds
        assert ended.code == 130
        assert len(server.requests) <= sent + 1  # on its way when the signal came
        assert len(scene.recorded()) == len(server.requests)
        assert "Traceback" not in ended.err


def test_one_ctrl_c_is_enough_while_the_endpoint_is_down(scene: Scene) -> None:
    with Loopback(lambda _: Reply(status=503)) as server:
        with started([*BAKEOFF, *scene.words(server)], folder=scene.folder) as running:
            until(lambda: len(server.requests) > PARALLEL)
            running.send(signal.SIGINT)
            ended = running.wait(5)
        assert ended.code == 130
        server.answer = lambda asked: chat(asked.prompt)
        scene.finish(ended, server)


class Terminal:
    """A terminal with a program in its foreground; `text` is all it ever showed."""

    def __init__(self, words: list[str | Path], folder: Path) -> None:
        self._master, slave = pty.openpty()
        shell = shutil.which("setsid")
        assert shell is not None
        quoted = [str(word) for word in words]
        # setsid -c makes the terminal the program's own, so that Ctrl-C typed there reaches it
        self._pid = os.posix_spawn(
            shell,
            [shell, "-c", "-w", *BAKEOFF, *quoted],
            {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"},
            file_actions=[(os.POSIX_SPAWN_DUP2, slave, fd) for fd in (0, 1, 2)],
        )
        os.close(slave)
        self._seen = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 4096):
                self._seen += data
        except OSError:
            return  # the last program that had the terminal open is gone

    @property
    def text(self) -> str:
        plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", bytes(self._seen))
        return plain.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def raw(self) -> bytes:
        return bytes(self._seen)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def close(self) -> int:
        ended: list[int] = []

        def is_over() -> bool:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            ended.extend([status] if pid else [])
            return bool(ended)

        until(is_over, timeout_s=60)
        self._reader.join(10)
        os.close(self._master)
        return os.waitstatus_to_exitcode(ended[0])


@pytest.fixture
def setsid() -> None:
    require("setsid(1)", shutil.which("setsid"), "apt-get install util-linux")


needs_setsid = pytest.mark.usefixtures("setsid")


@needs_setsid
def test_on_a_terminal_the_bar_gives_way_to_the_summary(scene: Scene) -> None:
    with scene.server() as server:
        terminal = Terminal(scene.words(server), scene.folder)
        until(lambda: f"0/{COUNT}" in terminal.text)
        scene.gate.set()
        code = terminal.close()
    assert code == 0, terminal.text
    assert f"{COUNT} planned = {COUNT} scored" in terminal.text
    assert "Traceback" not in terminal.text
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l"), "no cursor"


@needs_setsid
def test_ctrl_c_typed_on_a_terminal_stops_with_the_resume_command(scene: Scene) -> None:
    with scene.server() as server:
        terminal = Terminal(scene.words(server), scene.folder)
        until(lambda: server.in_flight == PARALLEL)
        terminal.type(b"\x03")
        until(lambda: "stopping" in terminal.text)
        scene.gate.set()
        code = terminal.close()
    assert code == 130, terminal.text
    assert "continue with: bakeoff run" in terminal.text
    assert "Traceback" not in terminal.text
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l"), "no cursor"
    assert len(scene.recorded()) == PARALLEL
