"""One trial's access to its model through the gateway, how much of it, and its conversation.

A program in a box may be broken, or mean harm: it may send without end, ask all at once, or never
read what it is answered. Whatever is held for it is counted here, and what would be too much is
refused with an error code of its own, so that it is not taken for a fault of the model.
"""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bakeoff._lib.sanitize import one_line
from bakeoff.core.errors import (
    BakeoffError,
    LimitReached,
    NotRun,
    ProviderError,
    TrialError,
    boundary,
)
from bakeoff.core.outcome import Completion, Journal
from bakeoff.core.ports import Model
from bakeoff.core.task import Message, ToolCall
from bakeoff.gateway.dialects.dialect import (
    ModelRequest,
    Problem,
    UnansweredError,
    arguments_object,
)

_MB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBounds:
    """The limits of one trial; far more than a well-behaved program needs.

    `body` and `bodies` are bytes: of one question, and of all that are under way. `parts` are the
    messages, prompts and tools of one question. `kept` are the letters of the transcript that come
    from the program, and once more of those that come from the model. `all_connections` is of all
    trials together.
    """

    body: int = 16 * _MB
    bodies: int = 48 * _MB
    parts: int = 10_000
    requests: int = 64
    connections: int = 128
    all_connections: int = 4096
    kept: int = 32 * _MB

    def too_large(self) -> UnansweredError:
        """Return the error for a request that is too large."""
        return _refused(413, "request_too_large", f"the request is larger than {_mb(self.body)}")

    def too_many_parts(self) -> UnansweredError:
        """Return the error for a request with too many messages and tools."""
        why = f"the request has more than {self.parts} messages and tools"
        return _refused(413, "request_too_large", why)


class TrialUsage:
    """What a trial uses right now."""

    def __init__(self, bounds: RequestBounds) -> None:
        self.bounds = bounds
        self.requests = 0
        self.size = 0
        self._transports: set[asyncio.BaseTransport] = set()

    @contextmanager
    def claim(self, transport: asyncio.BaseTransport | None) -> Iterator["Claim"]:
        """Admit a request that came over *transport*, or refuse it."""
        if transport is not None:
            self._connected(transport)
        if self.requests >= self.bounds.requests:
            raise _too_much(f"{self.bounds.requests} requests of this trial are under way")
        claim = Claim(self)
        try:
            yield claim
        finally:
            claim.drop()

    def knows(self, transport: asyncio.BaseTransport | None) -> bool:
        """Whether a request with this trial's token came over *transport*."""
        return transport in self._transports

    def _connected(self, transport: asyncio.BaseTransport) -> None:
        if transport in self._transports:
            return
        if len(self._transports) >= self.bounds.connections:
            self._transports = {other for other in self._transports if not other.is_closing()}
        if len(self._transports) >= self.bounds.connections:
            raise _too_much(f"{self.bounds.connections} connections of this trial are open")
        self._transports.add(transport)


class Claim:
    """The memory that one request uses, reference-counted."""

    def __init__(self, usage: TrialUsage) -> None:
        self._usage = usage
        self._size = 0
        self._holders = 1
        usage.requests += 1

    def grow(self, size: int) -> None:
        """Claim *size* bytes more, or refuse."""
        usage, bounds = self._usage, self._usage.bounds
        if self._size + size > bounds.body:
            raise bounds.too_large()
        if usage.size + size > bounds.bodies:
            raise _too_much(f"the requests of this trial hold {_mb(bounds.bodies)} at once")
        self._size += size
        usage.size += size

    def hold(self) -> None:
        """Add a holder, which must drop it too."""
        self._holders += 1

    def drop(self) -> None:
        """Drop it; the last holder releases the memory."""
        self._holders -= 1
        if not self._holders:
            self._usage.requests -= 1
            self._usage.size -= self._size


def message_size(message: Message) -> int:
    """Return about how much memory a message uses, with its overhead."""
    called = sum(len(call.id) + len(call.name) + len(call.arguments) for call in message.tool_calls)
    shown = sum(attachment.size for attachment in message.attachments)
    return 100 + len(message.content) + len(message.reasoning or "") + called + shown


def _too_much(what: str) -> UnansweredError:
    return _refused(429, "too_many_requests", f"{what}, and no more are let in; wait for an answer")


def _refused(status: int, code: str, message: str) -> UnansweredError:
    return UnansweredError(Problem(status=status, code=code, message=message))


