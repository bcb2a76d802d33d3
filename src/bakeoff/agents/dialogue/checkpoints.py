"""Checkpoints of a dialogue: every answer is saved, so that it resumes without asking again.

To resume, the conversation is replayed from its start: a repeated question gets the saved answer.
An agent with a workspace works again, on its model's saved answers, so that its workspace becomes
what it was; any other is not called for a message it has replied to. Where the conversation
diverges, the rest of the checkpoint is replaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from bakeoff._lib.digest import digest
from bakeoff._lib.sanitize import well_formed
from bakeoff.core.dialogue import AGENT
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.ports import Checkpoint, Model
from bakeoff.core.task import Message
from bakeoff.core.values import Json


class _SavedExchange(msgspec.Struct, frozen=True):
    """One saved answer, with enough of the question to recognize it.

    Of its messages only new ones are stored: the first `kept` are the same as in the party's
    question before. A `reply` is the agent's own reply to a message, with its `notes`.
    """

    party: str
    turn: int
    asked: str
    kept: int
    messages: list[Message]
    completion: Completion
    reply: bool = False
    notes: dict[str, Json] = {}


class ConversationCheckpoint:
    """The answers of one dialogue, in order."""

    def __init__(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint
        entries = checkpoint.recorded() if checkpoint else ()
        self._recorded = [msgspec.convert(entry, _SavedExchange) for entry in entries]
        self._at = 0
        self._before: dict[str, tuple[Message, ...]] = {}

    async def ask(self, party: str, turn: int, model: Model, request: Request) -> Completion:
        """Return the saved answer of *party* to this request; else ask it, and save the answer."""
        fingerprint = _fingerprint(party, request)
        before = self._before.get(party, ())
        self._before[party] = request.messages
        if self._at < len(self._recorded):
            saved = self._recorded[self._at]
            if (saved.party, saved.turn, saved.asked) == (party, turn, fingerprint):
                self._at += 1
                return saved.completion
            del self._recorded[self._at :]
        completion = replace(await model.complete(request), raw=None)
        kept = _common_prefix(before, request.messages)
        await self._save(
            _SavedExchange(
                party=party,
                turn=turn,
                asked=fingerprint,
                kept=kept,
                messages=list(request.messages[kept:]),
                completion=completion,
            )
        )
        return completion

    def replied(self, turn: int, message: str) -> Outcome | None:
        """Return the agent's saved reply to *message*; its model requests for it are skipped."""
        for at in range(self._at, len(self._recorded)):
            saved = self._recorded[at]
            if (saved.party, saved.turn) != (AGENT, turn):
                return None
            if saved.reply:
                if saved.asked != digest(message):
                    return None
                self._at = at + 1
                completion = saved.completion
                return Outcome(answer=completion.text, model=completion.model, notes=saved.notes)
        return None

    async def save_reply(self, turn: int, message: str, outcome: Outcome) -> None:
        """Save the agent's reply to *message*."""
        del self._recorded[self._at :]
        await self._save(
            _SavedExchange(
                party=AGENT,
                turn=turn,
                asked=digest(message),
                kept=0,
                messages=[Message(role="user", content=message)],
                completion=Completion(text=outcome.answer, model=outcome.model),
                reply=True,
                notes=dict(outcome.notes),
            )
        )

    async def _save(self, saved: _SavedExchange) -> None:
        if self._checkpoint is not None:
            plain = _encodable(msgspec.to_builtins(saved, enc_hook=str))
            await self._checkpoint.add(plain, at=self._at)
            self._at += 1


def exchanges(entries: Sequence[Mapping[str, Json]]) -> list[dict[str, Json]]:
    """Return the saved *entries* as full exchanges: who was asked what, and the answer."""
    before: dict[str, list[Message]] = {}
    listed: list[dict[str, Json]] = []
    for entry in entries:
        saved = msgspec.convert(entry, _SavedExchange)
        if saved.reply:
            if not _repeats_answer(saved, listed[-1] if listed else {}):
                listed.append(_exchange(saved, saved.messages))
            continue
        messages = [*before.get(saved.party, [])[: saved.kept], *saved.messages]
        before[saved.party] = messages
        listed.append(_exchange(saved, messages))
    return listed


def _exchange(saved: _SavedExchange, messages: Sequence[Message]) -> dict[str, Json]:
    return {
        "party": saved.party,
        "turn": saved.turn,
        "messages": [message.wire() for message in messages],
        "answer": saved.completion.text,
        "tool_calls": [msgspec.to_builtins(call) for call in saved.completion.tool_calls],
    }


def _repeats_answer(reply: _SavedExchange, last: Mapping[str, Json]) -> bool:
    """Whether a reply equals the last answer of the agent's model."""
    answered = (last.get("party"), last.get("turn"), last.get("answer"))
    return answered == (AGENT, reply.turn, reply.completion.text)


def _fingerprint(party: str, request: Request) -> str:
    """Return the fingerprint by which a repeated question is recognized.

    The agent's own questions have none: output of code that runs again may differ, for example by a
    clock. Whether the agent diverged shows in its reply, which is in the instructor's next question.
    """
    if party == AGENT:
        return ""
    return digest([well_formed(message.content) for message in request.messages])


def _common_prefix(a: tuple[Message, ...], b: tuple[Message, ...]) -> int:
    for number, (old, new) in enumerate(zip(a, b, strict=False)):
        if old != new:
            return number
    return min(len(a), len(b))


def _encodable(value: Json) -> dict[str, Json]:
    """Return *value* with all text encodable as UTF-8."""

    def clean(inner: Json) -> Json:
        if isinstance(inner, str):
            return well_formed(inner)
        if isinstance(inner, Mapping):
            return {key: clean(v) for key, v in inner.items()}
        if isinstance(inner, Sequence):
            return [clean(v) for v in inner]
        return inner

    return {key: clean(inner) for key, inner in value.items()} if isinstance(value, Mapping) else {}
