"""Local servers, before the first trial: what exactly they serve, and loaded if that is asked for."""

import asyncio
from collections.abc import Iterable, Mapping

from bakeoff._lib.redact import public_url
from bakeoff.app.source_locations import about
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import BakeoffError, ProviderError, UsageError
from bakeoff.core.events import Listener, Notice
from bakeoff.core.outcome import Request
from bakeoff.core.ports import Model
from bakeoff.core.task import Message
from bakeoff.core.values import Json
from bakeoff.models.discovery import FoundModel, ollama_models, ollama_names
from bakeoff.models.ollama_address import address
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


async def check_roles(roles: Mapping[str, ModelSpec]) -> None:
    """Raise where a role is to be played by a model that its Ollama does not have, or cannot give.

    Whether a candidate is there shows with the first trial; a judge is asked when all is paid for.
    """
    for role, spec in roles.items():
        if spec.provider == "ollama" and spec.base_url:
            with about(spec):
                await _check_role(role, spec, address(spec.base_url))


async def _check_role(role: str, spec: ModelSpec, url: str) -> None:
    try:
        names = await ollama_names(url)
    except ProviderError as error:
        if error.transient and not isinstance(error.__cause__, TimeoutError):
            raise UsageError(
                f"key 'roles.{role}': nothing answers at {public_url(url)}, where the Ollama with "
                f"{spec.name!r} should be; start it with `ollama serve`, set OLLAMA_HOST, or write "
                "the model as provider/name"
            ) from error
        return  # slow, or a server that does not list its models: its first answer will tell
    if not {spec.name, f"{spec.name}:latest"} & set(names):
        raise UsageError(
            f"key 'roles.{role}': the Ollama at {public_url(url)} has no model {spec.name!r}; it has: "
            f"{', '.join(names) or 'none'}; get it with `ollama pull {spec.name}`, or write the "
            "model as provider/name"
        )


def _described(spec: ModelSpec, known: Mapping[tuple[str, str], FoundModel]) -> dict[str, Json]:
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