def _mb(size: int) -> str:
    return f"{size / _MB:.3g} MB"


_MOST_THREADS = 200
_MOST_FINGERPRINTS = 500_000
_CUT = "[... the conversation is longer than what is kept ...]"

Thread = tuple[int, ...]


class ConversationRecorder:
    """Records the threads of one trial in its journal.

    Of what the program says *most_kept* letters go there, and once more of the answers: a program
    that says something else each time would fill the host's memory.
    """

    def __init__(self, journal: Journal, *, most_kept: int) -> None:
        self._journal = journal
        self._prompts: set[int] = set()
        self._threads: OrderedDict[Thread, None] = OrderedDict()
        self._fingerprints = 0
        self._history_left = self._replies_left = most_kept
        self._cut = False

    def record_history(self, system: Iterable[str], messages: Sequence[Message]) -> Thread:
        """Record the new messages of a history, and return its thread."""
        for prompt in system:
            if hash(prompt) not in self._prompts and self._history_left > 0:
                self._prompts.add(hash(prompt))
                self._add_history(Message(role="system", content=prompt))
        thread = tuple(map(_fingerprint, messages))
        nearest, common = self._nearest(thread)
        self._add_history(*_unknown(messages[common:], thread[common:], nearest[common:]))
        if common == len(nearest):
            self._forget(nearest)  # it goes on
        self._remember(thread)
        return thread

    def record_reply(self, thread: Thread, reply: Message) -> None:
        """Record the answer to a thread."""
        if self._replies_left > 0:
            self._replies_left -= message_size(reply)
            self._journal.add_messages(reply)
        else:
            self._note_truncation()
        self._forget(thread)
        self._remember((*thread, _fingerprint(reply)))

    def _add_history(self, *messages: Message) -> None:
        for message in messages:
            size = message_size(message)
            if size > self._history_left:
                self._history_left = 0
                self._note_truncation()
                return
            self._history_left -= size
            self._journal.add_messages(message)

    def _note_truncation(self) -> None:
        if not self._cut:
            self._cut = True
            self._journal.add_messages(Message(role="system", content=_CUT))

    def _nearest(self, thread: Thread) -> tuple[Thread, int]:
        """Return the thread with the longest beginning in common, and how long that is."""
        nearest: Thread = ()
        most = 0
        for other in reversed(self._threads):
            common = _common(thread, other)
            if common > most:
                nearest, most = other, common
        return nearest, most

    def _remember(self, thread: Thread) -> None:
        self._forget(thread)
        self._threads[thread] = None
        self._fingerprints += len(thread)
        while len(self._threads) > _MOST_THREADS or self._fingerprints > _MOST_FINGERPRINTS:
            self._forget(next(iter(self._threads)))

    def _forget(self, thread: Thread) -> None:
        if thread in self._threads:
            del self._threads[thread]
            self._fingerprints -= len(thread)


def _fingerprint(message: Message) -> int:
    """Return the identity of a message; reasoning and outer spaces do not come back."""
    text = message.content.strip()
    shown = tuple(attachment.digest for attachment in message.attachments)
    return hash((message.role, text, message.tool_calls, message.tool_call_id, shown))


def _common(thread: Thread, other: Thread) -> int:
    for index, (a, b) in enumerate(zip(thread, other, strict=False)):
        if a != b:
            return index
    return min(len(thread), len(other))


def _unknown(
    messages: Sequence[Message], fingerprints: Sequence[int], known: Sequence[int]
) -> list[Message]:
    """Return the messages that are not among the *known*, which may have been moved or cut."""
    left = Counter(known)
    new = []
    for message, fingerprint in zip(messages, fingerprints, strict=True):
        if left[fingerprint]:
            left[fingerprint] -= 1
        else:
            new.append(message)
    return new


