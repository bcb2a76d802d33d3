"""Every past ledger format still loads, summarizes, shows, is scored again and goes on."""

import json
import shutil
from pathlib import Path

import pytest

import bakeoff
from bakeoff.app import rescore
from bakeoff.reports.files import as_json
from support.cli import bakeoff as cli

PAST = sorted(Path(__file__).parent.glob("ledger_*"))


@pytest.fixture(params=PAST, ids=lambda p: p.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, so that nothing of today reaches what is kept."""
    return Path(shutil.copytree(request.param, tmp_path / "runs" / request.param.name))


def test_there_is_one_for_today() -> None:
    from bakeoff.stores.schema import VERSION

    assert f"ledger_{VERSION}" in {p.name for p in PAST}


def test_a_golden_folder_is_small() -> None:
    for past in PAST:
        assert sum(p.stat().st_size for p in past.rglob("*")) < 100_000


def test_it_loads_with_every_trial_and_what_was_said(folder: Path) -> None:
    run = bakeoff.load_run(folder)
    assert run.manifest.name == "golden"
    assert run.plan.digest == run.manifest.plan
    trials = {t.name: t.attempt for t in run.trials()}
    assert len(trials) == len(run.plan) == 16
    said = trials["talk@scripted/steady#1"]
    assert said.outcome is not None
    assert said.outcome.answer == "Grüß Gott 😀"
    assert said.outcome.transcript[0].role == "assistant"
    assert [(s.scorer, s.value, s.weight) for s in said.scores] == [
        ("includes", 0.0, 2.0),
        ("pattern", 1.0, 1.0),
    ]
    assert said.passed is False
    assert trials["capital@scripted/steady#0"].score == 1.0
    broken = trials["sum/2+2@shaky#1"]
    assert broken.fault is not None
    assert (broken.fault.boundary, broken.fault.message) == ("provider", "the script says so")
    assert trials["unchecked@shaky#0"].score is None
    (talk,) = [t for t in run.plan.tasks if t.id == "talk"]
    assert [m.content for m in talk.messages] == ["Be brief.", "Grüß Gott 😀"]
    assert (talk.time_s, talk.metadata["domain"]) == (5.0, "greetings")


def test_its_summary_is_what_it_was(folder: Path) -> None:
    then = json.loads((folder / "summary.json").read_text())
    now = json.loads(json.dumps(as_json(bakeoff.load_run(folder).summary())))
    since = {"not_needed": 0}  # a bucket that there was not yet
    assert now["buckets"] == {**since, **then["buckets"]}
    for old, new in zip(then["candidates"], now["candidates"], strict=True):
        assert new["candidate"] == old["candidate"]
        assert new["total"]["buckets"] == {**since, **old["total"]["buckets"]}
        for key in ("coverage", "passed", "tokens", "score_bounds"):
            assert new["total"][key] == old["total"][key]
        assert new["total"]["score"]["mean"] == old["total"]["score"]["mean"]


def test_the_command_line_reads_it(folder: Path, tmp_path: Path) -> None:
    where = ("--output", folder.parent)
    for words, told in (
        (("list", "runs", *where), "golden" if "golden" in folder.name else folder.name),
        (("summarize", folder.name, *where), "16 planned = 9 scored + 3 unchecked + 4 model error"),
        (("show", folder.name, *where), "sum/2+2@shaky#1"),
        (("show", folder.name, "talk", *where), "Grüß Gott"),
    ):
        ended = cli(*words, folder=tmp_path / "said")
        assert ended.code == 0, ended.err
        assert told in ended.out


def test_it_can_be_scored_again_and_gone_on_with(folder: Path) -> None:
    before = bakeoff.load_run(folder).summary()
    assert rescore(str(folder)).summary().buckets == before.buckets
    again = bakeoff.run(resume=str(folder))
    assert again.summary().buckets == before.buckets  # what the script breaks, it breaks again
    assert again.summary().candidates[1].total.extra_attempts > 0
