"""What one attempt in a box costs beside its commands, and how long taking a change out of it takes.

An attempt is what every task with files pays: open a workspace, run one command, take the change,
close; then the same change in a fresh workspace for grading. The engines are private ones of the
tests (`tests/support/container_engines.py`), which need root; what cannot be had is left out.
"""

import argparse
import asyncio
import atexit
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from perf.measure import ROOT, Reading, child, cpu_s, report

SANDBOXES = ("bubblewrap", "docker", "podman")
ATTEMPTS = 12
CHANGES = 5
LARGE_MB = 300
_ATTEMPT_BAR = 0.5  # of an attempt in which everything is asked of the engine's client
_CHANGE_BAR_MS = 300.0
_COMMAND = ("sh", "-c", "sed -i 's/a - b/a + b/' calc.py")
_GRADING = ("sh", "-c", "grep -q 'a + b' calc.py && test -e hidden.txt")
_THREE_FILES = "echo 1 > /etc/one; mkdir /work && echo 2 > /work/two; echo 3 >> /noise/0"

_started: list[str] = []  # the programs that this process started, by their first argument


def measure() -> list[Reading]:
    """Return the cost of an attempt in each sandbox, and of a change out of a large image."""
    readings: list[Reading] = []
    for name in SANDBOXES:
        if (why := unusable(name)) is not None:
            print(f"{name} is left out: {why}", file=sys.stderr)
            continue
        readings += _attempt_readings(name, child("boxes", "attempt", name))
        if name != "bubblewrap":
            readings += _change_readings(name, child("boxes", "change", name), LARGE_MB)
    return readings


def _attempt_readings(name: str, seen: dict[str, float]) -> list[Reading]:
    """Return the cost of an attempt, and over that of one in which everything is asked of a client."""
    readings = [
        Reading(
            name=f"{name}: one attempt, wall",
            value=seen["wall_ms"],
            unit="ms",
            note=f"of it {seen['grading_ms']:.0f} ms grading",
        ),
        Reading(name=f"{name}: its CPU, with the engine's", value=seen["cpu_ms"], unit="ms"),
        Reading(name=f"{name}: of that ours and our clients'", value=seen["own_cpu_ms"], unit="ms"),
        Reading(name=f"{name}: client processes", value=seen["clients"], unit="an attempt"),
    ]
    for key, what in (("wall_ms", "wall"), ("cpu_ms", "CPU")):
        if (client := seen.get(f"client_{key}")) is not None:
            readings.append(
                Reading(
                    name=f"{name}: {what} over that through the client",
                    value=seen[key] / client,
                    bar=_ATTEMPT_BAR,
                    note=f"{client:.0f} ms through the client",
                )
            )
    return readings


def _change_readings(name: str, seen: dict[str, float], image_mb: int) -> list[Reading]:
    floor = seen["floor_ms"]
    return [
        Reading(
            name=f"{name}: change of 3 files, {image_mb} MB image",
            value=seen["change_ms"],
            unit="ms",
            bar=_CHANGE_BAR_MS,
            note=f"{seen['change_ms'] / floor:.1f} x one `{name} exec` ({floor:.0f} ms)",
        ),
        Reading(name=f"{name}: the same, CPU", value=seen["change_cpu_ms"], unit="ms"),
    ]


# --- one attempt ----------------------------------------------------------------------------------


def attempt(name: str) -> dict[str, float]:
    """Return medians over some attempts, after one that is not counted.

    For a container they alternate with attempts in which everything is asked of the client.
    """
    ways = {"": True} if name == "bubblewrap" else {"": True, "client_": False}
    costs: dict[str, list[_Cost]] = {way: [] for way in ways}

    async def scenario() -> None:
        from bakeoff.workspaces.host import HostWorkspaces

        cpu_s_of_all = cpu_account()
        with tempfile.TemporaryDirectory() as folder:
            task = _task(Path(folder))
            async with AsyncExitStack() as stack:
                boxes = {way: _sandbox(name, use_socket=socket) for way, socket in ways.items()}
                workspaces = {}
                for way, sandbox in boxes.items():
                    stack.push_async_callback(sandbox.close)
                    cache = Path(folder, "cache")
                    workspaces[way] = HostWorkspaces(sandbox=sandbox, cache=cache, run="perf")
                    stack.push_async_callback(workspaces[way].close)
                for number in range(ATTEMPTS + 1):
                    for way, sandbox in boxes.items():
                        cost = await _cost(sandbox, workspaces[way], task, cpu_s_of_all)
                        costs[way] += [cost] if number else []

    asyncio.run(scenario())
    median, mean = statistics.median, statistics.mean
    seen: dict[str, float] = {}
    for way, those in costs.items():
        seen[f"{way}wall_ms"] = 1e3 * median(cost.wall_s for cost in those)
        seen[f"{way}grading_ms"] = 1e3 * median(cost.grading_s for cost in those)
        seen[f"{way}cpu_ms"] = 1e3 * mean(cost.cpu_s for cost in those)
        seen[f"{way}own_cpu_ms"] = 1e3 * mean(cost.own_cpu_s for cost in those)
        seen[f"{way}clients"] = mean(cost.clients for cost in those)
    return seen


