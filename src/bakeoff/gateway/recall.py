"""What was answered, found again when a program sends it back in its own words.

A program may write the arguments of a call anew, or leave the reasoning out. What the model wrote
is known here; it gets that back, word for word, as far as the program did not change the meaning.
"""

from collections import OrderedDict
from dataclasses import replace

from bakeoff.core.outcome import Completion
from bakeoff.core.task import Message, ToolCall
from bakeoff.gateway.bounds import letters
from bakeoff.gateway.wire import arguments_object


class Replies:
    """The answers of one trial that called tools, by the ids of their calls.

    Of these *most_kept* letters are remembered, the newest: nobody goes back further than that.
    """

    def __init__(self, *, most_kept: int) -> None:
        self._by_call: OrderedDict[str, Message] = OrderedDict()
        self._room = most_kept

    def given(self, completion: Completion) -> tuple[Completion, Message]:
        """Return an answer with ids that no other call of the trial has, and as a message."""
        calls = self._unique(completion.tool_calls)
        if calls != completion.tool_calls:
            completion = replace(completion, tool_calls=calls)
        reply = Message(
            role="assistant",
            content=completion.text,
            reasoning=completion.reasoning,
            tool_calls=calls,
        )
        for call in calls:
            self._by_call[call.id] = reply
            self._room -= letters(reply)
        while self._room < 0 and self._by_call:
            _, oldest = self._by_call.popitem(last=False)
            self._room += letters(oldest)
        return completion, reply

    def _unique(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        """Return the calls; servers that give no ids of their own count anew in every answer."""
        taken = set(self._by_call)
        unique = []
        for call in calls:
            key, again = call.id, 1
            while not key or key in taken:
                again += 1
                key = f"{call.id or 'call'}_{again}"
            taken.add(key)
            unique.append(call if key == call.id else replace(call, id=key))
        return tuple(unique)

    def recalled(self, message: Message) -> Message:
        """Return *message* as the model said it, where it is an answer of before."""
        if not message.tool_calls:
            return message
        reply = self._by_call.get(message.tool_calls[0].id)
        if reply is None:
            return message
        known = {call.id: call for call in reply.tool_calls}
        calls = tuple(_same(call, known.get(call.id)) for call in message.tool_calls)
        if calls == reply.tool_calls and message.content.strip() == reply.content.strip():
            return reply
        return replace(message, tool_calls=calls)


def _same(call: ToolCall, known: ToolCall | None) -> ToolCall:
    """Return the call as it was *known*, unless it means something else now."""
    if known is None or known.name != call.name or call == known:
        return call
    return known if arguments_object(call) == arguments_object(known) else call
