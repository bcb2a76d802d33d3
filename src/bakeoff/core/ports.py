"""The shapes an adapter may take. Implement one by having its methods; do not inherit."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from bakeoff._lib.phrasing import noun
from bakeoff.core.budget import UNPRICED, Bill, Tariff
from bakeoff.core.checkpoint import Checkpoint, Checkpoints
from bakeoff.core.errors import BakeoffError
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Completion, Outcome, Request
from bakeoff.core.plan import Plan, Trial
from bakeoff.core.record import Attempt, Score, TrialRecord, TrialRow
from bakeoff.core.sandbox import Box, GatewayAddress, Mount, OpenWorkspace, Workspaces
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task


class Model(Protocol):
    """Turns messages into one completion. Where it has an async `close`, that is called at the end.

    The one that an agent or a scorer is given is metered: what it is asked is counted and limited.
    """

    async def complete(self, request: Request, /) -> Completion: ...


async def close_model(model: Model) -> None:
    """Close *model*, if it can be closed."""
    if (close := getattr(model, "close", None)) is not None:
        await close()


class ModelAccess(Protocol):
    """The gateway as one trial sees it: programs that show the token may ask the trial's model."""

    token: str

    async def refused(self) -> BakeoffError:
        """Wait until a limit or the budget ends the trial, and return which."""

    @property
    def fault(self) -> BakeoffError | None:
        """Why the last question got no answer; None where it got one."""

    def close(self) -> None:
        """Let nobody in any more, and cut the questions under way."""

    async def settled(self) -> None:
        """Wait until every question is booked."""


class Gateway(Protocol):
    """The local model proxy of a run; programs in boxes know it, and no key."""

    address: GatewayAddress

    def admit(self, model: Model, journal: Journal, *, rollout: int) -> ModelAccess:
        """Return a door to *model*; what is said through it is written into *journal*."""

    async def close(self) -> None:
        """Stop listening."""


@noun
class Context:
    """What an agent or a scorer is given to work with.

    For a task with files, an agent gets the open `workspace` it works in and, if it is an external
    program, the `model_access` that lets it ask its model; a scorer gets `workspaces`, which opens
    a fresh workspace for grading. A dialogue gets a `checkpoint` from which it can be resumed.
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


class Agent(Protocol):
    """Solves a task with what the context offers."""

    async def solve(self, task: Task, context: Context, /) -> Outcome: ...


class Scorer(Protocol):
    """Judges an outcome."""

    async def score(self, task: Task, outcome: Outcome, context: Context, /) -> Score: ...


@runtime_checkable
class ChecksBox(Protocol):
    """A scorer that can tell beforehand that a box lacks what it grades with."""

    async def check_box(self, box: Box) -> None:
        """Raise ScorerError where *box*, which no agent has seen yet, cannot be graded in."""


@noun
class WorkspaceSite:
    """What a candidate needs to run workspace tasks.

    Only an agent that is an external program needs the `gateway`, and `mounts` that show the
    program in the box.
    """

    workspaces: Workspaces
    gateway: Gateway | None = None
    mounts: tuple[Mount, ...] = ()


@noun
class TrialParts:
    """The live parts of one trial. Scorers stand in the order of the task's specs.

    Tariffs say what the model and the roles charge; one that is missing is unknown. `checked` holds
    the digests of tasks whose box is known to have what their scorers need.
    """

    agent: Agent
    model: Model
    scorers: tuple[Scorer, ...]
    roles: Mapping[str, Model] = field(default_factory=dict)
    tariff: Tariff = UNPRICED
    role_tariffs: Mapping[str, Tariff] = field(default_factory=dict)
    site: WorkspaceSite | None = None
    checkpoints: Checkpoints | None = None
    checked: set[str] = field(default_factory=set)


class TrialPartsSource(Protocol):
    """Builds the parts a trial names, and closes what it opened."""

    def rig(self, trial: Trial) -> TrialParts: ...
    async def close(self) -> None: ...


class Ledger(Protocol):
    """What was planned and what is known of one run; read only."""

    def planned(self) -> Plan: ...
    def rows(self) -> Iterator[TrialRow]: ...
    def records(self) -> Iterator[TrialRecord]: ...
    def attempts(self, name: str) -> Sequence[TrialRecord]: ...
    def billed(self) -> Bill: ...


class Store(Protocol):
    """Keeps one run. Append-only; an attempt is durable when `append` returns."""

    def freeze(self, plan: Plan) -> None: ...
    def next_attempts(self, trials: Sequence[Trial]) -> Sequence[int | None]: ...
    async def append(self, trial: Trial, attempt: Attempt) -> None: ...
    def rescore(self, trial: Trial, attempt: Attempt) -> None: ...
    def adopt(self, plan: Plan) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A trial that is due, and the number its next attempt gets."""

    trial: Trial
    attempt: int


Work = Callable[[Job], Awaitable[None]]


class Executor(Protocol):
    """Decides where and when trials run; knows nothing about what they do."""

    async def run(self, jobs: Iterable[Job], work: Work, stop: Stop) -> None: ...
