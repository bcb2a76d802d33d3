"""What the adapter tells an Ollama, and what it makes of what comes back."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request, Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.models.adapters.ollama import Window, build, least_tokens
from bakeoff.models.client.settings import address
from support.loopback import Asked, Loopback, Reply

SECOND = 1_000_000_000
COUNTS = {"prompt_eval_count": 7, "eval_count": 3, "load_duration": 0}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(lambda _: whole("ok")) as running:
        yield running


def whole(text: str = "ok", **extra: Any) -> Reply:
    message = {"role": "assistant", "content": text}
    data = {"model": "m1", "message": message, "done": True, "done_reason": "stop", **COUNTS}
    return Reply(body=json.dumps({**data, **extra}).encode())


def lines(*pieces: dict[str, Any], cut: bool = False) -> Reply:
    chunks = [json.dumps(piece).encode() + b"\n" for piece in pieces]
    return Reply(chunks=chunks, then_close=cut)


def piece(text: str, **extra: Any) -> dict[str, Any]:
    return {
        "model": "m1",
        "message": {"role": "assistant", "content": text},
        "done": False,
        **extra,
    }


END = piece("", done=True, done_reason="stop", **COUNTS)


def question(text: str = "hello", **rest: Any) -> Request:
    return Request(messages=(Message(role="user", content=text),), **rest)


def ask(server: Loopback, request: Request | None = None, **spec: Any) -> Completion:
    settings = {"max_retries": 0, **spec.pop("settings", {})}
    given = ModelSpec(
        **{"provider": "ollama", "name": "m1", "base_url": server.url, "settings": settings, **spec}
    )

    async def main() -> Completion:
        model = build(given)
        try:
            return await model.complete(request or question())
        finally:
            await model.close()

    return asyncio.run(main())


def answered(
    server: Loopback, reply: Reply, request: Request | None = None, **spec: Any
) -> Completion:
    server.answer = lambda _: reply
    return ask(server, request, **spec)


def streamed(server: Loopback, reply: Reply) -> Completion:
    return answered(server, reply, settings={"stream": True})


# --- the address -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("127.0.0.1:1234", "http://127.0.0.1:1234"),
        ("localhost", "http://localhost:11434"),
        ("http://box:11434/", "http://box:11434"),
        ("http://box:11434/v1", "http://box:11434"),
        ("http://box:11434/v1/", "http://box:11434"),
        ("http://box:11434/api/chat", "http://box:11434"),
        ("box:11434/api", "http://box:11434"),
        ("https://box.example/ollama/api", "https://box.example/ollama"),
        ("http://me:secret@box:1", "http://me:secret@box:1"),
        ("0.0.0.0:11434", "http://127.0.0.1:11434"),
        ("[::1]:11434", "http://[::1]:11434"),
        (" 127.0.0.1:1 ", "http://127.0.0.1:1"),
    ],
)
def test_an_address_may_be_written_in_any_common_way(written: str, read: str) -> None:
    assert address(written) == read


@pytest.mark.parametrize("written", ["", "http://", "ftp://box", "box:notaport"])
def test_what_is_no_address_is_told_with_a_right_one(written: str) -> None:
    with pytest.raises(UsageError, match=r"write it as http://127\.0\.0\.1:11434"):
        address(written)


# --- what is sent ------------------------------------------------------------------------------


def sent(server: Loopback, request: Request, **spec: Any) -> dict[str, Any]:
    ask(server, request, **spec)
    (asked,) = server.requests
    assert asked.path == "/api/chat"
    return asked.body


def test_parameters_become_options_under_the_names_ollama_has_for_them(server: Loopback) -> None:
    given = {
        "max_tokens": 5,
        "temperature": 0,
        "top_p": 0.9,
        "stop": "END",
        "seed": 7,
        "mirostat": 1,
    }
    body = sent(server, question(parameters=given), parameters={"num_ctx": 512})
    assert body == {
        "model": "m1",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": False,
        "options": {
            "num_predict": 5,
            "temperature": 0,
            "top_p": 0.9,
            "stop": ["END"],
            "seed": 7,
            "mirostat": 1,
            "num_ctx": 512,
        },
    }


def test_what_is_no_option_stands_beside_them(server: Loopback) -> None:
    given = {"keep_alive": "1h", "think": True, "options": {"num_gpu": 0}, "top_k": None}
    body = sent(server, question(parameters=given))
    assert (body["keep_alive"], body["think"]) == ("1h", True)
    assert body["options"] == {"num_gpu": 0}


def test_the_candidates_own_parameters_win_over_the_tasks(server: Loopback) -> None:
    body = sent(server, question(parameters={"temperature": 1}), parameters={"temperature": 0})
    assert body["options"] == {"temperature": 0}


def test_a_schema_is_sent_as_the_format(server: Loopback) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert sent(server, question(schema=schema))["format"] == schema


@pytest.mark.parametrize(
    ("wish", "format_"),
    [
        ({"type": "json_object"}, "json"),
        (
            {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
            {"type": "object"},
        ),
    ],
)
def test_openais_response_format_is_understood(server: Loopback, wish: Any, format_: Any) -> None:
    assert sent(server, question(parameters={"response_format": wish}))["format"] == format_


def test_tools_and_their_results_go_out_as_ollama_takes_them(server: Loopback) -> None:
    call = ToolCall(id="c1", name="add", arguments='{"a": 1}')
    broken = ToolCall(id="c2", name="add", arguments="{oops")
    request = Request(
        messages=(
            Message(role="user", content="1+1?"),
            Message(role="assistant", content="", reasoning="hm", tool_calls=(call, broken)),
            Message(role="tool", content="2", tool_call_id="c1"),
        ),
        tools=(Tool(name="add", description="adds", parameters={"type": "object"}),),
    )
    body = sent(server, request)
    function = {"name": "add", "description": "adds", "parameters": {"type": "object"}}
    assert body["tools"] == [{"type": "function", "function": function}]
    said, result = body["messages"][1:]
    assert [c["function"]["arguments"] for c in said["tool_calls"]] == [
        {"a": 1},
        {"INVALID_JSON": "{oops"},
    ]
    assert said["thinking"] == "hm"
    assert result == {"role": "tool", "content": "2", "tool_call_id": "c1", "tool_name": "add"}


def test_several_choices_are_refused_before_anything_is_sent(server: Loopback) -> None:
    with pytest.raises(ProviderError, match="use rollouts"):
        ask(server, question(parameters={"n": 2}))
    assert not server.requests


def test_a_model_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="ollama/NAME"):
        build(ModelSpec(provider="ollama", name=""))


# --- what comes back ---------------------------------------------------------------------------


def test_loading_is_kept_apart_from_answering(server: Loopback) -> None:
    completion = answered(server, whole(load_duration=2 * SECOND))
    assert completion.load_s == 2
    assert completion.elapsed_s == 0  # the server claims more than passed: never below nothing


def test_a_stream_is_put_together_and_its_first_token_timed(server: Loopback) -> None:
    completion = streamed(server, lines(piece("Pa"), piece("ris"), END))
    assert completion.text == "Paris"
    assert completion.usage.output_tokens == 3
    assert completion.first_token_s is not None
    assert 0 < completion.first_token_s <= completion.elapsed_s


def test_thinking_is_kept_as_reasoning(server: Loopback) -> None:
    thought = {"model": "m1", "message": {"thinking": "hm, "}, "done": False}
    completion = streamed(server, lines(thought, thought, piece("4"), END))
    assert (completion.text, completion.reasoning) == ("4", "hm, hm, ")


def test_tool_calls_come_back_with_ids_of_their_own(server: Loopback) -> None:
    calls = [{"function": {"name": "add", "arguments": {"a": 1}}}]
    message = {"role": "assistant", "content": "", "tool_calls": calls * 2}
    completion = answered(server, whole(message=message))
    assert completion.tool_calls == (
        ToolCall(id="call_0", name="add", arguments='{"a": 1}'),
        ToolCall(id="call_1", name="add", arguments='{"a": 1}'),
    )


@pytest.mark.parametrize(
    "reply",
    [
        whole("half", done=False),
        whole(error="an error was encountered while running the model"),
        whole("", done_reason="load"),
        Reply(body=b""),
        Reply(body=b'{"model": "m1", "mess'),
    ],
    ids=["not-done", "error", "load", "empty", "cut"],
)
def test_a_fault_that_may_pass_is_tried_again(server: Loopback, reply: Reply) -> None:
    replies = iter([reply, whole("ok")])
    server.answer = lambda _: next(replies)
    completion = ask(server, settings={"max_retries": 1, "retry_delay_s": 0})
    assert (completion.text, completion.retries) == ("ok", 1)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lines(piece("Pa"), {"error": "the runner died"}), "broke off its answer: the runner died"),
        (lines(piece("Pa"), cut=True), "the answer was cut"),
        (Reply(chunks=[b"<html>"]), "not JSON: '<html>'; is the base URL right?"),
        (lines({"message": 3}), "wrong shape"),
    ],
    ids=["error", "reset", "html", "shape"],
)
def test_a_broken_stream_is_a_fault(server: Loopback, reply: Reply, message: str) -> None:
    with pytest.raises(ProviderError, match=message):
        streamed(server, reply)


def test_a_model_that_is_not_there_is_told_with_how_to_get_it(server: Loopback) -> None:
    reply = Reply(status=404, body=b'{"error":"model \\"m1\\" not found, try pulling it first"}')
    with pytest.raises(ProviderError, match=r"has no model 'm1'; get it with: ollama pull m1"):
        answered(server, reply)


def test_another_404_is_not_taken_for_a_missing_model(server: Loopback) -> None:
    with pytest.raises(ProviderError, match="HTTP 404"):
        answered(server, Reply(status=404, body=b"404 page not found"))


def test_numbers_that_are_none_are_unknown(server: Loopback) -> None:
    completion = answered(server, whole(prompt_eval_count=-1, eval_count=1e300, load_duration=None))
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (None, None)
    assert completion.load_s is None


# --- a prompt that does not fit ----------------------------------------------------------------

LONG = "word " * 600


def with_window(server: Loopback, read: int | None, parameters: str = "") -> None:
    def answer(asked: Asked) -> Reply:
        if asked.path == "/api/show":
            return Reply(body=json.dumps({"parameters": parameters}).encode())
        return whole(prompt_eval_count=read)

    server.answer = answer


def test_a_prompt_that_filled_the_window_is_flagged(server: Loopback) -> None:
    with_window(server, 512)
    completion = ask(server, question(LONG), parameters={"num_ctx": 512})
    assert completion.flags == ("truncated",)


def test_turns_that_were_dropped_from_the_front_are_noticed(server: Loopback) -> None:
    with_window(server, 20)
    assert ask(server, question(LONG)).flags == ("truncated",)


def test_the_window_in_the_models_own_file_counts(server: Loopback) -> None:
    with_window(server, 512, "num_thread   1\nnum_ctx                        512\n")
    assert ask(server, question("语" * 900)).flags == ("truncated",)


def test_a_prompt_that_was_read_whole_is_not_flagged(server: Loopback) -> None:
    with_window(server, 610, "num_ctx 2048")
    assert ask(server, question(LONG)).flags == ()


def test_a_short_prompt_costs_no_second_look(server: Loopback) -> None:
    with_window(server, 9)
    assert ask(server).flags == ()
    assert [asked.path for asked in server.requests] == ["/api/chat"]


def test_a_missing_count_alone_is_no_reason_to_flag(server: Loopback) -> None:
    with_window(server, None, "num_ctx 2048")
    assert ask(server, question(LONG)).flags == ()


@pytest.mark.parametrize(
    ("window", "least", "read", "lost"),
    [
        (Window(tokens=512), 100, 512, True),
        (Window(tokens=512), 600, None, True),
        (Window(tokens=512), 600, 300, True),
        (Window(tokens=512), 300, 20, True),
        (Window(tokens=512, counts_cached=False), 300, 20, False),
        (Window(tokens=512, counts_cached=False), 600, 20, True),
        (Window(tokens=512), 300, 511, False),
        (Window(tokens=512), 600, 700, False),  # the server has more room than it was asked for
        (Window(), 300, None, False),
        (Window(), 300, 400, False),
        (Window(), 300, 299, True),
    ],
)
def test_what_gives_a_cut_away(window: Window, least: int, read: int | None, lost: bool) -> None:
    assert window.lost(least=least, read=read) is lost


def test_the_least_number_of_tokens_is_the_number_of_words() -> None:
    def turn(role: str, text: str) -> Message:
        return Message(role=role, content=text)

    assert least_tokens([turn("system", "be brief"), turn("user", "a  b\n- c -- d")]) == 6
    assert least_tokens([turn("assistant", "<think> a b </think>"), turn("tool", "42")]) == 1
