"""Where workspace tasks are done: which sandbox, its bench, and the gateway for programs in boxes."""

import asyncio
import platform
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from bakeoff import registry
from bakeoff._lib import scratch
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Listener, Notice
from bakeoff.core.plan import Plan
from bakeoff.core.ports import Agent, Gateway, WorkspaceAccess
from bakeoff.core.sandbox import Mount, Sandbox, Workspaces
from bakeoff.core.values import Json
from bakeoff.core.workspace import Network, SandboxSpec, Workspace

VARIABLE = "SANDBOX_BACKEND"
ANY_CONTAINER = "container"
_CONTAINERS = ("docker", "podman")
_ISOLATING = ("bubblewrap", *_CONTAINERS)
_UNSAFE = (
    "Agents run commands of their own, and so do the checks of their work. If you accept that they "
    "do that with all your rights, say so: --sandbox local"
)


@runtime_checkable
class Inquirable(Protocol):
    """A sandbox that can say whether it works here."""

    def available(self) -> str | None:
        """Return None where it works, else why it does not and what to install."""


@runtime_checkable
class ChecksNetwork(Protocol):
    """A sandbox that cannot give every task the network it asks for."""

    def check_network(self, network: Network) -> None:
        """Raise UsageError where no box can have this *network*."""


@runtime_checkable
class ProgramFinder(Protocol):
    """An agent that is a program of its own and talks to its model through the gateway."""

    needs_gateway: bool

    def mounts(self) -> tuple[Mount, ...]:
        """Return what of the host its box must show."""


@value_object
class WorkspaceServices:
    """What the workspace tasks of one run share."""

    sandbox: Sandbox
    workspaces: Workspaces
    gateway: Gateway | None

    def access_for(self, agent: Agent) -> WorkspaceAccess:
        """Return the site as *agent* needs it."""
        if not isinstance(agent, ProgramFinder):
            return WorkspaceAccess(workspaces=self.workspaces)
        gateway = self.gateway if agent.needs_gateway else None
        return WorkspaceAccess(workspaces=self.workspaces, gateway=gateway, mounts=agent.mounts())


@asynccontextmanager
async def open_workspace_services(
    plan: Plan,
    spec: SandboxSpec,
    *,
    environ: Mapping[str, str],
    run: str,
    listener: Listener,
    folders: Iterable[Path] = (),
) -> AsyncIterator[WorkspaceServices | None]:
    """Open what *plan* needs to run in boxes, if it does; first take away what dead runs left."""
    specs = [task.workspace for task in plan.tasks_at_hand if task.workspace is not None]
    if not specs:
        yield None
        return
    images = any(workspace.image is not None for workspace in specs)
    sandbox = choose(spec, environ=environ, images=images, folders=folders)
    _check_networks(sandbox, specs)
    async with opened_services(sandbox, environ=environ, run=run) as services:
        for line in await reap(sandbox):
            listener(Notice(line))
        if not sandbox.isolates:
            listener(
                Notice(f"sandbox {sandbox.name!r} does not isolate: commands run with your rights")
            )
        yield services


@asynccontextmanager
async def opened_services(
    sandbox: Sandbox, *, environ: Mapping[str, str], run: str
) -> AsyncIterator[WorkspaceServices]:
    """Open what trials in boxes of *sandbox* share, and close it and the sandbox at the end."""
    from bakeoff.gateway.server import open_gateway
    from bakeoff.workspaces.host import HostWorkspaces

    async with AsyncExitStack() as stack:
        stack.push_async_callback(sandbox.close)
        folder = scratch.new_folder("gateway")
        stack.callback(scratch.remove, folder)
        gateway = await open_gateway(folder)
        stack.push_async_callback(gateway.close)
        workspaces = HostWorkspaces(sandbox=sandbox, cache=repositories(environ), run=run)
        stack.push_async_callback(workspaces.close)
        yield WorkspaceServices(sandbox=sandbox, workspaces=workspaces, gateway=gateway)


def _check_networks(sandbox: Sandbox, workspaces: Iterable[Workspace]) -> None:
    """Raise where a task asks for a network that *sandbox* cannot give; before the first request."""
    if isinstance(sandbox, ChecksNetwork):
        for network in dict.fromkeys(workspace.network for workspace in workspaces):
            sandbox.check_network(network)


def repositories(environ: Mapping[str, str]) -> Path:
    """Return where repositories are kept that can be had again."""
    home = environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "bakeoff" / "repositories"


async def reap(sandbox: Sandbox) -> list[str]:
    """Take away what dead runs left behind, and return a line for each thing."""
    lines = [*await sandbox.reap(), *(f"folder {folder}" for folder in scratch.reap())]
    return [f"removed what an ended run left behind: {line}" for line in lines]


