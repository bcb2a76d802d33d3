"""What a provider's error object says, made into a fault that may pass or will not."""

import json
import re
from collections.abc import Mapping, Sequence

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.core.values import Json
from bakeoff.models.client.retry import Strain, TryAgain, may_pass, strain_of

_FOR_GOOD = frozenset(
    {
        # OpenAI
        "invalid_request_error",
        "insufficient_quota",
        "invalid_prompt",
        "context_length_exceeded",
        "model_not_found",
        # Anthropic
        "authentication_error",
        "billing_error",
        "not_found_error",
        "permission_error",
        "request_too_large",
        # Google
        "FAILED_PRECONDITION",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
    }
)
_SPENT = frozenset({"insufficient_quota", "billing_error"})
_STRAINS = {
    "rate_limit_error": Strain.RATE,
    "rate_limit_exceeded": Strain.RATE,
    "RESOURCE_EXHAUSTED": Strain.RATE,
    "overloaded_error": Strain.LOAD,
    "UNAVAILABLE": Strain.LOAD,
}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def error_text(error: Json) -> str:
    """Return what an error object says."""
    try:
        if isinstance(error, Mapping):
            error = error.get("message") or error.get("type") or json.dumps(error)
        return one_line(str(error), width=300)
    except RecursionError:
        return "something nested too deeply to show"


def fault_of(error: Json, what: str) -> ProviderError:
    """Return an error object as a fault; its code, where it has one, says whether it may pass."""
    message = f"{what}: {error_text(error)}" if error is not None else what
    if not isinstance(error, Mapping):
        return TryAgain(message)
    names = _names(error)
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    if (status and not may_pass(status)) or not _FOR_GOOD.isdisjoint(names):
        return ProviderError(message, status=status)
    strain = next((_STRAINS[name] for name in names if name in _STRAINS), None)
    strain = strain or (strain_of(status) if status else None)
    return TryAgain(message, after_s=pause_s(error), strain=strain, status=status)


def error_in(body: bytes) -> Mapping[str, Json]:
    """Return the error object of an answer that is none; empty where there is none to read."""
    try:
        said: Json = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(said, list) and said:  # Google wraps it where a stream was asked for
        said = said[0]
    error = said.get("error") if isinstance(said, Mapping) else None
    return error if isinstance(error, Mapping) else {}


def is_spent(error: Mapping[str, Json]) -> bool:
    """Return whether an account has nothing left: then waiting does not help."""
    return not _SPENT.isdisjoint(_names(error))


def pause_s(error: Mapping[str, Json]) -> float | None:
    """Return how long an error object asks to be left alone: Google's `RetryInfo`."""
    details = error.get("details")
    for detail in details if isinstance(details, Sequence) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and (asked := _DURATION.fullmatch(delay.strip())):
            return float(asked[1])
    return None


def _names(error: Mapping[str, Json]) -> list[str]:
    """Return what the error is called: OpenAI has a code, Anthropic a type, Google a status."""
    given = [error.get(key) for key in ("type", "code", "status")]
    return [name for name in given if isinstance(name, str)]
