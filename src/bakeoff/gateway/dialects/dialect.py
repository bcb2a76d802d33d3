"""What the gateway needs to know of a dialect to speak it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from bakeoff.core.outcome import Completion, Usage
from bakeoff.core.values import Json
from bakeoff.gateway.request import ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why there is no answer; `code` names it for programs that look."""

    status: int
    message: str
    code: str


class UnansweredError(Exception):
    """A question gets no answer; `problem` is what the program is told instead."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class DialectAnswer(Protocol):
    """The answer to one question, written in a dialect: whole, or as a stream of events."""

    def whole(self, completion: Completion) -> Mapping[str, Json]:
        """Return the answer in one piece."""

    def opening(self) -> bytes:
        """Return what a stream begins with, before anything is known."""

    def ping(self) -> bytes:
        """Return what keeps a client waiting."""

    def events(self, completion: Completion) -> bytes:
        """Return the rest of the stream."""

    def broken(self, problem: Problem) -> bytes:
        """Return the end of a stream that has no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDialect:
    """How questions are read, and how answers and errors are written.

    `answer` takes the question and a number that no other answer of the trial has.
    """

    read: Callable[[bytes], ModelRequest]
    answer: Callable[[ModelRequest, int], DialectAnswer]
    error: Callable[[Problem], Mapping[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens for programs, which take no unknown: it is 0 to them."""

    input: int
    output: int
    cached: int
    reasoning: int

    @classmethod
    def of(cls, usage: Usage) -> "TokenCounts":
        """Return what is known of *usage*."""
        return cls(
            input=usage.input_tokens or 0,
            output=usage.output_tokens or 0,
            cached=usage.cached_tokens or 0,
            reasoning=usage.reasoning_tokens or 0,
        )


def ending(completion: Completion) -> str:
    """Return why an answer ended; servers exist that call tools and say `stop`."""
    reason = completion.stop_reason or "stop"
    return "tool_calls" if completion.tool_calls and reason == "stop" else reason