async def clean() -> list[str]:
    """Take away what dead runs left in any sandbox that works here."""
    lines = []
    for name in registry.names("sandboxes"):
        try:
            sandbox = build(SandboxSpec(name=name))
        except UsageError as error:
            lines.append(f"not asked: {error}")  # a plug-in that is broken, or needs settings
            continue
        if _why_not(sandbox) is None:
            lines += await reap(sandbox)
            await sandbox.close()
    await asyncio.to_thread(scratch.wait_removed)
    return lines


def check_name(name: str) -> None:
    """Raise where no sandbox has that *name*, even if no task will need one; nothing is imported."""
    known = registry.names("sandboxes")
    if name not in (*known, ANY_CONTAINER) and not registry.is_reference(name):
        raise UsageError(f"no sandbox is called {name!r}: {did_you_mean(name, known)}")


def is_container(name: str) -> bool:
    """Whether the sandbox called *name* is a container engine."""
    return name in _CONTAINERS


def named(spec: SandboxSpec, name: str | None) -> SandboxSpec:
    """Return *spec* for the sandbox *name*; its settings stay, unless they are for another kind.

    docker, podman and "container" are one kind. Settings without a name are for any sandbox.
    """
    if not name:
        return spec
    same = spec.name in (None, name) or {spec.name, name} <= {*_CONTAINERS, ANY_CONTAINER}
    return SandboxSpec(name=name, settings=spec.settings if same else {})


def chosen(spec: SandboxSpec, sandbox: Sandbox, environ: Mapping[str, str]) -> SandboxSpec:
    """Return *spec* with the name under which *sandbox*, which was chosen for it, is found again."""
    name = spec.name or environ.get(VARIABLE)
    if not name or name == ANY_CONTAINER:
        name = sandbox.name
    return SandboxSpec(name=name, settings=spec.settings)


def choose(
    spec: SandboxSpec,
    *,
    environ: Mapping[str, str],
    images: bool,
    folders: Iterable[Path] = (),
) -> Sandbox:
    """Return the sandbox that is asked for by name, else the best one that works here.

    Nothing that does not isolate is ever chosen without being asked for by name.
    """
    name = spec.name or environ.get(VARIABLE)
    if name and name != ANY_CONTAINER:
        sandbox = build(SandboxSpec(name=name, settings=spec.settings), folders=folders)
        if why := _why_not(sandbox):
            raise UsageError(f"sandbox {name!r} cannot be used here: {why}")
        return sandbox
    names = _CONTAINERS if images or name == ANY_CONTAINER else _ISOLATING
    if platform.system() != "Linux":
        names = _CONTAINERS
    return _first(names, spec.settings)


def _first(names: Iterable[str], settings: Mapping[str, Json]) -> Sandbox:
    reasons = []
    for name in names:
        sandbox = build(SandboxSpec(name=name, settings=settings))
        why = _why_not(sandbox)
        if why is None:
            return sandbox
        reasons.append(f"{name}: {why}")
    raise UsageError(f"no sandbox that isolates works here ({'; '.join(reasons)}). {_UNSAFE}")


def build(spec: SandboxSpec, *, folders: Iterable[Path] = ()) -> Sandbox:
    """Return the sandbox that *spec* names; one's own is looked for in *folders*."""
    name = spec.name or ""
    what = f"sandbox {name!r}"
    part = registry.find("sandboxes", name, folders=folders)
    sandbox = registry.build(part, spec.settings, what=what)
    for needed in ("name", "isolates", "image", "open", "reap", "close"):
        if not hasattr(sandbox, needed):
            raise UsageError(f"{what} is no sandbox: it has no `{needed}`")
    return cast("Sandbox", sandbox)


def _why_not(sandbox: Sandbox) -> str | None:
    if not isinstance(sandbox, Inquirable):
        return None
    try:
        return sandbox.available()
    except Exception as error:  # noqa: BLE001 -- a plug-in's own mistake must not end `list`
        return f"it cannot say whether it works here: {type(error).__name__}: {error}"


def works_here() -> list[tuple[str, str]]:
    """Return each sandbox with a note: that it works, or why not."""
    lines = []
    for name in registry.names("sandboxes"):
        try:
            sandbox = build(SandboxSpec(name=name))
        except UsageError as error:
            lines.append((name, str(error)))
            continue
        how = "isolates" if sandbox.isolates else "does not isolate: commands run with your rights"
        lines.append((name, _why_not(sandbox) or how))
    return lines
