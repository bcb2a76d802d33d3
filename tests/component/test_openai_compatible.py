"""What the adapter sends, and what it makes of a well-meaning server's answer."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request, Tool, Usage
from bakeoff.core.task import Message, ToolCall
from bakeoff.models.adapters.openai_compatible import Endpoint, build
from support.loopback import Asked, Loopback, Reply, chat, completion, delta, sse

DONE = "data: [DONE]\n\n"


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


def question(text: str = "hello", **rest: Any) -> Request:
    return Request(messages=(Message(role="user", content=text),), **rest)


def spec_of(server: Loopback, **rest: Any) -> ModelSpec:
    return ModelSpec(
        **{"provider": "openai-compatible", "name": "m1", "base_url": server.url, **rest}
    )


def ask(server: Loopback, request: Request | None = None, **spec: Any) -> Completion:
    async def main() -> Completion:
        model = build(spec_of(server, **spec))
        try:
            return await model.complete(request or question())
        finally:
            await model.close()

    return asyncio.run(main())


def answered(server: Loopback, reply: Reply, **spec: Any) -> Completion:
    server.answer = lambda _: reply
    return ask(server, **spec)


def streamed(server: Loopback, reply: Reply, **spec: Any) -> Completion:
    return answered(server, reply, settings={"stream": True, "max_retries": 0}, **spec)


def chat_of(message: dict[str, Any], finish: str | None = "stop", **extra: Any) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return chat(None, **{"choices": [choice], **extra})


# --- where it asks


@pytest.mark.parametrize(
    ("ending", "api_type", "path"),
    [
        ("", None, "/v1/chat/completions"),
        ("/", None, "/v1/chat/completions"),
        ("/chat/completions", None, "/v1/chat/completions"),
        ("/chat/completions/", None, "/v1/chat/completions"),
        ("/completions", None, "/v1/completions"),
        ("", "completions", "/v1/completions"),
        ("", "completion", "/v1/completions"),
        ("", "chat", "/v1/chat/completions"),
        ("/completions", "chat", "/v1/chat/completions"),
        ("/chat/completions", "completions", "/v1/completions"),
        ("/chat/completions?api-version=1", None, "/v1/chat/completions?api-version=1"),
        ("?api-version=1", "completions", "/v1/completions?api-version=1"),
    ],
)
def test_a_base_url_or_a_full_url_and_the_test_decide_which_api_is_asked(
    server: Loopback, ending: str, api_type: str | None, path: str
) -> None:
    ask(server, question(api_type=api_type), base_url=server.url + ending)
    assert server.requests[0].path == path


def test_settings_name_the_api_where_neither_the_test_nor_the_url_do(server: Loopback) -> None:
    ask(server, settings={"api_type": "completions"})
    assert server.requests[0].path == "/v1/completions"


def test_the_wish_of_a_test_goes_before_settings(server: Loopback) -> None:
    ask(server, question(api_type="chat"), settings={"api_type": "completions"})
    assert server.requests[0].path == "/v1/chat/completions"


def test_an_endpoint_of_azure_keeps_its_query_at_the_end() -> None:
    url = "https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024"
    assert Endpoint.of(url).url("chat") == url
    assert Endpoint.of(url).api_type == "chat"


@pytest.mark.parametrize("url", ["localhost:8080/v1", "ftp://host/v1", "https://", "//host/v1"])
def test_what_is_no_http_url_is_refused_before_the_run(url: str) -> None:
    spec = ModelSpec(provider="openai-compatible", name="m", base_url=url)
    with pytest.raises(UsageError, match="is no base URL: write it as http"):
        build(spec)


# --- what it sends


def test_the_messages_go_out_as_they_are(server: Loopback) -> None:
    messages = (
        Message(role="system", content="Be brief."),
        Message(role="user", content="héllo 😀"),
        Message(role="assistant", content="Hi", reasoning="not sent"),
        Message(role="user", content="again"),
    )
    ask(server, Request(messages=messages))
    assert server.requests[0].body == {
        "model": "m1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "héllo 😀"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "again"},
        ],
    }


def test_the_completions_api_gets_a_single_prompt_as_it_is(server: Loopback) -> None:
    server.answer = lambda asked: completion(asked.prompt.upper())
    reply = ask(server, question("as it is", api_type="completions"))
    assert server.requests[0].body == {"model": "m1", "prompt": "as it is"}
    assert (reply.text, reply.stop_reason) == ("AS IT IS", "stop")


def test_the_completions_api_gets_a_conversation_as_one_text(server: Loopback) -> None:
    messages = (Message(role="system", content="Be brief."), Message(role="user", content="Hi"))
    ask(server, Request(messages=messages, api_type="completions"))
    assert server.requests[0].body["prompt"] == "System: Be brief.\n\nUser: Hi\n\nAssistant:"


def test_parameters_of_the_candidate_go_before_those_of_a_test(server: Loopback) -> None:
    ask(
        server,
        question(parameters={"temperature": 0.0, "stop": ["\n"], "max_tokens": 9}),
        parameters={"temperature": 0.9, "seed": 7, "top_p": 0.5},
    )
    sent = server.requests[0].body
    expected = {"temperature": 0.9, "stop": ["\n"], "max_tokens": 9, "seed": 7, "top_p": 0.5}
    assert {key: sent[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("given", "reasoning"),
    [
        ({"effort": "low"}, {"effort": "low"}),
        ({"effort": "high", "exclude": True}, {"effort": "high", "exclude": True}),
        (
            {"effort": "high", "reasoning": {"max_tokens": 9}},
            {"effort": "high", "max_tokens": 9},
        ),
    ],
)
def test_effort_and_exclude_are_sent_as_reasoning_options(
    server: Loopback, given: dict[str, Any], reasoning: dict[str, Any]
) -> None:
    ask(server, question(parameters=given))
    sent = server.requests[0].body
    assert sent["reasoning"] == reasoning
    assert not {"effort", "exclude"} & set(sent)


def test_a_schema_is_sent_as_the_format_of_the_answer(server: Loopback) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    ask(server, question(schema=schema))
    sent = server.requests[0].body["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"] == schema
    assert sent["json_schema"]["strict"] is True


def test_the_key_is_sent_as_a_bearer_and_headers_as_given(server: Loopback) -> None:
    ask(server, api_key="sk-secret\n", headers={"X-Team": "blue"})
    headers = server.requests[0].headers
    assert headers["Authorization"] == "Bearer sk-secret"
    assert headers["X-Team"] == "blue"
    assert headers["Content-Type"] == "application/json"
    assert headers["Accept-Encoding"] == "identity"


def test_a_header_of_ones_own_goes_before_the_key(server: Loopback) -> None:
    ask(server, api_key="sk-secret", headers={"authorization": "Basic abc"})
    assert server.requests[0].headers["authorization"] == "Basic abc"
    assert "sk-secret" not in str(server.requests[0].headers)


def test_without_a_key_nothing_is_sent_that_could_be_one(
    server: Loopback, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password of-another-program\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    ask(server)
    assert "Authorization" not in server.requests[0].headers


def test_a_header_that_http_cannot_carry_is_refused_by_name_and_not_by_value(
    server: Loopback,
) -> None:
    with pytest.raises(UsageError, match="header 'X-Key' holds a line end") as caught:
        build(spec_of(server, headers={"X-Key": "secret\r\nX-Evil: 1"}))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan"), "soon"])
def test_a_timeout_that_bounds_nothing_is_refused(server: Loopback, timeout_s: object) -> None:
    with pytest.raises(UsageError, match="timeout_s"):
        build(spec_of(server, settings={"timeout_s": timeout_s}))


def test_a_proxy_of_the_environment_is_used(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = server.url.removesuffix("/v1").replace("http://", "http://me:pass@")
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    ask(server, base_url="http://model.invalid/v1")
    assert server.requests[0].path == "http://model.invalid/v1/chat/completions"
    assert server.requests[0].headers["Proxy-Authorization"].startswith("Basic ")


def test_no_proxy_is_heeded(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert ask(server).text == "hello"


# --- what it reads


def test_every_count_and_the_cost_are_read(server: Loopback) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20.0,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 12},
        "cost": 0.0015,
    }
    assert answered(server, chat("4", usage=usage)).usage == Usage(
        input_tokens=100,
        output_tokens=20,
        cached_tokens=64,
        reasoning_tokens=12,
        cost_usd=0.0015,
    )


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter", "eos"])
def test_the_reason_to_stop_is_kept_as_said(server: Loopback, reason: str) -> None:
    assert answered(server, chat_of({"content": "x"}, reason)).stop_reason == reason


def test_a_server_that_never_gives_reasons_is_believed(server: Loopback) -> None:
    reply = answered(server, chat(None, choices=[{"message": {"content": "4"}}]))
    assert (reply.text, reply.stop_reason) == ("4", None)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_apart_from_the_answer(server: Loopback, key: str) -> None:
    reply = answered(server, chat_of({"content": "4", key: "2 + 2"}))
    assert (reply.text, reply.reasoning) == ("4", "2 + 2")


def test_an_answer_cut_in_its_reasoning_has_no_text(server: Loopback) -> None:
    reply = answered(server, chat_of({"content": None, "reasoning_content": "hm"}, "length"))
    assert (reply.text, reply.reasoning, reply.stop_reason) == ("", "hm", "length")


@pytest.mark.parametrize("content", [None, ""])
def test_a_refusal_is_an_answer_and_says_so(server: Loopback, content: str | None) -> None:
    reply = answered(server, chat_of({"content": content, "refusal": "I can't."}))
    assert (reply.text, reply.stop_reason) == ("I can't.", "refusal")


def test_an_answer_that_a_filter_withheld_is_an_empty_one(server: Loopback) -> None:
    reply = answered(server, chat_of({"content": None}, "content_filter"))
    assert (reply.text, reply.stop_reason) == ("", "content_filter")


def test_the_texts_of_content_parts_are_joined(server: Loopback) -> None:
    parts = [{"type": "text", "text": "4"}, {"type": "image", "text": None}, "2"]
    assert answered(server, chat_of({"content": parts})).text == "42"


def test_of_several_choices_the_first_counts(server: Loopback) -> None:
    choices = [{"message": {"content": c}, "finish_reason": "stop"} for c in "ab"]
    assert answered(server, chat(None, choices=choices)).text == "a"


def test_unknown_keys_are_no_trouble(server: Loopback) -> None:
    extra = {"system_fingerprint": None, "timings": {"x": [1]}, "service_tier": {}}
    assert answered(server, chat("4", **extra)).text == "4"


# --- streams


def test_a_stream_is_asked_for_with_its_usage(server: Loopback) -> None:
    streamed(server, sse(delta("4", "stop"), DONE))
    sent = server.requests[0].body
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("test", "model", "setting", "wanted"),
    [
        (None, None, False, False),
        (None, None, True, True),
        (None, True, False, True),
        (True, None, False, True),
        (False, None, True, False),
        (False, True, True, True),
    ],
)
def test_the_candidate_goes_before_a_test_and_that_before_settings_in_whether_to_stream(
    server: Loopback, test: bool | None, model: bool | None, setting: bool, wanted: bool
) -> None:
    def answer(asked: Asked) -> Reply:
        return sse(delta("x", "stop"), DONE) if asked.body.get("stream") else chat("x")

    server.answer = answer
    ask(
        server,
        question(parameters={} if test is None else {"stream": test}),
        parameters={} if model is None else {"stream": model},
        settings={"stream": setting},
    )
    assert ("stream" in server.requests[0].body) is wanted


def test_a_stream_is_put_together(server: Loopback) -> None:
    usage = {"model": "loopback", "choices": [], "usage": {"prompt_tokens": 5}}
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    reply = streamed(
        server, sse(role, delta("The "), delta("answer"), delta("", "length"), usage, DONE)
    )
    assert (reply.text, reply.stop_reason, reply.model) == ("The answer", "length", "loopback")
    assert reply.usage.input_tokens == 5
    assert reply.raw is None


def test_a_stream_of_the_completions_api_is_put_together(server: Loopback) -> None:
    events = [
        {"choices": [{"text": t, "finish_reason": f}]} for t, f in [("a", None), ("b", "stop")]
    ]
    server.answer = lambda _: sse(*events, DONE)
    reply = ask(server, question(api_type="completions"), settings={"stream": True})
    assert (reply.text, reply.stop_reason) == ("ab", "stop")


def test_reasoning_counts_as_the_first_token(server: Loopback) -> None:
    thought = {"choices": [{"delta": {"reasoning_content": "hm"}}]}
    reply = streamed(server, sse(thought, thought, delta("4", "stop"), DONE))
    assert (reply.reasoning, reply.text) == ("hmhm", "4")
    assert reply.first_token_s is not None


def test_a_streamed_refusal_says_so(server: Loopback) -> None:
    no = {"choices": [{"delta": {"refusal": "I can't."}}]}
    reply = streamed(server, sse(no, delta("", "stop"), DONE))
    assert (reply.text, reply.stop_reason) == ("I can't.", "refusal")


def test_further_choices_do_not_mix_with_the_first(server: Loopback) -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}]}
    reply = streamed(server, sse(delta("a"), other, delta("a", "length"), other, DONE))
    assert (reply.text, reply.stop_reason) == ("aa", "length")


@pytest.mark.parametrize(
    "reply",
    [
        sse(delta("4"), delta("", "stop")),
        sse(": ping\n\n", delta("4"), ": ping\n\n", "\n", delta("", "stop"), DONE),
        sse("event: message\nid: 1\nretry: 9\n", delta("4", "stop"), "data:[DONE]\n\n"),
        sse("data: " + json.dumps(delta("4", "stop")) + "\r\n\r\n", "data: [DONE]\r\n\r\n"),
        sse("data:" + json.dumps(delta("4", "stop")) + "\n\n", DONE),
        sse("data: " + json.dumps(delta("4", "stop"))),
        chat("4"),
        Reply(body=json.dumps(json.loads(chat("4").body), indent=2).encode()),
    ],
    ids=[
        "no [DONE]",
        "keep-alive comments",
        "other fields",
        "CRLF",
        "no blank after data:",
        "no line end",
        "a whole answer instead",
        "a whole answer over many lines",
    ],
)
def test_every_way_to_stream_is_understood(server: Loopback, reply: Reply) -> None:
    read = streamed(server, reply)
    assert (read.text, read.stop_reason) == ("4", "stop")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_stream_may_be_cut_anywhere_on_its_way(server: Loopback, size: int) -> None:
    events = [delta("né"), delta("😀"), delta("中", "stop")]
    text = "".join(f"data: {json.dumps(e, ensure_ascii=False)}\n\n" for e in events) + DONE
    data = text.encode()
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    assert streamed(server, Reply(chunks=chunks)).text == "né😀中"


# --- tool calls


def test_tools_their_calls_and_their_results_are_sent(server: Loopback) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
    call = ToolCall(id="c1", name="weather", arguments='{"city": "Köln"}')
    messages = (
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="rain", tool_call_id="c1"),
    )
    tool = Tool(name="weather", description="The weather.", parameters=schema)
    server.answer = lambda _: chat("4")
    ask(server, Request(messages=messages, tools=(tool,)))
    sent = server.requests[0].body
    function = {"name": "weather", "description": "The weather.", "parameters": schema}
    assert sent["tools"] == [{"type": "function", "function": function}]
    assert sent["messages"] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Köln"}'},
                }
            ],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
    ]


def call_part(**rest: Any) -> dict[str, Any]:
    function = {key: rest.pop(key) for key in ("name", "arguments") if key in rest}
    return {"type": "function", **rest, "function": function}


def call_deltas(*parts: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"tool_calls": list(parts)}, "finish_reason": finish}]}


def weather(key: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id=key, name="weather", arguments=arguments)


def test_tool_calls_are_read(server: Loopback) -> None:
    calls = [
        call_part(id="c1", name="weather", arguments='{"city":"Köln"}'),
        call_part(id="c2", name="weather", arguments='{"city": '),
    ]
    reply = answered(server, chat_of({"content": None, "tool_calls": calls}, "tool_calls"))
    assert reply.tool_calls == (weather("c1", '{"city":"Köln"}'), weather("c2", '{"city": '))
    assert (reply.text, reply.stop_reason) == ("", "tool_calls")


@pytest.mark.parametrize(
    ("part", "call"),
    [
        (call_part(id="c", name="weather", arguments=""), weather("c")),
        (call_part(id="c", name="weather", arguments=None), weather("c")),
        (call_part(id="c", name="weather", arguments={"x": "ö"}), weather("c", '{"x": "ö"}')),
        (call_part(name="weather", arguments="{}"), weather("call_0")),
    ],
    ids=["empty arguments", "null arguments", "arguments as data", "no id"],
)
def test_every_way_to_write_a_tool_call_is_understood(
    server: Loopback, part: dict[str, Any], call: ToolCall
) -> None:
    reply = answered(server, chat_of({"content": None, "tool_calls": [part]}, "tool_calls"))
    assert reply.tool_calls == (call,)
    deltas = call_deltas({**part, "index": 0}, finish="tool_calls")
    assert streamed(server, sse(deltas, DONE)).tool_calls == (call,)


def test_a_tool_call_without_a_name_is_no_answer(server: Loopback) -> None:
    reply = chat_of({"content": None, "tool_calls": [{"id": "c"}]}, "tool_calls")
    with pytest.raises(ProviderError, match="a tool without a name"):
        answered(server, reply, settings={"max_retries": 0})


def test_streamed_tool_calls_are_put_together_by_their_index(server: Loopback) -> None:
    reply = streamed(
        server,
        sse(
            delta("Looking."),
            call_deltas(call_part(index=0, id="c1", name="weather", arguments="")),
            call_deltas(call_part(index=0, arguments='{"city"')),
            call_deltas(call_part(index=1, id="c2", name="weather", arguments="{")),
            call_deltas(
                call_part(index=0, arguments=':"Köln"}'), call_part(index=1, arguments="}")
            ),
            delta("", "tool_calls"),
            DONE,
        ),
    )
    assert reply.text == "Looking."
    assert reply.tool_calls == (weather("c1", '{"city":"Köln"}'), weather("c2"))
    assert reply.stop_reason == "tool_calls"


@pytest.mark.parametrize(
    "parts",
    [
        [
            call_part(index=0, id="c1", name="weather", arguments="{}"),
            call_part(index=0, id="c2", name="weather", arguments="{}"),
        ],
        [
            call_part(id="c1", name="weather", arguments="{"),
            call_part(arguments="}"),
            call_part(id="c2", name="weather", arguments="{}"),
        ],
        [
            call_part(index=0, id="c1", name="weather", arguments="{"),
            call_part(index=0, id="c1", name="weather", arguments="}"),
            call_part(index=1, id="c2", name="weather", arguments="{}"),
        ],
    ],
    ids=["every index 0", "no index", "id and name in every piece"],
)
def test_servers_that_number_their_calls_badly_are_understood(
    server: Loopback, parts: list[dict[str, Any]]
) -> None:
    events = [call_deltas(part) for part in parts]
    reply = streamed(server, sse(*events, delta("", "tool_calls"), DONE))
    assert reply.tool_calls == (weather("c1"), weather("c2"))


def test_a_tool_call_counts_as_the_first_token(server: Loopback) -> None:
    part = call_part(index=0, id="c1", name="weather", arguments="{}")
    reply = streamed(server, sse(call_deltas(part, finish="tool_calls"), DONE))
    assert reply.first_token_s is not None


# --- connections
