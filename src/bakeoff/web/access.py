"""Who may see the viewer: a token, the right host, no foreign page; and what a page of it may load."""

import hmac
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import hdrs, web

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; font-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 -- only looked for
_SAFE = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})


@dataclass(frozen=True, kw_only=True)
class Access:
    """The token of this viewer, and the host and port that it was bound to."""

    token: str
    host: str
    port: int

    @property
    def cookie(self) -> str:
        """The name of the cookie: viewers on other ports of this host have their own."""
        return f"bakeoff_{self.port}"

    def knows_host(self, header: str | None) -> bool:
        """Whether a request meant this viewer; a name that was rebound to this address did not."""
        if not header:
            return False
        try:
            parts = urlsplit(f"//{header}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.port:
            return False
        if name in {self.host, *_LOOPBACK}:
            return True
        if self.host not in _ANY:
            return False
        return name == socket.gethostname().lower() or _is_address(name)

    def knows_origin(self, request: web.Request) -> bool:
        """Whether no other page sent the request; one that writes must say where it comes from."""
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None:
            return request.method in _SAFE
        return origin == f"http://{request.headers.get(hdrs.HOST)}"

    def is_token(self, text: str | None) -> bool:
        """Whether *text* is the token."""
        return text is not None and hmac.compare_digest(text.encode(), self.token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def guarded(access: Access) -> "Middleware":
    """Return a middleware that refuses requests without access to the viewer."""

    @web.middleware
    async def guard(request: web.Request, handler: "Handler") -> web.StreamResponse:
        try:
            response = await _answer(access, request, handler)
        except web.HTTPException as error:
            error.headers.update(_HEADERS)
            raise
        response.headers.update(_HEADERS)
        return response

    return guard


async def _answer(access: Access, request: web.Request, handler: "Handler") -> web.StreamResponse:
    if not access.knows_host(request.headers.get(hdrs.HOST)):
        raise web.HTTPForbidden(text="This viewer is not served at that host name and port.")
    if not access.knows_origin(request) or _is_foreign(request):
        raise web.HTTPForbidden(text="A page of another origin asked for this: refused.")
    given = request.query.get("token")
    if access.is_token(given):
        rest = [(k, v) for k, v in request.query.items() if k != "token"]
        answer = web.HTTPSeeOther(request.rel_url.with_query(rest))
        answer.set_cookie(access.cookie, access.token, httponly=True, samesite="Lax", path="/")
        raise answer
    if not access.is_token(request.cookies.get(access.cookie)):
        raise web.HTTPForbidden(
            text="The token is missing or is that of another viewer: open the address that "
            "`bakeoff view` printed."
        )
    return await handler(request)


def _is_foreign(request: web.Request) -> bool:
    """Whether another site's page asks for something; a link to a page of ours may be followed."""
    if request.headers.get("Sec-Fetch-Site") != "cross-site":
        return False
    return request.headers.get("Sec-Fetch-Dest") != "document"
