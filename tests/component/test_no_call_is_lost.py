"""No tool call is lost: the ledger has exactly the calls that a server sent, in every API.

Random calls, several at once, in several rounds; streams are cut into pieces at random bytes. Ids are
unique, repeated or missing; arguments are nested, empty, full of Unicode, or no JSON at all.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import bakeoff
from support.endpoints import ENDPOINTS, Endpoint
from support.loopback import Asked, Loopback, Reply

Json = Any
CASES = 12
NAMES = ["weather", "time", "suche-2", "not_offered"]
TEXTS = [
    "",
    "Köln",
    "☔ \u2028 zero\u200bwidth",
    '"quoted" \\ back',
    "}{][",
    "data: x\n\n",
    "漢字" * 9,
]


@dataclass(frozen=True)
class Call:
    """A call as the server sends it; `text` is what it writes where arguments are text.

    One that is `at_once` comes in one piece of a stream, with the index 0, whichever it is.
    """

    id: str | None
    name: str
    arguments: Json
    text: str
    at_once: bool


def _value(chance: random.Random, depth: int = 0) -> Json:
    kind = chance.randrange(6 if depth < 3 else 4)
    if kind == 4:
        return [_value(chance, depth + 1) for _ in range(chance.randrange(3))]
    if kind == 5:
        return {chance.choice(TEXTS): _value(chance, depth + 1) for _ in range(chance.randrange(4))}
    return [chance.choice(TEXTS), chance.randrange(-5, 10**12), chance.random() < 0.5, None][kind]


def _calls(chance: random.Random, *, texts: bool, ids: bool) -> list[Call]:
    """Return the calls of one answer; with *texts*, some have arguments that are no JSON."""
    kind = chance.choice(["unique", "same", "none"] if ids else ["none"])
    made, at_once = [], chance.random() < 0.4
    for number in range(chance.randrange(1, 6)):
        arguments = {f"k{n}": _value(chance) for n in range(chance.randrange(4))}
        text = json.dumps(arguments, ensure_ascii=chance.random() < 0.5)
        if texts and not at_once and chance.random() < 0.15:
            text = chance.choice(["{broken", "", '{"a": 1'])
        call_id = {"unique": f"id-{chance.random()}-{number}", "same": "id", "none": None}[kind]
        made.append(Call(call_id, chance.choice(NAMES), arguments, text, at_once))
    return made


def _pieces(chance: random.Random, data: str) -> list[str]:
    """Return *data* in random pieces."""
    cuts = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(4))})
    return [data[a:b] for a, b in pairwise(cuts)] or [""]


def _split(chance: random.Random, data: bytes) -> list[bytes]:
    """Return *data* in pieces that end anywhere, also within a character."""
    pieces = []
    while data:
        size = chance.choice([1, 2, 7, 60, 500])
        pieces.append(data[:size])
        data = data[size:]
    return pieces


# --- each API's answer: whole, and as the events of a stream


def _chat(calls: Sequence[Call], _: random.Random) -> Json:
    listed = [
        {"type": "function", "function": {"name": c.name, "arguments": c.text}}
        | ({"id": c.id} if c.id else {})
        for c in calls
    ]
    message = {"role": "assistant", "content": None if calls else "done", "tool_calls": listed}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


def _chat_events(calls: Sequence[Call], chance: random.Random) -> list[Json]:
    events: list[Json] = []
    for number, call in enumerate(calls):
        named = {"id": call.id} if call.id else {}
        if call.at_once:
            function = {"name": call.name, "arguments": call.text}
            events.append({"index": 0, "function": function, **named})
            continue
        events.append({"index": number, "function": {"name": call.name, "arguments": ""}, **named})
        pieces = _pieces(chance, call.text)
        events += [{"index": number, "function": {"arguments": piece}} for piece in pieces]
    deltas: list[Json] = [{"choices": [{"delta": {"tool_calls": [event]}}]} for event in events]
    last = {"choices": [{"delta": {"content": "" if calls else "done"}, "finish_reason": "stop"}]}
    return [*deltas, last]


def _responses(calls: Sequence[Call], _: random.Random) -> Json:
    output: list[Json] = [
        {"type": "function_call", "name": c.name, "arguments": c.text}
        | ({"call_id": c.id} if c.id else {})
        for c in calls
    ]
    text = {"type": "message", "content": [{"type": "output_text", "text": "done"}]}
    return {"status": "completed", "output": output or [text]}


def _responses_events(calls: Sequence[Call], chance: random.Random) -> list[Json]:
    response = _responses(calls, chance)
    done = [
        {"type": "response.output_item.done", "output_index": number, "item": item}
        for number, item in enumerate(response["output"])
    ]
    last = {**response, "output": []} if chance.random() < 0.5 else response
    return [*done, {"type": "response.completed", "response": last}]


def _anthropic(calls: Sequence[Call], _: random.Random) -> Json:
    blocks: list[Json] = [
        {"type": "tool_use", "name": c.name, "input": c.arguments} | ({"id": c.id} if c.id else {})
        for c in calls
    ]
    content = blocks or [{"type": "text", "text": "done"}]
    return {"content": content, "stop_reason": "tool_use" if calls else "end_turn"}


def _anthropic_events(calls: Sequence[Call], chance: random.Random) -> list[Json]:
    events: list[Json] = [{"type": "message_start", "message": {"model": "m"}}]
    if not calls:
        block: Json = {"type": "text", "text": "done"}
        events.append({"type": "content_block_start", "index": 0, "content_block": block})
    for number, call in enumerate(calls):
        start: Json = {"type": "tool_use", "name": call.name, "input": {}}
        start |= {"id": call.id} if call.id else {}
        events.append({"type": "content_block_start", "index": number, "content_block": start})
        for piece in _pieces(chance, call.text):
            delta = {"type": "input_json_delta", "partial_json": piece}
            events.append({"type": "content_block_delta", "index": number, "delta": delta})
    reason = {"stop_reason": "tool_use" if calls else "end_turn"}
    return [*events, {"type": "message_delta", "delta": reason}, {"type": "message_stop"}]


def _gemini(calls: Sequence[Call], _: random.Random) -> Json:
    parts: list[Json] = [
        {"functionCall": {"name": c.name, "args": c.arguments} | ({"id": c.id} if c.id else {})}
        for c in calls
    ]
    content = {"role": "model", "parts": parts or [{"text": "done"}]}
    return {"candidates": [{"content": content, "finishReason": "STOP"}]}


def _gemini_events(calls: Sequence[Call], chance: random.Random) -> list[Json]:
    whole = _gemini(calls, chance)["candidates"][0]["content"]["parts"]
    cut = chance.randrange(len(whole) + 1)
    first = {"candidates": [{"content": {"parts": whole[:cut]}}]}
    last = {"candidates": [{"content": {"parts": whole[cut:]}, "finishReason": "STOP"}]}
    return [first, last]


def _ollama(calls: Sequence[Call], _: random.Random) -> Json:
    listed = [{"function": {"name": c.name, "arguments": c.arguments}} for c in calls]
    message = {"role": "assistant", "content": "" if calls else "done", "tool_calls": listed}
    return {"model": "m", "message": message, "done": True, "done_reason": "stop"}


def _ollama_events(calls: Sequence[Call], chance: random.Random) -> list[Json]:
    whole = _ollama(calls, chance)
    parts = [
        {"message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False}
        for call in whole["message"]["tool_calls"]
    ]
    text = {
        "message": {"content": whole["message"]["content"]},
        "done": True,
        "done_reason": "stop",
    }
    return [*parts, text]


Answer = Callable[[Sequence[Call], random.Random], Json]
ANSWERS: dict[str, tuple[Answer, Answer]] = {
    "openai-compatible": (_chat, _chat_events),
    "openai-responses": (_responses, _responses_events),
    "anthropic": (_anthropic, _anthropic_events),
    "gemini": (_gemini, _gemini_events),
    "ollama": (_ollama, _ollama_events),
}
RESULTS = ('"role": "tool"', '"tool_result"', '"function_call_output"', '"functionResponse"')


def _body(name: str, events: list[Json], chance: random.Random) -> Reply:
    lines = [json.dumps(event, ensure_ascii=chance.random() < 0.5) for event in events]
    if name == "ollama":
        data = "".join(f"{line}\n" for line in lines)
        kind = "application/x-ndjson"
    else:
        end = "data: [DONE]\n\n" if name == "openai-compatible" else ""
        data = "".join(f"data: {line}\n\n" for line in lines) + end
        kind = "text/event-stream"
    return Reply(headers={"Content-Type": kind}, chunks=_split(chance, data.encode()))


class Script:
    """Random calls for each test, round by round, and a server that sends them."""

    def __init__(self, name: str, *, stream: bool, seed: int) -> None:
        self.name, self._stream = name, stream
        chance = self._chance = random.Random(seed)
        # whether arguments are text on the wire, so that they may be anything
        texts = name.startswith("openai") or (name == "anthropic" and stream)
        self.as_text = texts
        self.rounds = {
            f"case-{number}": [
                _calls(chance, texts=texts, ids=name != "ollama")
                for _ in range(chance.randrange(1, 4))
            ]
            for number in range(CASES)
        }
        self._asked: Counter[str] = Counter()

    def answer(self, asked: Asked) -> Reply:
        case = re.findall(r"case-\d+", json.dumps(asked.body))[0]
        rounds, number = self.rounds[case], self._asked[case]
        self._asked[case] += 1
        calls = rounds[number] if number < len(rounds) else []
        whole, events = ANSWERS[self.name]
        if self._stream:
            return _body(self.name, events(calls, self._chance), self._chance)
        body = json.dumps(
            whole(calls, self._chance), ensure_ascii=self._chance.random() < 0.5
        ).encode()
        return Reply(headers={"Content-Type": "application/json"}, body=body)

    def sent(self, case: str) -> list[tuple[str | None, str, Json]]:
        """Return what was called: id, tool, and arguments as the wire had them."""
        return [
            (call.id, call.name, call.text or "{}" if self.as_text else call.arguments)
            for calls in self.rounds[case]
            for call in calls
        ]


def _suite(folder: Path) -> Path:
    tools = [{"name": name, "reply": "ok"} for name in NAMES[:-1]]
    tests = [{"id": f"case-{n}", "prompt": f"case-{n}", "tools": tools} for n in range(CASES)]
    path = folder / "suite.json"
    path.write_text(json.dumps({"tests": tests}))
    return path


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.name)
def test_the_ledger_has_exactly_the_calls_that_the_server_sent(
    endpoint: Endpoint, stream: bool, tmp_path: Path
) -> None:
    script = Script(endpoint.name, stream=stream, seed=CASES + stream)
    with Loopback(script.answer) as server:
        model = bakeoff.ModelSpec(
            provider=endpoint.name,
            name="m",
            base_url=server.url,
            api_key="no-secret-at-all",
            settings={"stream": stream, "max_retries": 0},
        )
        run = bakeoff.run(_suite(tmp_path), models=[model], output=tmp_path / "runs", parallel=1)
        last = {case: json.dumps(asked.body) for asked in server.requests
                for case in re.findall(r"case-\d+", json.dumps(asked.body))[:1]}  # fmt: skip
    stored = bakeoff.load_run(run.id, output=tmp_path / "runs")
    records = {record.task_id: record.attempt for record in stored.trials()}
    assert set(records) == set(script.rounds)
    for case, attempt in records.items():
        assert attempt.fault is None
        kept = attempt.outcome.tool_calls
        sent = script.sent(case)
        assert [
            (call.name, call.arguments if script.as_text else json.loads(call.arguments))
            for call in kept
        ] == [(name, arguments) for _, name, arguments in sent]
        assert all(
            call.id == call_id if call_id else call.id
            for call, (call_id, _, _) in zip(kept, sent, strict=True)
        )
        answered = [m for m in attempt.outcome.transcript if m.role == "tool"]
        assert [m.tool_call_id for m in answered] == [call.id for call in kept]
        assert sum(last[case].count(result) for result in RESULTS) == len(kept)
        assert attempt.outcome.answer == "done"
