"""The adapter for OpenAI's Responses API, against its documented wire format."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bakeoff.core.outcome import Completion, Request, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.models.adapters.openai_responses import build
from support.adapters import WEATHER, Adapter, body, question
from support.loopback import Asked, Loopback, Reply, sse

openai = Adapter(build=build, provider="openai-responses", name="gpt-x")
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city":"Köln"}',
    "status": "completed",
}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Look it up."}],
}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(lambda _: body(response())) as running:
        yield running


def text_item(*texts: str, kind: str = "output_text", field: str = "text") -> dict[str, Any]:
    parts = [{"type": kind, field: text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": parts}


def response(*output: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-test",
        "output": list(output) or [text_item("4")],
        "usage": {
            "input_tokens": 36,
            "input_tokens_details": {"cached_tokens": 32},
            "output_tokens": 87,
            "output_tokens_details": {"reasoning_tokens": 64},
            "total_tokens": 123,
        },
        **rest,
    }


# --- streams as documented


def event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 0, **data})}\n\n"


def delta(text: str, kind: str = "output_text") -> str:
    return event(f"response.{kind}.delta", item_id="x", output_index=0, delta=text)


CREATED = event("response.created", response=response(status="in_progress", output=[]))


def last(*output: dict[str, Any], **rest: Any) -> str:
    whole = response(*output, **rest)
    return event(f"response.{whole['status']}", response=whole)


def streamed(server: Loopback, *events: str) -> Completion:
    return openai.answered(server, sse(*events), settings={"stream": True, "max_retries": 0})


# --- where and what it asks


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("", "/v1/responses"),
        ("/v1", "/v1/responses"),
        ("/v1/", "/v1/responses"),
        ("/v1/responses", "/v1/responses"),
        ("/openai/v1", "/openai/v1/responses"),
        ("/openai/responses?api-version=1", "/openai/responses?api-version=1"),
    ],
)
def test_a_base_url_with_or_without_its_version_or_a_full_url_will_do(
    server: Loopback, path: str, asked: str
) -> None:
    openai.ask(server, base_url=server.url.removesuffix("/v1") + path)
    assert server.requests[0].path == asked


def test_the_messages_go_out_as_items_in_their_order(server: Loopback) -> None:
    openai.ask(
        server,
        question(
            Message(role="system", content="Be brief."),
            Message(role="user", content="Hi"),
            Message(role="assistant", content="Hello", reasoning="not sent"),
            Message(role="user", content="Again"),
        ),
    )
    assert server.requests[0].body == {
        "model": "gpt-x",
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Again"},
        ],
    }


def test_common_parameters_are_translated_and_the_candidates_own_win(server: Loopback) -> None:
    reply = openai.ask(
        server,
        question(parameters={"max_tokens": 9, "temperature": 0.0, "stop": "\n", "seed": 1}),
        parameters={"temperature": 0.7, "top_p": 0.9, "store": False, "tool_choice": "auto"},
    )
    sent = server.requests[0].body
    del sent["model"], sent["input"]
    assert sent == {
        "max_output_tokens": 9,
        "temperature": 0.7,
        "top_p": 0.9,
        "store": False,
        "tool_choice": "auto",
        "stop": "\n",
    }
    assert reply.flags == ("seed_ignored",)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"effort": "low"}, {"effort": "low"}),
        ({"reasoning_effort": "low"}, {"effort": "low"}),
        ({"effort": "low", "exclude": False}, {"effort": "low", "summary": "auto"}),
        ({"effort": "low", "exclude": True}, {"effort": "low"}),
        (
            {"effort": "high", "reasoning": {"summary": "detailed", "exclude": False}},
            {"effort": "high", "summary": "detailed"},
        ),
        ({"exclude": True}, None),
    ],
)
def test_options_of_reasoning_go_where_the_api_looks_for_them(
    server: Loopback, given: dict[str, Any], sent: dict[str, Any] | None
) -> None:
    openai.ask(server, question(parameters=given))
    found = server.requests[0].body
    assert found.get("reasoning") == sent
    assert not {"effort", "exclude", "reasoning_effort"} & set(found)


def test_a_schema_is_sent_as_the_format_of_the_text(server: Loopback) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    openai.ask(server, question(schema=schema, parameters={"text": {"verbosity": "low"}}))
    assert server.requests[0].body["text"] == {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": True},
    }


def test_tools_are_sent_and_not_made_strict(server: Loopback) -> None:
    openai.ask(server, question(tools=(WEATHER,)))
    assert server.requests[0].body["tools"] == [
        {
            "type": "function",
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": WEATHER.parameters,
            "strict": False,
        }
    ]


def test_calls_and_results_of_tools_go_back_as_items(server: Loopback) -> None:
    calls = (
        ToolCall(id="a", name="weather", arguments='{"city": "Köln"}'),
        ToolCall(id="b", name="now", arguments="{}"),
    )
    openai.ask(
        server,
        question(
            Message(role="assistant", content="Looking.", tool_calls=calls),
            Message(role="tool", content="rain", tool_call_id="a"),
            Message(role="tool", content="noon", tool_call_id="b"),
        ),
    )
    assert server.requests[0].body["input"] == [
        {"role": "assistant", "content": "Looking."},
        {
            "type": "function_call",
            "call_id": "a",
            "name": "weather",
            "arguments": '{"city": "Köln"}',
        },
        {"type": "function_call", "call_id": "b", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "rain"},
        {"type": "function_call_output", "call_id": "b", "output": "noon"},
    ]


# --- what it reads


def test_a_whole_answer_is_read(server: Loopback) -> None:
    reply = openai.answered(server, body(response(REASONING, text_item("4", "2"))))
    assert (reply.text, reply.reasoning) == ("42", "Look it up.")
    assert (reply.stop_reason, reply.model, reply.raw) == ("stop", "gpt-test", None)
    assert reply.usage == Usage(
        input_tokens=36, output_tokens=87, reasoning_tokens=64, cached_tokens=32
    )


def test_reasoning_in_full_goes_before_its_summary(server: Loopback) -> None:
    item = {**REASONING, "content": [{"type": "reasoning_text", "text": "In full."}]}
    assert openai.answered(server, body(response(item, text_item("4")))).reasoning == "In full."


def test_tool_calls_are_read(server: Loopback) -> None:
    reply = openai.answered(server, body(response(REASONING, CALL)))
    assert reply.tool_calls == (ToolCall(id="call_1", name="weather", arguments='{"city":"Köln"}'),)
    assert (reply.text, reply.stop_reason) == ("", "tool_calls")


def test_a_refusal_is_an_answer_and_says_so(server: Loopback) -> None:
    item = text_item("I can't.", kind="refusal", field="refusal")
    reply = openai.answered(server, body(response(item)))
    assert (reply.text, reply.stop_reason) == ("I can't.", "refusal")


@pytest.mark.parametrize(
    ("reason", "meant"),
    [
        ("max_output_tokens", "length"),
        ("content_filter", "content_filter"),
        ("other", "other"),
        (None, "incomplete"),
    ],
)
def test_an_answer_that_ended_early_says_why(
    server: Loopback, reason: str | None, meant: str
) -> None:
    details = {"reason": reason}
    cut = response(REASONING, status="incomplete", incomplete_details=details)
    reply = openai.answered(server, body(cut))
    assert (reply.text, reply.stop_reason) == ("", meant)


def test_a_server_that_never_gives_a_status_is_believed(server: Loopback) -> None:
    reply = openai.answered(server, body({"output": [text_item("4")]}))
    assert (reply.text, reply.stop_reason) == ("4", None)


# --- reasoning across calls


def replay(server: Loopback, *output: dict[str, Any], **spec: Any) -> list[dict[str, Any]]:
    """Return what is sent back of an answer with a call, without the call's result."""
    stream = spec.get("settings", {}).get("stream")
    server.answer = lambda _: sse(last(*output)) if stream else body(response(*output))
    user = Message(role="user", content="Weather?")

    def second(first: Completion | None) -> Request:
        assert first is not None
        said = Message(role="assistant", content=first.text, tool_calls=first.tool_calls)
        return question(user, said, Message(role="tool", content="rain", tool_call_id="call_1"))

    openai.conversation(server, lambda _: question(user), second, **spec)
    return server.requests[1].body["input"][1:-1]


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_goes_back_with_the_call_it_led_to(server: Loopback, stream: bool) -> None:
    sent = replay(server, REASONING, CALL, settings={"stream": stream})
    assert sent == [REASONING, CALL]


