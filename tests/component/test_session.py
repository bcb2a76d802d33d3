"""The session that every front end shares: how a run is stopped, and what is said at its end."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import pytest

import bakeoff
from bakeoff.app.options import RunOptions
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, RunEnded, RunStarted, TrialStarted
from bakeoff.core.outcome import Request
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.frontends.session import (
    ExitCode,
    View,
    flags,
    pretty_json,
    rescore_session,
    run_session,
    write_json,
)
from bakeoff.stores.folders import choose_folder, folder_at, fresh_folder, lettered, numbered


@dataclass
class Watcher(View):
    """A view that keeps what it is shown, and does something at each trial that starts."""

    at_start: Callable[[int], None] = lambda _: None
    lines: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    is_open: bool = False
    trials: int = 0

    def open(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def say(self, text: str) -> None:
        self.lines.append(text)

    def __call__(self, event: Event) -> None:
        assert self.is_open, "an event outside the session"
        self.events.append(event)
        if isinstance(event, TrialStarted):
            self.trials += 1
            self.at_start(self.trials)


@pytest.fixture(autouse=True)
def _ctrl_c_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def suite(*words: str) -> RunSpec:
    tasks = [
        Task(
            id=word,
            messages=(Message(role="user", content=word),),
            target=word,
            scorers=(ScorerSpec(name="exact"),),
        )
        for word in words
    ]
    return RunSpec(name="suite", tasks=tuple(tasks), parallel=1)


def ctrl_c_at(trial: int) -> Callable[[int], None]:
    def press(started: int) -> None:
        if started == trial:
            os.kill(os.getpid(), signal.SIGINT)

    return press


def echo(request: Request) -> str:
    return request.messages[-1].content


def test_files_are_written_before_a_person_is_shown_anything(tmp_path: Path) -> None:
    view = Watcher()
    written: list[Event] = []

    def write(event: Event) -> None:
        assert len(view.events) == len(written)
        written.append(event)

    result = run_session(
        RunOptions(suite("a", "b"), models=[echo], output=tmp_path), view, files=write
    )
    assert written == view.events
    assert isinstance(written[-1], RunEnded)
    assert (result.exit_code, result.stopped_early, view.is_open) == (ExitCode.OK, False, False)
    assert result.next_steps("again") == []


def test_ctrl_c_stops_after_the_trial_under_way_and_tells_how_to_go_on(tmp_path: Path) -> None:
    view = Watcher(at_start=ctrl_c_at(1))
    result = run_session(RunOptions(suite("a", "b", "c"), models=[echo], output=tmp_path), view)
    assert result.exit_code is ExitCode.INTERRUPTED
    assert result.run is not None
    assert result.run.summary().buckets.not_run == 2
    assert result.next_steps("bakeoff run x") == ["stopped; continue with: bakeoff run x"]
    assert len(view.lines) == 1
    assert "Ctrl-C again to stop now" in view.lines[0]
    options = RunOptions(suite("a", "b", "c"), models=[echo])
    rest = run_session(options.in_folder(result.run.folder, resumed=True), Watcher())
    assert rest.exit_code is ExitCode.OK


def test_ctrl_c_during_the_last_trial_leaves_a_finished_run(tmp_path: Path) -> None:
    view = Watcher(at_start=ctrl_c_at(2))
    result = run_session(RunOptions(suite("a", "b"), models=[echo], output=tmp_path), view)
    assert result.run is not None
    assert result.run.summary().buckets.scored == 2
    assert (result.exit_code, result.next_steps("again")) == (ExitCode.OK, [])


def test_the_second_ctrl_c_cuts_the_run_off(tmp_path: Path) -> None:
    async def hang(request: Request) -> str:
        await asyncio.sleep(60)
        return request.messages[-1].content

    def press_twice(_: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    began = monotonic()
    view = Watcher(at_start=press_twice)
    result = run_session(RunOptions(suite("a", "b"), models=[hang], output=tmp_path), view)
    assert monotonic() - began < 30
    assert result.run is None
    assert (result.exit_code, view.trials) == (ExitCode.INTERRUPTED, 1)
    assert result.next_steps("again") == ["stopped; continue with: again"]


def test_faults_are_told_with_the_command_that_runs_them_again(tmp_path: Path) -> None:
    def broken(_: object) -> str:
        raise RuntimeError("broken")

    result = run_session(RunOptions(suite("a"), models=[broken], output=tmp_path), Watcher())
    assert result.exit_code is ExitCode.FAULTED
    (step,) = result.next_steps("again")
    assert step.endswith("once that is fixed, run those again with: again")


def test_a_stopped_rescoring_is_interrupted_although_every_trial_was_run(tmp_path: Path) -> None:
    run = bakeoff.run(suite("a", "b", "c"), models=[echo], output=tmp_path)
    view = Watcher(at_start=ctrl_c_at(1))
    result = rescore_session(run.id, RunOptions(output=tmp_path), view)
    assert isinstance(view.events[0], RunStarted)
    assert result.exit_code is ExitCode.INTERRUPTED
    again = rescore_session(run.id, RunOptions(output=tmp_path), Watcher())
    assert again.exit_code is ExitCode.OK


def test_a_fresh_folder_is_nobody_elses(tmp_path: Path) -> None:
    made = [fresh_folder(tmp_path / "runs", numbered("r", "-"), what="run") for _ in range(3)]
    assert [folder.name for folder in made] == ["r", "r-2", "r-3"]
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in made)
    assert next(iter(lettered("s"))) == "s"
    with pytest.raises(UsageError, match="no name is free for a run in"):
        fresh_folder(tmp_path / "runs", ["r", "r-2"], what="run")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"no run can be kept in .*file: Not a directory"):
        fresh_folder(tmp_path / "file", ["r"], what="run")


def test_a_folder_is_found_by_path_by_name_and_by_the_start_of_its_name(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("run_1", "run_2", "walk")]
    for folder in folders:
        folder.mkdir()
        (folder / "mark").touch()
    assert folder_at("walk", tmp_path, "mark", own=()) == folders[2]
    assert folder_at(str(folders[0]), tmp_path / "x", "mark", own=()) == folders[0]
    assert folder_at("nothing", tmp_path, "mark", own=()) is None

    def choose(reference: str) -> Path:
        return choose_folder(reference, folders, what="run", where=Path("runs"))

    assert (choose("latest"), choose("w"), choose("run_1")) == (folders[2], folders[2], folders[0])
    with pytest.raises(
        UsageError, match=r"'run_' is short for several names in runs: run_1, run_2"
    ):
        choose("run_")
    with pytest.raises(UsageError, match=r"no run 'rum_1' in runs: did you mean 'run_1'\?"):
        choose("rum_1")
    with pytest.raises(UsageError, match=r"no run 'latst' in runs: did you mean 'latest'\?"):
        choose("latst")


def test_json_files_are_private_and_take_any_text(tmp_path: Path) -> None:
    write_json(tmp_path / "deep" / "file.json", {"text": "\udc80", "none": float("nan")})
    path = tmp_path / "deep" / "file.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"\xef\xbf\xbd" in path.read_bytes() or b"?" in path.read_bytes()
    assert pretty_json({"a": [1]}) == b'{\n  "a": [\n    1\n  ]\n}\n'


def test_flags_leave_out_what_was_not_given() -> None:
    options = {"--a": None, "--b": False, "--c": True, "--d": 0, "--e": Path("x y")}
    assert flags(options) == ["--c", "--d", "0", "--e", "x y"]
