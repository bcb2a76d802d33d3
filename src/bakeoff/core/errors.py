"""What can go wrong, and who gets to see it.

* BakeoffError
  x UsageError        the user can fix it: bad config, unknown name; shown without traceback
  x LedgerError       the ledger cannot be written; the run stops, nothing acknowledged is lost
  x LimitReached      a limit ran out; ends the attempt, which is then scored as it stands
  x NotRun            the run or an endpoint stops before the attempt had its chance; a resume runs it
    + BudgetReached   the run may spend no more
  x TrialError        one trial broke at a boundary; recorded, never stops the run
    + ProviderError
    + AgentError
    + SandboxError
      - ChangeTooLargeError   the agent's own doing: scored 0, not a fault
    + ScorerError

Adapters raise plain Python errors or one of the four; `boundary` names the rest.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from bakeoff._lib.tracebacks import traceback_text


class BakeoffError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(BakeoffError):
    """The user can fix this one; the message says how.

    `problems` are the mistakes that the message lists, one by one. `location` is the `file:line` that
    the message begins with, and `task` the id of the task that it names, where it does.
    """

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[str] = (),
        location: str | None = None,
        task: str | None = None,
    ) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)
        self.location = location
        self.task = task

    def rewritten(self, rewrite: Callable[[str], str]) -> Self:
        """Return the same error with another text: as *rewrite* makes it of this one's."""
        return type(self)(
            rewrite(str(self)),
            problems=[rewrite(problem) for problem in self.problems],
            location=None if self.location is None else rewrite(self.location),
            task=self.task,
        )


class LedgerError(BakeoffError):
    """The ledger cannot be written. The run stops; what was acknowledged is kept."""


class LimitReached(BakeoffError):  # noqa: N818 -- an ending, not an error
    """A limit ran out. Not a fault: the candidate spent it."""


class NotRun(BakeoffError):  # noqa: N818 -- an ending, not an error
    """A request is not sent: the run stops, or its endpoint was given up. A resume runs the trial."""


class BudgetReached(NotRun):
    """The run may spend no more. Its trial is not over: a resume tries it again."""


class TrialError(BakeoffError):
    """A trial broke. Subclasses name the boundary it broke at.

    `traceback` is where a plain Python error, which nobody raised on purpose, came from.
    """

    boundary: ClassVar[str] = "engine"

    def __init__(
        self, message: str, *, transient: bool = False, traceback: str | None = None
    ) -> None:
        super().__init__(message)
        self.transient = transient
        self.traceback = traceback


class ProviderError(TrialError):
    """A model endpoint did not answer as it should.

    `billable` is whether it may charge for that: not where it refused, or was never reached.
    `status` is the HTTP status it answered with; None where it gave no HTTP answer.
    """

    boundary = "provider"

    def __init__(
        self,
        message: str,
        *,
        transient: bool = False,
        billable: bool = True,
        status: int | None = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(message, transient=transient, traceback=traceback)
        self.billable = billable
        self.status = status


class AgentError(TrialError):
    """The agent itself crashed."""

    boundary = "agent"


class SandboxError(TrialError):
    """The sandbox could not start, execute or move files."""

    boundary = "sandbox"


class ChangeTooLargeError(SandboxError):
    """An agent left more than can be taken from its box, or no folder at all: its doing, a score of 0."""


class ScorerError(TrialError):
    """A scorer crashed or gave no usable verdict, so the trial has no score."""

    boundary = "scorer"


_MEANT = (TrialError, LimitReached, NotRun)


class boundary:  # noqa: N801 -- reads as a word at its place: `with boundary(...)`
    """Attributes any error that escapes the block to *kind*, keeping the cause."""

    __slots__ = ("_kind", "_what")  # a class: a generator costs three times as much, each trial

    def __init__(self, kind: type[TrialError], what: str) -> None:
        self._kind = kind
        self._what = what

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, _MEANT):
            return  # none, not ours to name, or it already carries its meaning
        if isinstance(error, BakeoffError):
            raise self._kind(f"{self._what}: {error}") from error  # one trial's trouble only
        message = f"{self._what}: {type(error).__name__}: {error}"
        raise self._kind(message, traceback=traceback_text(error)) from error
