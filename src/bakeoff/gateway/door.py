"""The gateway as one trial sees it."""

import asyncio
import secrets
from collections.abc import Callable

from bakeoff._lib.untrusted import one_line
from bakeoff.core.errors import (
    BakeoffError,
    LimitReached,
    NotRun,
    ProviderError,
    TrialError,
    boundary,
)
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Completion
from bakeoff.core.ports import Model
from bakeoff.gateway.asked import Asked
from bakeoff.gateway.bounds import Bounds, Claim, Room
from bakeoff.gateway.conversation import Conversation
from bakeoff.gateway.dialect import Problem, UnansweredError
from bakeoff.gateway.recall import Replies

# Adapters have tried again already. A program may do so as well, but not for ever.
_MOST_FAULTS = 3
_MOST_NOTES = 200

OVER = Problem(status=401, code="invalid_api_key", message="the trial of this key is over")


class TrialDoor:
    """A door to the model of one trial; whoever shows its token may ask."""

    def __init__(
        self,
        model: Model,
        journal: Journal,
        *,
        rollout: int,
        bounds: Bounds,
        on_close: Callable[["TrialDoor"], None],
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self.requests = 0
        self.room = Room(bounds)
        self._model = model
        self._journal = journal
        self._rollout = rollout
        self._on_close = on_close
        self._conversation = Conversation(journal, most_kept=bounds.kept)
        self._replies = Replies(most_kept=bounds.kept)
        self._noted: set[str] = set()
        self._closed = False
        self._fault: TrialError | None = None
        self._faults = 0
        self._refusal: asyncio.Future[BakeoffError] = asyncio.get_running_loop().create_future()
        self._under_way: set[asyncio.Task[Completion]] = set()

    def start(self, asked: Asked, claim: Claim) -> "asyncio.Task[Completion]":
        """Ask the model; the task may be cancelled, and fails as the question does."""
        if self._closed:  # while the request was still coming in
            raise UnansweredError(OVER)
        task = asyncio.get_running_loop().create_task(self._ask(asked))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        claim.hold()  # a program may go; the model may not hear of it for a while
        task.add_done_callback(lambda _: claim.drop())
        return task

    def _ended(self, task: "asyncio.Task[Completion]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # seen: where the program has gone, nobody else asks for it

    async def _ask(self, asked: Asked) -> Completion:
        if self._refusal.done():
            raise self._refusal.result()
        self.requests += 1
        for note in asked.notes:
            self.note(f"not carried on: {note}")
        messages = tuple(map(self._replies.recalled, asked.messages))
        thread = self._conversation.heard(asked.system, messages)
        try:
            with boundary(ProviderError, "gateway"):
                completion = await self._model.complete(
                    asked.request(messages, rollout=self._rollout)
                )
        except (LimitReached, NotRun) as error:
            if not self._refusal.done():
                self._refusal.set_result(error)
            raise
        except TrialError as error:
            self._fault = error
            self._faults += 1
            raise
        self._fault, self._faults = None, 0
        completion, reply = self._replies.given(completion)
        self._conversation.said(thread, reply)
        return completion

    def note(self, what: str) -> None:
        """Write a line into the log of the trial, once."""
        line = one_line(what, width=500)
        if line not in self._noted and len(self._noted) < _MOST_NOTES:
            self._noted.add(line)
            self._journal.print(f"gateway: {line}\n")

    def problem(self, error: BakeoffError) -> Problem:
        """Return what a program is told of *error*.

        Programs ask again after a 5xx, some of them often, and none after a 400.
        """
        if isinstance(error, LimitReached | NotRun):
            return Problem(status=400, message=f"no more requests: {error}", code="limit_reached")
        may_pass = isinstance(error, TrialError) and error.transient
        if may_pass and self._faults < _MOST_FAULTS:
            return Problem(status=502, message=str(error), code="provider_failed")
        return Problem(status=400, message=str(error), code="provider_refused")

    async def refused(self) -> BakeoffError:
        """Wait until a limit or the budget ends the trial, and return which."""
        return await asyncio.shield(self._refusal)

    @property
    def fault(self) -> TrialError | None:
        """Why the last question got no answer; None where it got one."""
        return self._fault

    def close(self) -> None:
        """Let nobody in any more, and cut what is under way."""
        self._closed = True
        self._on_close(self)
        for task in self._under_way:
            task.cancel()

    async def settled(self) -> None:
        """Wait until nothing is under way, so that the meter says what the trial took."""
        while self._under_way:
            await asyncio.wait(self._under_way)