def test_reasoning_that_was_not_stored_goes_back_encrypted(server: Loopback) -> None:
    item = {**REASONING, "encrypted_content": "xyz"}
    assert replay(server, item, CALL, parameters={"store": False}) == [item, CALL]


def test_reasoning_that_nobody_kept_does_not_go_back(server: Loopback) -> None:
    sent = replay(server, REASONING, CALL, parameters={"store": False})
    assert sent == [{key: value for key, value in CALL.items() if key != "id"}]


# --- streams


def test_a_stream_is_read_from_its_last_event(server: Loopback) -> None:
    reply = streamed(server, CREATED, delta("4"), delta("2"), last(REASONING, text_item("42")))
    assert server.requests[0].body["stream"] is True
    assert (reply.text, reply.reasoning, reply.stop_reason) == ("42", "Look it up.", "stop")
    assert reply.usage.input_tokens == 36
    assert reply.first_token_s is not None


def test_a_stream_whose_last_event_is_bare_is_read_from_its_items(server: Loopback) -> None:
    done = [
        event("response.output_item.done", output_index=i, item=item)
        for i, item in [(1, CALL), (0, text_item("Looking."))]
    ]
    reply = streamed(server, CREATED, *done, last(output=[]))
    assert (reply.text, reply.stop_reason) == ("Looking.", "tool_calls")
    assert [call.id for call in reply.tool_calls] == ["call_1"]


