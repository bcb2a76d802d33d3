"""What a run tells the world. Events go out; nothing comes back."""

from collections.abc import Callable, Mapping
from dataclasses import field

from bakeoff._lib.value_object import positional_value_object
from bakeoff.core.budget import NO_BILL, NO_CAP, Bill, Cap
from bakeoff.core.candidate import EndpointWait
from bakeoff.core.outcome import Spent
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt


@positional_value_object
class RunStarted:
    """The plan is fixed and the ledger is open; `billed` is what earlier sessions cost.

    An `adaptive` run may end before all that is planned is done. `candidates` says how many trials
    are planned for each.
    """

    run_id: str
    folder: str
    planned: int
    finished_before: int
    cap: Cap = NO_CAP
    billed: Bill = NO_BILL
    adaptive: bool = False
    candidates: Mapping[str, int] = field(default_factory=dict)


@positional_value_object
class TrialStarted:
    """A worker took a trial."""

    trial: Trial


@positional_value_object
class TrialOutput:
    """Something that a program of a trial printed in its box, as it came."""

    trial: Trial
    text: str


@positional_value_object
class TurnStarted:
    """A turn of a dialogue starts: the agent was told something, and is at it."""

    trial: Trial
    number: int


@positional_value_object
class TurnEnded:
    """A turn of a dialogue is over: the agent answered, and its checkpoint has the answer."""

    trial: Trial
    number: int


@positional_value_object
class TrialSpent:
    """A model answered in a workspace trial that goes on: what its candidate has used up so far."""

    trial: Trial
    spent: Spent


@positional_value_object
class TrialEnded:
    """An attempt that counts is durable. `last` is False where another attempt follows."""

    trial: Trial
    attempt: Attempt
    last: bool


@positional_value_object
class TrialNotRun:
    """A trial that had started was left for a resume: no request of its attempt was answered."""

    trial: Trial
    why: str


@positional_value_object
class Waiting:
    """Why requests wait for their endpoints at this moment; empty where none does any more."""

    endpoints: tuple[EndpointWait, ...] = ()


@positional_value_object
class Notice:
    """Something a person should read, such as what differs on resume."""

    text: str


@positional_value_object
class RunEnded:
    """No more events of this run follow. `given_up` says of each endpoint given up, why."""

    run_id: str
    stopped_early: bool
    at_budget: bool = False
    given_up: tuple[str, ...] = ()


Event = (
    RunStarted
    | TrialStarted
    | TrialOutput
    | TurnStarted
    | TurnEnded
    | TrialSpent
    | TrialEnded
    | TrialNotRun
    | Waiting
    | Notice
    | RunEnded
)
Listener = Callable[[Event], None]


def ignore(_: Event) -> None:
    """Listen to nothing."""
