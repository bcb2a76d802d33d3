"""The limits that a run file sets, and the gates that keep them: one per endpoint and run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from bakeoff.core.candidate import ModelSpec
from bakeoff.models.gate import EndpointGate, EndpointLimits, Gate, ModelGate
from bakeoff.models.settings import settings_of

_API_PATHS = ("/chat/completions", "/completions", "/messages", "/responses")


class LimitSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What may be asked of a model at most.

    `adaptive` is whether its endpoint is asked by as many at once as make it faster.
    """

    max_concurrency: Annotated[int, Meta(ge=1)] | None = None
    rpm: Annotated[float, Meta(gt=0)] | None = None
    tpm: Annotated[float, Meta(gt=0)] | None = None
    adaptive: bool = True


class Gates:
    """Every gate of a run: each endpoint has one, which all models on it share.

    *limits* are those of whole endpoints, by URL; those in a model's settings are the model's.
    Of two specs of one model the stricter limit holds.
    """

    def __init__(self, limits: Mapping[str, EndpointLimits] | None = None) -> None:
        self._limits = {endpoint_of(url): limit for url, limit in (limits or {}).items()}
        self._endpoints: dict[str, EndpointGate] = {}
        self._models: dict[tuple[str, str], ModelGate] = {}

    def of(self, spec: ModelSpec) -> Gate:
        """Return the gate that the requests of *spec* go through."""
        endpoint = endpoint_of(spec.base_url or spec.provider)
        if endpoint not in self._endpoints:
            self._endpoints[endpoint] = EndpointGate(self._limits.get(endpoint))
        model = (endpoint, spec.name)
        if model not in self._models:
            self._models[model] = ModelGate(self._endpoints[endpoint])
        self._models[model].restrict(limits_of(spec))
        return self._models[model]


def limits_of(spec: ModelSpec) -> EndpointLimits:
    """Return the limits among the settings of *spec*."""
    names = LimitSettings.__struct_fields__
    own = {name: value for name, value in spec.settings.items() if name in names}
    settings = settings_of(replace(spec, settings=own), LimitSettings)
    return EndpointLimits(**msgspec.structs.asdict(settings))


def endpoint_of(url: str) -> str:
    """Return what all URLs of one endpoint have in common: no API's path, no query."""
    parts = urlsplit(url.strip())
    path = parts.path.rstrip("/")
    for ending in _API_PATHS:
        if path.endswith(ending):
            path = path.removesuffix(ending)
            break
    return f"{parts.scheme}://{parts.netloc}".lower() + path
