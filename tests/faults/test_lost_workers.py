"""Workers and runs that are killed and stopped: each trial counts once, and every limit holds."""

import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import bakeoff
from bakeoff.app import load_run
from bakeoff.core.events import Event, Notice
from support.cli import Running, started, until
from support.loopback import Asked, Loopback, Reply, chat
from support.plans import write_suite
from support.workers import end, send, workers_of

AT_ONCE, PARALLEL, WORKERS = 6, 12, 2
LEASE_S = 1.5
_TOKENS = 10  # of an answer, as `chat` says

# Says which trials are acknowledged with a result, as they are.
_RUN = """
import sys
import bakeoff
from bakeoff.core.events import Notice, TrialEnded

source, output, resume = sys.argv[1:]

def listen(event):
    if isinstance(event, TrialEnded) and event.attempt.status.final:
        print(event.trial.name, flush=True)
    if isinstance(event, Notice):
        print(event.text, file=sys.stderr, flush=True)

bakeoff.run(source, output=output, resume=resume or None, listener=listen, worker_lease=LEASE_S)
""".replace("LEASE_S", str(LEASE_S))

_RUN_FILE = """
suites = ["suite.json"]
models = [{{ model = "m", base_url = "{url}", parameters = {{ max_tokens = 10 }} }}]
rollouts = {rollouts}
parallel = {parallel}
executor = "processes"
workers = {workers}
{more}
[endpoints."{url}"]
max_concurrency = {at_once}
adaptive = false
"""


@dataclass
class Scene:
    """A run whose server answers after *answer_s*, and what happens to its processes."""

    folder: Path
    tests: int = 20
    rollouts: int = 10
    answer_s: float = 0.05
    more: str = ""
    rpm: int | None = None
    server: Loopback = field(init=False)
    acknowledged: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = Loopback(self._answer)
        self._asked_at: list[float] = []
        self._lock = threading.Lock()

    def _answer(self, asked: Asked) -> Reply:
        with self._lock:
            self._asked_at.append(time.monotonic())
        time.sleep(self.answer_s)
        return chat(asked.prompt)

    @property
    def asked_at(self) -> list[float]:
        return sorted(self._asked_at)

    @property
    def output(self) -> Path:
        return self.folder / "runs"

    def write(self) -> Path:
        write_suite(self.folder / "suite.json", self.tests)
        text = _RUN_FILE.format(
            url=self.server.url, rollouts=self.rollouts, parallel=PARALLEL, workers=WORKERS,
            at_once=AT_ONCE, more=self.more,
        )  # fmt: skip
        source = self.folder / "run.toml"
        source.write_text(text if self.rpm is None else f"{text}rpm = {self.rpm}\n")
        return source

    @contextmanager
    def running(self, *, resume: str = "") -> Iterator[Running]:
        words: list[str | Path] = [sys.executable, "-c", _RUN, self.write(), self.output, resume]
        with started(words, folder=self.folder) as running:
            try:
                yield running
            finally:
                self.acknowledged += running.out.splitlines()
                end(workers_of(running.pid))

    def check(self) -> None:
        """See that every trial counted once, that none was lost, and that the limit held."""
        trials = [record.name for record in load_run(output=self.output).trials()]
        assert len(trials) == len(set(trials)) == self.tests * self.rollouts
        assert max(Counter(self.acknowledged).values()) == 1
        assert {*self.acknowledged} <= {*trials}
        assert load_run(output=self.output).summary().buckets.scored == len(trials)
        assert self.server.peak_in_flight <= AT_ONCE


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    with made.server:
        yield made


def at_work(running: Running) -> list[int]:
    """Return the workers, once both are there and some trials are done."""
    begun = len(running.out.splitlines())

    def ready() -> bool:
        over = running.process.poll() is not None
        return over or (
            len(running.out.splitlines()) > begun + 3 and len(workers_of(running.pid)) == WORKERS
        )

    try:
        until(ready, timeout_s=60)
    except AssertionError:
        pytest.fail(f"{workers_of(running.pid)} do nothing:\n{running.err}")
    assert running.process.poll() in {None, 0}, running.err
    return workers_of(running.pid)


