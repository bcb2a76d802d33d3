"""A run that is resumed keeps what it promised."""

import json
from pathlib import Path

import pytest

import bakeoff
from bakeoff import Request, UsageError
from bakeoff.cli import call
from bakeoff.core.events import Notice, RunStarted
from support.coding_tasks import write_fix_add
from support.plans import write_suite


class Counting:
    """A model that echoes, and counts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    async def complete(self, request: Request) -> bakeoff.Completion:
        self.asked += 1
        return bakeoff.Completion(text=request.messages[-1].content)

    async def close(self) -> None:
        pass


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "suite.json", 10)


def test_a_resume_that_asks_for_less_is_refused_with_what_differs(
    suite: Path, tmp_path: Path
) -> None:
    one, two = Counting("one"), Counting("two")
    first = bakeoff.run(suite, models=[one, two], rollouts=2, output=tmp_path)
    before = first.summary()
    for options, told in (
        ({"models": [one], "rollouts": 2}, "no candidate 'Counting:two'|no candidate 'two'"),
        ({"models": [one, two], "rollouts": 2, "limit": 2}, "no task 't0002', .* and 3 more"),
        ({"models": [one, two]}, "1 instead of 2 rollouts"),
        ({"models": [one, two], "rollouts": 2, "categories": ["c1"]}, "no task 't0000'"),
    ):
        with pytest.raises(UsageError, match=told) as caught:
            bakeoff.run(suite, resume=first.id, output=tmp_path, **options)
        assert "--only" in str(caught.value)
    assert one.asked == two.asked == 20
    assert bakeoff.load_run(first.id, output=tmp_path).summary() == before


def test_a_resume_that_asks_for_more_runs_just_the_rest(suite: Path, tmp_path: Path) -> None:
    one, two = Counting("one"), Counting("two")
    first = bakeoff.run(suite, models=[one], limit=4, output=tmp_path)
    again = bakeoff.run(suite, models=[one, two], rollouts=2, resume=first.id, output=tmp_path)
    assert (one.asked, two.asked) == (20, 20)
    assert again.summary().buckets.planned == again.summary().buckets.scored == 40


def test_only_runs_a_part_and_keeps_the_rest(suite: Path, tmp_path: Path) -> None:
    one, two, three = Counting("one"), Counting("two"), Counting("three")
    first = bakeoff.run(suite, models=[one, two], output=tmp_path)
    started: list[RunStarted] = []

    def listen(event: object) -> None:
        if isinstance(event, RunStarted):
            started.append(event)

    again = bakeoff.run(
        suite, models=[one, three], limit=3, rollouts=2, only=True,
        resume=first.id, output=tmp_path, listener=listen,
    )  # fmt: skip
    assert (one.asked, two.asked, three.asked) == (13, 10, 6)
    assert (started[0].planned, started[0].finished_before) == (12, 3)
    buckets = again.summary().buckets
    assert buckets.planned == buckets.scored == 10 + 10 + 3 + 6
    assert {c.id for c in again.manifest.candidates} == {
        c.candidate for c in again.summary().candidates
    }
    assert len(again.manifest.candidates) == 3


def test_only_without_a_source_takes_a_part_of_what_is_planned(suite: Path, tmp_path: Path) -> None:
    place = ["--output", str(tmp_path / "runs")]
    (tmp_path / "run.toml").write_text(
        'name = "flaky"\nsuites = ["suite.json"]\n'
        '[[models]]\nmodel = "scripted/steady"\n'
        '[[models]]\nmodel = "scripted/shaky"\nsettings = { fault_every = 1 }\n'
    )
    assert call(["run", str(tmp_path / "run.toml"), *place]) == 3
    before = bakeoff.load_run("latest", output=tmp_path / "runs").summary()
    assert before.buckets.faults == 10
    words = ["run", "--resume", "latest", "--only", "--model", "scripted/steady", *place]
    assert call(words) == 3  # nothing of it is due, and the rest is as it was
    after = bakeoff.load_run("latest", output=tmp_path / "runs").summary()
    assert after == before


def test_only_refuses_a_part_that_was_edited(suite: Path, tmp_path: Path) -> None:
    one = Counting("one")
    first = bakeoff.run(suite, models=[one], output=tmp_path)
    data = json.loads(suite.read_text())
    data["tests"][0]["prompt"] = "something else"
    suite.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="'t0000' differs in messages"):
        bakeoff.run(suite, models=[one], limit=1, only=True, resume=first.id, output=tmp_path)
    with pytest.raises(UsageError, match="name the run with `resume`"):
        bakeoff.run(suite, models=[one], limit=1, only=True, output=tmp_path)
    assert one.asked == 10


def test_another_sandbox_is_not_taken_without_a_word(tmp_path: Path) -> None:
    folder = write_fix_add(tmp_path)
    heard: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, Notice):
            heard.append(event.text)

    first = bakeoff.run(folder, agents=["nop"], sandbox="bubblewrap", output=tmp_path / "runs")
    bakeoff.run(
        folder, agents=["nop"], sandbox="local", resume=first.id, output=tmp_path / "runs",
        listener=listen,
    )  # fmt: skip
    assert any("in local now, earlier ones of this run in bubblewrap" in text for text in heard)


def test_a_finished_run_needs_nothing_of_what_its_trials_needed(tmp_path: Path) -> None:
    (tmp_path / "finished_graders.py").write_text(
        "def grade(answer):\n    return 1.0\n", encoding="utf-8"
    )
    source = tmp_path / "run.json"
    tests = [{"id": "a", "prompt": "p", "scorers": ["finished_graders:grade"]}]
    source.write_text(json.dumps({"tests": tests}), encoding="utf-8")
    models = ["scripted/echo"]
    first = bakeoff.run(source, models=models, trust=True, output=tmp_path / "runs")
    before = first.summary()
    assert before.buckets.scored == 1
    (tmp_path / "finished_graders.py").unlink()
    heard: list[object] = []
    again = bakeoff.run(resume=first.id, output=tmp_path / "runs", listener=heard.append)
    (started,) = [event for event in heard if isinstance(event, RunStarted)]
    assert (started.planned, started.finished_before) == (1, 1)
    assert again.summary() == before
    assert not again.damage().lines


def test_a_finished_run_keeps_its_sandbox_in_the_manifest(tmp_path: Path) -> None:
    folder, output = write_fix_add(tmp_path), tmp_path / "runs"
    first = bakeoff.run(folder, agents=["nop"], sandbox="local", output=output).manifest
    again = bakeoff.run(resume=first.run, output=output).manifest
    assert again.sandbox == first.sandbox
    assert again.sandbox.name == "local"
    assert again.plan == first.plan
