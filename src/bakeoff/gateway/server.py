"""The local model proxy of a run: one server, four dialects, a token per trial.

Programs in boxes know its address and a token that is good for one trial. It asks the model of
that trial, so limits, budget, cache and replay hold for them as for everybody; the keys of
providers never come here.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

from aiohttp import web

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import BakeoffError
from bakeoff.core.outcome import Completion, Journal
from bakeoff.core.ports import Model
from bakeoff.core.sandbox import GatewayAddress
from bakeoff.core.values import Json
from bakeoff.gateway.dialects.chat import CHAT
from bakeoff.gateway.dialects.dialect import (
    DialectAnswer,
    GatewayDialect,
    ModelRequest,
    NotUnderstoodError,
    Problem,
    UnansweredError,
    encode,
)
from bakeoff.gateway.dialects.gemini import COUNTING, gemini
from bakeoff.gateway.dialects.messages import MESSAGES
from bakeoff.gateway.dialects.responses import RESPONSES
from bakeoff.gateway.model_access import OVER, Claim, RequestBounds, TrialModelAccess
from bakeoff.gateway.sockets import WAITING, Connections, ListeningSockets

MODEL = "bakeoff"  # any name is answered by the trial's own model

_ROUTES = (
    "POST /v1/chat/completions",
    "POST /v1/responses",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /v1beta/models/MODEL:generateContent",
    "POST /v1beta/models/MODEL:streamGenerateContent?alt=sse",
    "POST /v1beta/models/MODEL:countTokens",
    "GET /v1/models",
)


def dialect_of(request: web.Request) -> GatewayDialect:
    """Return the dialect of a request whose URL does not tell it."""
    if "anthropic-version" in request.headers or request.path.endswith("/messages"):
        return MESSAGES
    if "x-goog-api-key" in request.headers or request.path.startswith("/v1beta/"):
        return gemini(MODEL, stream=False)
    return CHAT


def unknown_route(request: web.Request) -> Problem:
    """Return the problem for an unknown URL."""
    route = one_line(f"{request.method} {request.path}", width=100)
    there_are = ", ".join(_ROUTES)
    return Problem(
        status=404,
        code="not_found",
        message=f"{route} is not supported here; there are: {there_are}",
    )


def models(request: web.Request) -> dict[str, Json]:
    """Return the list of models, which has one entry, or the model that was asked for by name."""
    named = request.match_info.get("name")
    dialect = dialect_of(request)
    name = named or MODEL
    if dialect is MESSAGES:
        since = "1970-01-01T00:00:00Z"
        entry: dict[str, Json] = {"type": "model", "id": name, "display_name": name}
        entry["created_at"] = since
        return (
            entry
            if named
            else {"data": [entry], "has_more": False, "first_id": name, "last_id": name}
        )
    if dialect is CHAT:
        entry = {"id": name, "object": "model", "created": 0, "owned_by": "bakeoff"}
        return entry if named else {"object": "list", "data": [entry]}
    methods: Json = ["generateContent", "streamGenerateContent", "countTokens"]
    entry = {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
    return entry if named else {"models": [entry]}


_PING_S = 10.0
_KEEP_OPEN_S = 3600.0  # a program may run a tool for long and come back on the same connection
_CLOSING_S = 2.0
_EVENTS = "text/event-stream"
_STREAM_HEADERS = {"Content-Type": _EVENTS, "Cache-Control": "no-cache"}
_NO_RETRY = {"x-should-retry": "false"}  # the SDKs of OpenAI and Anthropic obey it
_RETRY = {"Retry-After": "1"}
_TOO_LARGE, _TOO_MANY = 413, 429

_NO_TOKEN = Problem(
    status=401,
    code="invalid_api_key",
    message="no trial has this key, or its trial is over; show the token of the trial as "
    "`Authorization: Bearer`, `x-api-key`, `x-goog-api-key` or `?key=`",
)

_PACKED = Problem(
    status=415,
    code="unsupported_media_type",
    message="the gateway takes no compressed body; send it without Content-Encoding",
)


async def open_gateway(
    folder: Path, *, ping_s: float = _PING_S, bounds: RequestBounds | None = None
) -> "GatewayServer":
    """Return a gateway that listens: on a socket in *folder*, or near it, and on loopback."""
    gateway = GatewayServer(
        ListeningSockets(folder), ping_s=ping_s, bounds=bounds or RequestBounds()
    )
    try:
        await gateway.start()
    except BaseException:
        await gateway.close()
        raise
    return gateway


class GatewayServer:
    """The proxy; made by `open_gateway`."""

    def __init__(
        self, listening: ListeningSockets, *, ping_s: float, bounds: RequestBounds
    ) -> None:
        self._listening = listening
        self._ping_s = ping_s
        self._bounds = bounds
        self._connections = Connections(bounds.all_connections, is_known=self._is_known)
        self._servers: list[asyncio.Server] = []
        self._access_by_token: dict[bytes, TrialModelAccess] = {}
        self._numbers = count(1)
        self._runner = web.AppRunner(
            self._application(),
            handler_cancellation=True,
            access_log=None,  # addresses may hold a key
            auto_decompress=False,  # a few packed bytes could keep the event loop busy for seconds
            keepalive_timeout=_KEEP_OPEN_S,
            shutdown_timeout=_CLOSING_S,
        )
        self.address = GatewayAddress(socket=str(listening.path), url=listening.url)

    async def start(self) -> None:
        """Start serving."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        for sock in (self._listening.unix, self._listening.tcp):
            self._servers.append(
                await loop.create_server(self._protocol, sock=sock, backlog=WAITING)
            )

    def _protocol(self) -> asyncio.Protocol:
        return self._connections.protocol_for(self._runner.server)

    def admit(self, model: Model, journal: Journal, *, rollout: int) -> TrialModelAccess:
        """Return access to *model* for one trial; its messages are written to *journal*."""
        access = TrialModelAccess(
            model, journal, rollout=rollout, bounds=self._bounds, on_close=self._forget
        )
        self._access_by_token[_digest(access.token)] = access
        return access

    async def close(self) -> None:
        """Stop listening, and cancel the requests in progress."""
        accesses = list(self._access_by_token.values())
        for access in accesses:
            access.close()
        for access in accesses:
            await access.settled()
        for server in self._servers:
            server.close()
        await self._runner.cleanup()
        self._listening.close()

    def _forget(self, access: TrialModelAccess) -> None:
        self._access_by_token.pop(_digest(access.token), None)

    def _is_known(self, transport: asyncio.BaseTransport) -> bool:
        return any(access.usage.knows(transport) for access in self._access_by_token.values())

    def _application(self) -> web.Application:
        application = web.Application()
        add = application.router.add_route
        for root in ("/v1", ""):
            add("POST", f"{root}/chat/completions", partial(self._answer, CHAT))
            add("POST", f"{root}/responses", partial(self._answer, RESPONSES))
            add("POST", f"{root}/messages", partial(self._answer, MESSAGES))
            counting = partial(self._count, MESSAGES, "input_tokens")
            add("POST", f"{root}/messages/count_tokens", counting)
            add("GET", f"{root}/models", self._models)
            add("GET", f"{root}/models/{{name}}", self._models)
        add("GET", "/v1beta/models", self._models)
        add("GET", "/v1beta/models/{name}", self._models)
        add("POST", r"/{version:v1\w*}/models/{name}:{verb:\w+}", self._gemini)
        add("*", "/{path:.*}", self._unknown)
        return application

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        verb, name = request.match_info["verb"], request.match_info["name"]
        stream = verb == "streamGenerateContent"
        dialect = gemini(name, stream=stream)
        if verb == "countTokens":
            return await self._count(COUNTING, "totalTokens", request)
        if not stream and verb != "generateContent":
            return await self._unknown(request)
        if stream and request.query.get("alt") != "sse":
            return _error(dialect, _bad("streamGenerateContent is supported with ?alt=sse only"))
        return await self._answer(dialect, request)

    async def _count(
        self, dialect: GatewayDialect, called: str, request: web.Request
    ) -> web.StreamResponse:
        try:
            access = self._access_of(request)
            with access.usage.claim(request.transport) as claim:
                model_request = await self._read(request, dialect, access, claim)
        except UnansweredError as error:
            return _error(dialect, error.problem)
        return _json({called: model_request.estimated_tokens()})

    async def _models(self, request: web.Request) -> web.StreamResponse:
        try:
            self._access_of(request)
        except UnansweredError as error:
            return _error(dialect_of(request), error.problem)
        return _json(models(request))

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        return _error(dialect_of(request), unknown_route(request))

    async def _answer(self, dialect: GatewayDialect, request: web.Request) -> web.StreamResponse:
        try:
            access = self._access_of(request)
            with access.usage.claim(request.transport) as claim:
                model_request = await self._read(request, dialect, access, claim)
                answer = dialect.answer(model_request, next(self._numbers))
                task = access.start(model_request, claim)
                response = await self._ask(request, model_request, answer, access, task)
                # an answer that is not read keeps its slot until it is
                return await _sent(request, response)
        except UnansweredError as error:
            return _error(dialect, error.problem)

    def _access_of(self, request: web.Request) -> TrialModelAccess:
        """Return the model access whose token the request has; compared by digest, in constant time."""
        for token in _tokens(request):
            if access := self._access_by_token.get(_digest(token)):
                return access
        raise UnansweredError(_NO_TOKEN)

    async def _read(
        self, request: web.Request, dialect: GatewayDialect, access: TrialModelAccess, claim: Claim
    ) -> ModelRequest:
        try:
            model_request = dialect.read(await _body(request, claim, self._bounds))
            if (
                len(model_request.messages) + len(model_request.system) + len(model_request.tools)
                > self._bounds.parts
            ):
                raise self._bounds.too_many_parts()
            if model_request.messages or model_request.system:
                return model_request
            problem = _bad("nothing is asked: there is no message")
        except UnansweredError as error:
            problem = error.problem
        except NotUnderstoodError as error:
            problem = _bad(one_line(str(error), width=1000))
        access.note(f"answered {problem.status}: {problem.message}")
        raise UnansweredError(problem)

    async def _ask(
        self,
        request: web.Request,
        model_request: ModelRequest,
        answer: DialectAnswer,
        access: TrialModelAccess,
        task: "asyncio.Task[Completion]",
    ) -> web.StreamResponse:
        try:
            await asyncio.wait({task}, timeout=self._ping_s if model_request.stream else None)
            if not task.done():
                return await self._stream(request, access, answer, task)
        finally:
            task.cancel()  # the program disconnected; a finished task is not affected
        completion = _completion(task, access)
        if model_request.stream:
            events = answer.opening() + answer.events(completion)
            return web.Response(body=events, headers=_STREAM_HEADERS)
        return _json(answer.whole(completion))

    async def _stream(
        self,
        request: web.Request,
        access: TrialModelAccess,
        answer: DialectAnswer,
        task: "asyncio.Task[Completion]",
    ) -> web.StreamResponse:
        """Send keep-alives to the client until there is an answer or a failure."""
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        await response.write(answer.opening() + answer.ping())
        while not (await asyncio.wait({task}, timeout=self._ping_s))[0]:
            await response.write(answer.ping())
        try:
            end = answer.events(_completion(task, access))
        except UnansweredError as error:
            end = answer.broken(error.problem)  # too late for another status
        await response.write(end)
        await response.write_eof()
        return response