class Replies:
    """The answers of one trial that called tools, by the ids of their calls.

    Of these *most_kept* letters are remembered, the newest: nobody goes back further than that.
    """

    def __init__(self, *, most_kept: int) -> None:
        self._by_call: OrderedDict[str, Message] = OrderedDict()
        self._room = most_kept

    def given(self, completion: Completion) -> tuple[Completion, Message]:
        """Return an answer with ids that no other call of the trial has, and as a message."""
        calls = self._unique(completion.tool_calls)
        if calls != completion.tool_calls:
            completion = replace(completion, tool_calls=calls)
        reply = Message(
            role="assistant",
            content=completion.text,
            reasoning=completion.reasoning,
            tool_calls=calls,
        )
        for call in calls:
            self._by_call[call.id] = reply
            self._room -= message_size(reply)
        while self._room < 0 and self._by_call:
            _, oldest = self._by_call.popitem(last=False)
            self._room += message_size(oldest)
        return completion, reply

    def _unique(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        """Return the calls; servers that give no ids of their own count anew in every answer."""
        taken = set(self._by_call)
        unique = []
        for call in calls:
            key, again = call.id, 1
            while not key or key in taken:
                again += 1
                key = f"{call.id or 'call'}_{again}"
            taken.add(key)
            unique.append(call if key == call.id else replace(call, id=key))
        return tuple(unique)

    def recalled(self, message: Message) -> Message:
        """Return *message* as the model said it, where it is an answer of before."""
        if not message.tool_calls:
            return message
        reply = self._by_call.get(message.tool_calls[0].id)
        if reply is None:
            return message
        known = {call.id: call for call in reply.tool_calls}
        calls = tuple(_same(call, known.get(call.id)) for call in message.tool_calls)
        if calls == reply.tool_calls and message.content.strip() == reply.content.strip():
            return reply
        return replace(message, tool_calls=calls)


def _same(call: ToolCall, known: ToolCall | None) -> ToolCall:
    """Return the call as it was *known*, unless it means something else now."""
    if known is None or known.name != call.name or call == known:
        return call
    return known if arguments_object(call) == arguments_object(known) else call


# Adapters have tried again already. A program may do so as well, but not for ever.
_MOST_FAULTS = 3
_MOST_NOTES = 200

OVER = Problem(status=401, code="invalid_api_key", message="the trial of this key is over")


class TrialModelAccess:
    """Access to the model of one trial for every client that has its token."""

    def __init__(
        self,
        model: Model,
        journal: Journal,
        *,
        rollout: int,
        bounds: RequestBounds,
        on_close: Callable[["TrialModelAccess"], None],
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self.requests = 0
        self.usage = TrialUsage(bounds)
        self._model = model
        self._journal = journal
        self._rollout = rollout
        self._on_close = on_close
        self._conversation = ConversationRecorder(journal, most_kept=bounds.kept)
        self._replies = Replies(most_kept=bounds.kept)
        self._noted: set[str] = set()
        self._closed = False
        self._fault: TrialError | None = None
        self._faults = 0
        self._refusal: asyncio.Future[BakeoffError] = asyncio.get_running_loop().create_future()
        self._under_way: set[asyncio.Task[Completion]] = set()

    def start(self, model_request: ModelRequest, claim: Claim) -> "asyncio.Task[Completion]":
        """Send the request to the model; the task may be cancelled, and fails with the request."""
        if self._closed:  # while the request was still coming in
            raise UnansweredError(OVER)
        task = asyncio.get_running_loop().create_task(self._ask(model_request))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        claim.hold()  # a program may go; the model may not hear of it for a while
        task.add_done_callback(lambda _: claim.drop())
        return task

    def _ended(self, task: "asyncio.Task[Completion]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the program that asked has disconnected

    async def _ask(self, model_request: ModelRequest) -> Completion:
        if self._refusal.done():
            raise self._refusal.result()
        self.requests += 1
        for note in model_request.notes:
            self.note(f"not carried on: {note}")
        messages = tuple(map(self._replies.recalled, model_request.messages))
        thread = self._conversation.record_history(model_request.system, messages)
        try:
            with boundary(ProviderError, "gateway"):
                completion = await self._model.complete(
                    model_request.request(messages, rollout=self._rollout)
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
        self._conversation.record_reply(thread, reply)
        return completion

    def note(self, what: str) -> None:
        """Write a line into the log of the trial, once."""
        line = one_line(what, width=500)
        if line not in self._noted and len(self._noted) < _MOST_NOTES:
            self._noted.add(line)
            self._journal.write_log(f"gateway: {line}\n")

    def problem(self, error: BakeoffError) -> Problem:
        """Return the problem that a program gets for *error*.

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
        """Why the last request got no answer; None where it got one."""
        return self._fault

    def close(self) -> None:
        """Refuse new requests, and cancel those in progress."""
        self._closed = True
        self._on_close(self)
        for task in self._under_way:
            task.cancel()

    async def settled(self) -> None:
        """Wait until no request is in progress, so that the meter is complete."""
        while self._under_way:
            await asyncio.wait(self._under_way)
