"""The scorer `label`: which label an answer gives."""

import asyncio
from typing import Any

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Context
from bakeoff.core.task import Message, Task
from bakeoff.models.adapters.scripted import Script, ScriptedModel
from bakeoff.scorers.label import Label

MAIL = Label(labels={"spam": ["junk"], "not spam": ["ham"], "offer!": []})


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ("spam", ["spam"]),
        ("  **Spam**.\n", ["spam"]),
        ("«Junk»", ["spam"]),
        ("not spam", ["not spam"]),
        ("This is not spam at all", ["not spam"]),
        ("I first thought of ham.\nLabel: junk", ["spam"]),
        ("The answer is spam, since ham is not sold.", ["spam"]),
        ('{"label": "ham", "why": "no junk"}', ["not spam"]),
        ("Category = offer!", ["offer!"]),
        ("spam or ham", ["spam", "not spam"]),
        ("spammer hamster", []),
        ("", []),
        ("no idea", []),
        ("x" * 300_000 + " spam", ["spam"]),
    ],
)
def test_the_clearest_form_decides(answer: str, given: list[str]) -> None:
    assert MAIL.given(answer) == given


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "needs two at least"),
        (["a"], "needs two at least"),
        (["a", "a"], "two of `labels` are the same"),
        (["a", "A"], "'A' names two labels, 'a' and 'A'"),
        ({"a": ["x"], "b": ["X"]}, "'X' names two labels"),
        (["a", " "], "is blank"),
    ],
)
def test_labels_that_cannot_be_told_apart_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Label(labels=labels)


def _task(target: Any) -> Task:
    return Task(id="t", messages=(Message(role="user", content="?"),), target=target)


def test_a_target_that_is_no_label_is_refused_before_the_run() -> None:
    with pytest.raises(UsageError, match=r"'span', which is no label .* did you mean 'spam'"):
        MAIL.check(_task("span"))
    with pytest.raises(UsageError, match="needs `expected`"):
        MAIL.check(_task(None))


@pytest.mark.parametrize(
    ("labels", "target", "answer"),
    [(["0", "1"], 1, "1"), (["true", "false"], True, "True."), (["ja", "nein"], "JA", "ja")],
)
def test_numbers_and_truth_values_are_labels_too(
    labels: list[str], target: Any, answer: str
) -> None:
    scorer = Label(labels=labels)
    context = Context(model=ScriptedModel("m", Script()))
    score = asyncio.run(scorer.score(_task(target), Outcome(answer=answer), context))
    assert score.value == 1
    assert score.labels == (score.details["expected"], score.details["label"])
