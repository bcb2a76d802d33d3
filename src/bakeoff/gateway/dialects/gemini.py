"""Google's Gemini API, as programs speak it to the gateway."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec

from bakeoff.core.attachment import AttachedBytes
from bakeoff.core.outcome import Completion, Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.gateway.dialects.dialect import (
    GatewayDialect,
    ModelRequest,
    NotUnderstoodError,
    Problem,
    TokenCounts,
    ToolChoice,
    arguments_object,
    attached,
    decode,
    ending,
    event,
    given,
    left_out,
    text_only,
    user_message,
    written,
)

_MODES = {"ANY": "required", "NONE": "none", "AUTO": "auto", "VALIDATED": "auto"}
_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})


class FunctionCall(msgspec.Struct):
    """A call; the id is optional in this API."""

    name: str = ""
    args: dict[str, Json] | None = None
    id: str | None = None


class FunctionResponse(msgspec.Struct):
    """The result of a call."""

    name: str = ""
    response: Json = None
    id: str | None = None
    parts: list[dict[str, Json]] | None = None


class GeminiPart(msgspec.Struct, rename="camel"):
    """A piece of content, of whichever kind."""

    text: str | None = None
    thought: bool | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    inline_data: Json = None
    file_data: Json = None
    executable_code: Json = None


class GeminiContent(msgspec.Struct):
    """One turn."""

    parts: list[GeminiPart] | None = None
    role: str = "user"


class GeminiDeclared(msgspec.Struct, rename="camel"):
    """The name and the parameters of a tool: a JSON Schema, or the API's own kind of schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Json] | None = None
    parameters_json_schema: dict[str, Json] | None = None


class Calling(msgspec.Struct, rename="camel"):
    """Which tools may be called."""

    mode: str | None = None
    allowed_function_names: list[str] | None = None


class ToolConfig(msgspec.Struct, rename="camel"):
    """How tools are used."""

    function_calling_config: Calling | None = None


class GeminiThinking(msgspec.Struct, rename="camel"):
    """How much to think."""

    thinking_level: str | None = None
    thinking_budget: int | None = None


