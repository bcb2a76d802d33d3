"""The tables that several formats share: scorers and messages as people write them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.phrasing import near
from bakeoff.core.candidate import EndpointLimits
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.formats.text.locate import shown


class ScorerTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A scorer with more than its name."""

    scorer: str
    weight: Annotated[float, Meta(ge=0)] = 1.0
    settings: dict[str, Json] = {}


class MessageTable(msgspec.Struct, kw_only=True):
    """A message; content is text, or parts of text."""

    role: str
    content: str | list[dict[str, Json]]


class EndpointTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What may be asked at most of all models at an endpoint together.

    `adaptive` is whether it is asked by as many at once as make it faster.
    """

    max_concurrency: Annotated[int, Meta(ge=1)] | None = None
    rpm: Annotated[float, Meta(gt=0)] | None = None
    tpm: Annotated[float, Meta(gt=0)] | None = None
    adaptive: bool = True


Endpoints = dict[str, EndpointTable]
"""Limits of whole endpoints: by URL, or by the name of a provider for each of its addresses."""

ScorerEntry = str | ScorerTable


def endpoint_limits(endpoints: Endpoints | None) -> dict[str, EndpointLimits]:
    """Return the limits that the tables make."""
    return {
        name: EndpointLimits(**msgspec.structs.asdict(table))
        for name, table in (endpoints or {}).items()
    }


def scorer_specs(
    entries: Sequence[ScorerEntry], *, at: SourceLocation, trusted: bool = True
) -> tuple[ScorerSpec, ...]:
    """Return the scorers that *entries* name, a list that stands *at* this place.

    Scorers named in a suite are not *trusted*: the suite may come from somebody else.
    """
    return tuple(
        replace(_scorer_spec(entry, at.inside(number)), trusted=trusted)
        for number, entry in enumerate(entries)
    )


def _scorer_spec(entry: ScorerEntry, at: SourceLocation) -> ScorerSpec:
    if isinstance(entry, str):
        return ScorerSpec(name=entry, origin=at)
    return ScorerSpec(name=entry.scorer, settings=entry.settings, weight=entry.weight, origin=at)


def conversation(
    prompt: str | None,
    messages: Sequence[MessageTable] | None,
    *,
    what: str,
    at: SourceLocation,
    unknown: Iterable[str] = (),
) -> tuple[Message, ...]:
    """Return the messages of a task with a prompt, messages or both, which stands *at* a place.

    Where both are there, `prompt_beside` is what to send to an API that takes one text. *unknown*
    are keys of the task that mean nothing; one of them may be misspelt.
    """
    if prompt is None and messages is None:
        why = f"write either `prompt` or `messages`{_misspelt(unknown)}"
        raise _wrong(at, what, why)
    if messages is None:
        return (Message(role="user", content=prompt or ""),)
    if not messages:
        raise _wrong(at.inside("messages"), what, "`messages` is empty; write one at least")
    return tuple(_message(m, what, at.inside("messages", n)) for n, m in enumerate(messages))


def prompt_beside(prompt: str | None, messages: Sequence[Message]) -> str | None:
    """Return the *prompt* of a task where its *messages* are not that very text; it may be None."""
    blank = not (prompt and prompt.strip())
    return None if blank or [m.content for m in messages] == [prompt] else prompt


def prompts_that_differ(tasks: Sequence[Task], at: SourceLocation) -> Iterator[str]:
    """Yield a note where some *tasks*, a list *at* this place, ask two things at once."""
    differing = [number for number, task in enumerate(tasks) if _differs(task)]
    if differing:
        first = tasks[differing[0]].id
        many = len(differing)
        which = f"{first!r} asks" if many == 1 else f"{many} tasks, {first!r} first, ask"
        where = shown(at.inside(differing[0], "prompt"))
        yield (
            f"{where}: {which} one thing by `prompt` and another by `messages`: "
            "a chat API is sent `messages`, a completions API `prompt`"
        )


def _differs(task: Task) -> bool:
    asked = [(message.role, message.content.strip()) for message in task.messages]
    return task.prompt is not None and asked != [("user", task.prompt.strip())]


def _wrong(at: SourceLocation, what: str, why: str) -> UsageError:
    return UsageError(f"{shown(at)}: {what}: {why}")


def _misspelt(unknown: Iterable[str]) -> str:
    """Return a hint at the key of a task that was meant for what it asks."""
    pairs = ((key, near(key, ("prompt", "messages"))) for key in unknown)
    hints = (f"; did you mean `{meant}` by {key!r}?" for key, meant in pairs if meant)
    return next(hints, "")


def _message(entry: MessageTable, what: str, at: SourceLocation) -> Message:
    if isinstance(entry.content, str):
        return Message(role=entry.role, content=entry.content)
    texts = [part.get("text") for part in entry.content]
    if not all(isinstance(t, str) for t in texts):
        why = "only text parts are supported in `messages`"
        raise _wrong(at.inside("content"), what, why)
    return Message(role=entry.role, content="".join(str(t) for t in texts))


def default_scorers(target: Json, *, at: SourceLocation) -> tuple[ScorerSpec, ...]:
    """Return how an answer is checked where a target is given *at* a place and no scorer named."""
    if target is None:
        return ()
    if isinstance(target, Mapping):
        return (ScorerSpec(name="json", origin=at),)
    number = isinstance(target, int | float) and not isinstance(target, bool)
    return (ScorerSpec(name="numeric" if number else "includes", origin=at),)
