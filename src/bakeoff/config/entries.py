"""The tables that several formats share: scorers and messages as people write them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.suggest import near
from bakeoff.core.endpoint import EndpointLimits
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Message, ScorerSpec
from bakeoff.core.values import Json


class ScorerTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A scorer with more than its name."""

    scorer: str
    weight: float = 1.0
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


def scorer_specs(entries: Sequence[ScorerEntry]) -> tuple[ScorerSpec, ...]:
    """Return the scorers that *entries* name."""
    return tuple(_scorer_spec(entry) for entry in entries)


def _scorer_spec(entry: ScorerEntry) -> ScorerSpec:
    if isinstance(entry, str):
        return ScorerSpec(name=entry)
    if not 0 <= entry.weight < float("inf"):
        raise UsageError(f"scorer {entry.scorer!r}: weight must be 0 or more, not {entry.weight}")
    return ScorerSpec(name=entry.scorer, settings=entry.settings, weight=entry.weight)


def conversation(
    prompt: str | None,
    messages: Sequence[MessageTable] | None,
    *,
    what: str,
    unknown: Iterable[str] = (),
) -> tuple[Message, ...]:
    """Return the messages of a task that has either a prompt or messages.

    *unknown* are keys of it that mean nothing; one of them may be misspelt.
    """
    if prompt is not None and messages is not None:
        raise UsageError(f"{what}: write `prompt` or `messages`, not both")
    if prompt is None and messages is None:
        raise UsageError(f"{what}: write either `prompt` or `messages`{_misspelt(unknown)}")
    if prompt is not None:
        return (Message(role="user", content=prompt),)
    if not messages:
        raise UsageError(f"{what}: `messages` is empty; write one at least")
    return tuple(Message(role=m.role, content=_text(m.content, what)) for m in messages)


def _misspelt(unknown: Iterable[str]) -> str:
    """Return a hint at the key of a task that was meant for what it asks."""
    pairs = ((key, near(key, ("prompt", "messages"))) for key in unknown)
    hints = (f"; did you mean `{meant}` by {key!r}?" for key, meant in pairs if meant)
    return next(hints, "")


def _text(content: str | Sequence[Mapping[str, Json]], what: str) -> str:
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in content]
    if not all(isinstance(t, str) for t in texts):
        raise UsageError(f"{what}: only text parts are supported in `messages`")
    return "".join(str(t) for t in texts)


def default_scorers(target: Json) -> tuple[ScorerSpec, ...]:
    """Return how an answer is checked where a target is given and no scorer named."""
    if target is None:
        return ()
    if isinstance(target, Mapping):
        return (ScorerSpec(name="json"),)
    number = isinstance(target, int | float) and not isinstance(target, bool)
    return (ScorerSpec(name="numeric" if number else "includes"),)
