"""Turn the error objects of providers into faults, retryable or not."""

import json
import re
from collections.abc import Mapping, Sequence

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.core.values import Json
from bakeoff.models.client.retry import Overload, RetryableError, is_retryable, overload_of

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
    "rate_limit_error": Overload.RATE,
    "rate_limit_exceeded": Overload.RATE,
    "RESOURCE_EXHAUSTED": Overload.RATE,
    "overloaded_error": Overload.LOAD,
    "UNAVAILABLE": Overload.LOAD,
}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def error_text(error: Json) -> str:
    """Return the message of an error object."""
    try:
        if isinstance(error, Mapping):
            error = error.get("message") or error.get("type") or json.dumps(error)
        return one_line(str(error), width=300)
    except RecursionError:
        return "something nested too deeply to show"


def fault_of(error: Json, what: str) -> ProviderError:
    """Return an error object as a fault; its code, if any, decides whether it is retryable."""
    message = f"{what}: {error_text(error)}" if error is not None else what
    if not isinstance(error, Mapping):
        return RetryableError(message)
    names = _names(error)
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    if (status and not is_retryable(status)) or not _FOR_GOOD.isdisjoint(names):
        return ProviderError(message, status=status)
    overload = next((_STRAINS[name] for name in names if name in _STRAINS), None)
    overload = overload or (overload_of(status) if status else None)
    return RetryableError(
        message, retry_after_s=retry_delay_s(error), overload=overload, status=status
    )


def error_in(body: bytes) -> Mapping[str, Json]:
    """Return the error object in a response body; empty if there is none."""
    try:
        body_data: Json = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(body_data, list) and body_data:  # Google wraps it where a stream was asked for
        body_data = body_data[0]
    error = body_data.get("error") if isinstance(body_data, Mapping) else None
    return error if isinstance(error, Mapping) else {}


def is_quota_exhausted(error: Mapping[str, Json]) -> bool:
    """Return whether an account's quota is exhausted: then waiting does not help."""
    return not _SPENT.isdisjoint(_names(error))


def retry_delay_s(error: Mapping[str, Json]) -> float | None:
    """Return the retry delay that an error object asks for: Google's `RetryInfo`."""
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
