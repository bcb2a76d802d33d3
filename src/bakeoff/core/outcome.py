"""What was asked of a model, what came back, what an agent left, and its journal meanwhile."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum

from bakeoff._lib.value_object import value_object
from bakeoff.core.task import Message, Task, ToolCall, calls_as_json, task_of_turn
from bakeoff.core.values import Json
from bakeoff.core.workspace import Change


@value_object
class Usage:
    """Tokens and money; None is unknown, and unknown plus anything is unknown."""

    input_tokens: int | None = 0
    output_tokens: int | None = 0
    reasoning_tokens: int | None = 0
    cached_tokens: int | None = 0
    cost_usd: float | None = None

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            cost_usd=None
            if self.cost_usd is None or other.cost_usd is None
            else self.cost_usd + other.cost_usd,
        )


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _known_sum(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else a + b


def _both(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*a, *b))) if b else a


UNKNOWN_USAGE = Usage(
    input_tokens=None, output_tokens=None, reasoning_tokens=None, cached_tokens=None
)


@value_object
class Tool:
    """Something a model may ask to be run; `parameters` is a JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Json] = field(default_factory=dict)


_ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_CHARACTERS_PER_TOKEN = 4
_OF_A_PICTURE = 1_000.0  # tokens


def _about_tokens(message: Message) -> float:
    attached = sum(
        _OF_A_PICTURE if a.is_image else a.size / _CHARACTERS_PER_TOKEN for a in message.attachments
    )
    return len(message.content) / _CHARACTERS_PER_TOKEN + attached


class Wait(StrEnum):
    """What a trial waits for while it works on nothing."""

    ENDPOINT = "endpoint"
    RETRY = "retry"
    DISK = "disk"


@value_object
class Request:
    """One question to a model.

    `prompt` is what a completions API is sent instead of the messages; None is their own text.
    `rollout` lets a deterministic model vary its answers. `on_retry` hears why a try failed;
    `on_lost` hears, before another goes out, of one that may be billed though it brought nothing.
    `on_outage` hears when it begins to wait for an endpoint that is down, and when that is over.
    `on_wait` hears what it waits for before it is sent, and None when that is over.
    `begun` is whether its attempt had an answer already: then it is sent even after a stop.
    """

    messages: tuple[Message, ...]
    parameters: Mapping[str, Json] = field(default_factory=dict)
    api_type: str | None = None
    schema: Mapping[str, Json] | None = None
    tools: tuple[Tool, ...] = ()
    rollout: int = 0
    prompt: str | None = None
    on_retry: Callable[[str], None] | None = field(default=None, repr=False, compare=False)
    on_lost: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, compare=False)
    on_outage: Callable[[bool], None] | None = field(default=None, repr=False, compare=False)
    on_wait: Callable[[Wait | None], None] | None = field(default=None, repr=False, compare=False)
    begun: bool = field(default=False, repr=False, compare=False)

    @property
    def question(self) -> object:
        """What is asked: equal for equal questions."""
        return self.messages

    @property
    def prompt_tokens(self) -> float:
        """About how many tokens it is to read."""
        return sum(map(_about_tokens, self.messages))

    @property
    def answer_limit(self) -> float | None:
        """How many tokens its answer may have; None where it does not say."""
        limits = (self.parameters.get(name) for name in _ANSWER_LIMITS)
        return next((float(n) for n in limits if isinstance(n, int) and n > 0), None)

    def observed_by(
        self,
        on_retry: Callable[[str], None],
        on_lost: Callable[[], Awaitable[None]],
        *,
        on_outage: Callable[[bool], None] | None = None,
        on_wait: Callable[[Wait | None], None] | None = None,
        begun: bool = False,
    ) -> "Request":
        """Return the same request with callbacks for its tries."""
        # spelled out: `replace` looks up every field at run time, and this runs for each request
        return Request(
            messages=self.messages,
            parameters=self.parameters,
            api_type=self.api_type,
            schema=self.schema,
            tools=self.tools,
            rollout=self.rollout,
            prompt=self.prompt,
            on_retry=on_retry,
            on_lost=on_lost,
            on_outage=on_outage,
            on_wait=on_wait,
            begun=begun,
        )


@value_object
class Completion:
    """One answer of a model.

    `elapsed_s` is generation as the endpoint was asked for it; `load_s` is what of it went into
    loading the model. `flags` are things a reader of the result should know, such as `truncated`.
    """

    text: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str | None = None
    model: str | None = None
    usage: Usage = UNKNOWN_USAGE
    elapsed_s: float = 0.0
    first_token_s: float | None = None
    load_s: float | None = None
    retries: int = 0
    flags: tuple[str, ...] = ()
    raw: Json = None

    @property
    def answer(self) -> str:
        """The text; where a model wrote none and called tools, the calls as JSON."""
        return calls_as_json(self.tool_calls) if self.tool_calls and not self.text else self.text

    def timed(self, elapsed_s: float, raw: Json = None) -> "Completion":
        """Return the same answer with how long it took, and what came over the wire."""
        return Completion(
            text=self.text,
            reasoning=self.reasoning,
            tool_calls=self.tool_calls,
            stop_reason=self.stop_reason,
            model=self.model,
            usage=self.usage,
            elapsed_s=elapsed_s,
            first_token_s=self.first_token_s,
            load_s=self.load_s,
            retries=self.retries,
            flags=self.flags,
            raw=raw,
        )


