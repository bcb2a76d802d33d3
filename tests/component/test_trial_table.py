"""The trials of a run as frames and files: typed, with unknown values missing, without secrets."""

import csv
import io
import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from pyarrow import parquet

from bakeoff.app import load_run
from bakeoff.app.run_results import Run
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, Score, Status
from support.browser import opened
from support.cli import bakeoff
from support.plans import attempt, candidate, plan, scored_by, task
from support.reports import write_run

HOSTILE = "=1+1</script><script>alert(1)</script>\x00\ud800"


def given(names: tuple[str, ...] = ("good", "bad")) -> Plan:
    tasks = [
        replace(
            task(f"t{n:03}", prompt=f"ask {n}", scorers=scored_by("exact")),
            target=str(n),
            group="first five" if n < 5 else None,
        )
        for n in range(10)
    ]
    return plan(*tasks, candidates=[candidate(name) for name in names], rollouts=2)


def some(trial: Trial) -> Attempt | None:
    number = int(trial.task.id[1:])
    if number == 9:
        return None
    if number == 3:
        return attempt(status=Status.FAULTED, message="the queue is full")
    ended = attempt(score=0.5, answer=HOSTILE if number == 4 else f"said {trial.name}")
    return replace(ended, scores=(Score(scorer="exact", value=0.5),))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return load_run(write_run(tmp_path_factory.mktemp("table") / "r1", given(), some))


def test_the_trials_can_be_iterated_over_again_and_again(run: Run) -> None:
    trials = run.trials()
    names = [record.name for record in trials]
    assert len(names) == 36
    assert [record.name for record in trials] == names


def test_the_group_of_a_task_is_a_column_of_its_trials(run: Run) -> None:
    rows = run.trials().to_polars()
    groups = dict(zip(rows["task"], rows["group"], strict=True))
    assert [groups[f"t{n:03}"] for n in range(9)] == ["first five"] * 5 + [None] * 4


def test_a_frame_has_a_row_for_each_trial_and_knows_what_is_unknown(run: Run) -> None:
    frame = run.trials().to_pandas(text=True)
    assert len(frame) == 36
    assert str(frame.dtypes["score"]) == "Float64"
    assert str(frame.dtypes["passed"]) == "boolean"
    broken = frame[frame["task"] == "t003"]
    assert broken["score"].isna().all()
    assert set(broken["fault"]) == {"the queue is full"}
    assert broken["answer"].isna().all()
    right = frame[
        (frame["task"] == "t001") & (frame["candidate"] == "bad") & (frame["rollout"] == 1)
    ]
    assert right["answer"].item() == "said t001@bad#1"
    assert (right["question"].item(), right["expected"].item()) == ("ask 1", "1")
    assert json.loads(right["scores"].item()) == {"exact": 0.5}


def test_all_frames_hold_the_same(run: Run) -> None:
    pandas, frame, arrow = (
        run.trials().to_pandas(), run.trials().to_polars(), run.trials().to_arrow(),
    )  # fmt: skip
    assert list(pandas.columns) == frame.columns == arrow.column_names
    assert pl.DataFrame(arrow).equals(frame)
    assert frame["score"].sum() == pandas["score"].sum() == 16.0
    assert frame["score"].null_count() == 4


def test_a_run_without_trials_is_an_empty_frame_with_its_types(tmp_path: Path) -> None:
    empty = load_run(write_run(tmp_path / "r1", given(), lambda _: None)).trials()
    assert empty.to_arrow().num_rows == len(empty.to_polars()) == len(empty.to_pandas()) == 0
    assert empty.to_polars().schema["score"] == pl.Float64


