"""Labels of people in the folder of a run: kept trial by trial, in a file that a spreadsheet opens."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import bakeoff
from bakeoff.app.labels import LABELS, TrialLabel, keep_label, label_values, read_labels
from bakeoff.cli.show_command import print_trial
from bakeoff.core.errors import UsageError
from support.reports import write_run
from support.viewed_runs import mostly, squares

RIGHT, WRONG = TrialLabel(text="pass"), TrialLabel(text="fail", note='says "maybe", twice')
ODD = ("=HYPERLINK(1)", "-m, ünïcode", 3)


def test_labels_are_kept_and_changed_one_by_one(tmp_path: Path) -> None:
    assert read_labels(tmp_path) == {}
    keep_label(tmp_path, ("a", "m", 0), RIGHT)
    keep_label(tmp_path, ODD, WRONG)
    keep_label(tmp_path, ("b", "m", 1), TrialLabel(note="odd"))
    keep_label(tmp_path, ("a", "m", 0), WRONG)
    assert read_labels(tmp_path) == {
        ("a", "m", 0): WRONG, ODD: WRONG, ("b", "m", 1): TrialLabel(note="odd"),
    }  # fmt: skip
    assert label_values(tmp_path / LABELS) == {("a", "m", 0): 0.0, ODD: 0.0}
    assert "\n'=HYPERLINK(1)," in (tmp_path / LABELS).read_text(), "no formula for a spreadsheet"
    keep_label(tmp_path, ODD, TrialLabel())
    assert ODD not in read_labels(tmp_path)


def test_what_a_person_wrote_into_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / LABELS
    path.write_text("who,task,candidate,rollout,label\nann,a,m,0,0.5\nbob,b,m,0,\n")
    keep_label(tmp_path, ("c", "m", 0), RIGHT)
    assert path.read_text() == (
        "who,task,candidate,rollout,label,note\nann,a,m,0,0.5,\nbob,b,m,0,,\n,c,m,0,pass,\n"
    )
    assert read_labels(tmp_path)["a", "m", 0].value == 0.5
    odd = TrialLabel(text="perhaps", note="a note beside what is no label")
    keep_label(tmp_path, ("a", "m", 0), odd)
    assert read_labels(tmp_path)["a", "m", 0] == odd


def test_a_file_that_cannot_be_understood_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / LABELS
    for text, told in (
        ("task,candidate,label\na,m,pass\n", "no column 'rollout'"),
        ("task,candidate,rollout,label\na,m,x,pass\n", r"labels\.csv:2: rollout is 'x'"),
        ("task,candidate,rollout,label\n\udcff,m,0,pass\n", "cannot be read"),
    ):
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(UsageError, match=told):
            keep_label(tmp_path, ("a", "m", 0), RIGHT)
        assert path.read_bytes() == text.encode(errors="surrogateescape")


def test_people_who_label_at_once_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: keep_label(tmp_path, (f"t{n}", "m", 0), RIGHT), range(40)))
    assert len(read_labels(tmp_path)) == 40


def test_show_tells_the_label_of_a_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "r1", squares(), mostly)
    keep_label(tmp_path / "r1", ("t001", "good", 1), WRONG)
    run = bakeoff.load_run(tmp_path / "r1")
    print_trial(run, "t001@good#1")
    assert 'labelled fail: says "maybe", twice' in capsys.readouterr().out
    print_trial(run, "t001@good#0")
    assert "labelled" not in capsys.readouterr().out
