"""The server of the viewer: routes, and its life from start to Ctrl-C."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from bakeoff.core.errors import UsageError
from bakeoff.reports.html.templates import style_sheet
from bakeoff.web import run_list, run_page, trial_pages
from bakeoff.web.access import Access, guarded
from bakeoff.web.comparison_pages import compare_page, explain_page, history_page
from bakeoff.web.rendering import message
from bakeoff.web.runs import Runs, ViewedRun

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

_SHUTDOWN_S = 1.0  # a page that is being made has nobody to go to
_STATIC = Path(__file__).parent / "static"
_STATIC_FILES = {
    "htmx.min.js": "text/javascript",
    "vega.min.js": "text/javascript",
    "vega-interpreter.min.js": "text/javascript",
    "vega-lite.min.js": "text/javascript",
    "viewer.js": "text/javascript",
    "viewer.css": "text/css",
}


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """A viewer that is being served; its `url` holds the token."""

    url: str
    access: Access


@asynccontextmanager
async def serving(
    output: Path, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> AsyncIterator[Viewer]:
    """Serve the runs in *output* until the end of the block; port 0 is any free one."""
    sock = _bound(host, port)
    access = Access(token=token or secrets.token_urlsafe(24), host=host, port=sock.getsockname()[1])
    runner = web.AppRunner(
        application(Runs(output), access), access_log=None, shutdown_timeout=_SHUTDOWN_S
    )
    await runner.setup()
    try:
        await web.SockSite(runner, sock).start()
        name = f"[{host}]" if ":" in host else host
        yield Viewer(url=f"http://{name}:{access.port}/?token={access.token}", access=access)
    finally:
        await runner.cleanup()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise UsageError(
            f"the viewer cannot listen at {host} port {port}: {error.strerror}; "
            "choose another one with --port or --host"
        ) from error
    return sock


def application(runs: Runs, access: Access) -> web.Application:
    """Return the application; every page is made in a thread."""
    app = web.Application(middlewares=[guarded(access), _not_found], client_max_size=1 << 16)
    add = partial(_add_page, app.router)
    of_run = partial(_add_page_of_run, app.router, runs)

    add("/", lambda request: run_list.runs_page(runs, request.query))
    add("/compare", lambda request: compare_page(runs, request.query))
    add("/history", lambda request: history_page(runs, request.query))
    of_run("", lambda run, _: run_page.run_page(run))
    of_run("/state", lambda run, _: run_list.state_part(run))
    of_run("/live", lambda run, _: run_page.live_part(run))
    of_run("/results", lambda run, _: run_page.results_part(run))
    of_run("/distributions", lambda run, _: run_page.distributions_part(run))
    of_run("/matrix", lambda run, request: run_page.matrix_part(run, request.query))
    of_run("/trials", lambda run, request: trial_pages.trials_page(run, request.query))
    of_run("/trial", lambda run, request: trial_pages.trial_page(run, request.query))
    of_run("/explain", lambda run, request: explain_page(run, request.query))
    for name, action in (
        ("notes", run_page.keep_notes),
        ("label", trial_pages.label_trial),
        ("stop", run_page.stop),
        ("resume", run_page.resume),
    ):
        _add_action(app.router, runs, name, action)
    app.router.add_get("/static/{name}", _static)
    return app


@web.middleware
async def _not_found(request: web.Request, handler: "Handler") -> web.StreamResponse:
    """Answer with a page, from which a link leads back, where there is none."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        text = message("Not found", "There is no such run, trial or page here.")
        return web.Response(text=text, content_type="text/html", status=404)


def _add_page(
    router: web.UrlDispatcher, path: str, make: Callable[[web.Request], str | None]
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return await _made(make, request)

    router.add_get(path, answer)


def _add_page_of_run(
    router: web.UrlDispatcher,
    runs: Runs,
    path: str,
    make: Callable[[ViewedRun, web.Request], str | None],
) -> None:
    def of_run(request: web.Request) -> str | None:
        run = runs.find(request.match_info["run"])
        return None if run is None else make(run, request)

    _add_page(router, f"/run/{{run}}{path}", of_run)


def _add_action(
    router: web.UrlDispatcher,
    runs: Runs,
    name: str,
    act: Callable[[ViewedRun, Mapping[str, str]], str],
) -> None:
    async def answer(request: web.Request) -> web.Response:
        posted = await request.post()
        form = {key: value for key, value in posted.items() if isinstance(value, str)}

        def acted(request: web.Request) -> str | None:
            run = runs.find(request.match_info["run"])
            return None if run is None else act(run, form)

        return await _made(acted, request)

    router.add_post(f"/run/{{run}}/{name}", answer)


async def _made(make: Callable[[web.Request], str | None], request: web.Request) -> web.Response:
    try:
        text = await asyncio.to_thread(make, request)
    except UsageError as error:
        text = message("Not readable", str(error))
        return web.Response(text=text, content_type="text/html", status=409)
    if text is None:
        raise web.HTTPNotFound
    return web.Response(text=text, content_type="text/html", headers=_link(request))


def _link(request: web.Request) -> dict[str, str]:
    """Return the header by which a page that filters shows the address of what it shows."""
    if request.query.get("part") != "rows":
        return {}
    shown = [(k, v) for k, v in request.query.items() if v and k != "part"]
    return {"HX-Replace-Url": str(request.rel_url.with_query(shown))}


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name == "style.css":
        return web.Response(text=style_sheet(), content_type="text/css")
    if name not in _STATIC_FILES:
        raise web.HTTPNotFound
    text = await asyncio.to_thread((_STATIC / name).read_text, encoding="utf-8")
    return web.Response(text=text, content_type=_STATIC_FILES[name])
