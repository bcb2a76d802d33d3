"""The socket at which a container engine answers: docker's own, or one of ours for podman's API."""

import asyncio
import atexit
import shutil
import subprocess
import threading
from collections.abc import Mapping

from bakeoff._lib import scratch
from bakeoff.sandboxes.containers.engine import Engine

_UNIX = "unix://"
_PING_S = 10.0
_OLDEST_VERSION = (1, 40)  # Docker 19.03
_OLDEST_PODMAN = 4  # of its own API
_OF_PODMAN = "Libpod-Api-Version"
_START_S = 20.0
_END_S = 10.0
_Key = tuple[int, tuple[tuple[str, str], ...]]


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


# --- podman's API at a socket of ours, served by a process that dies with this one ----------------


class _Service:
    """A running service, and the sandboxes that use it."""

    def __init__(self, engine: Engine, users: set[int]) -> None:
        self.users = users
        self._folder = scratch.new_folder("podman")
        self.socket = str(self._folder / "api.sock")
        # containers would get the service's proxies
        environment = {
            name: value
            for name, value in engine.environment.items()
            if not name.lower().endswith("_proxy")
        }
        self.process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "TERM", "--"),
                *("podman", "system", "service", "--time", "0", f"unix://{self.socket}"),
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt of the run is not for it: boxes are closed first
        )
        atexit.register(self.end)

    @property
    def has_died(self) -> bool:
        """Whether the service has ended by itself."""
        return self.process.poll() is not None

    async def answers(self) -> bool:
        """Wait until the service answers; whether it does, and is new enough."""
        clock = asyncio.get_running_loop().time
        until = clock() + _START_S
        while clock() < until and not self.has_died:
            if (headers := await ping(self.socket)) is not None:
                major = headers.get(_OF_PODMAN, "").split(".")[0]
                return major.isdigit() and int(major) >= _OLDEST_PODMAN
            await asyncio.sleep(0.01)
        return False

    def end(self) -> None:
        """End the service and remove its socket."""
        atexit.unregister(self.end)
        self.process.terminate()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_END_S)
        scratch.remove(self._folder)


_running: dict[_Key, _Service] = {}


async def acquire_socket(engine: Engine, *, user: object) -> str | None:
    """Return the socket of a service for *engine*, started where there is none; None if it cannot be.

    It is kept for *user* until `release_socket`. It cannot be where podman is at another machine, or
    where there is no `setpriv` to let it die with this process.
    """
    path = engine.environment.get("PATH")
    if engine.environment.get("CONTAINER_HOST") or shutil.which("setpriv", path=path) is None:
        return None
    service = _running.get(_key(engine))
    if service is None or service.has_died:
        users = set() if service is None else service.users
        if service is not None:
            service.end()
        service = _running[_key(engine)] = _Service(engine, users)
    service.users.add(id(user))
    if await service.answers():
        return service.socket
    await release_socket(engine, user=user)
    return None


async def release_socket(engine: Engine, *, user: object) -> None:
    """Give back what `acquire_socket` returned, if anything; the last user ends the service."""
    service = _running.get(_key(engine))
    if service is None or id(user) not in service.users:
        return
    service.users.discard(id(user))
    if not service.users:
        del _running[_key(engine)]
        await asyncio.to_thread(service.end)


def has_died(engine: Engine) -> bool:
    """Whether there was a service for *engine*, and has ended by itself."""
    service = _running.get(_key(engine))
    return service is not None and service.has_died


def _key(engine: Engine) -> _Key:
    # a service dies with the thread that started it
    return threading.get_ident(), tuple(sorted(engine.environment.items()))
