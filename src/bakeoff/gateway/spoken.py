"""What the gateway speaks where nothing is asked of a model: its list of models, wrong addresses."""

from aiohttp import web

from bakeoff._lib.untrusted import one_line
from bakeoff.core.values import Json
from bakeoff.gateway.chat import CHAT
from bakeoff.gateway.dialect import Dialect, Problem
from bakeoff.gateway.gemini import gemini
from bakeoff.gateway.messages import MESSAGES

MODEL = "bakeoff"  # any name is answered by the trial's own model

_SPOKEN = (
    "POST /v1/chat/completions",
    "POST /v1/responses",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /v1beta/models/MODEL:generateContent",
    "POST /v1beta/models/MODEL:streamGenerateContent?alt=sse",
    "POST /v1beta/models/MODEL:countTokens",
    "GET /v1/models",
)


def dialect_of(request: web.Request) -> Dialect:
    """Return what a program speaks whose address does not say it."""
    if "anthropic-version" in request.headers or request.path.endswith("/messages"):
        return MESSAGES
    if "x-goog-api-key" in request.headers or request.path.startswith("/v1beta/"):
        return gemini(MODEL, stream=False)
    return CHAT


def not_spoken(request: web.Request) -> Problem:
    """Return the problem of a wrong address."""
    asked = one_line(f"{request.method} {request.path}", width=100)
    there_are = ", ".join(_SPOKEN)
    return Problem(
        status=404, code="not_found", message=f"{asked} is not spoken here; there are: {there_are}"
    )


def models(request: web.Request) -> dict[str, Json]:
    """Return the one model there is, or the one that was asked for by its name."""
    named = request.match_info.get("name")
    dialect = dialect_of(request)
    name = named or MODEL
    if dialect is MESSAGES:
        since = "1970-01-01T00:00:00Z"
        one: dict[str, Json] = {"type": "model", "id": name, "display_name": name}
        one["created_at"] = since
        return (
            one if named else {"data": [one], "has_more": False, "first_id": name, "last_id": name}
        )
    if dialect is CHAT:
        one = {"id": name, "object": "model", "created": 0, "owned_by": "bakeoff"}
        return one if named else {"object": "list", "data": [one]}
    methods: Json = ["generateContent", "streamGenerateContent", "countTokens"]
    one = {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
    return one if named else {"models": [one]}