@dataclass(frozen=True, kw_only=True)
class _Cost:
    """What one attempt took; the CPU with what went on in the background after it."""

    wall_s: float
    grading_s: float
    cpu_s: float
    own_cpu_s: float
    clients: int


async def _cost(
    sandbox: Any, workspaces: Any, task: Any, cpu_s_of_all: Callable[[], float]
) -> _Cost:
    from bakeoff._lib import scratch

    cpu, own_cpu, before = cpu_s_of_all(), cpu_s() + _waited_for_s(), len(_started)
    began = time.monotonic()
    change = await _solve(workspaces, task)
    solved = time.monotonic()
    await _grade(workspaces, task, change)
    ended = time.monotonic()
    if hasattr(sandbox, "wait_removed"):
        await sandbox.wait_removed()
    await asyncio.to_thread(scratch.wait_removed)
    return _Cost(
        wall_s=ended - began,
        grading_s=ended - solved,
        cpu_s=cpu_s_of_all() - cpu,
        own_cpu_s=cpu_s() + _waited_for_s() - own_cpu,
        clients=sum(each == sandbox.name for each in _started[before:]),
    )


async def _solve(workspaces: Any, task: Any) -> Any:
    from bakeoff.core.sandbox import Command

    async with workspaces.open(
        task, label="perf", gateway=None, mounts=(), environment={}
    ) as workspace:
        ran = await workspace.box.run(Command(argv=_COMMAND, time_s=60))
        assert ran.code == 0, ran.output
        change = await workspaces.change(task, workspace)
    assert change.files == 1, change
    return change


async def _grade(workspaces: Any, task: Any, change: Any) -> None:
    from bakeoff.core.sandbox import Command

    async with workspaces.open_for_grading(task, change, label="perf") as grading:
        ran = await grading.box.run(Command(argv=_GRADING, time_s=60))
        assert ran.code == 0, ran.output


