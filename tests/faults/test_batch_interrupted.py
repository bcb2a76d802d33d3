"""A batch that is stopped, between models and inside one: resumed, every model is there once."""

import shlex
import shutil
import signal
from pathlib import Path

import pytest

from support.batch_scene import (
    HANGS,
    QUICK,
    SOLVES,
    BatchScene,
    Cast,
    Part,
    sleepers,
    write_config,
    write_task,
)
from support.cli import Ended, processes_of_session, started, until
from support.loopback import Loopback
from support.parts import require

NAMES = ("first", "second", "third")


@pytest.fixture(autouse=True)
def _needs_a_sandbox() -> None:
    require("bubblewrap", shutil.which("bwrap"), "apt-get install bubblewrap")


def scene(tmp_path: Path, server: Loopback, *names: str) -> BatchScene:
    urls = dict.fromkeys(names or NAMES, server.url)
    return BatchScene(
        folder=tmp_path, task=write_task(tmp_path), config=write_config(tmp_path, urls)
    )


def asked_for(server: Loopback, model: str) -> int:
    return sum(asked.body["model"] == model for asked in server.requests)


def whole(batch: BatchScene) -> None:
    """Every model is in every report exactly once, and succeeded."""
    assert [r["model"] for r in batch.report["results"]] == list(NAMES)
    assert [r["success"] for r in batch.report["results"]] == [True] * 3
    assert [row["model"] for row in batch.rows] == list(NAMES)
    page = (batch.batch / "comparison_report.html").read_text()
    assert page.count('<details class="card model"><summary><h3>The ') == 3
    assert len(batch.batches) == 1
    assert not list(batch.batch.glob(".*")), "half-written files were left behind"


def resumed_as_printed(batch: BatchScene, ended: Ended) -> Ended:
    line = next(text for text in ended.err.splitlines() if "continue with: " in text)
    words = shlex.split(line.partition("continue with: ")[2])
    assert words[:2] == ["uv", "run"]
    with started([batch.words()[0], *words[2:]], folder=batch.folder / "io",
                 env={"OLLAMA_HOST": "http://127.0.0.1:9"}) as running:  # fmt: skip
        return running.wait()


def test_ctrl_c_inside_a_model_finishes_it_and_resume_does_the_rest(tmp_path: Path) -> None:
    cast = Cast(dict.fromkeys(NAMES, SOLVES))
    gate = cast.shut("second")
    with cast.server() as server:
        batch = scene(tmp_path, server)
        with batch.start() as running:
            until(lambda: asked_for(server, "second"))
            running.send(signal.SIGINT)
            until(lambda: "Ctrl-C again" in running.err)
            gate.set()
            ended = running.wait()
        assert ended.code == 130
        assert (asked_for(server, "first"), asked_for(server, "second")) == (3, 3)
        assert asked_for(server, "third") == 0
        assert batch.results["second"]["success"] is True
        assert batch.results["third"]["status"] == "not run"
        again = resumed_as_printed(batch, ended)
        assert again.code == 0, again.err
        assert [asked_for(server, name) for name in NAMES] == [3, 3, 3]
    whole(batch)


def test_ctrl_c_inside_the_last_model_leaves_nothing_to_go_on_with(tmp_path: Path) -> None:
    cast = Cast(dict.fromkeys(NAMES, SOLVES))
    gate = cast.shut("third")
    with cast.server() as server:
        batch = scene(tmp_path, server)
        with batch.start() as running:
            until(lambda: asked_for(server, "third"))
            running.send(signal.SIGINT)
            until(lambda: "Ctrl-C again" in running.err)
            gate.set()
            ended = running.wait()
    assert ended.code == 0, ended.err
    assert "continue with" not in ended.err
    whole(batch)


def test_ctrl_c_twice_stops_at_once_and_leaves_no_process(tmp_path: Path) -> None:
    before = set(sleepers())
    cast = Cast({"first": SOLVES, "second": HANGS, "third": SOLVES})
    with cast.server() as server:
        batch = scene(tmp_path, server)
        with batch.start() as running:
            until(lambda: set(sleepers()) - before, timeout_s=60)
            running.send(signal.SIGINT)
            until(lambda: "Ctrl-C again" in running.err)
            running.send(signal.SIGINT)
            ended = running.wait(20)
            until(lambda: not processes_of_session(running.pid))
        assert ended.code == 130
        until(lambda: set(sleepers()) <= before)
        assert batch.results["first"]["success"] is True
        assert batch.results["second"]["status"] in {"cancelled", "not run"}
        cast.parts["second"] = QUICK
        assert resumed_as_printed(batch, ended).code == 0
        assert asked_for(server, "first") == 3, "a finished model is kept"
    whole(batch)


@pytest.mark.parametrize("inside", [True, False])
def test_kill_9_inside_a_model_or_between_two_loses_no_finished_one(
    tmp_path: Path, *, inside: bool
) -> None:
    before = set(sleepers())
    cast = Cast({"first": SOLVES, "second": HANGS if inside else SOLVES, "third": SOLVES})
    if not inside:
        cast.shut("second")
    with cast.server() as server:
        batch = scene(tmp_path, server)
        with batch.start() as running:
            if inside:
                until(lambda: set(sleepers()) - before, timeout_s=60)
            else:
                until(lambda: asked_for(server, "second"))
            running.send(signal.SIGKILL)
            running.wait()
        until(lambda: set(sleepers()) <= before)
        assert (batch.batch / "first_result.json").is_file(), "it is written as it comes"
        cast.parts["second"] = SOLVES
        for gate in cast.gates.values():
            gate.set()
        again = batch.run("--resume", batch.batch.name)
        assert again.code == 0, again.err
        assert asked_for(server, "first") == 3, "a finished model is kept"
    whole(batch)


def test_killed_at_many_moments_a_batch_still_ends_with_every_model_once(tmp_path: Path) -> None:
    slow = Part(commands=SOLVES.commands, pause_s=0.2)
    cast = Cast(dict.fromkeys(NAMES, slow))
    with cast.server() as server:
        batch = scene(tmp_path, server)
        for moment in (0.7, 1.0, 1.4, 1.9, 2.5):
            resume = ["--resume", batch.batches[0].name] if batch.batches else []
            with batch.start(*resume) as running:
                running.kill_after(moment)
            known = [path for path in batch.batches if (path / "batch.json").is_file()]
            for path in set(batch.batches) - set(known):
                path.rmdir()  # killed before it was a batch: an empty folder
        resume = ["--resume", batch.batches[0].name] if batch.batches else []
        last = batch.run(*resume)
    assert last.code == 0, last.err
    whole(batch)


def test_a_second_one_at_the_same_batch_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    cast = Cast(dict.fromkeys(NAMES, SOLVES))
    gate = cast.shut("second")
    with cast.server() as server:
        batch = scene(tmp_path, server)
        with batch.start() as running:
            until(lambda: asked_for(server, "second"))
            before = (batch.batch / "batch.json").read_bytes()
            second = batch.run("--resume", batch.batch.name)
            assert (batch.batch / "batch.json").read_bytes() == before
            gate.set()
            ended = running.wait()
    assert second.code == 1
    assert str(running.pid) in second.err
    assert ended.code == 0, ended.err
    whole(batch)
