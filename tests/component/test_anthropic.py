"""The adapter for Anthropic's Messages API, against its documented wire format."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from bakeoff.core.outcome import Completion, Request, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.models.adapters.anthropic import build
from support.adapters import WEATHER, Adapter, body, question
from support.loopback import Asked, Loopback, Reply, sse

claude = Adapter(build=build, provider="anthropic", name="claude-x", api_key="k")
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Köln"}}
THOUGHT = {"type": "thinking", "thinking": "Look it up.", "signature": "c2ln"}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(lambda _: message()) as running:
        yield running


def message(*content: dict[str, Any], **rest: Any) -> Reply:
    return body(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": list(content) or [{"type": "text", "text": "4"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 3},
            **rest,
        }
    )


def no(kind: str, text: str, status: int, **headers: str) -> Reply:
    error = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
    return body(error, status=status, **headers)


# --- streams as documented


def event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


START = event(
    "message_start",
    message={
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 1},
    },
)
STOP = event("message_stop")


def end(reason: str = "end_turn", output_tokens: int = 15) -> str:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage={"output_tokens": output_tokens})


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> str:
    middle = [event("content_block_delta", index=index, delta=d) for d in deltas]
    return "".join(
        [
            event("content_block_start", index=index, content_block=start),
            *middle,
            event("content_block_stop", index=index),
        ]
    )


def text_block(index: int, *pieces: str) -> str:
    deltas = [{"type": "text_delta", "text": p} for p in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking_block(index: int) -> str:
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Look "},
        {"type": "thinking_delta", "thinking": "it up."},
        {"type": "signature_delta", "signature": "c2ln"},
    )


def tool_block(index: int, *pieces: str, key: str = "toolu_1") -> str:
    deltas = [{"type": "input_json_delta", "partial_json": p} for p in pieces]
    return block(index, {"type": "tool_use", "id": key, "name": "weather", "input": {}}, *deltas)


def streamed(server: Loopback, *events: str, **settings: Any) -> Completion:
    return claude.answered(
        server, sse(*events), settings={"stream": True, "max_retries": 0, **settings}
    )


# --- where and what it asks


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/v1/", "/v1/messages"),
        ("/v1/messages", "/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages"),
        ("/v1?beta=true", "/v1/messages?beta=true"),
    ],
)
def test_a_base_url_with_or_without_its_version_or_a_full_url_will_do(
    server: Loopback, path: str, asked: str
) -> None:
    claude.ask(server, base_url=server.url.removesuffix("/v1") + path)
    assert server.requests[0].path == asked


def test_the_key_and_the_version_go_into_their_headers(server: Loopback) -> None:
    claude.ask(server, api_key="sk-ant\n", headers={"anthropic-beta": "x"})
    headers = server.requests[0].headers
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk-ant", "2023-06-01")
    assert headers["anthropic-beta"] == "x"
    assert "Authorization" not in headers


def test_a_version_of_ones_own_is_sent(server: Loopback) -> None:
    claude.ask(server, settings={"anthropic_version": "2030-01-01"})
    claude.ask(server, headers={"Anthropic-Version": "2031-01-01"})
    sent = [{k.lower(): v for k, v in r.headers.items()} for r in server.requests]
    assert [h["anthropic-version"] for h in sent] == ["2030-01-01", "2031-01-01"]


def test_a_plain_question_goes_out_with_a_limit_of_its_own(server: Loopback) -> None:
    claude.ask(server)
    assert server.requests[0].body == {
        "model": "claude-x",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": "2 + 2?"}],
    }


def test_system_messages_stand_apart_from_the_conversation(server: Loopback) -> None:
    claude.ask(
        server,
        question(
            Message(role="system", content="Be brief."),
            Message(role="user", content="Hi"),
            Message(role="assistant", content="Hello", reasoning="not sent"),
            Message(role="developer", content="In French."),
            Message(role="user", content="Again"),
        ),
    )
    sent = server.requests[0].body
    assert sent["system"] == "Be brief.\n\nIn French."
    assert sent["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Again"},
    ]


def test_common_parameters_are_translated_and_the_candidates_own_win(server: Loopback) -> None:
    reply = claude.ask(
        server,
        question(parameters={"max_tokens": 9, "temperature": 0.0, "stop": "\n", "seed": 1}),
        parameters={"temperature": 0.7, "top_p": 0.9, "top_k": 5, "metadata": {"user_id": "u"}},
    )
    sent = server.requests[0].body
    assert sent["max_tokens"] == 9
    assert sent["stop_sequences"] == ["\n"]
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (0.7, 0.9, 5)
    assert sent["metadata"] == {"user_id": "u"}
    assert not {"stop", "seed"} & set(sent)
    assert reply.flags == ("seed_ignored",)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"effort": "low"}, {"output_config": {"effort": "low"}}),
        ({"reasoning": {"effort": "max"}}, {"output_config": {"effort": "max"}}),
        (
            {"reasoning": {"max_tokens": 2048}},
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        (
            {"thinking": {"type": "adaptive"}, "exclude": True},
            {"thinking": {"type": "adaptive", "display": "omitted"}},
        ),
        ({"exclude": True}, {}),
    ],
)
def test_options_of_reasoning_go_where_the_api_looks_for_them(
    server: Loopback, given: dict[str, Any], sent: dict[str, Any]
) -> None:
    claude.ask(server, question(parameters=given))
    found = server.requests[0].body
    assert {k: v for k, v in found.items() if k not in {"model", "max_tokens", "messages"}} == sent


def test_a_schema_is_sent_as_the_format_of_the_answer_beside_the_effort(server: Loopback) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    claude.ask(server, question(schema=schema, parameters={"effort": "low"}))
    assert server.requests[0].body["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": schema},
    }


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", {"type": "any"}),
        ("auto", {"type": "auto"}),
        ({"type": "tool", "name": "weather"}, {"type": "tool", "name": "weather"}),
    ],
)
def test_tools_and_the_choice_among_them_are_sent(
    server: Loopback, choice: object, sent: object
) -> None:
    claude.ask(server, question(tools=(WEATHER,), parameters={"tool_choice": choice}))
    found = server.requests[0].body
    assert found["tools"] == [
        {
            "name": "weather",
            "description": "The weather of a city.",
            "input_schema": WEATHER.parameters,
        }
    ]
    assert found["tool_choice"] == sent


def test_calls_and_results_of_tools_go_back_in_the_apis_own_shape(server: Loopback) -> None:
    calls = (
        ToolCall(id="a", name="weather", arguments='{"city": "Köln"}'),
        ToolCall(id="b", name="weather", arguments='{"city": '),
    )
    claude.ask(
        server,
        question(
            Message(role="user", content="Weather?"),
            Message(role="assistant", content="", tool_calls=calls),
            Message(role="tool", content="rain", tool_call_id="a"),
            Message(role="tool", content="not JSON", tool_call_id="b"),
            Message(role="user", content="And?"),
        ),
    )
    assert server.requests[0].body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Köln"}},
                {
                    "type": "tool_use",
                    "id": "b",
                    "name": "weather",
                    "input": {"INVALID_JSON": '{"city": '},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "rain"},
                {"type": "tool_result", "tool_use_id": "b", "content": "not JSON"},
            ],
        },
        {"role": "user", "content": "And?"},
    ]


# --- what it reads


def test_what_went_through_the_cache_counts_as_input_too(server: Loopback) -> None:
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 200,
        "cache_read_input_tokens": 3000,
        "output_tokens": 40,
        "output_tokens_details": {"thinking_tokens": 25},
    }
    assert claude.answered(server, message(usage=usage)).usage == Usage(
        input_tokens=3210, output_tokens=40, reasoning_tokens=25, cached_tokens=3000
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_reasons_to_stop_are_said_in_our_words(server: Loopback, said: str, meant: str) -> None:
    assert claude.answered(server, message(stop_reason=said)).stop_reason == meant


def test_thinking_is_kept_apart_and_tool_calls_are_read(server: Loopback) -> None:
    text = {"type": "text", "text": "Let me look."}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    reply = claude.answered(server, message(THOUGHT, hidden, text, CALL, stop_reason="tool_use"))
    assert (reply.text, reply.reasoning) == ("Let me look.", "Look it up.")
    assert reply.tool_calls == (
        ToolCall(id="toolu_1", name="weather", arguments='{"city": "Köln"}'),
    )
    assert reply.stop_reason == "tool_calls"


def test_a_turn_that_ended_without_a_word_is_flagged(server: Loopback) -> None:
    reply = claude.answered(server, body({"content": [], "stop_reason": "end_turn"}))
    assert (reply.text, reply.stop_reason, reply.flags) == ("", "stop", ("empty",))


# --- signed thinking


@pytest.mark.parametrize("stream", [False, True])
def test_signed_thinking_goes_back_with_the_call_it_led_to(server: Loopback, stream: bool) -> None:
    def answer(asked: Asked) -> Reply:
        if not stream:
            return message(THOUGHT, CALL, stop_reason="tool_use")
        tool = tool_block(1, '{"city"', ': "Köln"}')
        return sse(START, thinking_block(0), tool, end("tool_use"), STOP)

    server.answer = answer
    user = Message(role="user", content="Weather?")

    def second(first: Completion | None) -> Request:
        assert first is not None
        said = Message(role="assistant", content=first.text, tool_calls=first.tool_calls)
        return question(user, said, Message(role="tool", content="rain", tool_call_id="toolu_1"))

    claude.conversation(server, lambda _: question(user), second, settings={"stream": stream})
    assert server.requests[1].body["messages"][1] == {
        "role": "assistant",
        "content": [THOUGHT, CALL],
    }


def test_a_message_that_an_agent_changed_goes_back_as_it_is_now(server: Loopback) -> None:
    server.answer = lambda _: message(THOUGHT, CALL, stop_reason="tool_use")

    def second(first: Completion | None) -> Request:
        assert first is not None
        return question(Message(role="assistant", content="Hm.", tool_calls=first.tool_calls))

    claude.conversation(server, lambda _: question(), second)
    assert server.requests[1].body["messages"][0]["content"] == [
        {"type": "text", "text": "Hm."},
        CALL,
    ]


# --- streams


def test_a_stream_is_put_together(server: Loopback) -> None:
    ping = event("ping")
    reply = streamed(
        server,
        START,
        ping,
        thinking_block(0),
        text_block(1, "The ", "answer"),
        event("something_new", index=7),
        end("max_tokens"),
        STOP,
    )
    assert server.requests[0].body["stream"] is True
    assert (reply.text, reply.reasoning) == ("The answer", "Look it up.")
    assert (reply.stop_reason, reply.model) == ("length", "claude-test")
    assert reply.usage == Usage(
        input_tokens=100, output_tokens=15, reasoning_tokens=None, cached_tokens=90
    )
    assert reply.first_token_s is not None


def test_streamed_tool_calls_are_kept_as_they_were_written(server: Loopback) -> None:
    reply = streamed(
        server,
        START,
        text_block(0, "Looking."),
        tool_block(1, "", '{"city":', '"Köln"}'),
        tool_block(2, key="toolu_2"),
        tool_block(3, '{"cit', key="toolu_3"),
        end("tool_use"),
        STOP,
    )
    assert reply.tool_calls == (
        ToolCall(id="toolu_1", name="weather", arguments='{"city":"Köln"}'),
        ToolCall(id="toolu_2", name="weather", arguments="{}"),
        ToolCall(id="toolu_3", name="weather", arguments='{"cit'),
    )


def test_an_error_in_the_stream_is_tried_again(server: Loopback) -> None:
    overloaded = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    good = sse(START, text_block(0, "4"), end(), STOP)
    server.answer = lambda asked: good if asked.number else sse(START, overloaded)
    heard: list[str] = []
    reply = claude.ask(server, question(on_retry=heard.append), settings={"stream": True})
    assert (reply.text, reply.retries) == ("4", 1)
    assert set(heard) == {"the stream broke: Overloaded"}


def test_an_error_in_the_stream_that_will_not_pass_ends_the_trial(server: Loopback) -> None:
    broken = event("error", error={"type": "invalid_request_error", "message": "no such tool"})
    fault = claude.faulted(server, sse(START, broken), stream=True, max_retries=3)
    assert not fault.transient
    assert len(server.requests) == 1


# --- faults


@pytest.mark.parametrize(
    ("reply", "transient", "words"),
    [
        (body({"content": [{"type": "text", "text": "x"}]}), True, "stop_reason is null"),
        (body({"stop_reason": "end_turn"}), True, "no content"),
        (body({}), True, "no content"),
        (no("overloaded_error", "Overloaded", 200), True, "Overloaded"),
        (no("permission_error", "not yours", 200), False, "not yours"),
        (message({**CALL, "name": ""}), True, "without a name"),
        (body({"content": "text", "stop_reason": "end_turn"}), False, "wrong shape"),
        (message({"type": "text", "text": None}), False, "wrong shape"),
    ],
)
def test_what_is_no_answer_is_a_clear_fault(
    server: Loopback, reply: Reply, transient: bool, words: str
) -> None:
    fault = claude.faulted(server, reply)
    assert fault.transient is transient
    assert words in str(fault)
