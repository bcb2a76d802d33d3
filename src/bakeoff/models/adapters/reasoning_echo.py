"""What a provider wants back word for word, and our messages have no place for.

Signed thinking (Anthropic), thought signatures (Gemini) and reasoning items (OpenAI Responses)
must stand beside the tool calls they came with when the conversation goes on. The adapter keeps
them by what a message shows; a message that an agent changed is sent as it stands now.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from bakeoff.core.outcome import Completion
from bakeoff.core.task import Message, ToolCall
from bakeoff.core.values import Json

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
