"""The endpoints of a run: what local servers serve before it, and what requests wait for during it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from bakeoff._lib.phrasing import format_duration
from bakeoff._lib.redact import Redactor, public_url
from bakeoff.core.candidate import EndpointWait, ModelSpec
from bakeoff.core.errors import BakeoffError, ProviderError, UsageError
from bakeoff.core.events import Listener, Notice, Waiting
from bakeoff.core.outcome import Request
from bakeoff.core.ports import Model
from bakeoff.core.stop import Stop
from bakeoff.core.task import Message
from bakeoff.core.values import Json
from bakeoff.formats.text.locate import about
from bakeoff.models.client.settings import address
from bakeoff.models.limits.settings import Limiters
from bakeoff.models.providers import PROVIDERS
from bakeoff.stores.live_status import LivePublisher

if TYPE_CHECKING:
    from bakeoff.models.discovery import FoundModel

_EVERY_S = 1.0
_WORTH_TELLING_S = 2.0  # a server that is down for less is no news

_WARM_UP = Request(messages=(Message(role="user", content="Hi"),), parameters={"max_tokens": 1})


async def served(models: Iterable[ModelSpec]) -> dict[str, Json]:
    """Return what the Ollama servers among *models* say of them, by full name."""
    local = [spec for spec in models if spec.provider == "ollama" and spec.base_url]
    if not local:
        return {}
    from bakeoff.models.discovery import ollama_models

    urls = {spec.base_url for spec in local if spec.base_url}
    async with asyncio.TaskGroup() as group:
        lists = {url: group.create_task(ollama_models(url)) for url in urls}
    known = {
        (url, model.name): model for url, listed in lists.items() for model in listed.result().found
    }
    described = {spec.full_name: _described(spec, known) for spec in local}
    return {name: details for name, details in described.items() if details}


async def check_roles(roles: Mapping[str, ModelSpec]) -> None:
    """Raise where a role is to be played by a model that its Ollama does not have, or cannot give.

    Whether a candidate is there shows with the first trial; a judge is asked when all is paid for.
    """
    for role, spec in roles.items():
        if spec.provider == "ollama" and spec.base_url:
            with about(spec):
                await _check_role(role, spec, address(spec.base_url))


async def _check_role(role: str, spec: ModelSpec, url: str) -> None:
    from bakeoff.models.discovery import ollama_names

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


def _described(spec: ModelSpec, known: Mapping[tuple[str, str], "FoundModel"]) -> dict[str, Json]:
    for name in (spec.full_name, f"{spec.full_name}:latest"):
        if model := known.get((spec.base_url or "", name)):
            return {
                "digest": model.digest,
                "size_bytes": model.size_bytes,
                "quantization": model.quantization,
                "context_length": model.context_length,
                "family": model.family,
                "parameter_count": model.parameter_count,
            }
    return {}


async def warm_up(models: Iterable[tuple[ModelSpec, Model]], listener: Listener) -> None:
    """Ask each local model for one token, so that loading it is no part of the first trial."""
    for spec, model in models:
        provider = PROVIDERS.get(spec.provider)
        if provider is None or not provider.local or spec.provider == "scripted":
            continue
        try:
            await model.complete(_WARM_UP)
        except BakeoffError as error:  # its trials will say so again, each for itself
            listener(Notice(f"{spec.full_name} could not be warmed up: {error}"))


class EndpointWatch:
    """Tells what the endpoints of one run are doing, without the secrets in what they say."""

    def __init__(
        self,
        limiters: Limiters,
        listener: Listener,
        redactor: Redactor,
        *,
        publisher: LivePublisher | None = None,
    ) -> None:
        self._limiters = limiters
        self._publisher = publisher
        self._listener = listener
        self._redactor = redactor
        self._down: dict[str, float] = {}
        self._waited = False

    @property
    def given_up(self) -> tuple[str, ...]:
        """Why each endpoint that is not asked any more was given up."""
        return tuple(map(self._redactor.text, self._limiters.given_up.values()))

    @asynccontextmanager
    async def watching(
        self, stop: Stop, nothing_left: Callable[[], bool], *, every_s: float = _EVERY_S
    ) -> AsyncIterator[None]:
        """Send nothing new once *stop* is requested; request it where *nothing_left* can be run."""
        loop = asyncio.get_running_loop()

        def on_given_up() -> None:
            if nothing_left():
                stop.request()
            else:
                self._listener(Notice(f"given up, the others go on: {self.given_up[-1]}"))

        self._limiters.on_given_up = on_given_up
        reporting = asyncio.create_task(self._report(every_s))
        try:
            with stop.calling(lambda: _in_loop(loop, self._limiters.stop)):
                yield
                self._look()
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting
            if self._publisher is not None:
                self._publisher.close()

    async def _report(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self._look()

    def _look(self) -> None:
        if self._publisher is not None:
            self._publisher.publish(self._limiters.states())
        waits = tuple(
            replace(wait, reason=self._redactor.text(wait.reason))
            for wait in self._limiters.waits()
        )
        self._tell_outages(waits)
        if waits or self._waited:
            self._listener(Waiting(waits))
        self._waited = bool(waits)

    def _tell_outages(self, waits: tuple[EndpointWait, ...]) -> None:
        down = {w.endpoint: w for w in waits if w.down_s is not None}
        for endpoint in [name for name in self._down if name not in down]:
            took_s = self._down.pop(endpoint)
            if endpoint not in self._limiters.given_up:
                self._listener(Notice(f"{endpoint} answers again after {format_duration(took_s)}"))
        for endpoint, wait in down.items():
            down_s = wait.down_s or 0.0
            if endpoint not in self._down and down_s >= _WORTH_TELLING_S:
                left = format_duration(wait.given_up_in_s)
                self._listener(
                    Notice(
                        f"{endpoint} is down, and no trial faults for that; it is waited for, "
                        f"{left} more at most (--give-up-after): {wait.reason}"
                    )
                )
                self._down[endpoint] = down_s
            elif endpoint in self._down:
                self._down[endpoint] = down_s


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call *call* in *loop*: now, where that is running here, else as soon as it can be."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        call()
    else:
        with suppress(RuntimeError):  # it has ended meanwhile, and nothing is left to stop
            loop.call_soon_threadsafe(call)