class GeminiGeneration(msgspec.Struct, rename="camel"):
    """The settings of a generation."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    max_output_tokens: int | None = None
    stop_sequences: list[str] | None = None
    seed: int | None = None
    candidate_count: int | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, Json] | None = None
    response_json_schema: dict[str, Json] | None = None
    thinking_config: GeminiThinking | None = None


class GeminiRequest(msgspec.Struct, rename="camel"):
    """The body of a request."""

    contents: list[GeminiContent]
    system_instruction: GeminiContent | str | None = None
    also_system: GeminiContent | str | None = msgspec.field(default=None, name="system_instruction")
    tools: list[dict[str, Json]] | None = None
    tool_config: ToolConfig | None = None
    generation_config: GeminiGeneration | None = None


class Counted(msgspec.Struct, rename="camel"):
    """What is to be counted: a whole question, or its contents alone."""

    contents: list[GeminiContent] | None = None
    generate_content_request: GeminiRequest | None = None


_questions = msgspec.json.Decoder(GeminiRequest)
_counted = msgspec.json.Decoder(Counted)


def read(body: bytes, *, model: str = "", stream: bool = False) -> ModelRequest:
    """Return the request in *body*; the URL says which model, and whether to stream."""
    return _asked(decode(body, _questions), model=model, stream=stream)


def read_to_count(body: bytes) -> ModelRequest:
    """Return what is to be counted."""
    counted = decode(body, _counted)
    return _asked(
        counted.generate_content_request or GeminiRequest(contents=counted.contents or []),
        model="",
        stream=False,
    )


def _asked(question: GeminiRequest, *, model: str, stream: bool) -> ModelRequest:
    wish = question.generation_config or GeminiGeneration()
    if (wish.candidate_count or 1) != 1:
        raise NotUnderstoodError("candidateCount: the gateway gives one candidate; leave it out")
    offered, notes = _tools(question.tools or ())
    calling = (question.tool_config or ToolConfig()).function_calling_config or Calling()
    tools, tool_choice = _choice(calling).over(offered)
    thinking = wish.thinking_config or GeminiThinking()
    schema = wish.response_json_schema or _lowered(wish.response_schema)
    unheard = left_out(
        topK=wish.top_k is not None,
        thinkingBudget=thinking.thinking_budget is not None,
        responseMimeType=wish.response_mime_type == "application/json" and schema is None,
    )
    return ModelRequest(
        model=model,
        system=_system(question.system_instruction or question.also_system),
        messages=tuple(_Heard().all(question.contents)),
        tools=tools,
        schema=schema if isinstance(schema, Mapping) else None,
        stream=stream,
        parameters=given(
            temperature=wish.temperature,
            top_p=wish.top_p,
            max_tokens=wish.max_output_tokens,
            stop=wish.stop_sequences or None,
            seed=wish.seed,
            reasoning_effort=thinking.thinking_level and thinking.thinking_level.lower(),
            tool_choice=tool_choice,
        ),
        notes=(*notes, *unheard),
    )


def _system(system: GeminiContent | str | None) -> tuple[str, ...]:
    if system is None or isinstance(system, str):
        return (system,) if system else ()
    texts = [_text_of(part, "the system instruction") for part in system.parts or ()]
    return tuple(text for text in texts if text)


class _Heard:
    """Reads turns, giving ids to calls that have none and finding the call that a result is of."""

    def __init__(self) -> None:
        self._calls = 0
        self._open: list[ToolCall] = []

    def all(self, contents: Sequence[GeminiContent]) -> Iterator[Message]:
        """Yield the messages of a conversation."""
        for content in contents:
            if content.role == "model":
                yield self._said(content.parts or [])
            else:
                yield from self._heard(content.parts or [])

    def _said(self, parts: Sequence[GeminiPart]) -> Message:
        calls = tuple(self._call(p.function_call) for p in parts if p.function_call)
        spoken = [p for p in parts if not p.thought and not p.function_call]
        thoughts = "".join(p.text or "" for p in parts if p.thought)
        return Message(
            role="assistant",
            content="".join(_text_of(part, "a turn of the model") for part in spoken),
            reasoning=thoughts or None,
            tool_calls=calls,
        )

    def _heard(self, parts: Sequence[GeminiPart]) -> Iterator[Message]:
        results = [p.function_response for p in parts if p.function_response]
        for result in results:
            if result.parts:
                raise text_only("parts", "the response of a function")
            content = _result(result.response)
            yield Message(role="tool", content=content, tool_call_id=self._answered(result))
        said = [_said(part) for part in parts if not part.function_response]
        if said or not results:
            yield user_message("user", said)

    def _call(self, call: FunctionCall) -> ToolCall:
        self._calls += 1
        key = call.id or f"{call.name}-{self._calls}"
        made = ToolCall(id=key, name=call.name, arguments=written(call.args or {}))
        self._open.append(made)
        return made

    def _answered(self, result: FunctionResponse) -> str:
        """Return the id of the call that *result* is of: that which it names, else the oldest."""
        matching = [c for c in self._open if result.id in {None, c.id} and c.name == result.name]
        if not matching:
            if result.id:
                return result.id
            raise NotUnderstoodError(f"a functionResponse of {result.name!r} follows no such call")
        self._open.remove(matching[0])
        return matching[0].id


def _said(part: GeminiPart) -> str | AttachedBytes:
    where = "a turn of the user"
    if not isinstance(part.inline_data, Mapping):
        return _text_of(part, where)
    return attached(f"data:;base64,{part.inline_data.get('data')}", "inlineData", where)


def _text_of(part: GeminiPart, where: str) -> str:
    if part.text is None:
        kinds = {"inlineData": part.inline_data, "fileData": part.file_data}
        kind = next((name for name, there in kinds.items() if there is not None), "something else")
        raise text_only(kind, where)
    return part.text


def _result(response: Json) -> str:
    """Return the result of a function: its `output` or `error` where it has nothing else."""
    if isinstance(response, Mapping) and len(response) == 1:
        ((key, value),) = response.items()
        if key in {"output", "error", "result"} and isinstance(value, str):
            return value
    return written(response if response is not None else {})


def _tools(offered: Sequence[Mapping[str, Json]]) -> tuple[list[Tool], list[str]]:
    tools: list[Tool] = []
    notes: list[str] = []
    for group in offered:
        for kind, declared in group.items():
            if kind not in {"functionDeclarations", "function_declarations"}:
                notes.append(f"a tool of the type {kind!r}")
                continue
            try:
                functions = msgspec.convert(declared or [], list[GeminiDeclared])
            except msgspec.ValidationError as error:
                raise NotUnderstoodError(f"{kind} has the wrong shape: {error}") from error
            tools.extend(_tool(tool) for tool in functions)
    return tools, notes


def _tool(declared: GeminiDeclared) -> Tool:
    schema = declared.parameters_json_schema or _lowered(declared.parameters)
    parameters = schema if isinstance(schema, Mapping) else {}
    description = declared.description or ""
    return Tool(name=declared.name, description=description, parameters=parameters)


def _lowered(schema: Json) -> Json:
    """Return the API's own kind of schema as JSON Schema, which has its types in small letters."""
    if isinstance(schema, list):
        return [_lowered(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    lowered = {key: _lowered(value) for key, value in schema.items()}
    kind = lowered.get("type")
    return (
        {**lowered, "type": kind.lower()} if isinstance(kind, str) and kind in _TYPES else lowered
    )


def _choice(calling: Calling) -> ToolChoice:
    mode = _MODES.get(calling.mode or "AUTO", "auto")
    allowed = calling.allowed_function_names or []
    if mode == "required" and len(allowed) == 1:
        return ToolChoice(name=allowed[0])
    return ToolChoice(mode=mode)


_ENDINGS = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "refusal": "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
}


class GeminiAnswer:
    """An answer of `generateContent`, or its one event."""

    def __init__(self, asked: ModelRequest, number: int) -> None:
        self._asked = asked
        self._number = number

    def whole(self, completion: Completion) -> dict[str, Json]:
        """Return the answer in one piece."""
        counts = TokenCounts.of(completion.usage)
        candidate: dict[str, Json] = {
            "content": {"role": "model", "parts": list(_parts(completion))},
            "finishReason": _ENDINGS.get(ending(completion), "STOP"),
            "index": 0,
        }
        usage: dict[str, Json] = {
            "promptTokenCount": counts.input,
            "candidatesTokenCount": max(counts.output - counts.reasoning, 0),
            "thoughtsTokenCount": counts.reasoning,
            "cachedContentTokenCount": counts.cached,
            "totalTokenCount": counts.input + counts.output,
        }
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": self._asked.model,
            "responseId": f"response-{self._number}",
        }

    def opening(self) -> bytes:
        """Return nothing: there is no event without content."""
        return b""

    def ping(self) -> bytes:
        """Return empty lines: some of Google's clients fail at a comment."""
        return b"\n\n"

    def events(self, completion: Completion) -> bytes:
        """Return the answer as one event."""
        return event(self.whole(completion))

    def broken(self, problem: Problem) -> bytes:
        """Return the error as the last event."""
        return event(error(problem))


def _parts(completion: Completion) -> Iterator[dict[str, Json]]:
    if completion.reasoning:
        yield {"text": completion.reasoning, "thought": True}
    if completion.text or not completion.tool_calls:
        yield {"text": completion.text}
    for call in completion.tool_calls:
        arguments = arguments_object(call)
        yield {"functionCall": {"id": call.id, "name": call.name, "args": arguments}}


def error(problem: Problem) -> dict[str, Json]:
    """Return an error in Google's format."""
    status = _STATUSES.get(problem.status, "UNAVAILABLE")
    return {"error": {"code": problem.status, "message": problem.message, "status": status}}


def gemini(model: str, *, stream: bool) -> GatewayDialect:
    """Return the dialect at the URL of *model*."""
    return GatewayDialect(
        read=partial(read, model=model, stream=stream), answer=GeminiAnswer, error=error
    )


COUNTING = GatewayDialect(read=read_to_count, answer=GeminiAnswer, error=error)