def test_a_worker_that_is_killed_costs_only_what_it_was_at(scene: Scene) -> None:
    with scene.running() as running:
        assert send(at_work(running)[0], signal.SIGKILL)
        assert running.wait().code == 0, running.err
        assert workers_of(running.pid) == []
    scene.check()
    assert len(scene.server.requests) <= scene.tests * scene.rollouts + AT_ONCE


def test_a_worker_that_was_stopped_past_its_lease_is_killed_and_nothing_of_it_counts_late(
    scene: Scene,
) -> None:
    with scene.running() as running:
        stopped = at_work(running)[0]
        assert send(stopped, signal.SIGSTOP)
        until(lambda: stopped not in workers_of(running.pid))
        send(stopped, signal.SIGCONT)
        assert running.wait().code == 0, running.err
        assert workers_of(running.pid) == []
    scene.check()


def test_a_worker_that_was_stopped_for_less_goes_on(scene: Scene) -> None:
    with scene.running() as running:
        stopped = at_work(running)[0]
        assert send(stopped, signal.SIGSTOP)
        time.sleep(LEASE_S / 3)
        send(stopped, signal.SIGCONT)
        assert stopped in workers_of(running.pid)
        assert running.wait().code == 0, running.err
    scene.check()
    assert len(scene.server.requests) == scene.tests * scene.rollouts


def test_the_workers_of_a_run_that_is_killed_end_with_it_even_a_stopped_one(scene: Scene) -> None:
    with scene.running() as running:
        workers = at_work(running)
        assert send(workers[0], signal.SIGSTOP)
        send(running.pid, signal.SIGKILL)
        running.wait()
        until(lambda: workers_of(running.pid) == [])
    with scene.running(resume="latest") as running:
        assert running.wait().code == 0, running.err
    scene.check()


def test_a_budget_holds_as_the_server_sees_it_although_workers_die(scene: Scene) -> None:
    cap = scene.tests * scene.rollouts * _TOKENS // 2
    scene.more = f"budget = {{ max_tokens = {cap} }}\n"
    scene.answer_s = 0.1
    with scene.running() as running:
        for _ in range(2):
            if workers := at_work(running):
                send(workers[0], signal.SIGKILL)
        assert running.wait().code == 0, running.err
    run = load_run(output=scene.output)
    assert 0 < len(scene.server.requests) * _TOKENS <= cap
    assert run.billed().most_tokens <= cap
    assert run.summary().buckets.scored == len({*scene.acknowledged})


def test_requests_keep_to_their_rate_although_a_worker_is_stopped_with_its_turns(
    scene: Scene,
) -> None:
    per_s, window_s = 20, 1.0
    scene.rpm, scene.rollouts, scene.answer_s = 60 * per_s, 4, 0.01
    with scene.running() as running:
        stopped = at_work(running)[0]
        send(stopped, signal.SIGSTOP)
        time.sleep(LEASE_S * 0.6)
        send(stopped, signal.SIGCONT)
        assert running.wait().code == 0, running.err
    scene.check()
    asked = scene.asked_at
    most = max(sum(at <= other < at + window_s for other in asked) for at in asked)
    # half a second's turns may be heard of late, and a busy machine delays some more
    assert most <= per_s * (window_s + 0.5) + AT_ONCE


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_whatever_is_killed_and_stopped_at_random_every_trial_counts_once(
    scene: Scene, kills: int
) -> None:
    chance = random.Random(kills)
    scene.rollouts, scene.answer_s = 6 * kills, 0.1
    resume, left = "", kills
    while True:
        with scene.running(resume=resume) as running:
            while left and at_work(running) and running.process.poll() is None:
                left -= 1
                time.sleep(chance.uniform(0.0, 0.3))
                if not do_something(chance, running):
                    break
            code = running.wait(300).code
            until(running_alone(running))
        resume = "latest"
        if code == 0 and not load_run(output=scene.output).summary().buckets.faults:
            break  # a trial that by chance was at five lost workers is a fault, and resumed
        assert code in {0, -signal.SIGKILL}, running.err
    assert left <= kills // 2  # enough had happened before all was done
    scene.check()


