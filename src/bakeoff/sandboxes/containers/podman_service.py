"""Podman's API at a socket of ours, served by a process that dies with this one."""

import asyncio
import atexit
import shutil
import subprocess
import threading

from bakeoff._lib import scratch
from bakeoff.sandboxes.containers.engine import Engine
from bakeoff.sandboxes.containers.engine_socket import ping

_START_S = 20.0
_END_S = 10.0
_OLDEST_VERSION = 4  # of podman's own API
_VERSION = "Libpod-Api-Version"
_Key = tuple[int, tuple[tuple[str, str], ...]]


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
                major = headers.get(_VERSION, "").split(".")[0]
                return major.isdigit() and int(major) >= _OLDEST_VERSION
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
