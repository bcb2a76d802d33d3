"""Limits from settings, and the limiters that enforce them: one per endpoint and run."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from bakeoff._lib.phrasing import did_you_mean
from bakeoff.core.candidate import EndpointLimits, EndpointState, EndpointWait, ModelSpec, Patience
from bakeoff.core.errors import UsageError
from bakeoff.models.client.settings import settings_of
from bakeoff.models.limits.limiter import EndpointLimiter, Limiter, ModelLimiter
from bakeoff.models.providers import PROVIDERS

_API_PATH = re.compile(r"(/chat/completions|/completions|/messages|/responses|/api/chat)?/*$")
_VERSION = re.compile(r"/v\d+\w*$")
_HERE = re.compile(r"^(localhost|0\.0\.0\.0)(?=:|$)")


class LimitSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The limits of a model in its settings.

    `adaptive` is whether the concurrency at its endpoint follows the measured throughput.
    """

    max_concurrency: Annotated[int, Meta(ge=1)] | None = None
    rpm: Annotated[float, Meta(gt=0)] | None = None
    tpm: Annotated[float, Meta(gt=0)] | None = None
    adaptive: bool = True


class Limiters:
    """All limiters of a run: one per endpoint, shared by all models there.

    *limits* apply to whole endpoints, by URL or by provider name, which stands for each of its
    addresses; those in a model's settings are the model's own. Of two limits the stricter holds.
    *patience* says how long an endpoint that is down is waited for. Where the run is one of several
    *shares* of another, each has an equal part of every limit.
    """

    def __init__(
        self,
        limits: Mapping[str, EndpointLimits] | None = None,
        *,
        patience: Patience | None = None,
        shares: int = 1,
    ) -> None:
        self._patience = patience
        self._shares = shares
        self.given_up: dict[str, str] = {}  # why, by the endpoint's name
        self.on_given_up: Callable[[], None] | None = None
        self._limits = {_key(name): limit for name, limit in (limits or {}).items()}
        self._idle = {_key(name): name for name in limits or {}}
        self._endpoints: dict[str, EndpointLimiter] = {}
        self._models: dict[tuple[str, str], ModelLimiter] = {}

    def of(self, spec: ModelSpec) -> Limiter:
        """Return the limiter for the requests of *spec*."""
        endpoint, _ = model = limiter_of(spec)
        if endpoint not in self._endpoints:
            limiter = EndpointLimiter(name=_shown(spec, endpoint), patience=self._patience)
            limiter.on_given_up = lambda why: self._give_up(endpoint, why)
            self._endpoints[endpoint] = limiter
        for key in {endpoint, spec.provider} & self._limits.keys():
            self._idle.pop(key, None)
            self._endpoints[endpoint].restrict(self._limits[key].divided(self._shares))
        if model not in self._models:
            name = f"{_shown(spec, endpoint)} ({spec.name})"
            self._models[model] = ModelLimiter(self._endpoints[endpoint], name)
        self._models[model].restrict(limits_of(spec).divided(self._shares))
        return self._models[model]

    def known(self) -> Mapping[tuple[str, str], ModelLimiter]:
        """Return every limiter that was asked for, by what `limiter_of` says of its models."""
        return self._models

    def stop(self) -> None:
        """Send nothing new anywhere; requests in flight are finished."""
        for model in self._models.values():
            model.close(None)
        for limiter in self._endpoints.values():
            limiter.stop()

    def waits(self) -> Iterator[EndpointWait]:
        """Yield why requests wait, for each endpoint and each model with limits where any does."""
        waits = [limiter.waits() for limiter in self._endpoints.values()]
        waits += [model.waits() for model in self._models.values()]
        yield from (wait for wait in waits if wait is not None)

    def states(self) -> tuple[EndpointState, ...]:
        """Return what the limiter of each endpoint does now."""
        return tuple(limiter.state() for limiter in self._endpoints.values())

    def _give_up(self, endpoint: str, why: str) -> None:
        self.given_up[self._endpoints[endpoint].name] = why
        for (place, _), model in self._models.items():
            if place == endpoint:
                model.close(why)
        if self.on_given_up is not None:
            self.on_given_up()

    def idle(self) -> Iterator[str]:
        """Yield the endpoints with limits at which no model has been asked for, as named."""
        yield from self._idle.values()


def limiter_of(spec: ModelSpec) -> tuple[str, str]:
    """Return what all specs that share a limiter have in common: the endpoint, and the model there."""
    return endpoint_of(spec.base_url or spec.provider), spec.name


def limits_of(spec: ModelSpec) -> EndpointLimits:
    """Return the limits among the settings of *spec*."""
    names = LimitSettings.__struct_fields__
    own = {name: value for name, value in spec.settings.items() if name in names}
    settings = settings_of(replace(spec, settings=own), LimitSettings)
    return EndpointLimits(**msgspec.structs.asdict(settings))


def endpoint_of(url: str) -> str:
    """Return what all URLs of one endpoint have in common: no API's path or version, no query."""
    text = url.strip()
    parts = urlsplit(text if "://" in text else f"http://{text}")
    host = _HERE.sub("127.0.0.1", parts.netloc.rpartition("@")[2].lower())
    return f"{parts.scheme.lower()}://{host}" + _VERSION.sub("", _API_PATH.sub("", parts.path))


def _shown(spec: ModelSpec, endpoint: str) -> str:
    """Return an endpoint as a person knows it: its address, or its provider's name."""
    return endpoint if spec.base_url else spec.provider


def _key(name: str) -> str:
    return name if name in PROVIDERS else endpoint_of(name)


def check_endpoints(names: Iterable[str]) -> None:
    """Raise where one of *names* can be no endpoint's."""
    for name in names:
        if name not in PROVIDERS and not re.match(r"https?://.", name):
            raise UsageError(
                f"endpoints: {name!r} is neither a URL (http://...) nor a provider; "
                f"{did_you_mean(name, PROVIDERS)}"
            )
