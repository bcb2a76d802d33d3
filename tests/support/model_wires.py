"""Every HTTP adapter of the contract suite: what its provider sends for the same few answers.

A further adapter is one more line in WIRES.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bakeoff.core.outcome import Usage
from bakeoff.models.adapters import anthropic, gemini, ollama, openai_compatible, openai_responses
from support.adapters import Adapter, body
from support.loopback import Reply, sse

Data = dict[str, Any]
NO_MORE = "data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True)
class Wire:
    """An adapter, and its provider's way to say things.

    `answer` is a whole answer with a text; `usage` is what its counts mean. `pieces` is a stream that
    says "The answer": the first is before any text, and `enough` of them make it whole.
    """

    adapter: Adapter
    answer: Callable[[str], Data]
    counts: str
    usage: Usage
    call: Data
    pieces: tuple[bytes, ...]
    enough: int
    no_end: str
    key_header: tuple[str, str]
    no_url: str | None

    def __str__(self) -> str:
        return self.adapter.provider

    def whole(self, text: str = "4", **extra: Any) -> Reply:
        return body({**self.answer(text), **extra})

    def stream(self, first: int | None = None) -> Reply:
        return Reply(chunks=self.pieces[:first])

    def error(self, text: str, status: int, **headers: str) -> Reply:
        return body({"error": {"message": text}}, status=status, **headers)


def _sse(*events: Data | str) -> tuple[bytes, ...]:
    return tuple(sse(*events).chunks or ())


# --- Anthropic


def _claude(text: str, **rest: Any) -> Data:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "served",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 3},
        **rest,
    }


_CLAUDE_CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Köln"}}


def _claude_event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


def _claude_text(text: str) -> str:
    piece = {"type": "text_delta", "text": text}
    return _claude_event("content_block_delta", index=0, delta=piece)


ANTHROPIC = Wire(
    adapter=Adapter(build=anthropic.build, provider="anthropic", name="m", api_key="k"),
    answer=_claude,
    counts="usage",
    usage=Usage(input_tokens=10, output_tokens=3, reasoning_tokens=None, cached_tokens=None),
    call=_claude("", content=[_CLAUDE_CALL], stop_reason="tool_use"),
    pieces=_sse(
        _claude_event("message_start", message=_claude("", content=[], stop_reason=None)),
        _claude_event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + _claude_text("The "),
        _claude_text("answer") + _claude_event("content_block_stop", index=0),
        _claude_event("message_delta", delta={"stop_reason": "end_turn"}, usage={}),
        _claude_event("message_stop"),
    ),
    enough=5,
    no_end="ended before the answer did: no message_stop came",
    key_header=("x-api-key", "k"),
    no_url=r"--base-url https://api\.anthropic\.com",
)


# --- Gemini


def _gemini(text: str, **rest: Any) -> Data:
    parts: list[Data] = rest.pop("parts", [{"text": text}])
    candidate: Data = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    candidate |= rest.pop("candidate", {})
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 3, "totalTokenCount": 13}
    return {"candidates": [candidate], "modelVersion": "served", "usageMetadata": usage, **rest}


GEMINI = Wire(
    adapter=Adapter(build=gemini.build, provider="google", name="m", api_key="k", versioned=False),
    answer=_gemini,
    counts="usageMetadata",
    usage=Usage(input_tokens=10, output_tokens=3, reasoning_tokens=0, cached_tokens=0),
    call=_gemini(
        "", parts=[{"functionCall": {"id": "f1", "name": "weather", "args": {"city": "Köln"}}}]
    ),
    pieces=_sse(
        {"modelVersion": "served"},
        _gemini("The ", candidate={"finishReason": None}),
        _gemini("answer"),
    ),
    enough=3,
    no_end="ended before the answer did: no finishReason came",
    key_header=("x-goog-api-key", "k"),
    no_url="--base-url https://generativelanguage",
)


# --- OpenAI: the Responses API, and chat


def _response(text: str, **rest: Any) -> Data:
    message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return {
        "id": "resp_1",
        "status": "completed",
        "model": "served",
        "output": [message],
        "usage": {"input_tokens": 10, "output_tokens": 3},
        **rest,
    }


_RESPONSE_CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather"}


def _response_event(kind: str, **data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"


RESPONSES = Wire(
    adapter=Adapter(
        build=openai_responses.build, provider="openai-responses", name="m", api_key="k"
    ),
    answer=_response,
    counts="usage",
    usage=Usage(input_tokens=10, output_tokens=3, reasoning_tokens=None, cached_tokens=None),
    call=_response("", output=[{**_RESPONSE_CALL, "arguments": '{"city": "Köln"}'}]),
    pieces=_sse(
        _response_event("response.created", response=_response("", status="in_progress")),
        _response_event("response.output_text.delta", delta="The "),
        _response_event("response.output_text.delta", delta="answer"),
        _response_event("response.completed", response=_response("The answer")),
    ),
    enough=4,
    no_end="ended before the answer did: no response.completed came",
    key_header=("Authorization", "Bearer k"),
    no_url=r"--base-url https://api\.openai\.com/v1",
)


def _chat(text: str, **rest: Any) -> Data:
    message = {"role": "assistant", "content": text, **rest.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": rest.pop("finish", "stop")}
    usage = {"prompt_tokens": 10, "completion_tokens": 3}
    return {"model": "served", "choices": [choice], "usage": usage, **rest}


def _chat_delta(text: str, finish: str | None = None) -> Data:
    return {
        "model": "served",
        "choices": [{"delta": {"content": text}, "finish_reason": finish}],
    }


_CHAT_CALL = {"name": "weather", "arguments": '{"city": "Köln"}'}
CHAT = Wire(
    adapter=Adapter(
        build=openai_compatible.build, provider="openai-compatible", name="m", api_key="k"
    ),
    answer=_chat,
    counts="usage",
    usage=Usage(input_tokens=10, output_tokens=3, reasoning_tokens=None, cached_tokens=None),
    call=_chat(
        "",
        finish="tool_calls",
        message={"tool_calls": [{"id": "c1", "type": "function", "function": _CHAT_CALL}]},
    ),
    pieces=_sse(
        _chat_delta(""),
        _chat_delta("The "),
        _chat_delta("answer"),
        _chat_delta("", "stop"),
        NO_MORE,
    ),
    enough=4,
    no_end="ended before the answer did",
    key_header=("Authorization", "Bearer k"),
    no_url="--base-url",
)


# --- Ollama


def _ollama(text: str, **rest: Any) -> Data:
    message = {"role": "assistant", "content": text, **rest.pop("message", {})}
    counts = {"prompt_eval_count": 10, "eval_count": 3, "prompt_eval_cached_count": 4}
    data = {"model": "served", "message": message, "done": True, "done_reason": "stop"}
    return {**data, **counts, "load_duration": 0, **rest}


def _line(data: Data) -> bytes:
    return json.dumps(data).encode() + b"\n"


OLLAMA = Wire(
    adapter=Adapter(build=ollama.build, provider="ollama", name="m", api_key="k"),
    answer=_ollama,
    counts="",
    usage=Usage(input_tokens=10, output_tokens=3, reasoning_tokens=None, cached_tokens=4),
    call=_ollama(
        "",
        message={"tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Köln"}}}]},
    ),
    pieces=(
        _line({"model": "served", "message": {"role": "assistant", "content": ""}, "done": False}),
        _line({"model": "served", "message": {"content": "The "}, "done": False}),
        _line({"model": "served", "message": {"content": "answer"}, "done": False}),
        _line(_ollama("")),
    ),
    enough=4,
    no_end="no `done` came",
    key_header=("Authorization", "Bearer k"),
    no_url=None,
)

WIRES = [ANTHROPIC, GEMINI, RESPONSES, CHAT, OLLAMA]
