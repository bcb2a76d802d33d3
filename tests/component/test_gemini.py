"""The adapter for Google's Gemini API, against its documented wire format."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.models.adapters.gemini import GeminiAddress, build
from bakeoff.models.client.retry import RetryableError, fault_of
from support.adapters import WEATHER, Adapter, body, question
from support.loopback import Asked, Loopback, Reply, sse

gemini = Adapter(build=build, provider="google", name="gemini-3-x", api_key="k", versioned=False)
CALL = {"functionCall": {"id": "f1", "name": "weather", "args": {"city": "Köln"}}}
SIGNED = {**CALL, "thoughtSignature": "c2ln"}
EXHAUSTED = {
    "code": 429,
    "message": "You exceeded your current quota.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.3s"},
    ],
}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(lambda _: content()) as running:
        yield running


def said(*parts: dict[str, Any], finish: str | None = "STOP", **rest: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-test", **rest}


def content(*parts: dict[str, Any], finish: str | None = "STOP", **rest: Any) -> Reply:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 3, "totalTokenCount": 13}
    parts = parts or ({"text": "4"},)
    return body(said(*parts, finish=finish, **{"usageMetadata": usage, **rest}))


def streamed(server: Loopback, *events: dict[str, Any]) -> Completion:
    return gemini.answered(server, sse(*events), settings={"stream": True, "max_retries": 0})


def config(server: Loopback) -> dict[str, Any]:
    return server.requests[-1].body.get("generationConfig", {})


# --- where and what it asks


@pytest.mark.parametrize(
    ("base_url", "name", "model"),
    [
        ("https://h", "g", "https://h/v1beta/models/g"),
        ("https://h/", "models/g", "https://h/v1beta/models/g"),
        ("https://h/v1beta", "g", "https://h/v1beta/models/g"),
        ("https://h/v1beta/", "tunedModels/t", "https://h/v1beta/tunedModels/t"),
        ("https://h/v1", "g", "https://h/v1/models/g"),
        (
            "https://h/v1/projects/p/locations/l/publishers/google",
            "g",
            "https://h/v1/projects/p/locations/l/publishers/google/models/g",
        ),
        ("https://h/v1beta/models/g:generateContent", "x", "https://h/v1beta/models/g"),
        ("https://h/v1beta/models/g:streamGenerateContent", "x", "https://h/v1beta/models/g"),
    ],
)
def test_a_base_url_with_or_without_its_version_or_a_full_url_will_do(
    base_url: str, name: str, model: str
) -> None:
    place = GeminiAddress.of(base_url, name)
    assert place.url(stream=False) == f"{model}:generateContent"
    assert place.url(stream=True) == f"{model}:streamGenerateContent?alt=sse"


def test_a_query_stays_at_the_end_of_the_url() -> None:
    place = GeminiAddress.of("https://h/v1beta?key=abc&alt=json", "g")
    assert place.url(stream=False) == "https://h/v1beta/models/g:generateContent?key=abc&alt=json"
    assert place.url(stream=True) == (
        "https://h/v1beta/models/g:streamGenerateContent?alt=sse&key=abc"
    )


def test_it_asks_where_the_model_is(server: Loopback) -> None:
    gemini.ask(server)
    assert server.requests[0].path == "/v1beta/models/gemini-3-x:generateContent"


def test_the_conversation_goes_out_as_contents_and_the_system_apart(server: Loopback) -> None:
    gemini.ask(
        server,
        question(
            Message(role="system", content="Be brief."),
            Message(role="user", content="Hi"),
            Message(role="assistant", content="Hello"),
            Message(role="user", content="Again"),
        ),
    )
    assert server.requests[0].body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"text": "Hello"}]},
            {"role": "user", "parts": [{"text": "Again"}]},
        ],
    }


def test_common_parameters_are_translated_and_the_candidates_own_win(server: Loopback) -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    gemini.ask(
        server,
        question(parameters={"max_tokens": 9, "temperature": 0.0, "stop": "\n", "seed": 1}),
        parameters={
            "temperature": 0.7,
            "top_p": 0.9,
            "safetySettings": safety,
            "mediaResolution": "LOW",
            "generationConfig": {"topK": 5},
        },
    )
    assert config(server) == {
        "maxOutputTokens": 9,
        "temperature": 0.7,
        "stopSequences": ["\n"],
        "seed": 1,
        "topP": 0.9,
        "topK": 5,
        "mediaResolution": "LOW",
    }
    assert server.requests[0].body["safetySettings"] == safety


@pytest.mark.parametrize(
    ("name", "given", "sent"),
    [
        ("gemini-3-x", {"effort": "low"}, {"thinkingLevel": "low"}),
        (
            "gemini-3-x",
            {"effort": "low", "exclude": False},
            {"thinkingLevel": "low", "includeThoughts": True},
        ),
        ("gemini-2.5-flash", {"effort": "medium"}, {"thinkingBudget": 8192}),
        ("gemini-2.5-flash", {"effort": "none"}, {"thinkingBudget": 0}),
        ("gemini-2.5-pro", {"reasoning": {"max_tokens": 512}}, {"thinkingBudget": 512}),
        ("gemini-3-x", {"exclude": True}, {"includeThoughts": False}),
    ],
)
def test_options_of_reasoning_become_a_level_or_a_budget(
    server: Loopback, name: str, given: dict[str, Any], sent: dict[str, Any]
) -> None:
    gemini.ask(server, question(parameters=given), name=name)
    assert config(server) == {"thinkingConfig": sent}


def test_a_schema_is_sent_as_the_format_of_the_answer(server: Loopback) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    gemini.ask(server, question(schema=schema))
    assert config(server) == {
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
    }


def test_tools_and_the_choice_among_them_are_sent(server: Loopback) -> None:
    tools = (WEATHER, Tool(name="now", description="The time."))
    gemini.ask(server, question(tools=tools, parameters={"tool_choice": "required"}))
    sent = server.requests[0].body
    assert sent["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "weather",
                    "description": "The weather of a city.",
                    "parametersJsonSchema": WEATHER.parameters,
                },
                {"name": "now", "description": "The time."},
            ]
        }
    ]
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}


def test_calls_and_results_of_tools_go_back_in_the_apis_own_shape(server: Loopback) -> None:
    calls = (
        ToolCall(id="a", name="weather", arguments='{"city": "Köln"}'),
        ToolCall(id="b", name="now", arguments="[1]"),
    )
    gemini.ask(
        server,
        question(
            Message(role="user", content="Weather?"),
            Message(role="assistant", content="", tool_calls=calls),
            Message(role="tool", content="rain", tool_call_id="a"),
            Message(role="tool", content="noon", tool_call_id="b"),
        ),
    )
    assert server.requests[0].body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "a", "name": "weather", "args": {"city": "Köln"}}},
                {"functionCall": {"id": "b", "name": "now", "args": {"INVALID_JSON": "[1]"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "a",
                        "name": "weather",
                        "response": {"output": "rain"},
                    }
                },
                {"functionResponse": {"id": "b", "name": "now", "response": {"output": "noon"}}},
            ],
        },
    ]


def test_a_result_that_answers_no_call_is_a_clear_fault(server: Loopback) -> None:
    with pytest.raises(ProviderError, match="answers 'zzz', but no call before it") as caught:
        gemini.ask(server, question(Message(role="tool", content="x", tool_call_id="zzz")))
    assert not caught.value.transient


# --- what it reads


def test_thoughts_count_as_output_and_apart_from_it(server: Loopback) -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 300,
        "toolUsePromptTokenCount": 5,
    }
    assert gemini.answered(server, content(usageMetadata=usage)).usage == Usage(
        input_tokens=105, output_tokens=320, reasoning_tokens=300, cached_tokens=60
    )


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("LANGUAGE", "LANGUAGE"),
    ],
)
def test_reasons_to_stop_are_said_in_our_words(server: Loopback, said: str, meant: str) -> None:
    assert gemini.answered(server, content(finish=said)).stop_reason == meant


def test_thoughts_are_kept_apart_and_tool_calls_are_read(server: Loopback) -> None:
    thought = {"text": "Look it up.", "thought": True}
    reply = gemini.answered(server, content(thought, {"text": "Looking."}, SIGNED))
    assert (reply.text, reply.reasoning) == ("Looking.", "Look it up.")
    assert reply.tool_calls == (ToolCall(id="f1", name="weather", arguments='{"city": "Köln"}'),)
    assert reply.stop_reason == "tool_calls"


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"])
def test_an_empty_answer_that_says_why_is_an_answer(server: Loopback, finish: str) -> None:
    reply = gemini.answered(server, body({"candidates": [{"finishReason": finish}]}))
    assert reply.text == ""
    assert reply.stop_reason not in {None, "stop"}


# --- signatures and ids


def replay(server: Loopback, reply: Reply, **spec: Any) -> list[dict[str, Any]]:
    """Return what is sent back of an answer with a call, and of the call's result."""
    server.answer = lambda _: reply
    user = Message(role="user", content="Weather?")

    def second(first: Completion | None) -> Request:
        assert first is not None
        (call,) = first.tool_calls
        said = Message(role="assistant", content=first.text, tool_calls=first.tool_calls)
        return question(user, said, Message(role="tool", content="rain", tool_call_id=call.id))

    gemini.conversation(server, lambda _: question(user), second, **spec)
    return server.requests[1].body["contents"][1:]


