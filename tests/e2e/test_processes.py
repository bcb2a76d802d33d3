"""`--executor processes`: the same run in worker processes, and what is refused before it starts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, TrialEnded, TrialStarted
from support.cli import BAKEOFF, run
from support.loopback import Asked, Loopback, Reply, chat
from support.plans import write_suite

_OF_THIS_RUN = re.compile(r'"run": "[^"]*"')


def summary(words: list[str | Path], folder: Path) -> str:
    """Return what `bakeoff run --json` prints, without the id of the run."""
    ended = run([*BAKEOFF, "run", *words, "--json", "--output", folder / "runs"], folder=folder)
    assert ended.code == 0, ended.err
    return _OF_THIS_RUN.sub("", ended.out)


def test_the_summary_is_the_same_to_the_byte_as_of_one_process(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite.json", 40)
    words: list[str | Path] = [suite, "--model", "scripted", "--rollouts", "3"]
    here = summary(words, tmp_path)
    there = summary([*words, "--executor", "processes", "--workers", "2"], tmp_path)
    assert there == here
    assert json.loads(f"{{{here.partition(',')[2]}")["buckets"]["scored"] == 120


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
        assert text == "--workers 2: only --executor processes has workers"

    def test_an_executor_that_is_not_there(self, tmp_path: Path) -> None:
        text = self.refused(tmp_path, models=["scripted"], executor="threads")
        assert text == "no executor is called 'threads'; there are: local, processes"
