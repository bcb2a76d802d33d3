"""The sandbox ports: a sandbox opens boxes, a box runs commands, workspaces set up a task in a box.

The files of a box are in a private folder of the host, mounted in the box at `root`. They are
written before the box opens and read after it has stopped, so no port is needed for moving files.
A box that works on a copy elsewhere brings it back before `stop` returns.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from pathlib import Path
from typing import Protocol

from bakeoff._lib.value_object import value_object
from bakeoff.core.task import Task
from bakeoff.core.workspace import BoxLimits, Change, Image, Network


@value_object
class Mount:
    """A host path mounted in the box; read-only unless `writable`."""

    source: str
    target: str
    writable: bool = False


@value_object
class GatewayAddress:
    """Where the model gateway listens on the host: a unix socket, and a loopback URL."""

    socket: str
    url: str


@value_object
class BoxSpec:
    """A box to be opened.

    `label` names the run and the trial, so that what a dead run left can be found. `image` is what
    `Sandbox.image` returned. `archive` and `gone` are the change of a whole box, made before the
    first command. `folder` is None for a box whose files all come from its image. In a `grading` box
    no process can be debugged: what is graded must not drive what grades it. `pinned` are paths
    inside the folder that are mounted onto themselves, read-only or so that they cannot be moved; a
    sandbox without mounts leaves them as they are.
    """

    label: str
    folder: Path | None
    root: str = "/app"
    workdir: str = "/app"
    image: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: BoxLimits = field(default_factory=BoxLimits)
    network: Network = False
    mounts: tuple[Mount, ...] = ()
    gateway: GatewayAddress | None = None
    archive: bytes | None = None
    gone: tuple[str, ...] = ()
    grading: bool = False
    pinned: tuple[Mount, ...] = ()


OutputListener = Callable[[bytes], None]


@value_object
class Command:
    """A program with its arguments, run in the box; `None` means the box's own setting.

    It is killed with all its children after `time_s`. The first and the last part of its output are
    kept, `most_output` bytes in all; `on_output` gets each piece as it arrives.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    time_s: float | None = None
    stdin: bytes = b""
    most_output: int = 1_000_000
    on_output: OutputListener | None = field(default=None, repr=False, compare=False)


@value_object
class CommandResult:
    """How a command ended: its exit code, or None where it was stopped, and what it printed.

    `stopped` says why it did not end by itself: its time, the box's memory, its disk.
    """

    code: int | None
    output: str
    elapsed_s: float
    stopped: str | None = None
    truncated: bool = False


class Box(Protocol):
    """An open box."""

    @property
    def gateway_url(self) -> str | None:
        """Where a command in the box reaches the gateway: `http://127.0.0.1:PORT`."""

    @property
    def refused_traffic(self) -> tuple[str, ...]:
        """What the box tried to reach and was refused, as far as that can be seen."""

    async def run(self, command: Command) -> CommandResult:
        """Run *command*; raise SandboxError only where it could not be started or watched.

        Where commands could be started before, and what ran in the box has since made that
        impossible (its folder is gone or closed, its shell removed), the exit code is 126: the
        agent's doing must not become a fault, which would leave it out of the mean.
        """

    async def stop(self) -> None:
        """End every process of the box; its folder then holds what it left."""

    async def change(self) -> tuple[bytes, tuple[str, ...]]:
        """Return how a stopped box's file system differs from its image: an archive, what is gone."""

    async def close(self) -> None:
        """End every process and leave nothing but the folder, which belongs to the caller."""


class Sandbox(Protocol):
    """Opens boxes of one kind."""

    @property
    def name(self) -> str:
        """What it is called in results and messages."""

    @property
    def isolates(self) -> bool:
        """Whether its boxes keep code that is not trusted from the host."""

    async def image(self, image: Image | None) -> str | None:
        """Return the image to start boxes from, built where it must be, once for all."""

    async def open(self, spec: BoxSpec) -> Box:
        """Return a box that is ready; SandboxError where none can be opened."""

    async def reap(self) -> Sequence[str]:
        """Take away what dead runs left, and return a line for each thing."""

    async def close(self) -> None:
        """Give back what is held for the whole run."""


class OpenWorkspace(Protocol):
    """The box of one trial, with where its files lie on the host."""

    @property
    def box(self) -> Box:
        """The open box."""

    @property
    def folder(self) -> Path | None:
        """The folder on the host that the box shows at its root."""


@value_object
class GradingSpec:
    """What a check needs beyond the task's own files.

    Paths that match `protected`, and those that the task protects, are restored. `texts` are further
    hidden files, by their path from the root of the workspace. `environment` are the variables that
    the check sets: modules in its PYTHONPATH hide others too. Test files at the paths `read_once` may
    be removed by their first reader.
    """

    protected: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    read_once: tuple[str, ...] = ()


class GradingWorkspace(OpenWorkspace, Protocol):
    """A fresh workspace in which a change is graded."""

    @property
    def undone(self) -> tuple[str, ...]:
        """The paths of the change that are as they were before it: they are protected."""

    @property
    def new_modules(self) -> tuple[str, ...]:
        """The Python modules that the change brought, by name, and that the task did not ask for."""


class Workspaces(Protocol):
    """Opens the workspaces of a task: the agent's, then a fresh one for grading."""

    def open(
        self,
        task: Task,
        *,
        label: str,
        gateway: GatewayAddress | None,
        mounts: tuple[Mount, ...],
        environment: Mapping[str, str],
    ) -> AbstractAsyncContextManager[OpenWorkspace]:
        """Open the agent's workspace: the files, one commit, set-up done; no hidden files.

        The candidate's *environment* is merged with the task's own and takes precedence.
        """

    async def change(self, task: Task, workspace: OpenWorkspace) -> Change:
        """Stop the box of *workspace* and return what was changed in it."""

    def open_for_grading(
        self,
        task: Task,
        change: Change | None,
        *,
        label: str,
        spec: GradingSpec = GradingSpec(),  # noqa: B008 -- frozen
    ) -> AbstractAsyncContextManager[GradingWorkspace]:
        """Open a fresh workspace with the original files, the change, and then the hidden files."""
