"""`--executor processes`: the same run in worker processes, and what is refused before it starts."""

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, TrialEnded, TrialStarted
from bakeoff.core.record import Status
from support.cli import BAKEOFF, Running, run, started, until
from support.cli import bakeoff as bakeoff_command
from support.loopback import Asked, Loopback, Reply, chat
from support.plans import write_suite
from support.workers import workers_of

_OF_THIS_RUN = re.compile(r'"(run|seconds)": [^,\n]*')


def summary(words: list[str | Path], folder: Path) -> str:
    """Return what `bakeoff run --json` prints, without the id of the run and how long it took."""
    ended = run([*BAKEOFF, "run", *words, "--json", "--output", folder / "runs"], folder=folder)
    assert ended.code == 0, ended.err
    return _OF_THIS_RUN.sub(r'"\1": null', ended.out)


def test_the_summary_is_the_same_to_the_byte_as_of_one_process(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite.json", 40)
    words: list[str | Path] = [suite, "--model", "scripted", "--rollouts", "3"]
    here = summary(words, tmp_path)
    there = summary([*words, "--executor", "processes", "--workers", "2"], tmp_path)
    assert there == here
    assert json.loads(here)["buckets"]["scored"] == 120


def test_both_workers_ask_the_server_and_each_trial_counts_once(tmp_path: Path) -> None:
    events: list[Event] = []
    with Loopback() as server:
        finished = bakeoff.run(
            write_suite(tmp_path / "suite.json", 60), models=["m"], base_url=server.url,
            executor="processes", workers=2, output=tmp_path, listener=events.append,
        )  # fmt: skip
    assert len(server.requests) == 60
    assert len({asked.connection for asked in server.requests}) > 1
    assert finished.summary().buckets.scored == 60
    assert all(record.attempt.passed for record in finished.trials())
    assert sum(isinstance(event, TrialStarted) for event in events) == 60
    assert sum(isinstance(event, TrialEnded) for event in events) == 60


def test_a_resume_may_run_the_rest_in_one_process(tmp_path: Path) -> None:
    broken = True

    def answer(asked: Asked) -> Reply:
        if broken and "0003" in asked.prompt:
            return Reply(status=400, body=b'{"error": {"message": "not this one"}}')
        return chat(asked.prompt)

    suite = write_suite(tmp_path / "suite.json", 10)
    with Loopback(answer) as server:
        options: dict[str, Any] = {
            "models": ["m"],
            "base_url": server.url,
            "output": tmp_path,
        }
        first = bakeoff.run(suite, executor="processes", workers=2, **options)
        assert first.summary().buckets.model_error == 1
        broken = False
        again = bakeoff.run(suite, resume=first.id, **options)
    assert again.summary().buckets.scored == 10
    assert len(server.requests) == 11


class TestRefusedAtTheStart:
    def refused(self, folder: Path, **options: Any) -> str:
        with pytest.raises(UsageError) as raised:
            bakeoff.run(write_suite(folder / "suite.json", 1), output=folder / "runs", **options)
        assert not (folder / "runs").exists()
        return str(raised.value)

    def test_a_python_object_stays_in_its_process(self, tmp_path: Path) -> None:
        text = self.refused(tmp_path, models=[lambda _: "four"], executor="processes")
        assert "module:attribute" in text
        assert "--executor local" in text

    def test_a_secret_that_is_written_out_is_not_sent(self, tmp_path: Path) -> None:
        model = bakeoff.ModelSpec(
            name="m",
            provider="openai",
            base_url="http://127.0.0.1:9/v1",
            api_key="sk-0123456789abc",
        )
        text = self.refused(tmp_path, models=[model], executor="processes")
        assert "environment variable" in text
        assert "sk-0123456789abc" not in text

    def test_workers_without_processes(self, tmp_path: Path) -> None:
        text = self.refused(tmp_path, models=["scripted"], workers=2)
        assert text == "--workers 2: only --executor processes and ray have workers"

    def test_an_executor_that_is_not_there(self, tmp_path: Path) -> None:
        text = self.refused(tmp_path, models=["scripted"], executor="threads")
        assert text == "no executor is called 'threads'; there are: local, processes, ray"


class TestRecordings:
    def record(self, folder: Path, *more: str) -> Path:
        """Record a run whose every first try fails, and return its tape."""
        asked: set[str] = set()

        def answer(request: Asked) -> Reply:
            if request.prompt not in asked:
                asked.add(request.prompt)
                return Reply(status=503, body=b"later")
            return chat(request.prompt)

        run_file = folder / "run.toml"
        with Loopback(answer) as server:
            run_file.write_text(
                'suites = ["suite.json"]\nmodels = [{ model = "m", base_url = "${URL}", '
                "settings = { max_retries = 0 } }]\n"
            )
            write_suite(folder / "suite.json", 8)
            words: list[str | Path] = [
                "run",
                run_file,
                "--record",
                folder / "tape",
                "--output",
                folder / "one",
            ]
            env = {"URL": server.url}
            ended = run([*BAKEOFF, *words, "--parallel", "2", *more], folder=folder, env=env)
        assert ended.code == 0, ended.err
        assert len(server.requests) == 16
        return folder / "tape"

    def replayed(self, folder: Path, *more: str) -> None:
        words: list[str | Path] = [
            "run", folder / "run.toml", "--replay", folder / "tape", "--output", folder / "two",
        ]  # fmt: skip
        ended = run([*BAKEOFF, *words, "--json", *more], folder=folder)
        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["buckets"]["scored"] == 8

    def test_a_run_in_workers_is_replayed_in_one_process(self, tmp_path: Path) -> None:
        tape = self.record(tmp_path, "--executor", "processes", "--workers", "2")
        assert len([*tape.iterdir()]) == 2
        self.replayed(tmp_path)

    def test_a_run_in_one_process_is_replayed_in_workers(self, tmp_path: Path) -> None:
        self.record(tmp_path)
        self.replayed(tmp_path, "--executor", "processes", "--workers", "2")

    def test_what_came_from_the_cache_is_counted_over_all_workers(self, tmp_path: Path) -> None:
        words: list[str | Path] = [
            "run", write_suite(tmp_path / "suite.json", 10), "--model", "scripted",
            "--executor", "processes", "--workers", "2", "--cache", tmp_path / "cache",
        ]  # fmt: skip
        for reused in (0, 10):
            ended = run([*BAKEOFF, *words, "--output", tmp_path / "runs"], folder=tmp_path)
            assert f"cache: {reused} of 10 answers came from" in ended.err


class TestCtrlC:
    @pytest.fixture
    def scene(self, tmp_path: Path) -> Iterator[tuple[threading.Event, Loopback]]:
        gate = threading.Event()

        def answer(asked: Asked) -> Reply:
            gate.wait(60)
            return chat(asked.prompt)

        with Loopback(answer) as server:
            try:
                yield gate, server
            finally:
                gate.set()

    def started(self, folder: Path, server: Loopback) -> AbstractContextManager[Running]:
        words: list[str | Path] = [
            *BAKEOFF, "run", write_suite(folder / "suite.json", 20), "--model", "m",
            "--base-url", server.url, "--parallel", "4", "--output", folder / "runs",
            "--executor", "processes", "--workers", "2",
        ]  # fmt: skip
        return started(words, folder=folder)

    def test_once_finishes_what_is_under_way_and_a_resume_does_the_rest(
        self, tmp_path: Path, scene: tuple[threading.Event, Loopback]
    ) -> None:
        gate, server = scene
        with self.started(tmp_path, server) as running:
            until(lambda: server.in_flight == 4)
            running.send(signal.SIGINT)
            until(lambda: "stopping" in running.err)
            gate.set()
            ended = running.wait()
            assert workers_of(running.pid) == []
        assert ended.code == 130, ended.err
        assert len(server.requests) == 4
        again = bakeoff_command(*ended.resume_command, folder=tmp_path)
        assert again.code == 0, again.err
        assert len(server.requests) == 20

    def test_twice_stops_at_once_and_records_what_was_cut(
        self, tmp_path: Path, scene: tuple[threading.Event, Loopback]
    ) -> None:
        _, server = scene
        with self.started(tmp_path, server) as running:
            until(lambda: server.in_flight == 4)
            running.send(signal.SIGINT)
            until(lambda: "stopping" in running.err)
            running.send(signal.SIGINT)
            ended = running.wait(15)
            assert workers_of(running.pid) == []
        assert ended.code == 130, ended.err
        assert "Traceback" not in ended.err
        trials = [*bakeoff.load_run(output=tmp_path / "runs").trials()]
        assert [record.attempt.status for record in trials] == [Status.CANCELLED] * 4
