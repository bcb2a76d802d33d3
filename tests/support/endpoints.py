"""Model endpoints on loopback, one for each adapter: they call a tool, then answer.

Each says what it was sent in words that no API has, so that one test can compare them all.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.ports import Model
from bakeoff.models.adapters import anthropic, gemini, ollama, openai_compatible, openai_responses
from support.askers import Turn
from support.loopback import Asked, Loopback, Reply

Json = Any

CALL = ("call_Köln", "weather", {"city": "Köln", "days": [1, 2]})
LOOKING = "I will look."
FINAL = "In Köln it rains – ☔."
TOKENS = (17, 5)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A server for one adapter."""

    name: str
    build: Callable[[ModelSpec], Model]
    answer: Callable[[Asked], Reply]
    seen: Callable[[Json], list[Turn]]
    gives_ids: bool = True

    def model(self, server: Loopback) -> Model:
        return self.build(
            ModelSpec(
                provider=self.name,
                name="m",
                base_url=server.url,
                api_key="the-real-key",
                settings={"max_retries": 0},
            )
        )


def _body(data: Json) -> Reply:
    return Reply(headers={"Content-Type": "application/json"}, body=json.dumps(data).encode())


def _calls(asked: Asked) -> bool:
    """Whether the first answer is due: no result of a tool was sent yet."""
    sent = json.dumps(asked.body)
    results = ('"role": "tool"', '"tool_result"', '"function_call_output"', '"functionResponse"')
    return not any(result in sent for result in results)


# --- OpenAI's chat API


def _chat(asked: Asked) -> Reply:
    message: Json = {"role": "assistant", "content": FINAL}
    if _calls(asked):
        function = {"name": CALL[1], "arguments": json.dumps(CALL[2])}
        calls = [{"id": CALL[0], "type": "function", "function": function}]
        message = {"role": "assistant", "content": LOOKING, "tool_calls": calls}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": TOKENS[0], "completion_tokens": TOKENS[1]}
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return _body({"model": "m", "choices": choices, "usage": usage})


def _chat_seen(body: Json) -> list[Turn]:
    return [
        Turn(
            role=m["role"],
            text=m["content"] or "",
            calls=[
                (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
                for c in m.get("tool_calls", ())
            ],
            call_id=m.get("tool_call_id"),
        )
        for m in body["messages"]
    ]


# --- OpenAI's Responses API


def _responses(asked: Asked) -> Reply:
    text = LOOKING if _calls(asked) else FINAL
    content = [{"type": "output_text", "text": text}]
    output: list[Json] = [{"type": "message", "role": "assistant", "content": content}]
    if _calls(asked):
        call = {"type": "function_call", "call_id": CALL[0], "name": CALL[1]}
        output.append({**call, "arguments": json.dumps(CALL[2])})
    usage = {"input_tokens": TOKENS[0], "output_tokens": TOKENS[1]}
    return _body({"status": "completed", "model": "m", "output": output, "usage": usage})


def _responses_seen(body: Json) -> list[Turn]:
    turns: list[Turn] = []
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            turns.append(Turn(role="tool", text=item["output"], call_id=item["call_id"]))
        elif kind == "function_call":
            call = (item["call_id"], item["name"], json.loads(item["arguments"]))
            turns[-1].calls.append(call)
        else:
            content = item["content"]
            if isinstance(content, list):
                content = "".join(part["text"] for part in content)
            turns.append(Turn(role=item["role"], text=content))
    return turns


# --- Anthropic's Messages API


def _messages(asked: Asked) -> Reply:
    content: list[Json] = [{"type": "text", "text": LOOKING if _calls(asked) else FINAL}]
    if _calls(asked):
        content.append({"type": "tool_use", "id": CALL[0], "name": CALL[1], "input": CALL[2]})
    reason = "tool_use" if _calls(asked) else "end_turn"
    usage = {"input_tokens": TOKENS[0], "output_tokens": TOKENS[1]}
    return _body({"model": "m", "content": content, "stop_reason": reason, "usage": usage})


def _messages_seen(body: Json) -> list[Turn]:
    turns = [Turn(role="system", text=body["system"])] if "system" in body else []
    for message in body["messages"]:
        content = message["content"]
        blocks: list[Any] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
        results = [b for b in blocks if b["type"] == "tool_result"]
        turns += [Turn(role="tool", text=b["content"], call_id=b["tool_use_id"]) for b in results]
        if results:
            continue
        turns.append(
            Turn(
                role=message["role"],
                text="".join(b["text"] for b in blocks if b["type"] == "text"),
                calls=[(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"],
            )
        )
    return turns


# --- Google's Gemini API


def _gemini(asked: Asked) -> Reply:
    parts: list[Json] = [{"text": LOOKING if _calls(asked) else FINAL}]
    if _calls(asked):
        parts.append({"functionCall": {"id": CALL[0], "name": CALL[1], "args": CALL[2]}})
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    usage = {"promptTokenCount": TOKENS[0], "candidatesTokenCount": TOKENS[1]}
    return _body({"candidates": [candidate], "modelVersion": "m", "usageMetadata": usage})


def _gemini_seen(body: Json) -> list[Turn]:
    turns: list[Turn] = []
    if "systemInstruction" in body:
        text = "".join(part["text"] for part in body["systemInstruction"]["parts"])
        turns.append(Turn(role="system", text=text))
    for content in body["contents"]:
        parts = content["parts"]
        results = [p["functionResponse"] for p in parts if "functionResponse" in p]
        turns += [Turn(role="tool", text=r["response"]["output"], call_id=r["id"]) for r in results]
        if results:
            continue
        asked = [p["functionCall"] for p in parts if "functionCall" in p]
        turns.append(
            Turn(
                role="assistant" if content["role"] == "model" else content["role"],
                text="".join(p.get("text", "") for p in parts),
                calls=[(c["id"], c["name"], c["args"]) for c in asked],
            )
        )
    return turns


# --- Ollama's own API; older servers give no ids


def _ollama(asked: Asked) -> Reply:
    message: Json = {"role": "assistant", "content": LOOKING if _calls(asked) else FINAL}
    if _calls(asked):
        message["tool_calls"] = [{"function": {"name": CALL[1], "arguments": CALL[2]}}]
    counts = {"prompt_eval_count": TOKENS[0], "eval_count": TOKENS[1], "load_duration": 0}
    return _body({"model": "m", "message": message, "done": True, "done_reason": "stop", **counts})


def _ollama_seen(body: Json) -> list[Turn]:
    return [
        Turn(
            role=m["role"],
            text=m["content"],
            calls=[
                (c["id"], c["function"]["name"], c["function"]["arguments"])
                for c in m.get("tool_calls", ())
            ],
            call_id=m.get("tool_call_id"),
        )
        for m in body["messages"]
    ]


ENDPOINTS = [
    Endpoint(
        name="openai-compatible", build=openai_compatible.build, answer=_chat, seen=_chat_seen
    ),
    Endpoint(
        name="openai-responses",
        build=openai_responses.build,
        answer=_responses,
        seen=_responses_seen,
    ),
    Endpoint(name="anthropic", build=anthropic.build, answer=_messages, seen=_messages_seen),
    Endpoint(name="gemini", build=gemini.build, answer=_gemini, seen=_gemini_seen),
    Endpoint(name="ollama", build=ollama.build, answer=_ollama, seen=_ollama_seen, gives_ids=False),
]
