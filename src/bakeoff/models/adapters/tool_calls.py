"""Tool calls as models write them, and the reasoning that a provider wants back with them.

Calls come in pieces, and with arguments that may be no JSON at all. Signed thinking (Anthropic),
thought signatures (Gemini) and reasoning items (OpenAI Responses) must stand beside the tool calls
they came with when the conversation continues. The adapter keeps them by what a message shows; a
message that an agent changed is sent as it is now.
"""

import json
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

from bakeoff._lib.sanitize import well_formed
from bakeoff.core.outcome import Completion, Tool
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json
from bakeoff.models.client.json_fields import written
from bakeoff.models.client.retry import RetryableError


def function_tool(tool: Tool) -> dict[str, Json]:
    """Return *tool* as the APIs that follow OpenAI's chat take it."""
    function: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def tool_call(key: str, name: str, arguments: Json) -> ToolCall:
    """Return the call with the id *key*; arguments that came as data are written as JSON."""
    if not name:
        raise RetryableError("the answer calls a tool without a name")
    text = (
        arguments if isinstance(arguments, str) else written({} if arguments is None else arguments)
    )
    return ToolCall(
        id=well_formed(key), name=well_formed(name), arguments=well_formed(text) or "{}"
    )


def arguments_of(call: ToolCall) -> Mapping[str, Json]:
    """Return the arguments as the object that some APIs want back; what is none is wrapped."""
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": call.arguments}


class CalledNames:
    """The names of calls by their id, for APIs that want them with a result; ids may repeat."""

    def __init__(self) -> None:
        self._names: dict[str, deque[str]] = {}

    def add(self, calls: Sequence[ToolCall]) -> None:
        """Take in the calls of one answer."""
        for call in calls:
            self._names.setdefault(call.id, deque()).append(call.name)

    def take(self, call_id: str) -> str | None:
        """Return the name of the first call with this id that has no result yet."""
        names = self._names.get(call_id)
        if names is None:
            return None
        return names.popleft() if len(names) > 1 else names[0]


class CallDraft:
    """A tool call that is still being streamed."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.repeated = ("", "")  # the id and name that came once more after whole arguments

    @property
    def whole(self) -> bool:
        """Whether the arguments are a complete JSON object."""
        last = next((piece for piece in reversed(self.arguments) if piece.strip()), "")
        if not last.rstrip().endswith("}"):
            return False
        try:
            json.loads("".join(self.arguments))
        except (ValueError, RecursionError):
            return False
        return True


class CallDrafts:
    """The calls of a stream. A piece belongs to the latest call of its index."""

    def __init__(self) -> None:
        self._drafts: list[CallDraft] = []
        self._latest: dict[int | None, CallDraft] = {}

    def add(self, *, index: int | None, key: str, name: str, arguments: Json) -> None:
        """Add one piece of the call with the id *key*."""
        text = arguments if isinstance(arguments, str) else ""
        if arguments is not None and not isinstance(arguments, str):
            text = written(arguments)
        draft = self._latest.get(index)
        if draft is None or self._begins(draft, index, key, name, text):
            key, name = (
                (key, name)
                if draft is None
                else (key or draft.repeated[0], name or draft.repeated[1])
            )
            draft = CallDraft()
            self._drafts.append(draft)
            self._latest[index] = draft
        elif name and draft.whole:
            draft.repeated = (
                key,
                name,
            )  # a server that repeats itself, or a call without arguments yet
        draft.id = draft.id or key
        draft.name = draft.name or name
        draft.arguments.append(text)

    @staticmethod
    def _begins(draft: CallDraft, index: int | None, key: str, name: str, text: str) -> bool:
        """Whether a piece is of another call than *draft*, the latest of its index.

        Servers exist that give every call the index 0, or none, and the same id, or none.
        """
        if key and draft.id and key != draft.id:
            return True
        if name and draft.name and (index is None or name != draft.name):
            return True
        again = name or draft.repeated[1]
        return bool(again and draft.name and text.strip() and draft.whole)

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls, complete."""
        return tuple(
            tool_call(d.id or f"call_{n}", d.name, "".join(d.arguments))
            for n, d in enumerate(self._drafts)
        )


Content = Sequence[Mapping[str, Json]]
_Key = tuple[str, tuple[ToolCall, ...]]


class ReasoningEcho:
    """The latest answers with tool calls, as they came; the oldest go first."""

    def __init__(self, most: int = 2000) -> None:
        self._most = most
        self._kept: OrderedDict[_Key, Content] = OrderedDict()

    def keep(self, completion: Completion, content: Content) -> None:
        """Keep the *content* that *completion* was read from."""
        if completion.tool_calls:
            self._kept[completion.text, completion.tool_calls] = content
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def of(self, message: Message) -> Content | None:
        """Return what *message* was read from, where that is known."""
        if not message.tool_calls:
            return None
        key = (message.content, message.tool_calls)
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)
