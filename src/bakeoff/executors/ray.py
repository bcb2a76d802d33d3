"""Workers on the machines of a Ray cluster: Ray places them, watches them and carries their frames.

An actor starts the same worker process as `--executor processes`, on its own machine, and passes
frames on. Ray carries bytes only: no object and no code of a user is pickled or uploaded. At most one
call in each direction is on its way per worker; what gathers meanwhile goes with the next.
"""

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from bakeoff._lib.sanitize import one_line
from bakeoff._lib.threads import run_in_thread
from bakeoff.core.errors import BakeoffError, UsageError
from bakeoff.core.events import Listener, Notice
from bakeoff.executors.link import Carrier, Launch
from bakeoff.executors.processes import launcher

_POLL_S = 5.0  # how long a call waits for frames
_GATHER_S = 0.005
_ABANDONED_S = 30.0  # a worker that the run has not asked for frames for so long is alone
_REACH_S = 3.0
_CONNECT_S = 30.0
_PATIENCE_S = 10.0  # until a person is told that a worker waits for a place
_LOOK_S = 2.0
_MEMORY = 512 << 20  # for a worker, its actor and what it scores

BOXES = "boxes"
"""The custom resource that says how many boxes a node may have open at once."""


class WorkerActor:
    """What Ray places on a node: a worker process, and the way to it."""

    def __init__(self, module: str) -> None:
        self._launch = launcher(module)
        self._carrier: Carrier | None = None
        self._frames: list[bytes] = []
        self._gone = False
        self._some = asyncio.Event()
        self._alone: asyncio.TimerHandle | None = None

    async def start(self) -> str:
        """Start the worker process; return a name by which a person finds it."""
        self._carrier = await self._launch(self._receive, self._on_gone)
        self._expect_run()
        return f"{self._carrier.name} on {socket.gethostname()}"

    async def push(self, frames: list[bytes]) -> None:
        """Pass *frames* on to the worker."""
        if self._carrier is not None:
            for frame in frames:
                self._carrier.send(frame)

    async def pull(self) -> tuple[list[bytes], bool]:
        """Wait a while for frames of the worker; return them, and whether it is gone."""
        self._expect_run()
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await self._some.wait()
            await asyncio.sleep(_GATHER_S)
        self._some.clear()
        frames, self._frames = self._frames, []
        return frames, self._gone

    async def end(self, grace_s: float) -> str:
        """Wait so long for the worker to end by itself, then kill it; return how it ended."""
        return "" if self._carrier is None else await self._carrier.end(grace_s)

    def _receive(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._some.set()

    def _on_gone(self) -> None:
        self._gone = True
        self._some.set()

    def _expect_run(self) -> None:
        """End in a while where the run asks no more: it may be gone, and Ray has not noticed."""
        if self._alone is not None:
            self._alone.cancel()
        # the kernel ends the worker with this process
        self._alone = asyncio.get_running_loop().call_later(_ABANDONED_S, os._exit, 1)


@dataclass(frozen=True, kw_only=True)
class WorkerPlace:
    """What one worker takes of a node: a core, and so many of its `boxes` and bytes of memory."""

    boxes: int = 0
    memory: int | None = None

    def options(self) -> dict[str, object]:
        """Return it as the options of an actor."""
        memory = {} if self.memory is None else {"memory": self.memory}
        return {
            "num_cpus": 1,
            "resources": {BOXES: self.boxes} if self.boxes else {},
            "scheduling_strategy": "SPREAD",
            "max_restarts": 0,
            "max_task_retries": 0,
            **memory,
        }

    def fits(self, resources: Mapping[str, float]) -> int:
        """Return how many workers a node with *resources* has a place for."""
        places = [resources.get("CPU", 0.0)]
        if self.boxes:
            places.append(resources.get(BOXES, 0.0) / self.boxes)
        if self.memory:
            places.append(resources.get("memory", 0.0) / self.memory)
        return int(min(places))


class RayCarrier:
    """The way to one actor."""

    def __init__(
        self,
        cluster: "RayCluster",
        actor: Any,
        receive: Callable[[bytes], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._actor = actor
        self._receive = receive
        self._on_gone = on_gone
        self._outgoing: list[bytes] = []
        self._pushing: asyncio.Task[None] | None = None
        self._pulling: asyncio.Task[None] | None = None
        self._how = ""
        self.name = ""

    async def start(self) -> None:
        """Wait until Ray has found a place for it, and the worker process is started there."""
        try:
            self.name = await self._actor.start.remote()
        except self._cluster.errors as error:
            raise BakeoffError(f"a worker could not be started: {_why(error)}") from error
        self._pulling = asyncio.create_task(self._pull())

    def send(self, frame: bytes) -> None:
        """Send *frame* with the next call."""
        self._outgoing.append(frame)
        if self._pushing is None:
            self._pushing = asyncio.create_task(self._push())

    async def end(self, grace_s: float) -> str:
        """Wait so long for the worker to end by itself, then kill it and its actor."""
        with suppress(*self._cluster.errors, TimeoutError):
            if not self._how:
                async with asyncio.timeout(grace_s + _REACH_S):
                    self._how = await self._actor.end.remote(grace_s)
        tasks = [task for task in (self._pushing, self._pulling) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._cluster.kill(self._actor)
        return self._how or "it did not answer"

    async def _push(self) -> None:
        try:
            while self._outgoing:
                frames, self._outgoing = self._outgoing, []
                await self._actor.push.remote(frames)
        except self._cluster.errors as error:
            self._lost(error)
        finally:
            self._pushing = None

    async def _pull(self) -> None:
        gone = False
        try:
            while not gone:
                frames, gone = await self._actor.pull.remote()
                for frame in frames:
                    self._receive(frame)
        except Exception as error:  # noqa: BLE001 -- whatever ends this, the worker is lost
            self._lost(error)
        self._on_gone()

    def _lost(self, error: Exception) -> None:
        self._how = self._how or _why(error)


class RayCluster:
    """A cluster that this process is connected to as a driver."""

    def __init__(self, ray: ModuleType) -> None:
        self._ray = ray
        self.errors: tuple[type[Exception], ...] = (ray.exceptions.RayError,)
        self._actor_class = ray.remote(WorkerActor)

    def launcher(self, module: str, place: WorkerPlace, listener: Listener) -> Launch:
        """Return what starts workers that run the Python *module*, wherever there is a *place*."""

        async def launch(receive: Callable[[bytes], None], on_gone: Callable[[], None]) -> Carrier:
            actor = self._actor_class.options(**place.options()).remote(module)
            carrier = RayCarrier(self, actor, receive, on_gone)
            waiting = asyncio.get_running_loop().call_later(
                _PATIENCE_S, lambda: listener(Notice(f"ray: a worker waits for {_said(place)}"))
            )
            try:
                await carrier.start()
            except BaseException:
                await self.kill(actor)
                raise
            finally:
                waiting.cancel()
            return carrier

        return launch

    async def kill(self, actor: object) -> None:
        """Kill an actor, and with it the process that it has started."""
        with suppress(*self.errors, ValueError):
            await run_in_thread(lambda: self._ray.kill(actor, no_restart=True))

    async def place(self, *, with_boxes: bool) -> WorkerPlace:
        """Return what a worker of a run takes of a node; boxes only where nodes say how many they have."""
        nodes = [node for node in await self.nodes() if node.get("CPU")]
        per_core = [node[BOXES] / node["CPU"] for node in nodes if node.get(BOXES)]
        boxes = max(1, int(min(per_core))) if with_boxes and per_core else 0
        return WorkerPlace(boxes=boxes, memory=_MEMORY)

    async def nodes(self) -> list[Mapping[str, float]]:
        """Return the resources of every node that is there now."""
        nodes = await run_in_thread(self._ray.nodes)
        return [node["Resources"] for node in nodes if node["Alive"]]

    @asynccontextmanager
    async def filling(
        self, place: WorkerPlace, add_worker: Callable[[], None], *, workers: int | None
    ) -> AsyncIterator[None]:
        """Add workers to the one that was started: *workers* in all, else one for each place there is.

        The latter goes on while the block lasts: nodes may join.
        """
        task = asyncio.create_task(self._fill(place, add_worker, workers))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _fill(
        self, place: WorkerPlace, add_worker: Callable[[], None], workers: int | None
    ) -> None:
        begun, wanted = 1, workers or 1
        while True:
            if workers is None:
                with suppress(*self.errors):
                    wanted = sum(map(place.fits, await self.nodes()))
            for _ in range(wanted - begun):
                add_worker()
            begun = max(begun, wanted)
            await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[RayCluster]:
    """Connect to the cluster at *address*, `auto` or HOST:PORT of its head, while the block lasts."""
    if find_spec("ray") is None:
        raise UsageError("--executor ray needs the package `ray`; install bakeoff[ray]")
    _check_address(address)
    try:
        async with asyncio.timeout(_CONNECT_S):
            ray = await run_in_thread(lambda: _connect(address))
    except TimeoutError as error:
        raise UsageError(
            f"--ray-address {address}: no node of this cluster let Bakeoff in within {_CONNECT_S:g} s; "
            "start it on a machine that is one of its nodes, with the address that `ray start` printed"
        ) from error
    try:
        yield RayCluster(ray)
    finally:
        await run_in_thread(ray.shutdown)


def _connect(address: str) -> ModuleType:
    # under `uv run`, Ray would upload this folder and start every worker with `uv run` in it
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # in a thread: Ray takes the signal handlers of whoever calls it in the main thread
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise UsageError(
            f"--ray-address {address}: there is no Ray cluster here that can be reached; `ray start --head` starts "
            "one, and --ray-address HOST:PORT names another"
        ) from error
    except Exception as error:
        raise UsageError(
            f"--ray-address {address}: {one_line(str(error), width=300)}; is this machine a node of a "
            "cluster that runs? `ray status` tells, `ray start` starts one"
        ) from error
    return ray


def _check_address(address: str) -> None:
    """Raise where nobody answers at *address*: Ray itself would try for a minute."""
    known = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    if not known or known == "auto":
        return
    match = re.fullmatch(r"(?P<host>[^/\s]+):(?P<port>\d{1,5})", known)
    if match is None:
        raise UsageError(
            f"--ray-address {known}: write `auto`, or HOST:PORT of the head as `ray status` shows it; "
            "with ray://, start Bakeoff on a node of the cluster instead (`ray job submit`)"
        )
    try:
        with socket.create_connection((match["host"].strip("[]"), int(match["port"])), _REACH_S):
            pass
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--ray-address {known}: no Ray cluster answers there ({error}); "
            "`ray start --head` starts one and prints its address"
        ) from error


def _said(place: WorkerPlace) -> str:
    parts = ["a core"]
    if place.boxes:
        parts.append(f"{place.boxes} {BOXES}")
    if place.memory:
        parts.append(f"{place.memory >> 20} MiB of memory")
    return f"a node with {' and '.join(parts)} to spare; it starts as soon as there is one"


def _why(error: Exception) -> str:
    """Return in one line what Ray says of an actor that it lost."""
    text = f"{type(error).__name__}: {error}"
    for mark, why in (
        ("ActorUnavailableError", "its node does not answer"),
        ("ModuleNotFoundError", "bakeoff is not installed on its node"),
        ("node died", "its node is gone"),
        ("node was terminated", "its node is gone"),
        ("out of memory", "its node ran out of memory"),
        ("low memory", "its node ran out of memory"),
    ):
        if mark.lower() in text.lower():
            return why
    return one_line(text.rstrip().splitlines()[-1], width=200)
