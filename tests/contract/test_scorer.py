"""What every scorer promises; run against each of them, and against own ones.

What else there is to those that grade a change in a clean room is in tests/component.
"""

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bakeoff import registry
from bakeoff.core.errors import ProviderError, ScorerError
from bakeoff.core.outcome import Completion, Outcome, Request, Spent, Usage
from bakeoff.core.ports import Context, Scorer
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task, ToolCall
from bakeoff.core.values import Json
from bakeoff.scorers.function import FunctionScorer
from support.workspaces import (
    changed_by,
    context,
    isolating,
    open_bench,
    tree,
    workspace_task,
    write,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A scorer with its settings, what it is asked about, and an answer that is right or wrong."""

    name: str
    right: str = "Paris"
    wrong: str = "London"
    target: Json = "Paris"
    settings: dict[str, Any] = field(default_factory=dict)
    calls: bool = False
    spent: tuple[Spent, Spent] | None = None  # on a right answer, on a wrong one

    def __str__(self) -> str:
        return self.name

    def scorer(self) -> Scorer:
        if self.name == "function":
            return FunctionScorer(lambda answer, target: answer == target)
        if self.name == "async function":
            return FunctionScorer(_says_so)
        part = registry.find("scorers", self.name)
        built: Any = registry.build(part, self.settings, what=f"scorer {self.name!r}")
        return built

    def task(self) -> Task:
        asked = (Message(role="user", content="What is the capital of France?"),)
        return Task(id="a", messages=asked, target=self.target)

    def outcome(self, answer: str) -> Outcome:
        calls = (ToolCall(id="c", name=answer, arguments="{}"),) if self.calls else ()
        said = Message(role="assistant", content="" if calls else answer, tool_calls=calls)
        return Outcome(answer=answer, transcript=(said,))

    def context(self, answer: str, judge: Any) -> Context:
        spent = None if self.spent is None else self.spent[answer != self.right]
        return Context(model=_Unasked(), roles={"judge": judge}, spent=spent)


def _costs(usd: float) -> Spent:
    return Spent(usage=Usage(cost_usd=usd))


async def _says_so(answer: str, target: str) -> dict[str, object]:
    return {"score": float(answer == target), "explanation": "it says so", "length": len(answer)}


CASES = [
    Case(name="exact"),
    Case(name="includes"),
    Case(name="numeric", target=5, right="It is 5.", wrong="It is 6."),
    Case(name="choice", target="B", right="The answer is B.", wrong="The answer is A."),
    Case(name="label", settings={"labels": ["B", "A"]}, target="B", right="B", wrong="A"),
    Case(name="pattern", settings={"pattern": "^Paris$"}),
    Case(name="json", target={"x": 1}, right='{"x": 1}', wrong='{"x": 2}'),
    Case(name="calls", target=["weather"], right="weather", wrong="delete", calls=True),
    Case(
        name="trajectory",
        settings={"only": ["weather"]},
        right="weather",
        wrong="delete",
        calls=True,
    ),
    Case(name="tool-calls", target=["weather"], right="weather", wrong="delete", calls=True),
    Case(name="judge", settings={"rubric": "Is it right?"}),
    Case(name="reasoning", right="First, 2 + 2 = 4. Therefore it is 4, because of that.", wrong=""),
    Case(name="contains-all", target=["Paris", "France"], right="Paris, France"),
    Case(name="contains-any", target=["Paris", "Lutetia"]),
    Case(name="starts-with", right="Paris it is"),
    Case(name="ends-with", right="It is Paris"),
    Case(name="edit-similarity"),
    Case(name="token-f1", right="The Paris!"),
    Case(name="latency", settings={"max_s": 1}, spent=(Spent(model_s=0.5), Spent(model_s=2))),
    Case(name="cost", settings={"max_usd": 0.1}, spent=(_costs(0.1), _costs(0.2))),
    Case(name="length", settings={"max": 1}, wrong="in the city of London"),
    Case(name="refusal", right="I’m sorry, but I can’t help with that."),
    Case(name="valid-json", right='{"x": [1]}', wrong="{'x': 1}"),
    Case(name="valid-python", right="```python\nx = 1\n```", wrong="x = = 1"),
    Case(name="valid-sql", right="SELECT a FROM t WHERE b = 1;", wrong="SELECT FROM WHERE"),
    Case(name="function"),
    Case(name="async function"),
]
HOSTILE = [
    "",
    " \n\t",
    "\x00\x1b[31m\u202e",
    "half a character: \ud800",
    "9" * 5_000,
    "1e999999 NaN -Infinity",
    "[" * 5_000,
    '{"x": ' * 2_000,
    "a" * 100_000,
    "```json\n{\n```\n" * 100,
    "{target} %s {0} \\1",
]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    chosen: Case = request.param
    return chosen


class _Role:
    """A judge that finds an answer with the target in it right."""

    async def complete(self, request: Request, /) -> Completion:
        question = request.messages[-1].content
        right = question.count("Paris") > 1  # in the target and in the answer
        return Completion(text=json.dumps({"score": 10 if right else 1, "reasoning": "x"}))


class _Unasked:
    async def complete(self, request: Request, /) -> Completion:
        raise AssertionError("a scorer asked the candidate's own model")


class _Broken:
    async def complete(self, request: Request, /) -> Completion:
        raise ProviderError("the judge is away", transient=True)


def scored(case: Case, *answers: str, judge: Any = None) -> list[Score]:
    """The verdicts of one scorer on *answers*, all asked for at once."""

    async def main() -> list[Score]:
        scorer, task = case.scorer(), case.task()
        async with asyncio.TaskGroup() as group:
            verdicts = [
                group.create_task(
                    scorer.score(task, case.outcome(answer), case.context(answer, judge or _Role()))
                )
                for answer in answers
            ]
        return [verdict.result() for verdict in verdicts]

    return asyncio.run(main())


def test_every_scorer_is_here() -> None:
    tried = {*map(str, CASES), *map(str, IN_A_CLEAN_ROOM)}
    assert set(registry.BUILT_IN["scorers"]) <= tried


def test_it_accepts_a_task_that_it_can_judge(case: Case) -> None:
    check: Callable[[Task], None] | None = getattr(case.scorer(), "check", None)
    if check is not None:
        check(case.task())


def test_a_right_answer_is_worth_more_than_a_wrong_one(case: Case) -> None:
    right, wrong = scored(case, case.right, case.wrong)
    assert right.value > wrong.value
    if case.name != "reasoning":  # that one measures style
        assert (right.value, wrong.value) == (1.0, 0.0)


def test_answers_that_are_judged_at_once_do_not_mix_and_verdicts_repeat(case: Case) -> None:
    first = scored(case, *[case.right, case.wrong] * 5)
    again = scored(case, *[case.right, case.wrong] * 5)
    assert [verdict.value for verdict in first] == [verdict.value for verdict in again]
    assert len({verdict.value for verdict in first[::2]}) == 1
    assert len({verdict.value for verdict in first[1::2]}) == 1


def test_a_verdict_is_from_0_to_1_and_plain_data(case: Case) -> None:
    for verdict in scored(case, case.right, case.wrong):
        assert isinstance(verdict, Score)
        assert 0 <= verdict.value <= 1
        assert json.loads(json.dumps(dict(verdict.details))) == verdict.details
        assert verdict.explanation is None or isinstance(verdict.explanation, str)


def test_whatever_a_model_writes_gets_a_verdict(case: Case) -> None:
    for verdict in scored(case, *HOSTILE):
        assert math.isfinite(verdict.value)
        assert 0 <= verdict.value <= 1


def test_a_judge_that_is_away_is_no_verdict() -> None:
    (judge,) = [case for case in CASES if case.name == "judge"]
    with pytest.raises(ExceptionGroup) as caught:
        scored(judge, "Paris", judge=_Broken())
    (error,) = caught.value.exceptions
    assert isinstance(error, ProviderError | ScorerError)


# --- scorers that grade a change in a clean room --------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ChangeCase:
    """A scorer with its settings and hidden files; right is a file that says so."""

    name: str
    settings: dict[str, Any]
    hidden: dict[str, str]

    def __str__(self) -> str:
        return self.name


_CHECK = "grep -qx right answer.txt"
_METRIC = (
    "def evaluate(truth, given):\n    return float(open(truth).read() == open(given).read())\n"
)
IN_A_CLEAN_ROOM = [
    ChangeCase(name="tests", settings={"command": _CHECK}, hidden={}),
    ChangeCase(
        name="reward",
        settings={},
        hidden={"test.sh": f"{_CHECK}; echo $((1 - ($? > 0))) > /logs/verifier/reward.txt\n"},
    ),
    ChangeCase(
        name="evaluation",
        settings={
            "module": "/tests/metric.py",
            "truth": "/tests/truth.txt",
            "prediction": "answer.txt",
        },
        hidden={"metric.py": _METRIC, "truth.txt": "right\n"},
    ),
    ChangeCase(
        name="rubrics",
        settings={
            "rubrics": [{"id": "works", "criterion": "It says so.", "weight": 1.0}],
            "test_scripts": [{"path": "check.sh", "rubric_id": "works", "content": _CHECK}],
        },
        hidden={},
    ),
]


@pytest.mark.parametrize("case", IN_A_CLEAN_ROOM, ids=str)
def test_a_right_change_is_worth_1_and_none_0_whatever_the_agent_says(
    case: ChangeCase, tmp_path: Path
) -> None:
    files = tree(write(tmp_path / "files", {"answer.txt": "wrong\n"}))
    hidden = (tree(write(tmp_path / "hidden", case.hidden), at="/tests"),) if case.hidden else ()
    task = workspace_task(files, hidden=hidden)
    part = registry.find("scorers", case.name)
    scorer: Any = registry.build(part, case.settings, what=f"scorer {case.name!r}")

    async def main() -> list[Score]:
        async with open_bench(tmp_path / "cache", isolating()) as bench:
            works = ("echo right > answer.txt", "true")
            changes = [await changed_by(bench, task, work) for work in works]
            async with asyncio.TaskGroup() as group:
                verdicts = [
                    group.create_task(
                        scorer.score(
                            task, Outcome(answer="all pass", change=change), context(bench)
                        )
                    )
                    for change in changes
                ]
        return [verdict.result() for verdict in verdicts]

    right, wrong = asyncio.run(main())
    assert (right.value, wrong.value) == (1.0, 0.0), (right, wrong)
    for verdict in (right, wrong):
        assert json.loads(json.dumps(dict(verdict.details))) == verdict.details
        assert verdict.explanation is None or isinstance(verdict.explanation, str)
