"""Records as JSON without defaults: smaller, and the same when they are read again."""

from dataclasses import asdict, dataclass, field, replace

import msgspec

from bakeoff.core.outcome import Outcome, Spent, Usage
from bakeoff.core.record import Attempt, Fault, Score, Status
from bakeoff.core.task import Message, ScorerSpec, Task, ToolCall
from bakeoff.stores.packing import encode
from support.plans import attempt, task

FULL = Attempt(
    number=2,
    status=Status.FAULTED,
    started_at=1.5,
    elapsed_s=2.5,
    outcome=Outcome(
        answer="four",
        transcript=(
            Message(role="assistant", content="", tool_calls=(ToolCall(id="1", name="f", arguments="{}"),)),
        ),
        notes={"empty": None, "list": [1, {"a": False}]},
    ),
    scores=(Score(scorer="includes", value=0.0, details={"missing": []}, passed=False),),
    score=0.0,
    passed=False,
    fault=Fault(boundary="provider", message="no", transient=True),
    spent=Spent(requests=1, usage=Usage(input_tokens=7, cost_usd=0.5), flags=("cached",)),
    roles={"judge": Spent(requests=2)},
    phases={"agent": 1.0},
)  # fmt: skip


def test_what_is_read_again_is_what_was_written() -> None:
    rich = task(
        scorers=(ScorerSpec(name="includes", settings={"case": None}),), metadata={"a": None}
    )
    for value in (FULL, attempt(), rich, task(target=0, parameters={"n": None})):
        assert msgspec.json.decode(encode(value), type=type(value)) == value


def test_a_field_with_its_default_is_not_written() -> None:
    written = msgspec.json.decode(encode(attempt()))
    assert "fault" not in written
    assert "reasoning" not in written["outcome"]
    assert len(encode(attempt())) < 0.7 * len(msgspec.json.encode(attempt()))


def test_a_value_that_is_set_to_nothing_in_a_free_form_is_written() -> None:
    written = msgspec.json.decode(encode(FULL))
    assert written["outcome"]["notes"] == {"empty": None, "list": [1, {"a": False}]}


def test_a_part_of_another_type_than_declared_is_written_as_it_is() -> None:
    odd = replace(attempt(), scores="none")  # type: ignore[arg-type]
    assert msgspec.json.decode(encode(odd))["scores"] == "none"


def test_what_is_no_plain_data_is_written_as_its_text() -> None:
    odd = replace(attempt(), outcome=Outcome(answer="", notes={"when": set}))  # type: ignore[dict-item]
    assert msgspec.json.decode(encode(odd))["outcome"]["notes"] == {"when": "<class 'set'>"}


def test_a_default_that_is_not_in_the_class_itself_is_written() -> None:
    @dataclass
    class Inner:
        number: int = 3

    @dataclass
    class Outer:
        inner: Inner = field(default_factory=lambda: Inner(number=4))

    assert encode(Inner()) == b"{}"
    assert msgspec.json.decode(encode(Outer())) == {"inner": {"number": 4}}


def test_the_defaults_of_stored_classes_are_a_format_and_stay() -> None:
    least = {"number": 1, "status": "completed", "started_at": 0.0, "elapsed_s": 0.0}
    read = msgspec.to_builtins(msgspec.convert({**least, "outcome": {"answer": "a"}}, Attempt))
    spent = {
        "requests": 0, "model_s": 0.0, "first_token_s": None, "load_s": None, "retries": 0, "flags": (), "cut": 0,
        "usage": {"input_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0, "cached_tokens": 0, "cost_usd": None},
    }  # fmt: skip
    assert read.pop("spent") == spent
    assert read.pop("bill").keys() == {
        "cost_usd",
        "tokens",
        "unsure_usd",
        "unsure_tokens",
        "unpriced",
    }
    assert read.pop("outcome") == {
        "answer": "a", "transcript": (), "stop_reason": None, "model": None, "raw": None, "notes": {},
        "change": None, "log": None, "interventions": 0, "unfinished": False, "change_refused": None,
    }  # fmt: skip
    assert read == {
        **least, "scores": (), "score": None, "passed": None, "fault": None, "roles": {}, "phases": {},
    }  # fmt: skip
    stored = asdict(
        msgspec.convert(
            {
                "id": "t",
                "messages": [{"role": "user", "content": "?"}],
                "scorers": [{"name": "includes"}],
            },
            Task,
        )
    )
    assert stored == {
        "id": "t",
        "messages": (
            {"role": "user", "content": "?", "reasoning": None, "tool_calls": (), "tool_call_id": None,
             "attachments": ()},
        ),
        "parameters": {}, "target": None, "pass_threshold": 1.0, "time_s": None, "api_type": None,
        "scorers": ({"name": "includes", "settings": {}, "weight": 1.0, "origin": None, "trusted": True, "turn": None},),
        "name": None, "category": None, "metadata": {}, "workspace": None, "trouble": None,
        "dialogue": None, "prompt": None, "vars": {}, "group": None, "tools": None, "turns": (),
    }  # fmt: skip
