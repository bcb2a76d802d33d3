"""Programs that speak to the gateway, one for each dialect, written from the dialects' documents.

A conversation is a list of turns that no dialect has: `system`, `user`, `said`, `result`. An asker
puts them into its own words, and reads what comes back: whole, or from a stream.
"""

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

from support.pictures import RED, b64, uri

Json = Any

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


@dataclass(kw_only=True)
class Turn:
    """One thing that was said; `calls` are (id, name, arguments)."""

    role: str
    text: str = ""
    calls: list[tuple[str, str, dict[str, Json]]] = field(default_factory=list)
    call_id: str | None = None
    name: str | None = None


def system(text: str) -> Turn:
    return Turn(role="system", text=text)


def user(text: str) -> Turn:
    return Turn(role="user", text=text)


def result(call: tuple[str, str, dict[str, Json]], text: str) -> Turn:
    return Turn(role="tool", text=text, call_id=call[0], name=call[1])


@dataclass(kw_only=True)
class Heard:
    """An answer as the program understood it."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, dict[str, Json]]] = field(default_factory=list)
    ended: str | None = None
    model: str | None = None
    tokens: tuple[int, int] | None = None

    def turn(self) -> Turn:
        return Turn(role="assistant", text=self.text, calls=self.calls)


def events_of(body: str) -> list[dict[str, Json]]:
    """The data of every event; `[DONE]` must be the last where it comes at all."""
    data = [line[5:].strip() for line in body.splitlines() if line.startswith("data:")]
    if "[DONE]" in data:
        assert data.index("[DONE]") == len(data) - 1
        data.pop()
    return [json.loads(item) for item in data]


class Chat:
    name = "chat"
    ends: ClassVar[Json] = {"stop": "stop", "tools": "tool_calls", "length": "length"}
    image: ClassVar[Json] = {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": uri(RED)}}],
            }
        ]
    }

    def path(self, *, stream: bool) -> str:
        return "/v1/chat/completions"

    def body(self, turns: list[Turn], *, stream: bool, tools: tuple[str, ...] = ()) -> Json:
        body: Json = {"model": "named-by-me", "messages": [self._message(t) for t in turns]}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": t, "description": t, "parameters": SCHEMA},
                }
                for t in tools
            ]
        return body

    def _message(self, turn: Turn) -> Json:
        if turn.role == "tool":
            return {"role": "tool", "tool_call_id": turn.call_id, "content": turn.text}
        message: Json = {"role": turn.role, "content": turn.text}
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": key,
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for key, name, arguments in turn.calls
            ]
        return message

    def whole(self, data: Json) -> Heard:
        choice = data["choices"][0]
        message = choice["message"]
        return Heard(
            text=message["content"] or "",
            reasoning=message.get("reasoning_content") or "",
            calls=[
                (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
                for c in message.get("tool_calls") or ()
            ],
            ended=choice["finish_reason"],
            model=data["model"],
            tokens=(data["usage"]["prompt_tokens"], data["usage"]["completion_tokens"]),
        )

    def streamed(self, body: str) -> Heard:
        assert body.rstrip().endswith("data: [DONE]")
        heard = Heard()
        drafts: dict[int, list[str]] = {}
        for event in events_of(body):
            heard.model = event["model"]
            if usage := event.get("usage"):
                heard.tokens = (usage["prompt_tokens"], usage["completion_tokens"])
            for choice in event["choices"]:
                delta = choice["delta"]
                heard.text += delta.get("content") or ""
                heard.reasoning += delta.get("reasoning_content") or ""
                for piece in delta.get("tool_calls") or ():
                    draft = drafts.setdefault(piece["index"], ["", "", ""])
                    draft[0] += piece.get("id") or ""
                    draft[1] += piece["function"].get("name") or ""
                    draft[2] += piece["function"].get("arguments") or ""
                heard.ended = choice["finish_reason"] or heard.ended
        heard.calls = [(d[0], d[1], json.loads(d[2])) for _, d in sorted(drafts.items())]
        return heard

    def error(self, data: Json) -> str:
        return data["error"]["message"]


class Responses:
    name = "responses"
    ends: ClassVar[Json] = {
        "stop": "completed",
        "tools": "completed",
        "length": "max_output_tokens",
    }
    image: ClassVar[Json] = {
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_image", "image_url": uri(RED)}],
            }
        ]
    }

    def path(self, *, stream: bool) -> str:
        return "/v1/responses"

    def body(self, turns: list[Turn], *, stream: bool, tools: tuple[str, ...] = ()) -> Json:
        body: Json = {"model": "named-by-me", "stream": stream, "store": False}
        if turns and turns[0].role == "system":
            body["instructions"] = turns[0].text
            turns = turns[1:]
        body["input"] = [item for turn in turns for item in self._items(turn)]
        if tools:
            body["tools"] = [
                {"type": "function", "name": t, "description": t, "parameters": SCHEMA}
                for t in tools
            ]
        return body

    def _items(self, turn: Turn) -> list[Json]:
        if turn.role == "tool":
            output = {"type": "function_call_output", "call_id": turn.call_id, "output": turn.text}
            return [output]
        kind = "output_text" if turn.role == "assistant" else "input_text"
        items: list[Json] = []
        if turn.text:
            content = [{"type": kind, "text": turn.text}]
            items.append({"type": "message", "role": turn.role, "content": content})
        for key, name, arguments in turn.calls:
            call = {"type": "function_call", "call_id": key, "name": name}
            items.append({**call, "arguments": json.dumps(arguments)})
        return items

    def whole(self, data: Json) -> Heard:
        heard = Heard(model=data["model"])
        for item in data["output"]:
            if item["type"] == "message":
                heard.text += "".join(p["text"] for p in item["content"])
            elif item["type"] == "reasoning":
                heard.reasoning += "".join(p["text"] for p in item["summary"])
            else:
                call = (item["call_id"], item["name"], json.loads(item["arguments"]))
                heard.calls.append(call)
        details = data["incomplete_details"]
        heard.ended = details["reason"] if details else data["status"]
        heard.tokens = (data["usage"]["input_tokens"], data["usage"]["output_tokens"])
        return heard

    def streamed(self, body: str) -> Heard:
        events = events_of(body)
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        assert events[0]["type"] == "response.created"
        heard = self.whole(events[-1]["response"])
        texts = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
        assert "".join(texts) == heard.text
        arguments = [
            e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta"
        ]
        assert [json.loads(a) for a in arguments] == [c[2] for c in heard.calls]
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        assert done == events[-1]["response"]["output"]
        return heard

    def error(self, data: Json) -> str:
        return data["error"]["message"]


class Messages:
    name = "messages"
    ends: ClassVar[Json] = {"stop": "end_turn", "tools": "tool_use", "length": "max_tokens"}
    image: ClassVar[Json] = {
        "max_tokens": 9,
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": b64(RED)},
                    }
                ],
            }
        ],
    }

    def path(self, *, stream: bool) -> str:
        return "/v1/messages"

    def body(self, turns: list[Turn], *, stream: bool, tools: tuple[str, ...] = ()) -> Json:
        body: Json = {"model": "named-by-me", "max_tokens": 4096, "stream": stream}
        if turns and turns[0].role == "system":
            body["system"] = [{"type": "text", "text": turns[0].text}]
            turns = turns[1:]
        body["messages"] = self._merged([self._message(t) for t in turns])
        if tools:
            body["tools"] = [{"name": t, "description": t, "input_schema": SCHEMA} for t in tools]
        return body

    def _message(self, turn: Turn) -> Json:
        if turn.role == "tool":
            block = {"type": "tool_result", "tool_use_id": turn.call_id, "content": turn.text}
            return {"role": "user", "content": [block]}
        content: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
        for key, name, arguments in turn.calls:
            content.append({"type": "tool_use", "id": key, "name": name, "input": arguments})
        return {"role": turn.role, "content": content}

    def _merged(self, messages: list[Json]) -> list[Json]:
        merged: list[Json] = []
        for message in messages:
            if merged and merged[-1]["role"] == message["role"]:
                merged[-1]["content"] += message["content"]
            else:
                merged.append(message)
        return merged

    def whole(self, data: Json) -> Heard:
        heard = Heard(model=data["model"], ended=data["stop_reason"])
        for block in data["content"]:
            if block["type"] == "text":
                heard.text += block["text"]
            elif block["type"] == "thinking":
                heard.reasoning += block["thinking"]
            else:
                heard.calls.append((block["id"], block["name"], block["input"]))
        usage = data["usage"]
        heard.tokens = (
            usage["input_tokens"] + usage["cache_read_input_tokens"],
            usage["output_tokens"],
        )
        return heard

    def streamed(self, body: str) -> Heard:
        events = [e for e in events_of(body) if e["type"] != "ping"]
        assert events[0]["type"] == "message_start"
        assert events[-1]["type"] == "message_stop"
        message = events[0]["message"]
        assert message["content"] == []
        blocks: list[Json] = []
        for event in events:
            if event["type"] == "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append({**event["content_block"]})
            elif event["type"] == "content_block_delta":
                self._add(blocks[event["index"]], event["delta"])
            elif event["type"] == "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block.pop("written"))
        return self.whole({**message, "content": blocks})

    def _add(self, block: Json, delta: Json) -> None:
        if delta["type"] == "input_json_delta":
            block["written"] = block.get("written", "") + delta["partial_json"]
        else:
            field_ = "thinking" if delta["type"] == "thinking_delta" else "text"
            block[field_] += delta[field_]

    def error(self, data: Json) -> str:
        assert data["type"] == "error"
        return data["error"]["message"]


class Gemini:
    name = "gemini"
    ends: ClassVar[Json] = {"stop": "STOP", "tools": "STOP", "length": "MAX_TOKENS"}
    image: ClassVar[Json] = {
        "contents": [
            {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": b64(RED)}}]}
        ]
    }

    def path(self, *, stream: bool) -> str:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/named-by-me:{verb}"

    def body(self, turns: list[Turn], *, stream: bool, tools: tuple[str, ...] = ()) -> Json:
        body: Json = {}
        if turns and turns[0].role == "system":
            body["systemInstruction"] = {"parts": [{"text": turns[0].text}]}
            turns = turns[1:]
        body["contents"] = [self._content(turn) for turn in turns]
        if tools:
            declared = [
                {"name": t, "description": t, "parametersJsonSchema": SCHEMA} for t in tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
        return body

    def _content(self, turn: Turn) -> Json:
        if turn.role == "tool":
            response = {"id": turn.call_id, "name": turn.name, "response": {"output": turn.text}}
            return {"role": "user", "parts": [{"functionResponse": response}]}
        parts: list[Json] = [{"text": turn.text}] if turn.text else []
        for key, name, arguments in turn.calls:
            parts.append({"functionCall": {"id": key, "name": name, "args": arguments}})
        return {"role": "model" if turn.role == "assistant" else "user", "parts": parts}

    def whole(self, data: Json) -> Heard:
        candidate = data["candidates"][0]
        heard = Heard(ended=candidate["finishReason"], model=data["modelVersion"])
        for part in candidate["content"]["parts"]:
            if call := part.get("functionCall"):
                heard.calls.append((call["id"], call["name"], call["args"]))
            elif part.get("thought"):
                heard.reasoning += part["text"]
            else:
                heard.text += part["text"]
        usage = data["usageMetadata"]
        said = usage["candidatesTokenCount"] + usage["thoughtsTokenCount"]
        heard.tokens = (usage["promptTokenCount"], said)
        return heard

    def streamed(self, body: str) -> Heard:
        (event,) = events_of(body)
        return self.whole(event)

    def error(self, data: Json) -> str:
        assert isinstance(data["error"]["status"], str)
        return data["error"]["message"]


Requester = Chat | Responses | Messages | Gemini

ASKERS: list[Requester] = [Chat(), Responses(), Messages(), Gemini()]
