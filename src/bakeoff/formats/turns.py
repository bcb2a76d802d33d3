"""What tests ask, and scripted conversations, as suites and run files write them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Turn
from bakeoff.core.values import Json
from bakeoff.formats.attachments import attachments, with_files
from bakeoff.formats.text.entries import (
    MessageTable,
    ScorerEntry,
    about_entry,
    conversation,
    default_scorers,
    scorer_specs,
)
from bakeoff.formats.text.locate import shown


class TurnTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One turn of a scripted conversation: what is said, what is expected, and how that is scored.

    A turn that fails does not end the conversation, unless it has `stop_on_failure`.
    """

    say: str
    expect: Json = None
    files: list[str] = []
    scorers: list[ScorerEntry] | None = None
    stop_on_failure: bool = False


class AskedTest(Protocol):
    """A test, as far as it says what is asked."""

    prompt: str | None
    messages: list[MessageTable] | None
    files: list[str]
    turns: list[TurnTable] | None
    vars: dict[str, Json]


def messages_of(
    entry: AskedTest,
    turns: Sequence[Turn],
    *,
    what: str,
    at: SourceLocation,
    unknown: Iterable[str] = (),
    values: Mapping[str, Json],
) -> tuple[Message, ...]:
    """Return what *entry*, which stands *at* a place, asks first: its messages, files, first turn.

    *unknown* are its keys that mean nothing, and *values* what its texts may insert.
    """
    if entry.turns is not None:
        if entry.files:
            raise UsageError(f"{shown(at.inside('files'))}: {what}: give `files` to a turn of it")
        return first_messages(entry.prompt, entry.messages, turns, what=what, at=at)
    messages = conversation(
        entry.prompt, entry.messages, what=what, at=at, unknown=unknown, values=values
    )
    if not entry.files:
        return messages
    with about_entry(at.inside("files"), what):
        return with_files(messages, entry.files, at)


def first_messages(
    prompt: str | None,
    messages: Sequence[MessageTable] | None,
    turns: Sequence[Turn],
    *,
    what: str,
    at: SourceLocation,
) -> tuple[Message, ...]:
    """Return how a scripted conversation begins: the messages of its test, and its first turn."""
    if prompt is not None:
        raise UsageError(
            f"{shown(at.inside('prompt'))}: {what}: a test with `turns` has no `prompt`; make it the "
            "first turn, or a message of `messages`"
        )
    before = conversation(None, messages, what=what, at=at) if messages is not None else ()
    return (*before, turns[0].message())


def scripted_turns(
    entries: Sequence[TurnTable], *, what: str, at: SourceLocation
) -> tuple[Turn, ...]:
    """Return the turns that *entries* describe, which stand *at* a place."""
    return tuple(
        _turn(entry, what, at.inside("turns", number)) for number, entry in enumerate(entries)
    )


def _turn(entry: TurnTable, what: str, at: SourceLocation) -> Turn:
    with about_entry(at.inside("files"), what):
        shown_with_it = attachments(entry.files, Path(at.file).parent)
    return Turn(
        say=entry.say,
        expect=entry.expect,
        stop_on_failure=entry.stop_on_failure,
        attachments=shown_with_it,
    )


def turn_scorers(
    entries: Sequence[TurnTable], *, at: SourceLocation, trusted: bool = True
) -> tuple[ScorerSpec, ...]:
    """Return the scorers of each turn in order; *entries* stand *at* a place."""
    return tuple(
        replace(spec, turn=number + 1)
        for number, entry in enumerate(entries)
        for spec in _scorers(entry, at.inside(number), trusted=trusted)
    )


def _scorers(entry: TurnTable, at: SourceLocation, *, trusted: bool) -> tuple[ScorerSpec, ...]:
    if entry.scorers is not None:
        return scorer_specs(entry.scorers, at=at.inside("scorers"), trusted=trusted)
    return default_scorers(entry.expect, at=at.inside("expect"))
