"""A model that is asked in some dialect: the dialect writes and reads, the model asks."""

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.values import Json
from bakeoff.models.exchange import Question, Reading, ask
from bakeoff.models.json_wire import encode
from bakeoff.models.line import Line
from bakeoff.models.refused_parameters import RefusedParameters

E = TypeVar("E")


class Dialect(Protocol[E]):
    """How one API wants to be asked, and how its answers are read."""

    @property
    def reading(self) -> Reading[E]:
        """How its answers are read."""

    def question(self, request: Request) -> Question:
        """Return *request* as it goes over the wire."""


class DialectModel(Generic[E]):
    """Model one model of one endpoint."""

    def __init__(self, spec: ModelSpec, dialect: Dialect[E], line: Line) -> None:
        self._dialect = dialect
        self._line = line
        self._refused = RefusedParameters(spec.full_name)

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know of how the model was asked."""
        return self._refused.notes

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or the fault that outlived the retries."""
        question, reading = self._dialect.question(request), self._dialect.reading

        def send(payload: dict[str, Json]) -> Awaitable[Completion]:
            body = encode(payload)
            return self._line.ask(lambda: ask(self._line.client, question, body, reading), request)

        completion = await self._refused.ask(question.payload, send)
        if question.flags:
            return replace(completion, flags=(*completion.flags, *question.flags))
        return completion

    async def close(self) -> None:
        """Close the connections."""
        await self._line.close()
