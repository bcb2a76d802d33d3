"""What OpenAI's two APIs have in common: content in parts, arguments, choices of tools, errors."""

from collections.abc import Mapping

import msgspec

from bakeoff.core.values import Json
from bakeoff.gateway.asked import NotUnderstoodError, ToolChoice, text_only
from bakeoff.gateway.dialect import Problem
from bakeoff.gateway.wire import written

_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})


class Part(msgspec.Struct):
    """A piece of content."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None


Content = str | list[Part | str] | None


def text_in(content: Content, where: str) -> str:
    """Return the text of some content, whose parts are lines of it."""
    parts = content if isinstance(content, list) else [content or ""]
    return "\n".join(part if isinstance(part, str) else _text(part, where) for part in parts)


def _text(part: Part, where: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if part.type not in _TEXTS:
        raise text_only(part.type, where)
    return part.text or ""


def arguments_text(arguments: Json) -> str:
    """Return the arguments of a call as JSON; some programs send them as data, or not at all."""
    return "{}" if arguments in (None, "") else written(arguments)


def tool_choice(wish: Json) -> ToolChoice:
    """Return which tools may be called; the name of one stands in `function`, or right here."""
    if not isinstance(wish, Mapping):
        return ToolChoice(mode=wish if isinstance(wish, str) else "auto")
    function = wish.get("function", wish)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise NotUnderstoodError(f"tool_choice {wish.get('type')!r} names no function")
    return ToolChoice(name=name)


def error(problem: Problem) -> dict[str, Json]:
    """Return an error as OpenAI's APIs have it."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    said: dict[str, Json] = {
        "message": problem.message,
        "type": kind,
        "param": None,
        "code": problem.code,
    }
    return {"error": said}
