"""What a run and a worker process say to each other: each message with its length first."""

import struct
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from bakeoff.core.outcome import Completion, Outcome, Request, Tool
from bakeoff.core.record import Score
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json

HEAD = struct.Struct(">I")


class Begin(msgspec.Struct, tag=True, kw_only=True):
    """Which agent the process is for, or which scorers, and where their Python is found."""

    agent: str | None = None
    settings: dict[str, Json] = {}
    scorers: tuple[str, ...] = ()
    folders: tuple[str, ...]
    path: tuple[str, ...]


class Solve(msgspec.Struct, tag=True):
    """A task to solve, and whom beside the model the agent may ask."""

    task: Task
    rollout: int
    label: str
    roles: tuple[str, ...]


class Grade(msgspec.Struct, tag=True):
    """An outcome to grade: with which scorer, and whom it may ask.

    A plain function is given what it names: then only that is sent, as `given`.
    """

    scorer: str
    settings: dict[str, Json]
    given: dict[str, Json] | None = None
    task: Task | None = None
    outcome: Outcome | None = None
    rollout: int = 0
    roles: tuple[str, ...] = ()


class ModelAnswer(msgspec.Struct, tag=True):
    """The answer to a question."""

    number: int
    completion: Completion


class RequestRefused(msgspec.Struct, tag=True):
    """A question got no answer."""

    number: int
    message: str
    transient: bool
    billable: bool
    status: int | None = None


class ModelCall(msgspec.Struct, tag=True):
    """A question to the model, or to a role."""

    number: int
    role: str | None
    messages: tuple[Message, ...]
    parameters: dict[str, Json]
    api_type: str | None
    schema: dict[str, Json] | None
    tools: tuple[Tool, ...]
    rollout: int
    prompt: str | None = None

    @staticmethod
    def of(request: Request, number: int, role: str | None) -> "ModelCall":
        """Return *request* as a message."""
        return ModelCall(
            number=number,
            role=role,
            messages=request.messages,
            parameters=dict(request.parameters),
            api_type=request.api_type,
            schema=None if request.schema is None else dict(request.schema),
            tools=request.tools,
            rollout=request.rollout,
            prompt=request.prompt,
        )

    def request(self) -> Request:
        """Return the question as it was asked."""
        return Request(
            messages=self.messages,
            parameters=self.parameters,
            api_type=self.api_type,
            schema=self.schema,
            tools=self.tools,
            rollout=self.rollout,
            prompt=self.prompt,
        )


class ProcessReady(msgspec.Struct, tag=True):
    """The process has started, and takes orders."""


class Left(msgspec.Struct, tag=True):
    """The task is done."""

    outcome: Outcome


class Graded(msgspec.Struct, tag=True):
    """The verdict."""

    score: Score


class Broke(msgspec.Struct, tag=True):
    """The agent or the scorer raised; where it was a refusal that it did not catch, `number` is of that question."""

    message: str
    number: int | None = None
    traceback: str | None = None


ToWorker = Begin | Solve | Grade | ModelAnswer | RequestRefused
FromWorker = ProcessReady | ModelCall | Left | Graded | Broke

to_worker: Callable[[bytes], ToWorker] = msgspec.msgpack.Decoder(ToWorker).decode
from_worker: Callable[[bytes], FromWorker] = msgspec.msgpack.Decoder(FromWorker).decode
_encoder = msgspec.msgpack.Encoder(enc_hook=str)  # what is no plain data goes as its text


def encode_message(message: ToWorker | FromWorker) -> bytes:
    """Return *message* as it goes over the wire."""
    data = _encoder.encode(message)
    return HEAD.pack(len(data)) + data


def read_message(wire: BinaryIO) -> bytes | None:
    """Return the next message, or None where the other side is gone."""
    head = wire.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    (size,) = HEAD.unpack(head)
    data = wire.read(size)
    return data if len(data) == size else None
