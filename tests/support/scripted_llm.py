"""A model on loopback that plays a script: it calls whatever shell tool it is offered, step by step.

It speaks OpenAI's chat and Responses APIs and Anthropic's Messages, whole and streamed. It keeps no
state: the step is the number of tool results in the request, so that any number of agents may talk
to it at once. It counts what it was asked and the tokens that it charged for.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.loopback import Asked, Loopback, Reply, sse

_JSON = {"Content-Type": "application/json"}
_SHELLS: Mapping[str, str] = {  # tools that run a command, and what they call it
    "exec_command": "cmd",
    "shell_command": "command",
    "run_terminal_command": "command",
    "run_shell_command": "command",
    "Bash": "command",
    "bash": "command",
    "run": "command",
}
_DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, kw_only=True)
class Script:
    """Commands to run one after another, then what is said; `plain` for agents without tools."""

    steps: tuple[str, ...]
    final: str
    plain: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What the model says next: a call of a tool, or a text."""

    text: str | None = None
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tokens_in: int = 1
    tokens_out: int = 1

    @property
    def written(self) -> str:
        return json.dumps(self.arguments)


@dataclass(kw_only=True)
class ScriptedLlm:
    """The server as a test sees it; with a `key`, whoever does not show it is refused."""

    url: str
    script: Script
    key: str | None = None
    prompts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    asked: list[Asked] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked) -> Reply:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        shown = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key")
        if self.key is not None and shown != self.key:
            return _whole({"error": {"message": "wrong key", "type": "auth"}}, status=401)
        path = asked.path.partition("?")[0]
        speak = next((speak for end, speak in _DIALECTS.items() if path.endswith(end)), None)
        if speak is None:
            return _whole({"error": {"message": f"no {path} here"}}, status=404)
        said, reply = speak(self.script, asked.body)
        with self._lock:
            self.asked.append(asked)
            self.prompts += 1
            self.input_tokens += said.tokens_in
            self.output_tokens += said.tokens_out
        return reply


@contextmanager
def scripted_llm(script: Script, *, key: str | None = None) -> Iterator[ScriptedLlm]:
    """Serve *script* for the length of the block."""
    with Loopback() as server:
        llm = ScriptedLlm(url=server.url, script=script, key=key)
        server.answer = llm.answer
        yield llm


# --- what comes next --------------------------------------------------------------------------


def _next(script: Script, body: Mapping[str, Any], tools: Sequence[str], done: int) -> _Said:
    shell = next((name for name in _SHELLS if name in tools), None)
    if shell is None or done >= len(script.steps):
        text = script.final
        if shell is None and script.plain:
            spoken = sum(m.get("role") == "assistant" for m in body["messages"])
            text = script.plain[min(spoken, len(script.plain) - 1)]
        said: dict[str, Any] = {"text": text}
    else:
        arguments: dict[str, Any] = {_SHELLS[shell]: script.steps[done]}
        if shell in {"Bash", "bash", "run_shell_command"}:
            arguments["description"] = "run a command"
        if shell == "run_shell_command":
            arguments["is_background"] = False
        said = {"tool": shell, "arguments": arguments}
    counts: dict[str, Any] = {
        "tokens_in": len(json.dumps(body)) // 4,
        "tokens_out": len(json.dumps(said)) // 4,
    }
    return _Said(**said, **counts)


def _whole(data: Mapping[str, Any], *, status: int = 200) -> Reply:
    return Reply(status=status, headers=dict(_JSON), body=json.dumps(data).encode())


def _named(events: Sequence[Mapping[str, Any]]) -> Reply:
    return sse(*(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events))


# --- the three dialects -----------------------------------------------------------------------


def _chat(script: Script, body: Mapping[str, Any]) -> tuple[_Said, Reply]:
    messages = body["messages"]
    tools = [t["function"]["name"] for t in body.get("tools") or []]
    done = sum(m["role"] == "tool" for m in messages)
    said = _next(script, body, tools, done)
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.tool:
        function = {"name": said.tool, "arguments": said.written}
        message["tool_calls"] = [
            {"index": 0, "id": f"call_{done}", "type": "function", "function": function}
        ]
    ending = "tool_calls" if said.tool else "stop"
    usage = {
        "prompt_tokens": said.tokens_in,
        "completion_tokens": said.tokens_out,
        "total_tokens": said.tokens_in + said.tokens_out,
    }
    about = {"id": "chat_1", "created": 1, "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": ending}
        return said, _whole(
            {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
        )
    about["object"] = "chat.completion.chunk"
    return said, sse(
        {**about, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": ending}]},
        {**about, "choices": [], "usage": usage},
        _DONE,
    )


def _responses(script: Script, body: Mapping[str, Any]) -> tuple[_Said, Reply]:
    given = body["input"] if isinstance(body["input"], list) else []
    done = sum(item.get("type") == "function_call_output" for item in given)
    said = _next(script, body, [t.get("name") for t in body.get("tools") or []], done)
    item: dict[str, Any] = {"id": f"item_{done}", "status": "completed"}
    if said.tool:
        call = {"call_id": f"call_{done}", "name": said.tool, "arguments": said.written}
        item |= {"type": "function_call", **call}
    else:
        text: dict[str, Any] = {"type": "output_text", "text": said.text, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [text]}
    usage = {
        "input_tokens": said.tokens_in,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": said.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": said.tokens_in + said.tokens_out,
    }
    response = {
        "id": f"resp_{done}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body["model"],
        "output": [item],
        "usage": usage,
    }
    if not body.get("stream"):
        return said, _whole(response)
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    return said, _named([{**e, "sequence_number": n} for n, e in enumerate(events)])


def _messages(script: Script, body: Mapping[str, Any]) -> tuple[_Said, Reply]:
    blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    done = sum(block.get("type") == "tool_result" for block in blocks)
    said = _next(script, body, [t.get("name") for t in body.get("tools") or []], done)
    block: dict[str, Any] = {"type": "text", "text": said.text}
    begun: dict[str, Any] = {"type": "text", "text": ""}
    piece: dict[str, Any] = {"type": "text_delta", "text": said.text}
    if said.tool:
        block = {"type": "tool_use", "id": f"toolu_{done}", "name": said.tool}
        begun = {**block, "input": {}}
        block["input"] = dict(said.arguments)
        piece = {"type": "input_json_delta", "partial_json": said.written}
    message = {
        "id": f"msg_{done}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [block],
        "stop_reason": "tool_use" if said.tool else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": said.tokens_in, "output_tokens": said.tokens_out},
    }
    if not body.get("stream"):
        return said, _whole(message)
    return said, _named(
        [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": begun},
            {"type": "content_block_delta", "index": 0, "delta": piece},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
                "usage": {"output_tokens": said.tokens_out},
            },
            {"type": "message_stop"},
        ]
    )


_DIALECTS = {"/chat/completions": _chat, "/responses": _responses, "/messages": _messages}