def running_alone(running: Running) -> Callable[[], bool]:
    return lambda: workers_of(running.pid) == []


def do_something(chance: random.Random, running: Running) -> bool:
    """Kill or stop a worker, or kill the run; whether that goes on."""
    workers = workers_of(running.pid)
    what = chance.choice(["kill", "kill", "stop", "stop for good", "kill the run"])
    if what == "kill the run":
        send(running.pid, signal.SIGKILL)
        return False
    if workers:
        worker = chance.choice(workers)
        send(worker, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        if what == "stop":
            time.sleep(0.3)
            send(worker, signal.SIGCONT)
        elif what == "stop for good":
            enough = time.monotonic() + 4 * LEASE_S  # one that was still starting has no lease yet
            until(lambda: worker not in workers_of(running.pid) or time.monotonic() > enough)
            send(worker, signal.SIGCONT)
    return True


class Poison:
    """A model of one's own that ends, or hangs, every process that asks it one question."""

    def run(self, folder: Path, what: str, *, lease_s: float = 30.0) -> bakeoff.Run:
        (folder / "poison.py").write_text(
            "import os, signal, time\n\n"
            "async def answer(request):\n"
            "    text = request.messages[-1].content\n"
            f"    if text.endswith('0003'):\n        {what}\n"
            "    return text\n"
        )
        self.notices: list[str] = []

        def listen(event: Event) -> None:
            if isinstance(event, Notice):
                self.notices.append(event.text)

        return bakeoff.run(
            write_suite(folder / "suite.json", 12), models=["poison:answer"], output=folder / "runs",
            executor="processes", workers=2, worker_lease=lease_s, listener=listen,
        )  # fmt: skip


def test_a_trial_that_ends_every_worker_is_a_fault_and_takes_no_others_with_it(
    tmp_path: Path,
) -> None:
    poison = Poison()
    run = poison.run(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
    buckets = run.summary().buckets
    assert (buckets.scored, buckets.faults) == (11, 1)
    (fault,) = [record.attempt.fault for record in run.trials() if record.attempt.fault]
    assert fault.boundary == "engine"
    assert "each of the 5 workers that ran it was lost" in fault.message
    assert "SIGKILL" in fault.message
    assert sum("ended (ended by SIGKILL)" in notice for notice in poison.notices) == 5


def test_a_worker_whose_event_loop_hangs_is_killed_after_its_lease(tmp_path: Path) -> None:
    poison = Poison()
    run = poison.run(tmp_path, "time.sleep(60)", lease_s=0.8)
    assert run.summary().buckets.scored == 11
    assert sum("was silent for 0.8 s and is killed" in notice for notice in poison.notices) >= 5


def test_a_worker_that_cannot_start_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text(
        "import os\n\nif 'WORKS' not in os.environ:\n    raise ImportError('no driver')\n\n"
        "async def answer(request):\n    return 'four'\n"
    )
    program = (
        "import os, bakeoff\nos.environ['WORKS'] = '1'\n"
        "def listen(event):\n    os.environ.pop('WORKS', None)\n"
        "bakeoff.run('suite.json', models=['here:answer'], executor='processes', workers=2, listener=listen)\n"
    )
    write_suite(tmp_path / "suite.json", 2)
    with started([sys.executable, "-c", program], folder=tmp_path, cwd=tmp_path) as running:
        ended = running.wait()
        assert workers_of(running.pid) == []
    assert ended.code == 1
    assert "UsageError" in ended.err
    assert "no driver" in ended.err
