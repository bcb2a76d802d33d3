"""Question, expected and answer in the reports that programs read, and reports without them."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

import bakeoff
from bakeoff.cli.report_command import main, parser
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, Status
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from support.plans import attempt, candidate, plan, scored_by
from support.reports import write_run

FORMULAS = ("=1+1", "+1", "-1", "@x", "\t=2", "\r=3", "\uff1dcmd", "  =4")
FORMS = ("html", "csv", "json", "junit", "md")


def asked(name: str, question: str, *, target: Json = None, system: str | None = None) -> Task:
    before = () if system is None else (Message(role="system", content=system),)
    messages = (*before, Message(role="user", content=question))
    return Task(id=name, messages=messages, target=target, scorers=scored_by("exact"))


def bench() -> Plan:
    return plan(
        asked("france", "What is the capital\nof France?", target="Paris"),
        asked("sum", "2 + 2?", target=[4, "four"], system="Be brief."),
        candidates=[candidate("a"), candidate("b")],
    )


def answers(trial: Trial) -> Attempt | None:
    if trial.candidate.id == "b":
        return (
            None if trial.task.id == "sum" else attempt(status=Status.FAULTED, message="HTTP 503")
        )
    return attempt(answer=f"  The answer to\n{trial.task.id} ", score=1.0)


def rows_of(run: Path) -> list[dict[str, str]]:
    (path,) = bakeoff.report(run, formats=["csv"])
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_a_line_of_the_csv_has_what_was_asked_expected_and_answered(tmp_path: Path) -> None:
    rows = rows_of(write_run(tmp_path / "r1", bench(), answers))
    assert len(rows) == 4
    told = {(row["task"], row["candidate"]): row for row in rows}
    first = told["france", "a"]
    assert first["question"] == "What is the capital of France?"
    assert (first["expected"], first["answer"]) == ("Paris", "The answer to france")
    assert told["sum", "a"]["question"] == "system: Be brief. user: 2 + 2?"
    assert told["sum", "a"]["expected"] == '[4,"four"]'
    assert (told["france", "b"]["status"], told["france", "b"]["answer"]) == ("faulted", "")
    assert told["sum", "b"]["status"] == "not run"
    assert told["sum", "b"]["question"] == "system: Be brief. user: 2 + 2?"


def test_the_json_has_each_question_once_and_the_answer_of_each_trial(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r1", bench(), answers)
    (path,) = bakeoff.report(run, formats=["json"])
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["questions"] == [
        {"task_id": "france", "question": "What is the capital\nof France?", "expected": "Paris"},
        {"task_id": "sum", "question": "system: Be brief.\nuser: 2 + 2?", "expected": [4, "four"]},
    ]
    texts = {(one["task_id"], one["candidate_id"]): one.get("answer") for one in found["trials"]}
    assert texts == {
        ("france", "a"): "  The answer to\nfrance ", ("sum", "a"): "  The answer to\nsum ",
        ("france", "b"): None, ("sum", "b"): None,
    }  # fmt: skip
    assert found["answer"]["decided"] is False
    assert found["answer"]["text"]


def test_no_cell_of_a_text_is_a_formula_to_a_spreadsheet(tmp_path: Path) -> None:
    given = plan(
        *(asked(f"t{n}", text, target=text) for n, text in enumerate(FORMULAS)),
        candidates=[candidate("a")],
    )
    run = write_run(tmp_path / "r1", given, lambda t: attempt(answer=FORMULAS[int(t.task.id[1:])]))
    for row in rows_of(run):
        for name in ("question", "expected", "answer"):
            assert row[name].startswith("'") or row[name][0] not in "=+-@\t\r\uff1d", row[name]


def test_a_very_long_answer_is_cut_in_the_csv_and_whole_in_the_json(tmp_path: Path) -> None:
    long = "word " * 20_000
    given = plan(asked("t", "q"), candidates=[candidate("a")])
    run = write_run(tmp_path / "r1", given, lambda _: attempt(answer=long))
    (row,) = rows_of(run)
    assert 30_000 < len(row["answer"]) < 32_767
    assert row["answer"].endswith("…")
    (path,) = bakeoff.report(run, formats=["json"])
    assert json.loads(path.read_text(encoding="utf-8"))["trials"][0]["answer"] == long


def test_without_text_no_form_holds_a_question_or_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(trial: Trial) -> Attempt:
        made = attempt(answer=f"SECRET-ANSWER {trial.task.id}", score=0.0)
        scores = tuple(replace(s, explanation="SECRET-ANSWER is not right") for s in made.scores)
        return replace(made, scores=scores)

    given = plan(
        *(asked(f"t{n}", "SECRET-QUESTION", target="SECRET-TARGET") for n in range(3)),
        candidates=[candidate("a"), candidate("b")],
    )
    run = write_run(tmp_path / "runs" / "r1", given, wrong)
    monkeypatch.chdir(tmp_path)
    for path in bakeoff.report(run, formats=FORMS):
        assert ("SECRET" in path.read_text(encoding="utf-8")) == (path.suffix != ".md"), path
    given_options = parser().parse_args(["r1", "--no-text", "--format", ",".join(FORMS)])
    assert main(given_options) == 0
    for name in ("report.html", "report.csv", "report.json", "junit.xml", "report.md"):
        assert "SECRET" not in (run / name).read_text(encoding="utf-8"), name
    assert "question" not in (run / "report.csv").read_text(encoding="utf-8")
    assert "questions" not in json.loads((run / "report.json").read_text(encoding="utf-8"))
