"""The instructor and the supervisor: asked for an object of a known form, and asked again once."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Generic, TypeVar

from bakeoff._lib.noun import noun
from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.agents import dialogue_prompts as prompts
from bakeoff.agents.dialogue_answer import (
    MOST_SHARDS,
    Answer,
    FormError,
    flag_of,
    json_object,
    shards_of,
    text_of,
)
from bakeoff.agents.dialogue_tape import Tape
from bakeoff.core.dialogue import INSTRUCTOR, SUPERVISOR, Dialogue, Turn
from bakeoff.core.errors import AgentError, ProviderError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import Model
from bakeoff.core.task import Message
from bakeoff.core.values import Json

T = TypeVar("T")

_LONG = "user_response"
_WORDS_OF_REFUSAL = ("response_format", "json_schema", "schema", "format", "grammar", "structured")


@noun
class Instruction:
    """What the instructor says next."""

    message: str
    end: bool = False
    shards: tuple[int, ...] = ()


@noun
class Verdict:
    """What the supervisor thinks of a message, and what is to be said next if it goes wrong."""

    contradictory: bool = False
    follow_up: str | None = None


@noun
class _Question(Generic[T]):
    """What a role is asked, and how its answer is read; a second one may be read more kindly."""

    role: str
    model: Model
    turn: int
    messages: tuple[Message, ...]
    form: str
    schema: Mapping[str, Json]
    read: Callable[[Answer], T]
    read_again: Callable[[Answer], T]


@noun
class Roles:
    """The live roles of one dialogue; without a supervisor nobody watches the instructor.

    `speak_freely` are the roles whose endpoint knows no structured output.
    """

    dialogue: Dialogue
    instructor: Model
    supervisor: Model | None
    tape: Tape
    rollout: int = 0
    speak_freely: set[str] = field(default_factory=set)

    async def instruct(self, turns: Sequence[Turn], open_shards: Mapping[int, str]) -> Instruction:
        """Ask the instructor for its next message."""
        sharded = self.dialogue.mode == "shard_user"

        def read(answer: Answer) -> Instruction:
            message = text_of(answer, "user_response")
            if sharded:
                return Instruction(message=message, shards=shards_of(answer, open_shards))
            return Instruction(message=message, end=flag_of(answer, "end"))

        return await self._ask(
            _Question(
                role=INSTRUCTOR,
                model=self.instructor,
                turn=len(turns) + 1,
                messages=_talk_with_instructor(self.dialogue, turns, open_shards),
                form=prompts.instructor_form(self.dialogue),
                schema=_shard_schema(open_shards) if sharded else _SAYS,
                read=read,
                read_again=read,
            )
        )

    async def check(self, turns: Sequence[Turn], message: str) -> Verdict:
        """Ask the supervisor about a message that the instructor is about to say.

        One that objects and has nothing to say instead is asked again; if it still has nothing, the
        message stands as contradictory, and nobody speaks in the instructor's place.
        """
        if self.supervisor is None:
            return Verdict()

        def read(answer: Answer) -> Verdict:
            if not flag_of(answer, "contradictory"):
                return Verdict()
            return Verdict(contradictory=True, follow_up=text_of(answer, "follow_up_instruction"))

        def read_again(answer: Answer) -> Verdict:
            try:
                return read(answer)
            except FormError:
                return Verdict(contradictory=flag_of(answer, "contradictory"))

        return await self._ask(
            _Question(
                role=SUPERVISOR,
                model=self.supervisor,
                turn=len(turns) + 1,
                messages=_talk_with_supervisor(self.dialogue, turns, message),
                form=prompts.supervisor_form(),
                schema=_WATCHES,
                read=read,
                read_again=read_again,
            )
        )

    async def _ask(self, question: _Question[T]) -> T:
        """Return the answer as it is read, asking a second time where it cannot be.

        The second time without thoughts: a small model may have spent all its tokens on them.
        """
        request = Request(messages=question.messages, schema=question.schema, rollout=self.rollout)
        first = await self._complete(question, request)
        try:
            return question.read(json_object(first))
        except FormError as error:
            reminder = prompts.REMINDER.format(why=error, form=question.form)
            again = (
                Message(role="assistant", content=well_formed(first) or "(nothing)"),
                Message(role="user", content=reminder),
            )
        shorter = replace(
            request,
            messages=(*question.messages, *again),
            schema=_thoughtless(question.schema),
        )
        second = await self._complete(question, shorter)
        try:
            return question.read_again(json_object(second))
        except FormError as error:
            raise AgentError(
                f"role {question.role!r} gave no usable answer twice: {error}; it said "
                f"{one_line(second)!r}"
            ) from error

    async def _complete(self, question: _Question[T], request: Request) -> str:
        """Return what a role says; its endpoint is not the candidate's, nor are its faults."""
        if question.role in self.speak_freely:
            request = replace(request, schema=None)
        try:
            return (await self._answer(question, request)).text
        except ProviderError as error:
            raise AgentError(
                f"role {question.role!r}: {error}", transient=error.transient
            ) from error

    async def _answer(self, question: _Question[T], request: Request) -> Completion:
        try:
            return await self.tape.ask(question.role, question.turn, question.model, request)
        except ProviderError as error:
            if request.schema is None or not _refuses_schemas(error):
                raise
        self.speak_freely.add(question.role)
        plain = replace(request, schema=None)
        return await self.tape.ask(question.role, question.turn, question.model, plain)


