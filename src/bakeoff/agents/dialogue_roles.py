"""The instructor and the supervisor: asked for an object of a known form, and asked again once."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeVar

from bakeoff._lib.noun import noun
from bakeoff._lib.untrusted import one_line, well_formed
from bakeoff.agents import dialogue_prompts as prompts
from bakeoff.agents.dialogue_tape import Tape
from bakeoff.core.dialogue import INSTRUCTOR, SUPERVISOR, Dialogue, Turn
from bakeoff.core.errors import AgentError, ProviderError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import Asks
from bakeoff.core.task import Message
from bakeoff.core.values import Json

T = TypeVar("T")

MOST_SHARDS = 3
_LONG = "user_response"
_WORDS_OF_REFUSAL = ("response_format", "json_schema", "schema", "format", "grammar", "structured")


class FormError(Exception):
    """A role's answer is not of the form it was asked for; the message says why."""


@noun
class Instruction:
    """What the instructor says next."""

    message: str
    end: bool = False
    shards: tuple[int, ...] = ()


@noun
class Verdict:
    """What the supervisor thinks of a message; a follow-up only where it is contradictory."""

    follow_up: str | None


@noun
class Roles:
    """The live roles of one dialogue; without a supervisor nobody watches the instructor.

    `speak_freely` are the roles whose endpoint knows no structured output.
    """

    dialogue: Dialogue
    instructor: Asks
    supervisor: Asks | None
    tape: Tape
    rollout: int = 0
    speak_freely: set[str] = field(default_factory=set)

    async def instruct(self, turns: Sequence[Turn], open_shards: Mapping[int, str]) -> Instruction:
        """Ask the instructor for its next message."""
        form = prompts.instructor_form(self.dialogue)
        messages = _talk_with_instructor(self.dialogue, turns, open_shards)
        schema = _SAYS if self.dialogue.mode == "user" else _shard_schema(open_shards)

        def read(answer: Mapping[str, Json]) -> Instruction:
            message = _text(answer, "user_response")
            if self.dialogue.mode == "user":
                return Instruction(message=message, end=_flag(answer, "end"))
            return Instruction(message=message, shards=_chosen(answer, open_shards))

        asking = _Asking(role=INSTRUCTOR, model=self.instructor, turn=len(turns) + 1, form=form)
        return await self._ask(asking, messages, schema, read)

    async def check(self, turns: Sequence[Turn], message: str) -> Verdict:
        """Ask the supervisor about a message that the instructor is about to say."""
        if self.supervisor is None:
            return Verdict(follow_up=None)
        messages = _talk_with_supervisor(self.dialogue, turns, message)

        def read(answer: Mapping[str, Json]) -> Verdict:
            if not _flag(answer, "contradictory"):
                return Verdict(follow_up=None)
            return Verdict(follow_up=_text(answer, "follow_up_instruction"))

        form = prompts.supervisor_form()
        asking = _Asking(role=SUPERVISOR, model=self.supervisor, turn=len(turns) + 1, form=form)
        return await self._ask(asking, messages, _WATCHES, read)

    async def _ask(
        self,
        asking: "_Asking",
        messages: tuple[Message, ...],
        schema: Mapping[str, Json],
        read: Callable[[Mapping[str, Json]], T],
    ) -> T:
        """Return the answer as *read* reads it, asking a second time where it cannot be read.

        The second time without thoughts: a small model may have spent all its tokens on them.
        """
        request = Request(messages=messages, schema=schema, rollout=self.rollout)
        first = await self._complete(asking, request)
        try:
            return read(json_object(first))
        except FormError as error:
            reminder = prompts.REMINDER.format(why=error, form=asking.form)
            again = (
                Message(role="assistant", content=well_formed(first) or "(nothing)"),
                Message(role="user", content=reminder),
            )
        shorter = replace(request, messages=(*messages, *again), schema=_thoughtless(schema))
        second = await self._complete(asking, shorter)
        try:
            return read(json_object(second))
        except FormError as error:
            raise AgentError(
                f"role {asking.role!r} gave no usable answer twice: {error}; it said "
                f"{one_line(second)!r}"
            ) from error

    async def _complete(self, asking: "_Asking", request: Request) -> str:
        """Return what a role says; its endpoint is not the candidate's, nor are its faults."""
        if asking.role in self.speak_freely:
            request = replace(request, schema=None)
        try:
            return (await self._answer(asking, request)).text
        except ProviderError as error:
            raise AgentError(f"role {asking.role!r}: {error}", transient=error.transient) from error

    async def _answer(self, asking: "_Asking", request: Request) -> Completion:
        try:
            return await self.tape.ask(asking.role, asking.turn, asking.model, request)
        except ProviderError as error:
            if request.schema is None or not _refuses_schemas(error):
                raise
        self.speak_freely.add(asking.role)
        plain = replace(request, schema=None)
        return await self.tape.ask(asking.role, asking.turn, asking.model, plain)


@noun
class _Asking:
    """Who is asked, in which turn, and for which form of answer."""

    role: str
    model: Asks
    turn: int
    form: str


def json_object(text: str) -> dict[str, Json]:
    """Return the JSON object in *text*: the first one that stands in it, or what there is of one.

    A model that ran on until it was cut has said what it said; whether that is enough is for the
    reader to see.
    """
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{")
    for attempt in (text, _closed(text, at)) if at >= 0 else ():
        start = at
        while start >= 0:
            try:
                found, _ = decoder.raw_decode(attempt, start)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict):
                return found
            start = attempt.find("{", start + 1)
    raise FormError("there is no JSON object in it")


def _closed(text: str, at: int) -> str:
    """Return *text* with the strings, lists and objects closed that are open at its end."""
    open_ones: list[str] = []
    quoted = escaped = False
    for sign in text[at:]:
        if quoted:
            quoted = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            quoted = True
        elif sign in "{[":
            open_ones.append("}" if sign == "{" else "]")
        elif sign in "}]" and open_ones:
            open_ones.pop()
    rest = text.rstrip("\\") if escaped else text
    return rest + ('"' if quoted else "") + "".join(reversed(open_ones))


def _text(answer: Mapping[str, Json], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str) or not value.strip():
        raise FormError(f"{key!r} is not a text")
    return well_formed(value).strip()


def _flag(answer: Mapping[str, Json], key: str) -> bool:
    value = answer.get(key)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise FormError(f"{key!r} is neither true nor false")
    return value


def _chosen(answer: Mapping[str, Json], open_shards: Mapping[int, str]) -> tuple[int, ...]:
    value = answer.get("shards")
    numbers = value if isinstance(value, list) else [value]
    chosen = tuple(dict.fromkeys(n for n in numbers if isinstance(n, int) and n in open_shards))
    if not chosen or len(chosen) > MOST_SHARDS or len(chosen) < len(set(map(str, numbers))):
        left = ", ".join(map(str, open_shards))
        raise FormError(f"'shards' must name one to three of the shards that are left: {left}")
    return chosen


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
