"""A model that follows a script: deterministic, for tests, demos and measurements of the runner.

It is product code, so that the whole path can be tried without an endpoint; a candidate that
uses it is marked everywhere and never ranked.
"""

import asyncio
import json
import re
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request, Usage
from bakeoff.core.task import ToolCall
from bakeoff.core.values import Json
from bakeoff.models.client.settings import settings_of
from bakeoff.models.limits.limiter import UNLIMITED, Limiter


class ScriptedCall(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A tool call to make."""

    name: str
    arguments: dict[str, Json] = {}


class Rule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What to say where the last message matches, and which tools to call."""

    match: str
    reply: str | None = None
    calls: tuple[ScriptedCall, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a rule without an answer."""
        if self.reply is None and not self.calls:
            raise ValueError("a rule needs `reply`, `calls` or both")


class Script(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The settings of a scripted model.

    The first rule that matches the last message replies, in which a picture is `[picture cat.png]`; else `replies`, one after another by
    rollout; else the last message is repeated. Every `fault_every`-th rollout faults instead.
    """

    rules: tuple[Rule, ...] = ()
    replies: tuple[str, ...] = ()
    delay_s: Annotated[float, Meta(ge=0)] = 0.0
    fault_every: Annotated[int, Meta(ge=1)] | None = None


def build(spec: ModelSpec, _: Limiter = UNLIMITED) -> "ScriptedModel":
    """Return the model that *spec* names."""
    return ScriptedModel(spec.name or "echo", settings_of(spec, Script))


class ScriptedModel:
    """Answers from a script; the same request gets the same answer."""

    def __init__(self, name: str, script: Script) -> None:
        self._name = name
        self._script = script
        try:
            self._patterns = [re.compile(rule.match, re.IGNORECASE) for rule in script.rules]
        except re.error as error:
            raise UsageError(f"scripted model {name!r}: a rule is no pattern: {error}") from error

    async def complete(self, request: Request) -> Completion:
        """Answer from the script."""
        script = self._script
        if script.delay_s:
            await asyncio.sleep(script.delay_s)
        if script.fault_every and request.rollout % script.fault_every == script.fault_every - 1:
            raise ProviderError("the script says so")
        asked = request.messages[-1].described
        text, calls = self._reply(asked, request.rollout)
        before = sum(len(message.tool_calls) for message in request.messages)
        words = sum(len(m.content.split()) for m in request.messages)
        return Completion(
            text=text,
            tool_calls=tuple(
                ToolCall(id=f"call_{number}", name=call.name, arguments=json.dumps(call.arguments))
                for number, call in enumerate(calls, before)
            ),
            stop_reason="tool_calls" if calls else "stop",
            model=f"scripted/{self._name}",
            usage=Usage(input_tokens=words, output_tokens=len(text.split())),
            elapsed_s=script.delay_s,
        )

    def _reply(self, asked: str, rollout: int) -> tuple[str, tuple[ScriptedCall, ...]]:
        script = self._script
        for rule, pattern in zip(script.rules, self._patterns, strict=True):
            if pattern.search(asked):
                return rule.reply or "", rule.calls
        if script.replies:
            return script.replies[rollout % len(script.replies)], ()
        return asked, ()

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