@pytest.mark.parametrize("stream", [False, True])
def test_the_signature_of_a_thought_goes_back_with_its_call(server: Loopback, stream: bool) -> None:
    thought = {"text": "Look it up.", "thought": True}
    events = sse(said(thought, finish=None), said(SIGNED))
    reply = events if stream else content(thought, SIGNED)
    assert replay(server, reply, settings={"stream": stream}) == [
        {"role": "model", "parts": [thought, SIGNED]},
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "f1",
                        "name": "weather",
                        "response": {"output": "rain"},
                    }
                }
            ],
        },
    ]


def test_a_call_without_an_id_gets_one_that_is_never_sent(server: Loopback) -> None:
    bare = {"functionCall": {"name": "weather", "args": {}}}
    model, user = replay(server, content(bare))
    assert model["parts"] == [bare]
    assert user["parts"] == [
        {"functionResponse": {"name": "weather", "response": {"output": "rain"}}}
    ]


def test_calls_without_ids_are_told_apart(server: Loopback) -> None:
    bare = {"functionCall": {"name": "weather"}}
    calls = gemini.answered(server, content(bare, bare)).tool_calls
    assert len({call.id for call in calls}) == 2
    assert [call.arguments for call in calls] == ["{}", "{}"]


# --- streams


def test_a_stream_is_put_together(server: Loopback) -> None:
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 2}
    reply = streamed(
        server,
        said({"text": "hm", "thought": True}, finish=None),
        said({"text": "The "}, finish=None),
        said({"text": "answer"}, finish="MAX_TOKENS", usageMetadata=usage),
    )
    assert server.requests[0].path == "/v1beta/models/gemini-3-x:streamGenerateContent?alt=sse"
    assert "stream" not in server.requests[0].body
    assert (reply.text, reply.reasoning, reply.stop_reason) == ("The answer", "hm", "length")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (5, 2)
    assert reply.first_token_s is not None


