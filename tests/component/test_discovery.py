"""Which models are found, and what is said of places that do not answer."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from aiohttp import web

from bakeoff.core.candidate import ModelSpec
from bakeoff.models.adapters.ollama import Window, window_of
from bakeoff.models.client.probe import SHORT_S
from bakeoff.models.discovery import (
    Discovery,
    Places,
    configured_models,
    discover,
    keyed_providers,
    ollama_models,
    served_models,
)
from support.chances import chances

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def tag(name: str, **extra: Any) -> dict[str, Any]:
    details = {"family": "llama", "quantization_level": "Q4_0", "parameter_size": "8.0B"}
    return {"name": name, "size": 4_000, "digest": f"sha-{name}", "details": details, **extra}


INFO = {
    "general.architecture": "llama",
    "general.parameter_count": 8_030_261_312,
    "llama.context_length": 8192,
}


def says(value: Any, *, status: int = 200) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response(value, status=status)

    return handler


async def hangs(_: web.Request) -> web.Response:
    await asyncio.sleep(5)
    return web.Response()


def with_server(routes: dict[str, Handler], work: Callable[[str], Awaitable[Any]]) -> Any:
    """Run *work* beside a real server; its argument is the server's address."""

    async def main() -> Any:
        app = web.Application()
        for path, handler in routes.items():
            app.router.add_route("*", path, handler)
        runner = web.AppRunner(app, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            return await work(f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    return asyncio.run(main())


@pytest.fixture
def dead_port() -> Iterator[int]:
    with closing(socket.socket()) as held:  # bound, so that nobody else takes it; nobody listens
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are taken and nothing is ever said."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_ollama_models_are_found_with_their_tags_and_details() -> None:
    tags = {"models": [tag("llama3:8b"), tag("llama3:70b", size=40_000)]}
    routes = {"/api/tags": says(tags), "/api/show": says({"model_info": INFO})}
    found = with_server(routes, ollama_models).found
    assert [model.name for model in found] == ["ollama/llama3:8b", "ollama/llama3:70b"]
    small, large = found
    assert (small.size_bytes, large.size_bytes) == (4_000, 40_000)
    assert (small.digest, small.quantization, small.family) == ("sha-llama3:8b", "Q4_0", "llama")
    assert (small.context_length, small.parameter_count) == (8192, 8_030_261_312)
    assert small.note == ""


def test_a_model_that_cannot_be_shown_is_still_listed() -> None:
    routes = {"/api/tags": says({"models": [tag("a:1b")]}), "/api/show": says({}, status=500)}
    (found,) = with_server(routes, ollama_models).found
    assert (found.name, found.context_length) == ("ollama/a:1b", None)
    assert found.note.startswith("no details: HTTP 500")


def test_many_models_that_are_shown_slowly_do_not_hold_up_the_list() -> None:
    tags = {"models": [tag(f"m:{n}b") for n in range(60)]}
    routes = {"/api/tags": says(tags), "/api/show": hangs}
    began = time.monotonic()
    found = with_server(routes, ollama_models).found
    assert len(found) == 60
    assert time.monotonic() - began < 10  # one after another it were a minute and a half


def test_an_ollama_without_models_says_how_to_get_one() -> None:
    (trouble,) = with_server({"/api/tags": says({"models": None})}, ollama_models).troubles
    assert "it has no models" in str(trouble)
    assert "ollama pull" in trouble.what_to_do


@chances(3)
def test_a_dead_host_costs_less_than_a_second_and_one_line(dead_port: int) -> None:
    began = time.monotonic()
    seen = asyncio.run(ollama_models(f"127.0.0.1:{dead_port}"))
    assert time.monotonic() - began < 1
    assert [str(trouble) for trouble in seen.troubles] == [
        f"Ollama at http://127.0.0.1:{dead_port}: nothing answers there: connection refused; "
        "start it with `ollama serve`, or set OLLAMA_HOST"
    ]


@chances(3)
def test_silent_hosts_are_looked_at_together_and_not_waited_for(silent_port: int) -> None:
    url = f"http://127.0.0.1:{silent_port}"
    began = time.monotonic()
    seen = asyncio.run(discover(Places(ollama=url, servers=(f"{url}/v1", f"{url}/v2"))))
    assert time.monotonic() - began < 2 * SHORT_S  # as long as two, one after the other
    assert len(seen.troubles) == 3
    assert all("no answer within 0.8 s" in str(trouble) for trouble in seen.troubles)


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (says({"models": 3}), "wrong shape"),
        (says([], status=502), "HTTP 502"),
    ],
)
def test_what_is_no_ollama_is_told_so(handler: Handler, why: str) -> None:
    (trouble,) = with_server({"/api/tags": handler}, ollama_models).troubles
    assert why in trouble.why


