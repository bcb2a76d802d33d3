"""Probe a server: one short request with a JSON answer of a known type."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import ProviderError
from bakeoff.core.values import Json

if TYPE_CHECKING:
    import aiohttp

SHORT_S = 0.8

T = TypeVar("T")


def probe_session(headers: Mapping[str, str] | None = None) -> "aiohttp.ClientSession":
    """Return a session for probes; the caller closes it."""
    import aiohttp

    return aiohttp.ClientSession(
        headers={"Accept-Encoding": "identity", "User-Agent": "bakeoff", **(headers or {})},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


async def probe(
    session: "aiohttp.ClientSession",
    url: str,
    kind: type[T],
    *,
    payload: Mapping[str, Json] | None = None,
    timeout_s: float = SHORT_S,
) -> T:
    """Return the answer of *url* as a *kind*; *payload* is posted. A fault has a one-line message."""
    import aiohttp

    body = None if payload is None else msgspec.json.encode(payload)
    method = "GET" if body is None else "POST"
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.request(method, url, data=body, allow_redirects=False) as response,
        ):
            data = await _whole(response)
            if response.status != 200:
                message = f"HTTP {response.status}: {_start(data) or response.reason}"
                raise ProviderError(message, status=response.status)
            return msgspec.json.decode(data, type=kind)
    except TimeoutError as error:
        raise ProviderError(f"no answer within {timeout_s:g} s", transient=True) from error
    except aiohttp.ClientConnectorError as error:
        from bakeoff.models.client.connection import connect_error_text

        raise ProviderError(
            f"nothing answers there: {connect_error_text(error.os_error)}", transient=True
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        detail = one_line(str(error)) or type(error).__name__
        raise ProviderError(f"not valid HTTP: {detail}") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProviderError(f"an answer of the wrong shape: {one_line(str(error))}") from error


async def _whole(response: "aiohttp.ClientResponse") -> bytes:
    from bakeoff.models.client.http import BoundedBody

    body = BoundedBody(response.headers)
    parts = [body.take(part) async for part in response.content.iter_any()]
    body.end()
    return b"".join(parts)


def _start(data: bytes) -> str:
    return one_line(data[:400].decode("utf-8", "replace"), width=100)
