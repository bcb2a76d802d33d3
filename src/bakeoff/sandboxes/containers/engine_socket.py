"""Finds the socket at which a container engine answers, as its command-line client would."""

from collections.abc import Mapping

from bakeoff.sandboxes.containers.engine import Engine

_UNIX = "unix://"
_PING_S = 10.0
_OLDEST_VERSION = (1, 40)  # Docker 19.03
_OF_PODMAN = "Libpod-Api-Version"


async def docker_socket(engine: Engine) -> str | None:
    """Return the socket of the docker that the client would talk to; None where it has none.

    It has none where docker is at another machine, or where podman answers in its place.
    """
    host = engine.environment.get("DOCKER_HOST", "")
    if not host.startswith(_UNIX):  # a context, or the default one
        endpoint = "{{.Endpoints.docker.Host}}"
        asked = await engine.ask("context", "inspect", "--format", endpoint, time_s=_PING_S)
        host = asked.output.strip() if asked.code == 0 else ""
    path = host.removeprefix(_UNIX)
    if path == host:
        return None
    headers = await ping(path)
    if headers is None or _OF_PODMAN in headers or _version(headers) < _OLDEST_VERSION:
        return None
    return path


async def ping(path: str) -> Mapping[str, str] | None:
    """Return the headers with which the engine at a socket answers; None where it does not."""
    import aiohttp

    connector = aiohttp.UnixConnector(path, force_close=True)
    timeout = aiohttp.ClientTimeout(total=_PING_S)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get("http://engine/_ping") as response,
        ):
            return response.headers if response.ok else None
    except (TimeoutError, aiohttp.ClientError, OSError):
        return None


def _version(headers: Mapping[str, str]) -> tuple[int, ...]:
    parts = headers.get("Api-Version", "").split(".")
    return tuple(int(part) for part in parts) if all(map(str.isdigit, parts)) else ()
