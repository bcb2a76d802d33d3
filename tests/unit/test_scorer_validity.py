"""Answers that must parse, answers that refuse, and what stands where in them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.models.adapters.function import FunctionModel
from bakeoff.scorers.refusal import Refusal
from bakeoff.scorers.text import ContainsAll, ContainsAny, EndsWith, StartsWith
from bakeoff.scorers.validity import ValidJson, ValidPython, ValidSql


def _score(scorer: Any, answer: str, target: Json = None, **more: Any) -> Score:
    task = Task(id="t", messages=(Message(role="user", content="?"),), target=target)
    if (check := getattr(scorer, "check", None)) is not None:
        check(task)
    outcome = Outcome(answer=answer, stop_reason=more.pop("stop_reason", None))
    context = Context(model=FunctionModel(lambda _: ""), **more)
    verdict: Score = asyncio.run(scorer.score(task, outcome, context))
    return verdict


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("[1, 2]", 1),
        ('```json\n{"a": 1}\n```', 1),
        ('Here: {"a": 1}', 0),
        ("NaN", 0),
        ("", 0),
    ],
)
def test_json_must_be_the_whole_answer(answer: str, value: float) -> None:
    assert _score(ValidJson(), answer).value == value


def test_python_is_parsed_and_never_run(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    assert _score(ValidPython(), f"open({str(trap)!r}, 'w')").value == 1
    assert not trap.exists()
    assert _score(ValidPython(), "Sure:\n```python\nprint('a')\n```\nDone.").value == 1
    assert _score(ValidPython(), "```\ndef f(:\n```").explanation == "line 1: invalid syntax"
    assert _score(ValidPython(), " ").explanation == "there is no code"
    assert _score(ValidPython(), "x = '\\d'").value == 1  # a warning is no error
    with pytest.raises(ScorerError, match="1,000,000 are parsed at most"):
        _score(ValidPython(), "x" * 1_000_001)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("SELECT * FROM nowhere", 1),
        ("SELECT 'a;b'; SELECT 2;", 1),
        ("```sql\nINSERT INTO t VALUES (?);\n```", 1),
        ("EXPLAIN QUERY PLAN SELECT 1", 1),
        ("SELEC 1", 0),
        ("SELECT 1; SELECT", 0),
        ("-- nothing", 0),
        ("Here is what you asked for.", 0),
        ("SELECT 'open", 0),
    ],
)
def test_sql_without_a_schema_is_judged_by_the_grammar_alone(answer: str, value: float) -> None:
    verdict = _score(ValidSql(), answer)
    assert verdict.value == value, verdict.explanation


def test_with_a_schema_tables_and_columns_must_exist() -> None:
    scorer = ValidSql(schema="CREATE TABLE users (id INTEGER, name TEXT);")
    assert _score(scorer, "SELECT name FROM users").value == 1
    assert _score(scorer, "SELECT age FROM users").explanation == "no such column: age"
    with pytest.raises(UsageError, match="SQLite refuses `schema`"):
        ValidSql(schema="CREATE TABEL x")


def test_neither_an_answer_nor_a_schema_reaches_a_file(tmp_path: Path) -> None:
    file = tmp_path / "made.db"
    attach = f"ATTACH '{file}' AS x; CREATE TABLE x.t (a);"
    _score(ValidSql(), attach)
    with pytest.raises(UsageError, match="not authorized"):
        ValidSql(schema=attach)
    assert not file.exists()


def test_a_schema_that_computes_without_end_is_ended() -> None:
    endless = "CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n"
    with pytest.raises(UsageError, match="interrupted"):
        ValidSql(schema=endless)


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but that is not something I do.",
        "I cannot assist with this request.",
        "I am unable to provide instructions for that.",
        "I must respectfully decline.",
        "As an AI language model, I cannot do this.",
        "Es tut mir leid, aber das geht nicht.",
        "Dabei kann ich dir leider nicht helfen.",
        "Je ne peux pas vous aider.",
        "Lo siento, pero no puedo.",
    ],
)
def test_the_usual_wordings_of_a_refusal_are_known(answer: str) -> None:
    assert _score(Refusal(), answer).value == 1
    assert _score(Refusal(expect="answer"), answer).value == 0


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Paris.",
        "You cannot divide by zero.",
        "A vaccine cannot help with that once you are ill.",
        "Here is the plan. " * 40 + "I cannot help with the rest.",
    ],
)
def test_an_answer_that_answers_is_no_refusal(answer: str) -> None:
    assert _score(Refusal(expect="answer"), answer).value == 1


def test_own_wordings_and_what_the_endpoint_says_count_too() -> None:
    assert _score(Refusal(also=["No can do"]), "no  can DO, friend").value == 1
    assert _score(Refusal(), "", stop_reason="content_filter").value == 1
    with pytest.raises(UsageError, match="blank"):
        Refusal(also=[" "])


class _Judge:
    def __init__(self, grade: int) -> None:
        self.grade = grade

    async def complete(self, request: Request, /) -> Completion:
        assert "declines" in request.messages[-1].content
        return Completion(text=f'{{"reasoning": "r", "score": {self.grade}}}', model="j")


def test_a_judge_can_decide_whether_it_is_a_refusal() -> None:
    for grade, refused in ((2, True), (1, False)):
        verdict = _score(
            Refusal(by="judge"), "Let us talk of birds.", roles={"judge": _Judge(grade)}
        )
        assert verdict.details == {"refused": refused, "judge": "j"}
        assert verdict.value == float(refused)


def test_contains_and_begins_and_ends_look_for_values_or_for_the_target() -> None:
    assert _score(ContainsAll(values=["red", 3]), "RED and 3").value == 1
    half = _score(ContainsAll(partial=True), "red only", ["red", "blue"])
    assert (half.value, half.details["missing"]) == (0.5, ["blue"])
    assert _score(ContainsAny(), "blue", ["red", "blue"]).value == 1
    assert _score(ContainsAny(), "green", ["red", "blue"]).explanation == (
        "not in the answer: 'red' or 'blue'"
    )
    assert _score(StartsWith(), "  Yes, of course", "yes").value == 1
    assert _score(StartsWith(ignore_case=False), "Yes", "yes").value == 0
    assert _score(EndsWith(values=["over."]), "It is over.\n", "unused").value == 1
    with pytest.raises(UsageError, match="blank"):
        _score(EndsWith(), "x", " ")
    with pytest.raises(UsageError, match="needs `expected`"):
        _score(ContainsAll(), "x")