def test_a_stream_may_end_incomplete(server: Loopback) -> None:
    details = {"reason": "max_output_tokens"}
    end = last(text_item("The"), status="incomplete", incomplete_details=details)
    reply = streamed(server, CREATED, delta("The"), end)
    assert (reply.text, reply.stop_reason) == ("The", "length")


@pytest.mark.parametrize(
    "kind", ["output_text", "refusal", "reasoning_summary_text", "function_call_arguments"]
)
def test_the_time_to_the_first_token_is_measured(server: Loopback, kind: str) -> None:
    def chunks() -> Iterator[bytes]:
        yield CREATED.encode()
        time.sleep(0.1)
        yield delta("4", kind).encode()
        time.sleep(0.1)
        yield last().encode()

    reply = openai.answered(server, Reply(chunks=chunks()), settings={"stream": True})
    assert reply.first_token_s is not None
    assert 0.1 <= reply.first_token_s <= reply.elapsed_s - 0.05


@pytest.mark.parametrize(
    ("broken", "transient"),
    [
        (event("error", code="server_error", message="Oops", param=None), True),
        (event("error", error={"code": "rate_limit_exceeded", "message": "Oops"}), True),
        (event("error", error={"type": "invalid_request_error", "message": "Oops"}), False),
        (last(status="failed", error={"code": "server_error", "message": "Oops"}), True),
        (last(status="failed", error={"code": "invalid_prompt", "message": "Oops"}), False),
    ],
)
def test_an_error_in_the_stream_says_whether_it_may_pass(
    server: Loopback, broken: str, transient: bool
) -> None:
    fault = openai.faulted(server, sse(CREATED, delta("4"), broken), stream=True)
    assert fault.transient is transient
    assert "Oops" in str(fault)


def test_a_stream_that_broke_is_asked_for_again(server: Loopback) -> None:
    def answer(asked: Asked) -> Reply:
        return sse(CREATED, delta("4"), *([last()] if asked.number else []))

    server.answer = answer
    reply = openai.ask(server, settings={"stream": True})
    assert (reply.text, reply.retries) == ("4", 1)


# --- faults


@pytest.mark.parametrize(
    ("reply", "transient", "words"),
    [
        (body({}), True, "no content"),
        (body(response(output=[])), True, "no content"),
        (body(response(REASONING)), True, "no content"),
        (body(response(text_item(""))), True, "no content"),
        (body(response(status="in_progress")), True, "its status is in_progress"),
        (body(response(status="cancelled")), True, "its status is cancelled"),
        (body({"error": {"message": "Oops", "type": "server_error"}}), True, "Oops"),
        (body({"error": {"message": "Oops", "type": "insufficient_quota"}}), False, "Oops"),
        (body({"error": {"message": "Oops"}}, status=500), True, "HTTP 500"),
        (body({"error": {"message": "No such model"}}, status=404), False, "No such model"),
        (body({"output": 7}), False, "wrong shape"),
    ],
)
def test_what_is_no_answer_is_a_clear_fault(
    server: Loopback, reply: Reply, transient: bool, words: str
) -> None:
    fault = openai.faulted(server, reply)
    assert fault.transient is transient
    assert words in str(fault)