def _talk_with_instructor(
    dialogue: Dialogue, turns: Sequence[Turn], open_shards: Mapping[int, str]
) -> tuple[Message, ...]:
    """Return the conversation from the instructor's side, in which the agent is the other one."""
    told = [Message(role="system", content=prompts.instructor_prompt(dialogue))]
    if dialogue.mode == "user":
        told.append(Message(role="user", content=prompts.BEGIN))
        for turn in turns:
            said = json.dumps({"user_response": turn.message, "end": turn.end}, ensure_ascii=False)
            told.append(Message(role="assistant", content=said))
            told.append(Message(role="user", content=turn.reply or prompts.NOTHING))
        return tuple(told)
    shards = "\n".join(f"{number}. {shard}" for number, shard in open_shards.items())
    last = _conversation(turns[-1:]) or "(Nothing was said yet.)"
    content = f"The conversation so far ended with:\n{last}\n\nThe shards that are left:\n{shards}"
    return (*told, Message(role="user", content=content))


def _talk_with_supervisor(
    dialogue: Dialogue, turns: Sequence[Turn], message: str
) -> tuple[Message, ...]:
    before = _conversation(turns) or "(Nothing was said yet.)"
    content = f"The conversation so far:\n{before}\n\nThe person's new message:\n{message}"
    return (
        Message(role="system", content=prompts.supervisor_prompt(dialogue)),
        Message(role="user", content=content),
    )


def _conversation(turns: Sequence[Turn]) -> str:
    return "\n\n".join(
        f"[person]\n{turn.message}\n\n[agent]\n{turn.reply or prompts.NOTHING}" for turn in turns
    )


def _refuses_schemas(error: ProviderError) -> bool:
    """Whether an endpoint says that it knows no structured output."""
    said = str(error).lower()
    return not error.transient and any(word in said for word in _WORDS_OF_REFUSAL)


def _object(**properties: Json) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_SAYS = _object(
    thought={"type": "string"}, user_response={"type": "string"}, end={"type": "boolean"}
)
_WATCHES = _object(
    thought={"type": "string"},
    contradictory={"type": "boolean"},
    follow_up_instruction={"type": ["string", "null"]},
)


def _thoughtless(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return *schema* without thoughts, and with what can be long at the end."""
    properties = schema["properties"]
    told = properties if isinstance(properties, Mapping) else {}
    rest = {key: value for key, value in told.items() if key not in ("thought", _LONG)}
    return _object(**rest, **({_LONG: told[_LONG]} if _LONG in told else {}))


def _shard_schema(open_shards: Mapping[int, str]) -> dict[str, Json]:
    numbers: dict[str, Json] = {"type": "integer", "enum": list(open_shards)}
    most = min(MOST_SHARDS, len(open_shards))
    return _object(
        thought={"type": "string"},
        user_response={"type": "string"},
        shards={"type": "array", "items": numbers, "minItems": 1, "maxItems": most},
    )