def test_each_file_has_what_the_frame_has(run: Run, tmp_path: Path) -> None:
    named = bakeoff("export", run.folder, "--to", tmp_path, folder=tmp_path / "to")
    assert (named.code, Path(named.out.strip())) == (0, tmp_path / "trials.csv")
    paths = {}
    for form in ("csv", "jsonl", "parquet"):
        ended = bakeoff("export", run.folder, "--format", form, folder=tmp_path / form)
        assert ended.code == 0, ended
        paths[form] = Path(ended.out.strip())
        assert paths[form] == run.folder / f"trials.{form}"
    frame = run.trials().to_polars(text=True)
    assert pl.DataFrame(parquet.read_table(paths["parquet"])).equals(frame)
    lines = [json.loads(line) for line in paths["jsonl"].read_text().splitlines()]
    assert [line["score"] for line in lines] == frame["score"].to_list()
    assert lines[0]["scores"] == {"exact": 0.5}
    rows = list(csv.DictReader(io.StringIO(paths["csv"].read_text())))
    assert [row["task"] for row in rows] == frame["task"].to_list()
    assert not [cell for row in rows for cell in row.values() if cell.startswith("=")]


def test_without_text_nothing_of_it_is_written(run: Run, tmp_path: Path) -> None:
    for form in ("csv", "jsonl"):
        ended = bakeoff(
            "export", run.folder, "--format", form, "--no-text", "--to", "-", folder=tmp_path / form
        )
        assert "t001" in ended.out
        assert "said" not in ended.out
        assert "ask 1" not in ended.out


def test_a_secret_of_the_environment_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-quoted-0123456789abc"
    monkeypatch.setenv("TABLE_TEST_KEY", key)
    spec = candidate("m")
    named = replace(spec, model=replace(spec.model, api_key="${TABLE_TEST_KEY}"))
    secret = plan(
        task("t1", prompt=f"my key is {key}", scorers=scored_by("exact")), candidates=[named]
    )
    folder = write_run(tmp_path / "r1", secret, lambda _: attempt(answer=f"it is {key}"))
    frame = load_run(folder).trials().to_polars(text=True)
    assert frame["answer"].item() == "it is [redacted]"
    assert "0123456789" not in frame["question"].item()


def test_mistakes_are_told_in_a_line(run: Run, tmp_path: Path) -> None:
    wrong = bakeoff("export", run.folder, "--format", "xlsx", folder=tmp_path / "a")
    assert (wrong.code, len(wrong.err.splitlines())) == (1, 1)
    assert "no export format 'xlsx'" in wrong.err
    (tmp_path / "file").touch()
    refused = bakeoff(
        "export", run.folder, "--to", tmp_path / "file" / "x.csv", folder=tmp_path / "b"
    )
    assert "cannot be written" in refused.err
    assert "--to" in refused.err


def test_the_memory_of_an_export_does_not_grow_with_the_number_of_trials(tmp_path: Path) -> None:
    def peak_kb(rollouts: int) -> int:
        many = replace(given().blocks[0], rollouts=rollouts)
        folder = write_run(
            tmp_path / f"r{rollouts}", replace(given(), blocks=(many,)),
            lambda _: attempt(answer="word " * 200),
        )  # fmt: skip
        program = (
            "import resource, sys; from bakeoff.app import load_run; from bakeoff.app.trial_table import export;"
            "export(load_run(sys.argv[1]), form='jsonl');"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, folder], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert resource.RUSAGE_SELF == 0
    assert peak_kb(250) - peak_kb(10) < 10_000


def test_a_run_in_a_notebook_shows_its_verdict_and_charts_and_runs_nothing(
    tmp_path: Path,
) -> None:
    hostile = [replace(candidate(name), id=f"{name}{HOSTILE[:-1]}") for name in ("good", "bad")]
    one_each = replace(given().blocks[0], candidates=tuple(hostile))
    folder = write_run(
        tmp_path / "r1", replace(given(), blocks=(one_each,)),
        lambda t: attempt(score=float(t.candidate.id.startswith("good"))),
    )  # fmt: skip
    page = tmp_path / "cell.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{load_run(folder)._repr_html_()}")
    with opened(page) as shown:
        text = shown.evaluate("document.body.innerText")
        tags = set(shown.evaluate("[...document.querySelectorAll('*')].map(e => e.localName)"))
        fill = shown.evaluate("getComputedStyle(document.querySelector('.bar_marks path')).fill")
        assert shown.said == []
        assert shown.asked == [page.resolve().as_uri()]
    assert "tasks more than" in text
    assert not tags & {"script", "img", "iframe"}
    assert fill.startswith("rgb"), "the charts have their colours"