@value_object
class Spent:
    """What one party (the candidate, or a role) used up during an attempt.

    `requests` were answered; `cut` are those that a limit cut off while the endpoint was at them.
    """

    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    model_s: float = 0.0
    first_token_s: float | None = None
    load_s: float | None = None
    retries: int = 0
    flags: tuple[str, ...] = ()
    cut: int = 0

    @property
    def sent(self) -> int:
        """How many requests were made."""
        return self.requests + self.cut

    def plus(self, completion: Completion) -> "Spent":
        """Return this with one more completion booked."""
        first = self.first_token_s if self.requests else completion.first_token_s
        return Spent(
            requests=self.requests + 1,
            usage=completion.usage if not self.requests else self.usage + completion.usage,
            model_s=self.model_s + completion.elapsed_s,
            first_token_s=first,
            load_s=_known_sum(self.load_s, completion.load_s),
            retries=self.retries + completion.retries,
            flags=_both(self.flags, completion.flags),
            cut=self.cut,
        )


@value_object
class Outcome:
    """What the agent left. The transcript goes on from the task's own messages.

    In a workspace, `change` is what it changed there, `log` what the agent's program printed, and
    `interventions` how often the instructor stepped in. Where the change was too large to be taken,
    `change_refused` says so, and the work scores 0. What is `unfinished` was broken off by a
    fault or the budget: it can be read, and never scored.
    """

    answer: str
    transcript: tuple[Message, ...] = ()
    stop_reason: str | None = None
    model: str | None = None
    raw: Json = None
    notes: Mapping[str, Json] = field(default_factory=dict)
    change: Change | None = None
    log: str | None = None
    interventions: int = 0
    unfinished: bool = False
    change_refused: str | None = None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Every tool call of the transcript, in order."""
        return tuple(call for message in self.transcript for call in message.tool_calls)


_MOST_LOG = 2_000_000
_CUT = "\n[... the log is longer than what is kept ...]\n"


class Journal:
    """The transcript and the log of one attempt, written by its agent and by the gateway.

    *on_log* is called with each text as it is logged; *on_turn* with the number of a turn when it
    starts, and again when it ends.
    """

    def __init__(
        self,
        on_log: Callable[[str], None] | None = None,
        on_turn: Callable[[int, bool], None] | None = None,
    ) -> None:
        self._on_log = on_log
        self._on_turn = on_turn
        self.messages: list[Message] = []
        self.interventions = 0
        self.partial_outcome: Callable[[], Outcome] | None = None  # the outcome if interrupted now
        self._log: list[str] = []
        self._room_left = _MOST_LOG

    def add_messages(self, *messages: Message) -> None:
        """Append to the transcript."""
        self.messages.extend(messages)

    def write_log(self, text: str) -> None:
        """Append to the log; text beyond the size limit is dropped, with a note."""
        if not text:
            return
        if self._on_log is not None:
            self._on_log(text)
        if self._room_left <= 0:
            return
        self._log.append(text[: self._room_left])
        self._room_left -= len(text)
        if self._room_left <= 0:
            self._log.append(_CUT)

    def turn(self, number: int, *, over: bool) -> None:
        """Report that a turn of a dialogue starts or ends."""
        if self._on_turn is not None:
            self._on_turn(number, over)

    @property
    def log(self) -> str | None:
        """Return the log, or None where nothing was printed."""
        return "".join(self._log) or None


# --- the outcome of a scripted conversation, turn by turn ----------------------------------------


def turn_as_trial(task: Task, outcome: Outcome, number: int) -> tuple[Task, Outcome] | None:
    """Return turn *number* of *task* and its part of *outcome*; None where it was never answered."""
    answers = _split(outcome.transcript)
    if number > len(answers) or not answers[number - 1]:
        return None
    history = [
        message
        for n, answer in enumerate(answers[: number - 1], 2)
        for message in (*answer, _question(task, n))
    ]
    part = answers[number - 1]
    return task_of_turn(task, number, history), replace(
        outcome, answer=answer_of(part), transcript=tuple(part)
    )


def answer_of(messages: Sequence[Message]) -> str:
    """Return the answer that a turn ended with: the last text, else the last calls as JSON."""
    last = next((m for m in reversed(messages) if m.role == "assistant"), None)
    if last is None:
        return ""
    return calls_as_json(last.tool_calls) if last.tool_calls and not last.content else last.content


def _question(task: Task, number: int) -> Message:
    return task.turns[number - 1].message()


def _split(transcript: Sequence[Message]) -> list[list[Message]]:
    """Return the transcript in turns; each but the first began with a message of the user."""
    turns: list[list[Message]] = [[]]
    for message in transcript:
        if message.role == "user":
            turns.append([])
        else:
            turns[-1].append(message)
    return turns
