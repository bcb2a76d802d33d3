"""The model that follows a script."""

import asyncio
import time
from typing import Any

import pytest

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.task import Message
from bakeoff.models.adapters.scripted import build


def ask(prompt: str, *, rollout: int = 0, **settings: Any) -> Completion:
    model = build(ModelSpec(provider="scripted", name="s", settings=settings))
    messages = (Message(role="system", content="be brief"), Message(role="user", content=prompt))
    return asyncio.run(model.complete(Request(messages=messages, rollout=rollout)))


def test_without_a_script_the_last_message_comes_back() -> None:
    reply = ask("say it again")
    assert (reply.text, reply.stop_reason, reply.model) == ("say it again", "stop", "scripted/s")


def test_tokens_are_counted_as_words() -> None:
    usage = ask("one two three", replies=["four five"]).usage
    assert (usage.input_tokens, usage.output_tokens) == (5, 2)


def test_the_first_rule_that_matches_replies() -> None:
    rules = [{"match": "2 ?[+] ?2", "reply": "4"}, {"match": ".", "reply": "?"}]
    assert ask("What is 2+2?", rules=rules).text == "4"
    assert ask("What is LOVE?", rules=rules).text == "?"


def test_rules_do_not_mind_capitals() -> None:
    assert ask("FRANCE", rules=[{"match": "france", "reply": "Paris"}]).text == "Paris"


def test_replies_follow_one_another_by_rollout_and_begin_again() -> None:
    replies = ["a", "b", "c"]
    assert [ask("?", rollout=r, replies=replies).text for r in range(5)] == list("abcab")


def test_rules_go_before_replies() -> None:
    assert ask("x", rules=[{"match": "x", "reply": "rule"}], replies=["reply"]).text == "rule"


def test_the_same_request_gets_the_same_answer() -> None:
    assert ask("?", rollout=1, replies=["a", "b"]) == ask("?", rollout=1, replies=["a", "b"])


def test_every_so_many_rollouts_fault_where_the_script_says_so() -> None:
    assert ask("?", rollout=1, fault_every=3).text == "?"
    with pytest.raises(ProviderError, match="the script says so") as caught:
        ask("?", rollout=2, fault_every=3)
    assert not caught.value.transient


def test_a_delay_passes_and_is_booked() -> None:
    began = time.monotonic()
    assert ask("?", delay_s=0.1).elapsed_s == 0.1
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reply": ["a"]}, r"unknown setting 'reply'; did you mean 'replies'\?"),
        ({"replies": "a"}, r"setting 'replies': a list is expected, not a text"),
        ({"rules": [{"match": "a"}]}, "reply"),
        ({"rules": [{"match": "a", "replay": "b"}]}, r"setting 'rules\[0\]': unknown key 'replay'"),
        ({"rules": [{"match": "(", "reply": "b"}]}, r"scripted model 's': .*no pattern"),
        ({"delay_s": -1}, "delay_s"),
        ({"fault_every": 0}, "fault_every"),
    ],
)
def test_a_script_that_cannot_be_followed_is_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ask("?", **settings)
