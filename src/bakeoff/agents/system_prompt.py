"""A system prompt of one's own, before the messages of a task."""

from dataclasses import replace

from bakeoff.core.task import Message

SYSTEM = "system"


def prompted(messages: tuple[Message, ...], system_prompt: str | None) -> tuple[Message, ...]:
    """Return *messages* with *system_prompt* first; some endpoints take one system message only."""
    if not system_prompt:
        return messages
    if messages and messages[0].role == SYSTEM:
        first = replace(messages[0], content=f"{system_prompt}\n\n{messages[0].content}")
        return (first, *messages[1:])
    return (Message(role=SYSTEM, content=system_prompt), *messages)
