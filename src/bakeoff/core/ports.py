"""The ports: protocols that adapters implement by having the methods, without inheriting."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol, runtime_checkable

from bakeoff._lib.value_object import positional_value_object, value_object
from bakeoff.core.attachment import Attachment
from bakeoff.core.budget import UNPRICED, Bill, Tariff
from bakeoff.core.errors import BakeoffError
from bakeoff.core.outcome import Completion, Journal, Outcome, Request, Spent, Wait
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, Score, TrialRecord, TrialRow
from bakeoff.core.sandbox import Box, GatewayAddress, Mount, OpenWorkspace, Workspaces
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task
from bakeoff.core.values import Json


class Model(Protocol):
    """Turns messages into one completion; an async `close`, if there is one, is called at the end.

    Agents and scorers are given a metered model: its requests are counted and limited.
    """

    async def complete(self, request: Request, /) -> Completion: ...


async def close_model(model: Model) -> None:
    """Close *model*, if it can be closed."""
    if (close := getattr(model, "close", None)) is not None:
        await close()


class ModelAccess(Protocol):
    """One trial's access to its model through the gateway; clients authenticate with the token."""

    token: str

    async def refused(self) -> BakeoffError:
        """Wait until a limit or the budget ends the trial, and return which."""

    @property
    def fault(self) -> BakeoffError | None:
        """Why the last request failed; None if it was answered."""

    def close(self) -> None:
        """Refuse new requests and cancel those in flight."""

    async def settled(self) -> None:
        """Wait until every request is billed."""


class Gateway(Protocol):
    """The local model proxy of a run; programs in boxes know its address and no API key."""

    address: GatewayAddress

    def admit(self, model: Model, journal: Journal, *, rollout: int) -> ModelAccess:
        """Return access to *model* for one trial; its messages are written to *journal*."""

    async def close(self) -> None:
        """Stop listening."""


Entry = Mapping[str, Json]


class Checkpoint(Protocol):
    """The saved steps of one trial, in order; there may be none yet."""

    def recorded(self) -> Sequence[Entry]:
        """Return what was saved before, by this attempt or an earlier one that was cut off."""

    async def add(self, entry: Entry, *, at: int) -> None:
        """Save one more step as number *at*, in the place of it and of all after it.

        It is on the disk when this returns.
        """


class Checkpoints(Protocol):
    """Keeps the checkpoints of a run."""

    def of(self, trial: Trial) -> Checkpoint:
        """Return that of *trial*."""


@value_object
class Context:
    """What an agent or a scorer is given to work with.

    For a task with a workspace, an agent gets the open `workspace` and, if it is an external program,
    `model_access`; a scorer gets `workspaces`, which opens a fresh workspace for grading. A dialogue
    gets a `checkpoint`, from which an interrupted one continues. A scorer is told what the candidate
    `spent`.
    """

    model: Model
    roles: Mapping[str, Model] = field(default_factory=dict)
    rollout: int = 0
    label: str = ""
    journal: Journal | None = None
    workspace: OpenWorkspace | None = None
    model_access: ModelAccess | None = None
    workspaces: Workspaces | None = None
    checkpoint: Checkpoint | None = None
    spent: Spent | None = None


class Agent(Protocol):
    """Solves a task with what the context offers."""

    async def solve(self, task: Task, context: Context, /) -> Outcome: ...


class Scorer(Protocol):
    """Judges an outcome; one that asks models of the run may say so before anything is asked.

    Its `needs_roles(task)` returns the roles that it cannot score *task* without, and
    `asks_roles(task)` those that it asks where the run has them.
    """

    async def score(self, task: Task, outcome: Outcome, context: Context, /) -> Score: ...


@runtime_checkable
class ChecksBox(Protocol):
    """A scorer that can check in advance whether a box has what it needs for grading."""

    async def check_box(self, box: Box) -> None:
        """Raise ScorerError where *box*, which no agent has seen yet, cannot be graded in."""


@value_object
class WorkspaceAccess:
    """What the workspace trials of one agent need: workspaces, the gateway, mounts.

    Only an agent that is an external program needs the `gateway`; `mounts` put it into the box.
    """

    workspaces: Workspaces
    gateway: Gateway | None = None
    mounts: tuple[Mount, ...] = ()


@value_object
class TrialParts:
    """The live parts of one trial; scorers are in the order of the task's specs.

    Tariffs are the prices of the model and the roles; a missing one is unknown. `checked` holds the
    digests of tasks whose box is known to have what their scorers need. `task` is the trial's task
    as the candidate's prompt asks it; None is the task as it stands. `keep_attachment` keeps the content
    of a picture or file that was said.
    """

    agent: Agent
    model: Model
    scorers: tuple[Scorer, ...]
    roles: Mapping[str, Model] = field(default_factory=dict)
    tariff: Tariff = UNPRICED
    role_tariffs: Mapping[str, Tariff] = field(default_factory=dict)
    workspace_access: WorkspaceAccess | None = None
    checkpoints: Checkpoints | None = None
    checked: set[str] = field(default_factory=set)
    task: Task | None = None
    keep_attachment: Callable[[Attachment], None] | None = None


class TrialPartsSource(Protocol):
    """Builds the parts that a trial names, and closes what it opened."""

    def parts_for(self, trial: Trial) -> TrialParts: ...
    async def close(self) -> None: ...


class Ledger(Protocol):
    """What was planned and what is known of one run; read only."""

    def planned(self) -> Plan: ...
    def rows(self) -> Iterator[TrialRow]: ...
    def records(self) -> Iterator[TrialRecord]: ...
    def attempts(self, name: str) -> Sequence[TrialRecord]: ...
    def billed(self) -> Bill: ...


class Store(Protocol):
    """Stores one run; append-only, and an attempt is durable when `append` returns."""

    def freeze(self, plan: Plan) -> None: ...
    def next_attempts(self, trials: Sequence[Trial]) -> Sequence[int | None]: ...
    async def append(self, trial: Trial, attempt: Attempt) -> None: ...
    def rescore(self, trial: Trial, attempt: Attempt) -> None: ...
    def adopt(self, plan: Plan) -> None: ...
    async def close(self) -> None: ...


@positional_value_object
class Job:
    """A trial that is due, and the number its next attempt gets.

    `on_wait` hears what it waits for, and None when that is over: meanwhile another may run.
    """

    trial: Trial
    attempt: int
    on_wait: Callable[[Wait | None], None] | None = field(default=None, repr=False, compare=False)


Work = Callable[[Job], Awaitable[None]]


class Executor(Protocol):
    """Decides where and when trials run; knows nothing about what they do."""

    async def run(
        self,
        jobs: Iterable[Job],
        work: Work,
        stop: Stop,
        *,
        other_lanes: Sequence[Iterable[Job]] = (),
    ) -> None: ...