async def _body(request: web.Request, claim: Claim, bounds: RequestBounds) -> bytes:
    """Return the body of *request*; never more than the limit is held."""
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnansweredError(_PACKED)
    if (request.content_length or 0) > bounds.body:
        raise bounds.too_large()
    body = bytearray()
    while piece := await request.content.readany():
        claim.grow(len(piece))
        body += piece
    return bytes(body)


async def _sent(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Send *response*, and return when it is written."""
    with suppress(ConnectionError):  # the program has disconnected
        await response.prepare(request)
        await response.write_eof()
    return response


def _completion(task: "asyncio.Task[Completion]", access: TrialModelAccess) -> Completion:
    try:
        return task.result()
    except BakeoffError as error:
        raise UnansweredError(access.problem(error)) from error
    except asyncio.CancelledError:
        raise UnansweredError(OVER) from None  # the access was closed; this task was not cancelled


def _tokens(request: web.Request) -> Iterator[str]:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield token.strip()
    for header in ("x-api-key", "x-goog-api-key"):
        if header in request.headers:
            yield request.headers[header].strip()
    if "key" in request.query:
        yield request.query["key"]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _bad(message: str) -> Problem:
    return Problem(status=400, code="invalid_request", message=message)


def _json(data: Mapping[str, Json]) -> web.Response:
    return web.Response(body=encode(data), content_type="application/json")


def _error(dialect: GatewayDialect, problem: Problem) -> web.Response:
    response = web.Response(
        status=problem.status,
        body=encode(dialect.error(problem)),
        content_type="application/json",
        headers=_RETRY if problem.status == _TOO_MANY else _NO_RETRY,
    )
    if problem.status in (_TOO_LARGE, _TOO_MANY):
        response.force_close()  # and with it what is still to come over the connection
    return response
