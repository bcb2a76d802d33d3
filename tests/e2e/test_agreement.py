"""`bakeoff agreement`: two scorers of a run, and the labels of a person in the file that `export` wrote."""

import csv
import json
from pathlib import Path

import pytest

import bakeoff as package
from support.cli import Ended, bakeoff
from support.loopback import Asked, Loopback, Reply, chat

TASKS = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of tasks that two scorers judge: `exact` wants the answer alone, `includes` is content to find it."""
    scorers = ["includes", {"scorer": "exact", "weight": 0}]
    tests = [
        {"id": f"t{n:02}", "prompt": f"say {n:02}", "expected": f"{n:02}", "scorers": scorers}
        for n in range(TASKS)
    ]
    (tmp_path / "suite.json").write_text(json.dumps({"tests": tests}))

    def answer(asked: Asked) -> Reply:
        number = int(asked.prompt.split()[-1])
        return chat("?" if number % 2 else f"It is {number:02}" if number < 8 else f"{number:02}")

    with Loopback(answer) as server:
        package.run(
            tmp_path / "suite.json", models=["m"], base_url=server.url, folder=tmp_path / "runs/r1"
        )
    return tmp_path


def agreement(folder: Path, *words: str) -> Ended:
    ended = bakeoff("agreement", *words, cwd=folder)
    assert "Traceback" not in ended.err
    return ended


def labelled(folder: Path, labels: dict[str, str], column: str = "label") -> Path:
    """The trials as `export` writes them, with a column that a person filled in."""
    assert bakeoff("export", "r1", "--to", "answers.csv", cwd=folder).code == 0
    path = folder / "answers.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], column])
        writer.writeheader()
        writer.writerows({**row, column: labels.get(row["task"], "")} for row in rows)
    return path


def test_two_scorers_of_a_run_are_compared_with_the_answers_on_which_they_differ(
    folder: Path,
) -> None:
    ended = agreement(folder)
    assert ended.code == 0, ended.err
    assert ended.out.startswith(
        "exact and includes give the same verdict in 90 of 100 cases on 40 answers to 40 tasks"
    )
    assert "both pass 16, only exact 0, only includes 4, neither 20" in ended.out
    assert "furthest apart: t00@m#0 (0.00 and 1.00), t02@m#0 (0.00 and 1.00)" in ended.out
    (told,) = json.loads(agreement(folder, "r1", "includes", "exact", "--json").out)
    (found,) = package.agreement(folder / "runs/r1")
    assert told["value"] == found.value == pytest.approx(0.8)
    assert told["headline"] in ended.out


def test_a_scorer_is_compared_with_the_labels_of_a_person(folder: Path) -> None:
    labels = {f"t{n:02}": "pass" if n % 2 == 0 else "0" for n in range(30)}
    labelled(folder, {**labels, "t00": "fail"}, column="human")
    ended = agreement(folder, "r1", "includes", "--labels", "answers.csv", "--column", "human")
    assert ended.code == 0, ended.err
    assert (
        "includes and human give the same verdict in 96.7 of 100 cases on 30 answers" in ended.out
    )
    assert ended.out.count("kappa") == 1
    assert "both pass 14, only includes 1, only human 0, neither 15" in ended.out


def test_mistakes_are_said_with_file_and_line_and_what_to_do(folder: Path) -> None:
    labelled(folder, {"t00": "1", "t01": "perhaps"})
    for words, text in (
        (("r1", "judge"), "no scorer 'judge' scored in this run"),
        (("r1", "a", "b", "c"), "name two scorers at most"),
        (("--labels", "none.csv"), "none.csv cannot be read"),
        (("--labels", "answers.csv"), "answers.csv:3: label is 'perhaps'; write 0 to 1"),
        (("--labels", "answers.csv", "--column", "lable"), "no column 'lable'; did you mean"),
    ):
        ended = agreement(folder, *words)
        assert ended.code == 1, words
        assert text in ended.err, ended.err
    (folder / "empty.csv").write_text("task,candidate,rollout,label\nt00,m,0,\n")
    assert "the column 'label' is empty" in agreement(folder, "--labels", "empty.csv").err
    (folder / "other.csv").write_text("task,candidate,rollout,label\nx,m,0,1\n")
    assert "no row is a trial of r1" in agreement(folder, "--labels", "other.csv").err
