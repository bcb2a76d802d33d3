"""Which models there are: on an Ollama, on servers with OpenAI's API, in a file, behind a key.

Every place is asked at the same time and none is waited for: what does not answer at once is told
in one line, with what to do about it.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from bakeoff._lib.redact import Redactor, public_url, url_secrets
from bakeoff._lib.sanitize import one_line
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.values import Json
from bakeoff.models.client.probe import SHORT_S, probe, probe_session
from bakeoff.models.client.settings import address, split_query

if TYPE_CHECKING:
    import aiohttp

_DETAILS_S = 2 * SHORT_S
_AT_ONCE = 16
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model that can be used; None is unknown.

    `context_length` is what the model was trained for. How much Ollama lets it read at once is
    another number, often a smaller one.
    """

    name: str
    provider: str
    base_url: str | None = None
    size_bytes: int | None = None
    quantization: str | None = None
    context_length: int | None = None
    digest: str | None = None
    family: str | None = None
    parameter_count: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A source without models: where, why, and what to do about it."""

    where: str
    why: str
    what_to_do: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}; {self.what_to_do}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was found and what was not; `keyed` are providers whose every model can be named."""

    found: tuple[FoundModel, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    keyed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look; `providers` maps each provider to the variable with its key."""

    ollama: str | None = None
    servers: Sequence[str] = ()
    configured: Sequence[ModelSpec] = ()
    providers: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)


async def discover(places: Places) -> Discovery:
    """Search all sources at once; a name that two of them have is listed once, from the first."""
    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(served_models(url)) for url in places.servers]
        if places.ollama is not None:
            looks.insert(0, group.create_task(ollama_models(places.ollama)))
    seen = [task.result() for task in looks]
    seen.append(configured_models(places.configured, places.environ))
    found: dict[str, FoundModel] = {}
    for model in (model for part in seen for model in part.found):
        found.setdefault(model.name, model)
    return Discovery(
        found=tuple(found.values()),
        troubles=tuple(trouble for part in seen for trouble in part.troubles),
        keyed=keyed_providers(places.providers, places.environ),
    )


# --- Ollama -----------------------------------------------------------------------------------


class _Details(msgspec.Struct):
    family: str | None = None
    quantization_level: str | None = None


class _Tag(msgspec.Struct):
    name: str
    size: int | None = None
    digest: str | None = None
    details: _Details | None = None


class _Tags(msgspec.Struct):
    models: list[_Tag] | None = None


class _Shown(msgspec.Struct):
    model_info: dict[str, Json] | None = None


async def ollama_names(url: str) -> list[str]:
    """Return the names of the models of the Ollama at *url*; raise if it does not answer."""
    async with probe_session() as session:
        tags = (await probe(session, f"{url}/api/tags", _Tags)).models or []
    return [one_line(tag.name) for tag in tags]


async def ollama_models(host: str) -> Discovery:
    """Return every model of the Ollama at *host*, each under its name with its tag."""
    try:
        url = address(host)
    except UsageError as error:
        return _trouble(f"Ollama at {public_url(host)!r}", str(error), "correct OLLAMA_HOST")
    try:
        async with probe_session() as session:
            tags = (await probe(session, f"{url}/api/tags", _Tags)).models or []
            found = await _with_details(session, url, [_of_tag(tag, url) for tag in tags])
    except ProviderError as error:
        return _trouble(
            f"Ollama at {public_url(url)}",
            str(error),
            "start it with `ollama serve`, or set OLLAMA_HOST",
        )
    if not found:
        return _trouble(
            f"Ollama at {public_url(url)}",
            "it has no models",
            "get one, for example: ollama pull llama3.2:1b",
        )
    return Discovery(found=found)


def _of_tag(tag: _Tag, url: str) -> FoundModel:
    details = tag.details or _Details()
    return FoundModel(
        name=f"ollama/{one_line(tag.name)}",
        provider="ollama",
        base_url=url,
        size_bytes=tag.size,
        quantization=details.quantization_level or None,
        digest=tag.digest,
        family=details.family or None,
    )


async def _with_details(
    session: "aiohttp.ClientSession", url: str, models: Iterable[FoundModel]
) -> tuple[FoundModel, ...]:
    """Return *models* with the details that the server returns in time."""
    semaphore = asyncio.Semaphore(_AT_ONCE)
    end = asyncio.get_running_loop().time() + _DETAILS_S

    async def one(model: FoundModel) -> FoundModel:
        payload = {"model": model.name.removeprefix("ollama/")}
        try:
            async with asyncio.timeout_at(end), semaphore:
                shown = await probe(session, f"{url}/api/show", _Shown, payload=payload)
        except (ProviderError, TimeoutError) as error:
            return replace(model, note=f"no details: {str(error) or 'the server is too slow'}")
        return _detailed(model, shown.model_info or {})

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(model)) for model in models]
    return tuple(task.result() for task in tasks)


def _detailed(model: FoundModel, info: Mapping[str, Json]) -> FoundModel:
    family = info.get("general.architecture")
    return replace(
        model,
        context_length=_count(info.get(f"{family}.context_length")),
        parameter_count=_count(info.get("general.parameter_count")),
    )


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# --- OpenAI's API -----------------------------------------------------------------------------


class _Served(msgspec.Struct):
    id: str
    max_model_len: int | None = None  # vLLM
    context_length: int | None = None  # several others


class _Listing(msgspec.Struct):
    data: list[_Served] | None = None


async def served_models(base_url: str, *, api_key: str | None = None) -> Discovery:
    """Return every model that a server with OpenAI's API lists."""
    url = base_url.strip().rstrip("/")
    root, query = split_query(url)
    headers = {"Authorization": f"Bearer {api_key.strip()}"} if api_key else {}
    try:
        async with probe_session(headers) as session:
            served = (await probe(session, f"{root}/models{query}", _Listing)).data or []
    except ProviderError as error:
        todo = (
            "give its key"
            if error.status in {401, 403}
            else "is it running, and is the base URL right (.../v1)?"
        )
        why = Redactor([api_key or "", *url_secrets(url)]).text(str(error))
        return _trouble(public_url(url), why, todo)
    return Discovery(
        found=tuple(
            FoundModel(
                name=f"openai-compatible/{one_line(model.id)}",
                provider="openai-compatible",
                base_url=url,
                context_length=model.context_length or model.max_model_len,
            )
            for model in served
        )
    )


# --- without asking anybody ---------------------------------------------------------------------


def configured_models(specs: Iterable[ModelSpec], environ: Mapping[str, str]) -> Discovery:
    """Return the models of a config whose variables are set, and those whose are not as trouble."""
    found, troubles = [], []
    for spec in specs:
        if missing := [name for name in _variables(spec) if not environ.get(name)]:
            troubles.append(
                Trouble(
                    where=f"configured model {spec.full_name}",
                    why=f"{' and '.join(missing)} not set",
                    what_to_do=f"export {missing[0]}=..., or set `enabled: false`",
                )
            )
        else:
            note = f"configured as {spec.label}" if spec.label else "configured"
            found.append(
                FoundModel(
                    name=spec.full_name, provider=spec.provider, base_url=spec.base_url, note=note
                )
            )
    return Discovery(found=tuple(found), troubles=tuple(troubles))


def _variables(spec: ModelSpec) -> list[str]:
    texts = [spec.base_url or "", spec.api_key or "", *spec.headers.values()]
    return list(dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text)))


def keyed_providers(providers: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the providers whose key variable is set."""
    return tuple(name for name, variable in sorted(providers.items()) if environ.get(variable))


def _trouble(where: str, why: str, what_to_do: str) -> Discovery:
    return Discovery(troubles=(Trouble(where=where, why=why, what_to_do=what_to_do),))