def test_what_is_no_address_is_told_so() -> None:
    (trouble,) = asyncio.run(ollama_models("ftp://box")).troubles
    assert trouble.what_to_do == "correct OLLAMA_HOST"


def test_servers_with_openais_api_list_theirs() -> None:
    data = {"data": [{"id": "qwen/q-7b", "max_model_len": 4096}, {"id": "b"}]}

    async def look(url: str) -> Discovery:
        return await served_models(f"{url}/v1/")

    found = with_server({"/v1/models": says(data)}, look).found
    assert [(m.name, m.context_length) for m in found] == [
        ("openai-compatible/qwen/q-7b", 4096),
        ("openai-compatible/b", None),
    ]
    assert found[0].base_url is not None
    assert found[0].base_url.endswith("/v1")


def test_a_server_that_wants_a_key_says_so() -> None:
    async def look(url: str) -> Discovery:
        return await served_models(f"{url}/v1")

    (trouble,) = with_server({"/v1/models": says({}, status=401)}, look).troubles
    assert trouble.what_to_do == "give its key"


def test_a_status_is_not_read_out_of_what_a_server_says() -> None:
    async def look(url: str) -> Discovery:
        return await served_models(f"{url}/v1")

    broken = says({"error": "request 401403 failed"}, status=500)
    (trouble,) = with_server({"/v1/models": broken}, look).troubles
    assert trouble.what_to_do.startswith("is it running")


def test_configured_models_need_their_variables() -> None:
    spec = ModelSpec(provider="openai", name="gpt-4", api_key="${OPENAI_API_KEY}", label="GPT-4")
    local = ModelSpec(provider="ollama", name="llama3:8b")
    seen = configured_models([spec, local], {})
    assert [model.name for model in seen.found] == ["ollama/llama3:8b"]
    assert str(seen.troubles[0]) == (
        "configured model openai/gpt-4: OPENAI_API_KEY not set; "
        "export OPENAI_API_KEY=..., or set `enabled: false`"
    )
    (found, _) = configured_models([spec, local], {"OPENAI_API_KEY": "k"}).found
    assert (found.name, found.note) == ("openai/gpt-4", "configured as GPT-4")


def test_providers_with_a_key_are_named() -> None:
    providers = {"openai": "OPENAI_API_KEY", "cohere": "COHERE_API_KEY", "google": "GEMINI_API_KEY"}
    environ = {"OPENAI_API_KEY": "k", "COHERE_API_KEY": ""}
    assert keyed_providers(providers, environ) == ("openai",)


def test_a_model_that_is_listed_and_configured_is_named_once() -> None:
    routes = {
        "/api/tags": says({"models": [tag("llama3:8b")]}),
        "/api/show": says({"model_info": INFO}),
    }
    spec = ModelSpec(provider="ollama", name="llama3:8b")

    async def look(url: str) -> Discovery:
        return await discover(Places(ollama=url, configured=[spec]))

    (found,) = with_server(routes, look).found
    assert found.digest == "sha-llama3:8b"


@pytest.mark.parametrize(
    ("version", "loaded", "parameters", "window"),
    [
        ("0.5.4-ipexllm", None, "", Window(tokens=2048)),
        ("0.6.7", None, "", Window(tokens=4096)),
        ("0.6.7", None, "num_ctx  512", Window(tokens=512)),
        ("0.17.0", 32768, "num_ctx 512", Window(tokens=32768)),
        ("0.17.0", None, "", Window(tokens=None)),
        ("0.1.30", None, "", Window(tokens=2048, counts_cached=False)),
        ("0.30.1", 4096, "", Window(tokens=4096, counts_cached=False)),
        ("", None, "", Window(tokens=None)),
    ],
)
def test_the_window_is_what_the_server_says_or_its_version_means(
    version: str, loaded: int | None, parameters: str, window: Window
) -> None:
    model = {"name": "m:latest", "context_length": loaded}
    routes = {
        "/api/version": says({"version": version}),
        "/api/ps": says({"models": [model]}),
        "/api/show": says({"parameters": parameters}),
    }

    async def look(url: str) -> Window:
        return await window_of(url, "m")

    assert with_server(routes, look) == window
