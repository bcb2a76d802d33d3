"""The examples that are shipped: they are valid, right answers are right and wrong ones wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import bakeoff as package
from bakeoff.app import read
from bakeoff.app.checks import check
from support.cli import bakeoff
from support.loopback import Asked, Loopback, Reply, chat, completion

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICK = EXAMPLES / "quick" / "suite.json"
REASONING = EXAMPLES / "reasoning" / "test_definitions" / "reasoning_tests_complete.json"
SUITES = [QUICK, REASONING]


def _tests(path: Path) -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["tests"]
    return tests


def _question(test: dict[str, Any]) -> str:
    if "prompt" in test:
        return str(test["prompt"])
    return str(test["messages"][-1]["content"])


def _right(test: dict[str, Any]) -> str:
    """The right answer in the form that the prompt asks for."""
    expected, question = test["expected"], _question(test)
    if isinstance(expected, dict):
        return json.dumps(expected)
    if isinstance(expected, list):
        several = re.search(r"Answer: <\w+>, <\w+>", question)
        expected = ", ".join(expected) if several else expected[0]
    if "Answer: <" in question:
        return f"Let me think about it.\n\nAnswer: {expected}"
    return str(expected)


class _Pupil:
    """Answers each question of a suite as *answers* says, whichever API it is asked through."""

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers

    def __call__(self, asked: Asked) -> Reply:
        fits = [q for q in self._answers if q in asked.prompt]
        answer = self._answers[max(fits, key=len)]
        return completion(answer) if "prompt" in asked.body else chat(answer)


def _run(path: Path, answers: dict[str, str], output: Path, **options: Any) -> package.Run:
    with Loopback(_Pupil(answers)) as server:
        return package.run(
            path,
            models=["pupil"],
            base_url=server.url,
            output=output,
            overrides={"pause_s": "0"},
            **options,
        )


@pytest.mark.parametrize("path", SUITES, ids=lambda p: p.stem)
def test_an_example_is_valid_and_every_test_of_it_is_checked(path: Path) -> None:
    lines = check(path)
    assert lines[0].endswith("valid")
    assert not any("no scorer" in line for line in lines)
    brief = read(path, {})
    assert all(task.category for task in brief.tasks)
    assert all(any(s.weight for s in task.scorers) for task in brief.tasks)


def test_the_files_beside_the_reasoning_tests_agree_with_them() -> None:
    categories = json.loads((REASONING.parent / "categories.json").read_text())
    by_file = {i: c for c, entry in categories["categories"].items() for i in entry["test_ids"]}
    assert by_file == {t["id"]: t["category"] for t in _tests(REASONING)}
    kinds = {i: kind for kind, ids in categories["reasoning_type_mapping"].items() for i in ids}
    assert kinds == {t["id"]: t["reasoning_type"] for t in _tests(REASONING)}
    assert len(by_file) == 40


@pytest.mark.parametrize("path", SUITES, ids=lambda p: p.stem)
def test_right_answers_are_right(path: Path, tmp_path: Path) -> None:
    tests = _tests(path)
    run = _run(path, {_question(t): _right(t) for t in tests}, tmp_path)
    failed = {
        r.task_id: (
            r.attempt.score,
            r.attempt.fault,
            r.attempt.outcome and r.attempt.outcome.answer,
        )
        for r in run.trials()
        if not r.attempt.passed or r.attempt.score != 1.0
    }
    assert failed == {}
    total = run.summary().candidates[0].total
    assert (total.score.mean, total.passed, total.coverage) == (1.0, len(tests), 1.0)


@pytest.mark.parametrize("path", SUITES, ids=lambda p: p.stem)
@pytest.mark.parametrize("answer", ["", "I do not know.", "Answer: none of it", '{"no": "idea"}'])
def test_wrong_answers_are_wrong(path: Path, answer: str, tmp_path: Path) -> None:
    run = _run(path, {_question(t): answer for t in _tests(path)}, tmp_path)
    passed = [r.task_id for r in run.trials() if r.attempt.passed]
    assert passed == []
    total = run.summary().candidates[0].total
    assert total.coverage == 1.0
    if not answer.startswith(("Answer", "{")):  # it has nothing of the form that is asked for
        assert [r.task_id for r in run.trials() if r.attempt.score] == []


def test_the_right_form_alone_is_worth_nothing(tmp_path: Path) -> None:
    run = _run(REASONING, {_question(t): "Answer: none of it" for t in _tests(REASONING)}, tmp_path)
    assert [r.task_id for r in run.trials() if r.attempt.score] == []


def test_an_answer_to_the_next_question_is_wrong_here(tmp_path: Path) -> None:
    tests = _tests(REASONING)
    turned = [*tests[1:], tests[0]]
    answers = {_question(t): _right(other) for t, other in zip(tests, turned, strict=True)}
    same = {t["id"] for t, o in zip(tests, turned, strict=True) if t["expected"] == o["expected"]}
    run = _run(REASONING, answers, tmp_path)
    assert {r.task_id for r in run.trials() if r.attempt.passed} <= same


@pytest.mark.parametrize("path", SUITES, ids=lambda p: p.stem)
def test_an_example_runs_from_the_command_line(path: Path, tmp_path: Path) -> None:
    ended = bakeoff(
        "run", path, "--model", "scripted", "--limit", "3", "--output", tmp_path / "runs",
        "--set", "pause_s=0",
        folder=tmp_path,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "3 planned = 3 scored" in ended.out


def test_the_metadata_of_the_reasoning_suite_reaches_the_server(tmp_path: Path) -> None:
    tests = _tests(REASONING)
    pupil = _Pupil({_question(t): _right(t) for t in tests})
    with Loopback(pupil) as server:
        home = tmp_path / "copy"
        home.mkdir()
        for file in REASONING.parent.iterdir():
            text = file.read_text().replace("http://localhost:8004/v1", server.url)
            (home / file.name).write_text(
                text.replace('"delay_between_tests": 0.5', '"delay_between_tests": 0')
            )
        run = package.run(home / REASONING.name, output=tmp_path / "runs", tests=["math_0*"])
        paths = {asked.path for asked in server.requests}
        models = {asked.body["model"] for asked in server.requests}
    assert run.summary().candidates[0].total.score.mean == 1.0
    assert (paths, models) == ({"/v1/completions"}, {"local-model"})


@pytest.mark.parametrize(("says", "score"), [("It is Tokyo.", 1.0), ("It is Kyoto.", 0.0)])
def test_the_agent_of_the_batch_example_writes_what_its_model_says(
    tmp_path: Path, says: str, score: float
) -> None:
    with Loopback(lambda _: chat(says)) as server:
        run = package.run(
            EXAMPLES / "batch" / "capital_of_japan.md",
            agents=["scribe:Scribe"],
            models=["pupil"],
            base_url=server.url,
            sandbox="local",
            output=tmp_path / "runs",
        )
    (trial,) = run.trials()
    assert trial.attempt.score == score, trial.attempt
    assert trial.attempt.outcome is not None
    assert trial.attempt.outcome.change is not None
    assert f"+{says}" in trial.attempt.outcome.change.patch
