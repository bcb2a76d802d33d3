"""One adapter against a server on loopback: how its tests ask, and what they are answered."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request, Tool
from bakeoff.core.ports import Model, close_model
from bakeoff.core.task import Message
from support.loopback import Loopback, Reply

WEATHER = Tool(
    name="weather",
    description="The weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
)


def body(data: object, *, status: int = 200, **headers: str) -> Reply:
    given = {"Content-Type": "application/json", **headers}
    return Reply(status=status, headers=given, body=json.dumps(data).encode())


def question(*messages: Message, **rest: Any) -> Request:
    return Request(messages=messages or (Message(role="user", content="2 + 2?"),), **rest)


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """What builds the models of one provider, and how such a model is named."""

    build: Callable[[ModelSpec], Model]
    provider: str
    name: str
    api_key: str | None = None
    versioned: bool = True

    def spec_of(self, server: Loopback, **rest: Any) -> ModelSpec:
        settings = {"retry_delay_s": 0.001, **rest.pop("settings", {})}
        url = server.url if self.versioned else server.url.removesuffix("/v1")
        base = {"provider": self.provider, "name": self.name, "base_url": url}
        return ModelSpec(**{**base, "api_key": self.api_key, "settings": settings, **rest})

    def conversation(
        self,
        server: Loopback,
        *requests: Callable[[Completion | None], Request],
        **spec: Any,
    ) -> list[Completion]:
        """Return the answers of one model to requests that may build on the answer before."""

        async def main() -> list[Completion]:
            model = self.build(self.spec_of(server, **spec))
            answers: list[Completion] = []
            try:
                for request in requests:
                    answers.append(await model.complete(request(answers[-1] if answers else None)))
            finally:
                await close_model(model)
            return answers

        return asyncio.run(main())

    def ask(self, server: Loopback, request: Request | None = None, **spec: Any) -> Completion:
        return self.conversation(server, lambda _: request or question(), **spec)[0]

    def answered(self, server: Loopback, reply: Reply, **spec: Any) -> Completion:
        server.answer = lambda _: reply
        return self.ask(server, **spec)

    def faulted(self, server: Loopback, reply: Reply, **settings: Any) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            self.answered(server, reply, settings={"max_retries": 0, **settings})
        return caught.value
