"""The viewer, served in this process to whoever a test sends."""

import asyncio
import http.client
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from bakeoff.web.access import Access
from bakeoff.web.server import serving


@dataclass(frozen=True, kw_only=True)
class Served:
    """A viewer that is being served."""

    url: str
    access: Access

    @property
    def origin(self) -> str:
        return self.url.partition("/?")[0]

    def at(self, path: str) -> str:
        """The address of a page, with the token."""
        return f"{self.origin}{path}{'&' if '?' in path else '?'}token={self.access.token}"

    def post(
        self,
        path: str,
        form: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        *,
        known: bool = True,
    ) -> tuple[int, dict[str, str], str]:
        """Send a form as a program would."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.get(
            path, {**kind, **(headers or {})}, method="POST", known=known, body=urlencode(form)
        )

    def get(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        known: bool = True,
        body: str = "",
    ) -> tuple[int, dict[str, str], str]:
        """Ask as a program would, sending the path as it is; a *known* one has the cookie."""
        connection = http.client.HTTPConnection("127.0.0.1", self.access.port, timeout=60)
        cookie = {"Cookie": f"{self.access.cookie}={self.access.token}"} if known else {}
        try:
            connection.putrequest(method, path, skip_host="Host" in (headers or {}))
            for name, value in {**cookie, **(headers or {})}.items():
                connection.putheader(name, value)
            if method == "POST":
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body.encode() or None)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()


@contextmanager
def viewing(output: Path, *, host: str = "127.0.0.1") -> Iterator[Served]:
    """Serve the runs in *output* until the end of the block."""
    ready: Future[Served] = Future()
    loop = asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with serving(output, host=host) as viewer:
            ready.set_result(Served(url=viewer.url, access=viewer.access))
            await over.wait()

    def work() -> None:
        try:
            loop.run_until_complete(serve())
        except BaseException as error:  # noqa: BLE001 -- it is for whoever waits
            if not ready.done():
                ready.set_exception(error)
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ready.result(60)
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(over.set)
        thread.join(60)
