"""Local servers, before the first trial: what exactly they serve, and loaded if that is asked for."""

import asyncio
from collections.abc import Iterable, Mapping

from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import BakeoffError
from bakeoff.core.events import Listener, Notice
from bakeoff.core.outcome import Request
from bakeoff.core.ports import Model
from bakeoff.core.task import Message
from bakeoff.core.values import Json
from bakeoff.models.discovery import Found, ollama_models
from bakeoff.models.providers import PROVIDERS

_WARM_UP = Request(messages=(Message(role="user", content="Hi"),), parameters={"max_tokens": 1})


async def served(models: Iterable[ModelSpec]) -> dict[str, Json]:
    """Return what the Ollama servers among *models* say of them, by full name."""
    local = [spec for spec in models if spec.provider == "ollama" and spec.base_url]
    urls = {spec.base_url for spec in local if spec.base_url}
    async with asyncio.TaskGroup() as group:
        looks = {url: group.create_task(ollama_models(url)) for url in urls}
    known = {
        (url, found.name): found for url, look in looks.items() for found in look.result().found
    }
    described = {spec.full_name: _described(spec, known) for spec in local}
    return {name: what for name, what in described.items() if what}


def _described(spec: ModelSpec, known: Mapping[tuple[str, str], Found]) -> dict[str, Json]:
    for name in (spec.full_name, f"{spec.full_name}:latest"):
        if found := known.get((spec.base_url or "", name)):
            return {
                "digest": found.digest,
                "size_bytes": found.size_bytes,
                "quantization": found.quantization,
                "context_length": found.context_length,
                "family": found.family,
                "parameter_count": found.parameter_count,
            }
    return {}


async def warm_up(models: Iterable[tuple[ModelSpec, Model]], tell: Listener) -> None:
    """Ask each local model for one token, so that loading it is no part of the first trial."""
    for spec, model in models:
        provider = PROVIDERS.get(spec.provider)
        if provider is None or not provider.local or spec.provider == "scripted":
            continue
        try:
            await model.complete(_WARM_UP)
        except BakeoffError as error:  # its trials will say so again, each for itself
            tell(Notice(f"{spec.full_name} could not be warmed up: {error}"))