def test_a_stream_may_name_its_reason_in_every_event(server: Loopback) -> None:
    assert streamed(server, said({"text": "a"}), said({"text": "b"})).text == "ab"


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_in_an_answer_is_waited_for_as_long_as_it_says(
    server: Loopback, stream: bool
) -> None:
    def answer(asked: Asked) -> Reply:
        data = said({"text": "4"}) if asked.number else {"error": EXHAUSTED}
        return sse(data) if stream else body(data)

    server.answer = answer
    began = time.monotonic()
    assert gemini.ask(server, settings={"stream": stream}).retries == 1
    assert time.monotonic() - began >= 0.3


# --- faults


@pytest.mark.parametrize("delay", ["", "s", "-1s", "nan s", "1e9s", 5, None])
def test_a_delay_that_is_none_is_not_waited_for(delay: str | int | None) -> None:
    fault = fault_of({"code": 429, "details": [{"retryDelay": delay}, 7]}, "no")
    assert isinstance(fault, RetryableError)
    assert fault.retry_after_s is None


def test_an_exhausted_quota_is_asked_again(server: Loopback) -> None:
    busy = body({"error": EXHAUSTED}, status=429)
    server.answer = lambda asked: content() if asked.number else busy
    assert gemini.ask(server).retries == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_blocked_prompt_is_a_clear_fault_that_will_not_pass(
    server: Loopback, stream: bool
) -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {}}
    reply = sse(blocked) if stream else body(blocked)
    fault = gemini.faulted(server, reply, stream=stream, max_retries=3)
    assert not fault.transient
    assert "the prompt was blocked (PROHIBITED_CONTENT)" in str(fault)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "transient", "words"),
    [
        (body({}), True, "no candidates"),
        (body({"candidates": []}), True, "no candidates"),
        (body({"candidates": [{"finishReason": "STOP"}]}), True, "no content"),
        (content({"text": ""}), True, "no content"),
        (body({"candidates": [{"finishReason": "OTHER"}]}), True, "no content"),
        (content(finish=None), True, "no finishReason"),
        (content({"functionCall": {"args": {}}}), True, "without a name"),
        (body({"candidates": "none"}), False, "wrong shape"),
    ],
)
def test_what_is_no_answer_is_a_clear_fault(
    server: Loopback, reply: Reply, transient: bool, words: str
) -> None:
    fault = gemini.faulted(server, reply)
    assert fault.transient is transient
    assert words in str(fault)
