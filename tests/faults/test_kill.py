"""kill -9 at any moment: nothing acknowledged is lost, and everything is counted once."""

import json
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.app import load_run
from bakeoff.core.lazy_tasks import MOST_HELD
from support.cli import BAKEOFF, Running, acknowledging, bakeoff, only_run, started, summary, until
from support.loopback import Asked, Loopback, Reply, chat
from support.plans import write_suite

PARALLEL = 8


def slow_echo(seed: int) -> Loopback:
    """A server that repeats the prompt after a little while, never the same while twice."""
    chance = random.Random(seed)

    def answer(asked: Asked) -> Reply:
        time.sleep(chance.uniform(0.05, 0.25))
        return chat(asked.prompt)

    return Loopback(answer)


def recorded(output: Path) -> list[tuple[str, int]]:
    """Every trial that counts, as the ledger itself has it."""
    with closing(sqlite3.connect(only_run(output) / "ledger.sqlite")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return db.execute("SELECT task, rollout FROM trial WHERE status = 'completed'").fetchall()


def known_runs(output: Path) -> int:
    return sum(1 for _ in output.glob("*/manifest.json"))


def kill_sometime(running: Running, server: Loopback, chance: random.Random) -> bool:
    """Kill -9: now and then while it starts, mostly while it works; whether it hit."""
    if chance.random() < 0.3:
        return running.kill_after(chance.uniform(0.15, 0.8))
    seen = len(server.requests)
    until(lambda: len(server.requests) > seen or running.process.poll() is not None)
    return running.kill_after(chance.uniform(0.0, 0.6))


def counted_once_after_kills(tmp_path: Path, *, kills: int, count: int) -> None:
    suite = write_suite(tmp_path / "suite.json", count)
    output, chance, hits = tmp_path / "runs", random.Random(11), 0
    with slow_echo(11) as server:
        words: list[str | Path] = ["run", suite, "--model", "m", "--base-url", server.url, "--rollouts", "2",
                 "--parallel", str(PARALLEL), "--output", output]  # fmt: skip
        for _ in range(kills):
            resume = ["--resume", "latest"] if known_runs(output) else []
            with started([*BAKEOFF, *words, *resume], folder=tmp_path / "io") as running:
                hits += kill_sometime(running, server, chance)
        last = bakeoff(*words, "--resume", "latest", folder=tmp_path / "io", timeout_s=170)
        asked = len(server.requests)
    assert last.code == 0, last.err
    assert hits >= kills * 0.8
    run = load_run(output=output)
    trials = Counter((record.task_id, record.rollout) for record in run.trials())
    assert trials == {(f"t{n:04}", rollout): 1 for n in range(count) for rollout in (0, 1)}
    buckets = summary(run.folder, folder=tmp_path / "io")["buckets"]
    assert {name: n for name, n in buckets.items() if n} == {"scored": 2 * count}
    # as many again may have their answer and wait for the disk: they let others run meanwhile
    assert asked <= 2 * count + 2 * PARALLEL * kills, "a kill costs what was under way, no more"
    assert not list(run.folder.glob(".*")), "half-written files were left behind"


def nothing_acknowledged_lost(tmp_path: Path, *, kills: int, count: int) -> None:
    suite = write_suite(tmp_path / "suite.json", count)
    output, chance = tmp_path / "runs", random.Random(12)
    acknowledged: set[str] = set()
    prompts: dict[str, str] = {f"t{n:04}@m#0": f"say number {n:04}" for n in range(count)}
    mid_work = 0
    with slow_echo(12) as server:
        for _ in range(kills):
            resume = "latest" if known_runs(output) else ""
            seen = len(server.requests)
            words = acknowledging(suite, server.url, output, resume=resume, parallel=PARALLEL)
            with started(words, folder=tmp_path / "io") as running:
                kill_sometime(running, server, chance)
                shown = set(running.out.split())
            again = {prompts[name] for name in acknowledged} & {
                asked.prompt for asked in server.requests[seen:]
            }
            assert not again, "what was acknowledged was asked again"
            acknowledged |= shown
            mid_work += bool(shown)
            if acknowledged:
                done = {f"{task}@m#{rollout}" for task, rollout in recorded(output)}
                assert acknowledged <= done, "what was acknowledged is lost"
        seen = len(server.requests)
        words = acknowledging(suite, server.url, output, resume="latest", parallel=PARALLEL)
        with started(words, folder=tmp_path / "io") as running:
            last = running.wait(170)
        final = {asked.prompt for asked in server.requests[seen:]}
    assert last.code == 0, last.err
    assert mid_work >= kills // 3, "too few kills hit a run at work to show anything"
    assert not final & {prompts[name] for name in acknowledged}
    assert sorted(recorded(output)) == [(f"t{n:04}", 0) for n in range(count)]


def test_after_many_kills_every_planned_trial_is_counted_exactly_once(tmp_path: Path) -> None:
    counted_once_after_kills(tmp_path, kills=6, count=100)


def test_a_kill_neither_loses_nor_repeats_what_was_shown_as_done(tmp_path: Path) -> None:
    nothing_acknowledged_lost(tmp_path, kills=6, count=120)


def test_a_run_killed_before_it_began_is_no_run_and_says_so(tmp_path: Path) -> None:
    suite, output = write_suite(tmp_path / "suite.json", 3), tmp_path / "runs"
    with Loopback() as server:
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
        with started([*BAKEOFF, *words], folder=tmp_path / "io") as running:
            until(lambda: list(output.glob("*")))  # the folder is there, hardly anything else
            running.process.kill()
            running.process.wait(60)
        (folder,) = output.glob("*")
        begun = (folder / "manifest.json").exists()
        latest = bakeoff(*words, "--resume", "latest", folder=tmp_path / "io")
        named = bakeoff(*words, "--resume", folder, folder=tmp_path / "io")
    if not begun:
        assert latest.code == 1
        assert "there are no runs" in latest.err
    for ended in (latest, named):
        assert "Traceback" not in ended.err
    if (folder / "ledger.sqlite").exists():
        assert named.code == 0, named.err
        assert sum(1 for _ in load_run(output=output).trials()) == 3
    else:
        assert named.code == 1


def test_the_folder_of_a_run_killed_before_it_began_can_be_resumed_by_name(tmp_path: Path) -> None:
    suite, folder = write_suite(tmp_path / "suite.json", 3), tmp_path / "runs" / "half-made"
    folder.mkdir(parents=True)
    (folder / "ledger.sqlite").touch()  # what SQLite leaves before its first transaction
    with Loopback() as server:
        words: list[str | Path] = ["--output", folder.parent, "--resume", "half-made"]
        alone = bakeoff("run", *words, folder=tmp_path / "io")
        given: list[str | Path] = ["run", suite, "--model", "m", "--base-url", server.url]
        whole = bakeoff(*given, *words, folder=tmp_path / "io")
    assert alone.code == 1
    assert "start it again" in alone.err
    assert whole.code == 0, whole.err
    assert sum(1 for _ in load_run(output=folder.parent).trials()) == 3


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_fifty_kills_leave_every_trial_counted_once(tmp_path: Path) -> None:
    counted_once_after_kills(tmp_path, kills=50, count=800)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_fifty_kills_lose_nothing_that_was_shown_as_done(tmp_path: Path) -> None:
    nothing_acknowledged_lost(tmp_path, kills=50, count=1600)


def test_a_run_killed_while_its_rows_are_read_is_whole_and_goes_on_with_them(
    tmp_path: Path,
) -> None:
    rows, count = tmp_path / "rows.jsonl", MOST_HELD + 2000
    with rows.open("w", encoding="utf-8") as file:
        for n in range(count):
            print(
                json.dumps({"id": f"q{n}", "question": f"Repeat {n}", "answer": str(n)}), file=file
            )
    output = tmp_path / "runs"
    words: list[str | Path] = ["run", rows, "--model", "scripted/echo", "--output", output]

    def any_recorded() -> bool:
        return bool(known_runs(output)) and bool(recorded(output))

    with started([*BAKEOFF, *words], folder=tmp_path / "io") as running:
        until(any_recorded)
        running.kill_after(0)
    before = set(recorded(output))
    assert before
    assert "everything is as it was written" in bakeoff("check", "latest", "--output", output).out
    ended = bakeoff(*words, "--resume", "latest")
    assert ended.code == 0, ended.err
    after = recorded(output)
    assert len(after) == len(set(after)) == count
    assert before <= set(after)
