"""Scorers of one's own that sleep, spin, exit or die: only their own trial breaks."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.candidate import Conditions, Limits
from bakeoff.core.record import Attempt, Status
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Task
from support.cli import BAKEOFF, started, until
from support.plans import tasks

OWN = """
import asyncio, os, signal, sys, time
from dataclasses import dataclass
from pathlib import Path
from bakeoff import Request, Message, Score

def _bad(answer, how):
    if "t0001" not in answer:
        return True
    if how == "sleeps":
        time.sleep(600)
    if how == "spins":
        while True:
            pass
    if how == "exits":
        sys.exit(3)
    if how == "leaves":
        os._exit(4)
    if how == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "raises":
        raise ValueError("no good")
    return "nonsense"

def plain(answer, how):
    return _bad(answer, how)

async def patient(answer, how):
    await asyncio.sleep(0)
    return _bad(answer, how)

@dataclass(frozen=True, kw_only=True)
class Whole:
    how: str

    async def score(self, task, outcome, kit):
        return Score(scorer="whole", value=float(_bad(outcome.answer, self.how)))

@dataclass(frozen=True, kw_only=True)
class Blocking:
    how: str

    def score(self, task, outcome, kit):
        return Score(scorer="blocking", value=float(_bad(outcome.answer, self.how)))

def pid(answer):
    return {"score": 1, "pid": os.getpid()}

def everything(answer, target, task, outcome, tool_calls):
    return answer == outcome.answer and task.target == target and tool_calls == ()

class Asking:
    async def score(self, task, outcome, kit):
        reply = await kit.roles["judge"].complete(
            Request(messages=(Message(role="user", content="how good?"),))
        )
        return Score(scorer="asking", value=float(reply.text))

def prints(answer):
    print("I looked at", answer)
    return 1

def marks(answer, folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_scorers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _scored(given: list[Task], scorer: str, **settings: Any) -> list[Task]:
    spec = bakeoff.ScorerSpec(name=f"own_scorers:{scorer}", settings=settings)
    return [bakeoff.Task(id=t.id, messages=t.messages, scorers=(spec,)) for t in given]


def _attempts(folder: Path, given: list[Task], *, scoring_s: float = 1800.0) -> list[Attempt]:
    limits = Limits(scoring_s=scoring_s)
    brief = RunSpec(name="own", tasks=tuple(given), conditions=Conditions(limits=limits))
    run = bakeoff.run(brief, models=["scripted"], output=folder / "runs", parallel=4)
    return [record.attempt for record in run.trials()]


def _named_tasks(count: int) -> list[Task]:
    return [
        bakeoff.Task(id=t.id, messages=(bakeoff.Message(role="user", content=t.id),))
        for t in tasks(count)
    ]


FAULTS = {
    "sleeps": "scoring took longer than 4 s",
    "spins": "scoring took longer than 4 s",
    "exits": "its process ended: exit code 3",
    "leaves": "its process ended: exit code 4",
    "dies": "its process ended: exit code 139",
    "raises": "ValueError: no good",
}


@pytest.mark.parametrize(
    ("scorer", "how"),
    [
        *(("plain", how) for how in FAULTS if how != "spins"),
        ("patient", "leaves"),
        ("Whole", "spins"),
        ("Whole", "exits"),
        ("Blocking", "dies"),
        ("Blocking", "raises"),
    ],
)
def test_a_scorer_that_blocks_or_dies_breaks_its_own_trial_only(
    folder: Path, scorer: str, how: str
) -> None:
    given = _scored(_named_tasks(4), scorer, how=how)
    attempts = _attempts(folder, given, scoring_s=4 if how in ("sleeps", "spins") else 120)
    assert [a.status for a in attempts].count(Status.COMPLETED) == 3
    broken = attempts[1]
    assert broken.fault is not None
    assert broken.fault.boundary == "scorer"
    assert FAULTS[how] in broken.fault.message
    assert [a.score for n, a in enumerate(attempts) if n != 1] == [1.0] * 3


def test_cheap_scorers_share_one_warm_process_that_is_gone_at_the_end(folder: Path) -> None:
    attempts = _attempts(folder, _scored(_named_tasks(60), "pid"))
    pids = {a.scores[0].details["pid"] for a in attempts}
    assert os.getpid() not in pids
    assert len(pids) <= 2  # a second one where a busy machine stalled the first
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(str(pid)), 0)


def test_a_function_in_a_process_gets_what_it_names(folder: Path) -> None:
    (attempt,) = _attempts(folder, _scored(_named_tasks(1), "everything"))
    assert attempt.score == 1.0, attempt.fault


def test_what_a_scorer_prints_is_kept_with_its_verdict(folder: Path) -> None:
    (attempt,) = _attempts(folder, _scored(_named_tasks(1), "prints"))
    assert attempt.scores[0].details == {"output": "I looked at t0000\n"}


def test_an_own_scorer_may_ask_the_judge_from_its_process(folder: Path) -> None:
    (folder / "run.toml").write_text(
        """
models = ["scripted"]
tasks = [{ id = "a", prompt = "hi" }]
scorers = ["own_scorers:Asking"]
[roles.judge]
model = "scripted"
settings = { replies = ["0.25"] }
"""
    )
    (record,) = bakeoff.run(folder / "run.toml", output=folder / "runs").trials()
    assert record.attempt.score == 0.25
    assert record.attempt.roles["judge"].requests == 1


def test_a_function_given_in_python_holds_up_nobody_while_it_sleeps(tmp_path: Path) -> None:
    def slow(answer: str) -> bool:
        time.sleep(0.4)
        return True

    began = time.monotonic()
    run = bakeoff.run(
        _named_tasks(8), models=["scripted"], scorers=[slow], output=tmp_path, parallel=8
    )
    assert time.monotonic() - began < 8 * 0.4
    assert [r.attempt.score for r in run.trials()] == [1.0] * 8


def _run_file(folder: Path) -> Path:
    path = folder / "marks.toml"
    path.write_text(
        f"""
models = ["scripted"]
tasks = [{{ id = "a", prompt = "hi" }}]
scorers = [{{ scorer = "own_scorers:marks", settings = {{ folder = "{folder / "pids"}" }} }}]
"""
    )
    (folder / "pids").mkdir()
    return path


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_of_a_scorer_outlives_a_run_that_is_ended(
    folder: Path, how: signal.Signals
) -> None:
    path = _run_file(folder)
    with started([*BAKEOFF, "run", path], folder=folder / "printed", cwd=folder) as run:
        until(lambda: any((folder / "pids").iterdir()))
        pid = int(next((folder / "pids").iterdir()).name)
        run.process.send_signal(how)
        if how is not signal.SIGKILL:  # the second one does not wait for the trial
            time.sleep(0.2)
            run.process.send_signal(how)
        run.process.wait(timeout=60)
    until(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    done = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(done.stdout.strip()) and not done.stdout.strip().startswith("Z")


def test_the_start_of_a_process_does_not_count_as_time_of_a_scorer(folder: Path) -> None:
    (folder / "own_scorers.py").write_text("import time\ntime.sleep(2.5)\n" + OWN)
    given = _scored(_named_tasks(3), "plain", how="exits")
    attempts = _attempts(folder, given, scoring_s=2)
    assert [a.status for a in attempts].count(Status.COMPLETED) == 2
    assert attempts[1].fault is not None
    assert FAULTS["exits"] in attempts[1].fault.message
