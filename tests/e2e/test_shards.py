"""Shards of a run, each by itself, and the one run that they are merged into."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from bakeoff import Request, Run, UsageError
from bakeoff.app.history import history
from bakeoff.app.inspection import check_run
from bakeoff.cli import call
from bakeoff.core.candidate import AgentSpec, ModelSpec
from bakeoff.core.events import Notice, TrialEnded
from bakeoff.core.lazy_tasks import MOST_HELD
from bakeoff.core.run_spec import Pairing, RunSpec
from bakeoff.stores.folders import list_runs
from support import plans
from support.cli import BAKEOFF
from support.coding_tasks import write_fix_add
from support.loopback import Loopback, chat
from support.pictures import png, uri
from support.plans import write_suite
from support.shards import assert_same_run, ledger_of, run_shards
from support.viewers import viewing

ECHO = "scripted/echo"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "suite.json", 10)


def folders(runs: list[Run]) -> list[Path]:
    return [run.folder for run in runs]


def refused(runs: list[Any], output: Path) -> str:
    """What a merge of *runs* is refused with; nothing is left of it."""
    before = sorted(output.iterdir()) if output.exists() else []
    with pytest.raises(UsageError) as caught:
        bakeoff.merge(runs, output=output)
    assert (sorted(output.iterdir()) if output.exists() else []) == before
    return str(caught.value)


@pytest.mark.parametrize("shards", [1, 3, 14])
def test_shards_that_are_merged_are_the_whole_run_to_the_byte(
    suite: Path, tmp_path: Path, shards: int
) -> None:
    asked: dict[str, Any] = {"models": [ECHO, "scripted/refuse"], "rollouts": 2}
    whole = bakeoff.run(suite, output=tmp_path / "whole", **asked)
    parts = run_shards(suite, shards, tmp_path / "parts", **asked)
    merged = bakeoff.merge(parts[::-1], output=tmp_path / "merged")
    assert_same_run(merged, whole)
    assert not check_run(merged).lines


def test_pairings_of_tasks_and_models_are_merged_in_their_order(tmp_path: Path) -> None:
    tasks, models = plans.tasks(7), (ModelSpec(provider="scripted", name="echo"), ModelSpec(provider="scripted", name="refuse"))  # fmt: skip
    pairings = [
        Pairing(task=task, model=model, agent=AgentSpec(), rollouts=1 + number % 2)
        for number, (task, model) in enumerate((t, m) for m in models for t in tasks[::-1])
    ]
    spec = RunSpec(name="pairs", tasks=tasks, pairings=tuple(pairings))
    whole = bakeoff.run(spec, output=tmp_path / "whole")
    merged = bakeoff.merge(run_shards(spec, 3, tmp_path / "parts"), output=tmp_path / "merged")
    assert_same_run(merged, whole)


def test_a_data_set_that_is_read_while_it_runs_is_cut_and_merged_like_any_other(
    tmp_path: Path,
) -> None:
    rows = [f"say {number % (MOST_HELD + 100)},{number}" for number in range(MOST_HELD + 110)]
    data = tmp_path / "rows.csv"
    data.write_text("\n".join(["question,note", *rows]))
    whole = bakeoff.run(data, models=[ECHO], output=tmp_path / "whole")
    parts = run_shards(data, 2, tmp_path / "parts", models=[ECHO])
    merged = bakeoff.merge(parts, output=tmp_path / "merged")
    assert_same_run(merged, whole)


def test_a_merged_run_is_resumed_reported_compared_and_scored_again_like_any_other(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = bakeoff.run(suite, models=[ECHO], output=tmp_path)
    run_shards(suite, 2, tmp_path / "parts", models=[ECHO])
    names = [str(path) for path in sorted((tmp_path / "parts").iterdir())]
    assert call(["merge", *names, "--output", str(tmp_path), "--name", "all"]) == 0
    told = capsys.readouterr()
    assert "merged 2 runs into" in told.err
    assert "10 planned = 10 scored" in told.out
    where = ["--output", str(tmp_path)]
    for words in (
        ["report", "all"], ["check", "all"], ["compare", whole.id, "all"], ["show", "all"],
        ["eval", "all"], ["export", "all", "--format", "csv", "--to", str(tmp_path / "all.csv")],
    ):  # fmt: skip
        assert call([*words, *where]) == 0, (words, capsys.readouterr().err)
    again = bakeoff.run(suite, models=[ECHO], rollouts=2, resume="all", output=tmp_path)
    assert again.summary().buckets.scored == 20
    assert len(again.manifest.merged) == 2


def test_a_run_says_which_shard_it_is_and_what_its_share_is(suite: Path, tmp_path: Path) -> None:
    told: list[str] = []
    run = bakeoff.run(
        suite, models=[ECHO], shard="1/3", max_tokens=3000, output=tmp_path,
        overrides={"parameters.max_tokens": "10"},
        listener=lambda event: told.append(event.text) if isinstance(event, Notice) else None,
    )  # fmt: skip
    assert "shard 1/3: 3 of 10 tasks, 1,000 of 3,000 tokens" in told
    manifest = run.manifest
    assert (manifest.shard.name, manifest.shard.tasks, manifest.shard.trials) == ("1/3", 10, 10)
    assert (manifest.cap.tokens, manifest.shard.cap.tokens) == (1000, 3000)
    (run.folder / "manifest.json").unlink()  # the ledger knows as well
    assert bakeoff.load_run(run.folder).manifest.shard == manifest.shard


def test_a_dry_run_of_a_shard_says_what_its_share_of_the_limits_is(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        f'suites = ["{suite.name}"]\n[[models]]\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
        'settings.rpm = 600\n[endpoints."http://127.0.0.1:1"]\ntpm = 900\nmax_concurrency = 8\n'
    )
    assert call(["run", str(config), "--shard", "0/3", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert "shard 0/3: 4 of 10 tasks" in told.err
    assert "200 of 600 requests per minute at" in told.err
    assert "300 of 900 tokens per minute at http://127.0.0.1:1" in told.err
    assert "2 of 8 requests at once at http://127.0.0.1:1" in told.err
    assert re.search(r"trials +4\n", told.out)


def test_a_shard_is_told_apart_from_a_whole_run_wherever_runs_are_listed(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = run_shards(suite, 2, tmp_path, models=[ECHO])
    merged = bakeoff.merge(shards, output=tmp_path)
    assert call(["list", "runs", "--output", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "shard 0/2, done" in told
    assert "shard 1/2, done" in told
    found = history(output=tmp_path)
    assert [each.runs for each in found.suites] == [(merged.id,)]
    assert found.skipped == ("shards of runs (2): merged they are a run, each is a part of one",)
    with viewing(tmp_path) as viewer:
        _, _, page = viewer.get("/")
    assert "suite, shard 0/2" in page


def test_shards_together_stay_within_the_budget_of_the_run(suite: Path, tmp_path: Path) -> None:
    with Loopback(lambda asked: chat("four", usage=(50, 50))) as server:
        options: dict[str, Any] = {
            "models": ["m"], "base_url": server.url, "max_tokens": 900, "parallel": 1,
            "overrides": {"parameters.max_tokens": "50"},
        }  # fmt: skip
        parts = run_shards(suite, 3, tmp_path, **options)
        assert 100 * len(server.requests) <= 900
    assert all(run.billed().tokens <= 300 for run in parts)
    assert all(run.summary().buckets.not_run for run in parts)


def test_an_endpoint_is_asked_at_a_shards_part_of_its_rate(suite: Path, tmp_path: Path) -> None:
    with Loopback(lambda asked: chat("four")) as server:
        models = [ModelSpec(provider="openai-compatible", name="m", base_url=server.url, settings={"rpm": 480})]  # fmt: skip
        run = bakeoff.run(suite, models=models, shard="0/2", output=tmp_path)
    starts = sorted(trial.attempt.started_at + trial.attempt.elapsed_s for trial in run.trials())
    assert len(starts) == 5
    assert starts[-1] - starts[0] >= 0.9 * 4 * 60 / 240  # 4 gaps at half the rate


def test_a_shard_is_resumed_with_and_without_its_source(suite: Path, tmp_path: Path) -> None:
    def stop_after_two(event: object) -> None:
        if isinstance(event, TrialEnded):
            next(ended)
            if next(ended) >= 2:
                stop.request()

    resumptions: list[dict[str, Any]] = [
        {},
        {"source": suite, "models": [ECHO]},
        {"source": suite, "models": [ECHO], "shard": "0/2"},
    ]
    done = []
    for again in resumptions:
        stop, ended = bakeoff.Stop(), count()
        cut_off = bakeoff.run(
            suite, models=[ECHO], shard="0/2", parallel=1, output=tmp_path / "runs",
            stop=stop, listener=stop_after_two,
        )  # fmt: skip
        assert cut_off.summary().buckets.not_run
        resumed = bakeoff.run(resume=cut_off.id, output=tmp_path / "runs", **again)
        assert resumed.summary().buckets.scored == 5
        assert resumed.manifest.shard == cut_off.manifest.shard
        assert resumed.plan == cut_off.plan
        done.append(resumed)
    other = bakeoff.run(suite, models=[ECHO], shard="1/2", output=tmp_path / "runs")
    whole = bakeoff.run(suite, models=[ECHO], output=tmp_path / "whole")
    merged = bakeoff.merge([done[-1], other], output=tmp_path / "merged")
    assert_same_run(merged, whole)


def test_a_shard_cannot_become_another_one(suite: Path, tmp_path: Path) -> None:
    shard = bakeoff.run(suite, models=[ECHO], shard="0/2", output=tmp_path)
    whole = bakeoff.run(suite, models=[ECHO], output=tmp_path)
    for options, told in (
        ({"resume": shard.id, "shard": "1/2"}, "is shard 0/2"),
        ({"resume": shard.id, "shard": "0/3"}, "is shard 0/2"),
        ({"resume": whole.id, "shard": "0/2"}, "is no shard"),
        ({"source": suite, "models": [ECHO], "resume": whole.id, "shard": "0/2"}, "is no shard"),
        ({"source": suite, "models": [ECHO], "resume": shard.id, "only": True}, "leave out the source"),
        ({"source": write_suite(tmp_path / "more.json", 30), "models": [ECHO], "resume": shard.id}, "no task"),
        ({"source": suite, "models": [ECHO, "scripted/refuse"], "adaptive": True, "shard": "0/2"}, "adaptive"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=told):
            bakeoff.run(output=tmp_path, **options)


def test_shards_that_do_not_make_one_plan_are_refused(suite: Path, tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "merged"
    first, second, third = run_shards(suite, 3, runs, models=[ECHO])
    assert re.search("a shard is missing: 1/3", refused([first, third], out))
    assert re.search("shards are missing: 0/3, 1/3", refused([third], out))
    assert "named twice" in refused([first, second, third, first.folder], out)
    assert "name the runs" in refused([], out)
    whole = bakeoff.run(suite, models=[ECHO], output=runs)
    assert "is no shard" in refused([first, second, third, whole], out)

    def other(source: Path = suite, shard: str = "1/3", **options: Any) -> Run:
        return bakeoff.run(source, shard=shard, output=runs, **{"models": [ECHO], **options})

    overlap = refused([first, second, other(shard="1/2")], out)
    assert "shard 0/3" in overlap
    assert "shard 1/2 of one plan: they overlap" in overlap
    edited = tmp_path / "edited.json"
    edited.write_text(suite.read_text().replace("say number 0003", "tell number 0003"))
    hot = ModelSpec(provider="scripted", name="echo", parameters={"temperature": 1})
    for run, told in (
        (other(models=[hot]), "candidate 'scripted/echo' differs in model.parameters.temperature"),
        (other(models=[ECHO, "scripted/refuse"]), "candidate 'scripted/refuse' is in one of them only"),
        (other(rollouts=2), "20 trials instead of 10"),
        (other(limit=9), "9 tasks instead of 10"),
        (other(edited), "the tasks are not the same"),
    ):  # fmt: skip
        why = refused([first, run, third], out)
        assert "is a shard of another plan than" in why
        assert told in why


def test_a_shard_that_was_scored_otherwise_since_it_was_cut_is_refused(
    suite: Path, tmp_path: Path
) -> None:
    first, second = run_shards(suite, 2, tmp_path, models=[ECHO])
    bakeoff.rescore(first)
    merged = bakeoff.merge(
        [first, second], output=tmp_path / "a"
    )  # scored as before: still the plan
    assert merged.summary().buckets.scored == 10
    data = json.loads(suite.read_bytes())
    for test in data["tests"]:
        test["expected"] = "something else"
    suite.write_text(json.dumps(data))
    bakeoff.rescore(first, source=suite)
    assert "was changed after it was cut" in refused([first, second], tmp_path / "b")
    again = bakeoff.rescore(merged, source=suite)
    assert again.summary().candidates[0].total.score.mean == 0


def test_shards_that_are_not_finished_make_a_run_that_can_be_finished(
    suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = bakeoff.Stop()
    first = bakeoff.run(
        suite, models=[ECHO], shard="0/2", parallel=1, output=tmp_path, stop=stop,
        listener=lambda event: stop.request() if isinstance(event, TrialEnded) else None,
    )  # fmt: skip
    second = bakeoff.run(suite, models=[ECHO], shard="1/2", output=tmp_path)
    out = tmp_path / "merged"
    assert call(["merge", str(first.folder), str(second.folder), "--output", str(out)]) == 0
    assert (
        "trials not run or faulted; run the rest with: bakeoff run --resume"
        in capsys.readouterr().err
    )
    whole = bakeoff.run(resume="latest", output=out)
    assert whole.summary().buckets.scored == 10
    assert_same_run(whole, bakeoff.run(suite, models=[ECHO], output=tmp_path / "whole"))


class Failing:
    """A model that faults on some tasks, and numbers its answers."""

    name = "m"

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.numbers: Iterator[int] = count(1)

    async def complete(self, request: Request) -> bakeoff.Completion:
        text = request.messages[-1].content
        if any(name in text for name in self.failing):
            raise bakeoff.ProviderError("out of order", transient=False)
        usage = bakeoff.Usage(input_tokens=1, output_tokens=1)
        return bakeoff.Completion(text=f"{text} {next(self.numbers)}", usage=usage)

    async def close(self) -> None:
        pass


def test_of_a_shard_that_was_run_twice_the_first_final_attempt_counts(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite.json", 6)
    (tasks,) = [
        [task.id for task in bakeoff.app.plan(suite, models=[ECHO], shard="0/2").plan.tasks]
    ]
    broken = Failing(f"number {tasks[0][1:]}")
    first = bakeoff.run(suite, models=[broken], shard="0/2", output=tmp_path / "runs")
    again = bakeoff.run(suite, models=[Failing()], shard="0/2", output=tmp_path / "runs")
    rest = bakeoff.run(suite, models=[Failing()], shard="1/2", output=tmp_path / "runs")
    assert [r.status for r in first.rows()].count("faulted") == 1
    told: list[str] = []
    merged = bakeoff.merge(
        [first, again, rest], output=tmp_path / "merged",
        listener=lambda event: told.append(event.text) if isinstance(event, Notice) else None,
    )  # fmt: skip
    assert any("shard 0/2 was run 2 times" in text for text in told)
    answers = {r.task_id: r.attempt.outcome.answer for r in merged.records() if r.attempt.outcome}
    for run, names in ((first, tasks[1:]), (again, tasks[:1])):
        own = {r.task_id: r.attempt.outcome.answer for r in run.records() if r.attempt.outcome}
        assert {name: answers[name] for name in names} == {name: own[name] for name in names}
    assert merged.summary().buckets.scored + merged.summary().buckets.unchecked == 6
    assert merged.billed().tokens == sum(run.billed().tokens for run in (first, again, rest))
    numbers = [[a.attempt.number for a in merged.attempts(name)] for name in tasks]
    assert numbers == [list(range(1, len(n) + 1)) for n in numbers]
    assert not check_run(merged).lines


def test_pictures_and_large_records_come_along(tmp_path: Path) -> None:
    pictures = [
        {"id": f"p{n}", "messages": [{"role": "user", "content": [
            {"type": "text", "text": f"{n}: " + "long " * 60_000},
            {"type": "image_url", "image_url": {"url": uri(png(n, n, n))}}]}]}
        for n in range(4)
    ]  # fmt: skip
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"tests": pictures}))
    whole = bakeoff.run(suite, models=[ECHO], output=tmp_path / "whole")
    parts = run_shards(suite, 2, tmp_path / "parts", models=[ECHO])
    merged = bakeoff.merge(parts, output=tmp_path / "merged")
    for run in parts:
        assert list((run.folder / "blobs").iterdir())
        (run.folder / "blobs").rename(run.folder / "gone")  # nothing is taken from there any more
    checked = check_run(merged)
    assert (checked.lines, checked.records) == ((), 4)
    names = [sorted(p.name for p in (r.folder / "blobs").iterdir()) for r in (merged, whole)]
    # a large record holds its times: it has another name in every run
    assert len(names[0]) == len(names[1])
    assert {r.attempt.outcome.answer for r in merged.records()} == {
        r.attempt.outcome.answer for r in whole.records()
    }


def test_artifacts_of_workspaces_come_along(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_fix_add(tmp_path / "tasks", name=name)
    options: dict[str, Any] = {"agents": ["oracle"], "sandbox": "local"}
    parts = run_shards(tmp_path / "tasks", 2, tmp_path / "parts", **options)
    again = bakeoff.run(tmp_path / "tasks", shard="0/2", output=tmp_path / "parts", **options)
    merged = bakeoff.merge([*parts, again], output=tmp_path / "merged")
    files = {p.relative_to(merged.folder / "artifacts").parts for p in merged.folder.glob("artifacts/*/*/diff.patch")}  # fmt: skip
    records = {(r.attempt.number, r.task_id) for t in "abc" for r in merged.attempts(t)}
    assert {(int(number), folder.partition("@")[0][:1]) for folder, number, _ in files} == records
    assert merged.summary().buckets.scored == 3


def test_recordings_come_along_and_replay_the_merged_run(suite: Path, tmp_path: Path) -> None:
    parts = [
        bakeoff.run(
            suite, models=[ECHO], shard=f"{n}/2", output=tmp_path, record=tmp_path / f"tape-{n}"
        )
        for n in range(2)
    ]
    merged = bakeoff.merge(parts, output=tmp_path / "merged")
    tape = Path(str(merged.manifest.recording))
    assert tape.parent == merged.folder
    replayed = bakeoff.run(suite, models=[ECHO], replay=tape, output=tmp_path / "again")
    assert replayed.summary().buckets.scored == 10
    assert not replayed.summary().buckets.faults
    for n in range(2):
        (tmp_path / f"tape-{n}").rename(tmp_path / f"moved-{n}")
    told: list[str] = []
    bakeoff.merge(
        parts, output=tmp_path / "merged",
        listener=lambda event: told.append(event.text) if isinstance(event, Notice) else None,
    )  # fmt: skip
    assert len([text for text in told if "the recording of shard" in text]) == 2


def test_more_shards_than_the_system_lets_be_open_are_refused_with_what_to_do(
    suite: Path, tmp_path: Path
) -> None:
    parts = run_shards(suite, 2, tmp_path / "parts", models=[ECHO])
    merge = shlex.join([*BAKEOFF, "merge", *(str(run.folder) for run in parts)])
    for limit, code in (("-n 100", 1), ("-S -n 100", 0)):  # a soft limit is raised
        script = f"ulimit {limit} && exec {merge} --output {tmp_path / 'merged'}"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert ("raise the limit (ulimit -n 204)" in done.stderr) == bool(code)


def test_a_damaged_shard_is_not_merged(suite: Path, tmp_path: Path) -> None:
    first, second = run_shards(suite, 2, tmp_path / "runs", models=[ECHO])
    ledger = first.folder / "ledger.sqlite"
    data = bytearray(ledger.read_bytes())
    data[data.rindex(b"say number")] ^= 0x40
    ledger.write_bytes(data)
    why = refused([first, second], tmp_path / "merged")
    assert "shard 0/2 is damaged" in why
    assert "bakeoff run --resume" in why
    bakeoff.run(resume=str(first.folder))
    merged = bakeoff.merge([first, second], output=tmp_path / "merged")
    assert merged.summary().buckets.planned == 10
    assert [entry.folder for entry in list_runs(tmp_path / "merged")] == [merged.folder]


def test_more_shards_than_tasks_leave_some_with_nothing_to_do(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite.json", 2)
    words = ["run", str(suite), "-m", ECHO, "--output", str(tmp_path / "runs"), "--shard"]
    assert [call([*words, f"{n}/4"]) for n in range(4)] == [0] * 4
    runs = [entry.folder for entry in list_runs(tmp_path / "runs")]
    assert call(["run", "--resume", str(runs[3])]) == 0
    for some in (runs, runs[:2]):
        merged = bakeoff.merge(some, output=tmp_path / "merged")
        assert merged.summary().buckets.scored == len(ledger_of(merged)["attempt"]) == 2