def _task(folder: Path) -> Any:
    """Return a task with a few files to be changed, and a hidden one."""
    from bakeoff._lib.digest import tree_digest
    from bakeoff.core.task import Message, Task
    from bakeoff.core.workspace import Tree, Workspace

    shown, hidden = folder / "shown", folder / "hidden"
    shown.mkdir()
    hidden.mkdir()
    (shown / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    for number in range(20):
        (shown / f"module_{number}.py").write_text(f"NUMBER = {number}\n" * 20)
    (hidden / "hidden.txt").write_text("hidden\n")
    trees = [Tree(path=str(path), digest=tree_digest(path)) for path in (shown, hidden)]
    workspace = Workspace(files=(trees[0],), hidden=(trees[1],))
    return Task(id="perf", messages=(Message(role="user", content="x"),), workspace=workspace)


# --- a change out of a large image ----------------------------------------------------------------


def change(name: str, image_mb: int) -> dict[str, float]:
    """Return how long taking three files out of a box takes, and one call of the engine's client."""
    changes, cpus, floors = [], [], []
    engine = _engine(name)
    image = _large_image(engine, image_mb)

    async def scenario() -> None:
        from bakeoff.core.sandbox import BoxSpec, Command

        sandbox = _sandbox(name)
        for _ in range(CHANGES):
            spec = BoxSpec(label="perf", folder=None, workdir="/", image=image)
            box = await sandbox.open(replace(spec, limits=replace(spec.limits, disk_mb=None)))
            try:
                ran = await box.run(Command(argv=("sh", "-c", _THREE_FILES), time_s=60))
                assert ran.code == 0, ran.output
                floors.append(await _timed(partial(_client, engine, "exec", box.name, "true")))
                await box.stop()
                cpu = tree_cpu_s()
                changes.append(await _timed(box.change))
                cpus.append(tree_cpu_s() - cpu)
            finally:
                await box.close()
        await sandbox.close()

    asyncio.run(scenario())
    return {
        "change_ms": 1e3 * statistics.median(changes),
        "change_cpu_ms": 1e3 * statistics.mean(cpus),
        "floor_ms": 1e3 * statistics.median(floors),
    }


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.monotonic()
    await work()
    return time.monotonic() - began


async def _client(engine: Any, *words: str) -> None:
    await asyncio.to_thread(engine.call, *words)


def _large_image(engine: Any, image_mb: int) -> str:
    """Build an image of *image_mb* files of 1 MB that cannot be compressed."""
    name = f"bakeoff-perf-large:{image_mb}"
    with tempfile.TemporaryDirectory() as folder:
        noise = Path(folder, "noise")
        noise.mkdir()
        for number in range(image_mb):
            (noise / str(number)).write_bytes(os.urandom(1 << 20))
        Path(folder, "Dockerfile").write_text(f"FROM {engine.with_busybox()}\nCOPY noise /noise\n")
        engine.call("build", "-q", "-t", name, folder)
    return name


# --- what both need -------------------------------------------------------------------------------


def unusable(name: str) -> str | None:
    """Return why the sandbox cannot be measured here; None where it can."""
    if name == "bubblewrap":
        from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap

        return Bubblewrap.available()
    return _engines().why_no_engine(name)  # type: ignore[no-any-return]


def _sandbox(name: str, *, use_socket: bool = True) -> Any:
    if name == "bubblewrap":
        from bakeoff.sandboxes.bubblewrap.sandbox import Bubblewrap

        return Bubblewrap()
    from bakeoff.sandboxes.containers.sandbox import Container

    engine = _engine(name)
    return Container(
        name=engine.name,
        environment=engine.environment,
        default_image=engine.with_busybox(),
        use_socket=use_socket,
    )


def _engine(name: str) -> Any:
    return _engines().engine(name)


def _engines() -> Any:
    sys.path.insert(0, str(ROOT / "tests"))
    from support import container_engines

    return container_engines


def cpu_account() -> Callable[[], float]:
    """Return what tells the CPU, in seconds, of this process and of all that it starts from here on.

    Where control groups are to be had, that is what a group has used: the monitor and the runtime of
    a container are nobody's descendants, but stay in the group. Else it is the descendants. What runs
    inside the containers is in groups of the engine's own.
    """
    for top, name, unit in _ACCOUNTS:
        group = top / f"bakeoff-perf-{os.getpid()}"
        if (top / name).exists() and os.access(top, os.W_OK):
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            atexit.register(_leave, group)  # before an engine is: it ends first
            return partial(_used_s, group / name, unit)
    return tree_cpu_s


def _used_s(file: Path, unit: float) -> float:
    return _number_in(file) / unit


def _leave(group: Path) -> None:
    (group.parent / "cgroup.procs").write_text(str(os.getpid()))
    for _ in range(100):
        with suppress(OSError):  # the last monitor of a container is about to end
            group.rmdir()
            return
        time.sleep(0.1)


def _number_in(path: Path) -> int:
    return int(next(word for word in path.read_text().split() if word.isdigit()))


# of control groups version 1 and 2: where a group is made, the file with its CPU, and its unit
_ACCOUNTS = (
    (Path("/sys/fs/cgroup/cpuacct"), "cpuacct.usage", 1e9),
    (Path("/sys/fs/cgroup"), "cpu.stat", 1e6),
)


def tree_cpu_s() -> float:
    """Return the CPU of this process and of all that it started and that is still its descendant."""
    times = dict(_process_times())
    members, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, (parent, _) in times.items() if parent in members} - members
        members, grown = members | more, bool(more)
    own = sum(times[pid][1] for pid in members - {os.getpid()} if pid in times)
    return cpu_s() + _waited_for_s() + own


def _waited_for_s() -> float:
    done = os.times()
    return done.children_user + done.children_system


def _process_times() -> Iterator[tuple[int, tuple[int, float]]]:
    """Yield each process with its parent, and its CPU with that of the children it waited for."""
    tick = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        yield int(path.parent.name), (int(fields[1]), sum(map(int, fields[11:15])) / tick)


@contextmanager
def counting_programs() -> Iterator[None]:
    """Keep the name of each program that this process starts."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            _started.append(os.fsdecode(arguments[1][0]) if arguments[1] else "")

    sys.addaudithook(hook)
    yield


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "part", nargs="?", default="measure", choices=["attempt", "change", "measure"]
    )
    parser.add_argument("sandbox", nargs="?", choices=SANDBOXES)
    parser.add_argument("--image-mb", type=int, default=LARGE_MB)
    given = parser.parse_args()
    if given.part == "measure":
        report(measure())
    with counting_programs():
        parts = {"attempt": lambda: attempt(given.sandbox)}
        parts["change"] = lambda: change(given.sandbox, given.image_mb)
        print(json.dumps(parts[given.part]()))
