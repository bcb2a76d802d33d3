"""What a run and its workers say to each other, whatever carries it: frames of messages.

A worker runs attempts; everything that many of them share is asked of the run: turns at endpoints and
the budget. All messages of one turn of the event loop go in one frame, and frames arrive in order.
Nothing in them is pickled, and no secret is in them: a worker reads its own environment.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from bakeoff.core.budget import Bill
from bakeoff.core.candidate import Candidate, Conditions
from bakeoff.core.outcome import Spent
from bakeoff.core.workspace import SandboxSpec
from bakeoff.models.limits.rate_limit_headers import RateLimitHeaders

VERSION = 1
"""Of the messages below: a run and its workers must have the same."""

LARGEST_FRAME = 512 << 20  # bytes


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker builds its parts from; secrets are named, and read where it runs.

    `folder` is that of the run, `path` and `folders` where Python is found, `sandbox` the one that was
    chosen, None where no task has files. `fetched` names the files of the run for a worker on another
    machine, which asks for them; None is that it has the folder of the run itself. `heartbeat_s` is how often a
    worker says that it is there.
    """

    run: str
    folder: str
    path: tuple[str, ...]
    folders: tuple[str, ...]
    env_file: str | None
    prices: str | None
    candidates: tuple[Candidate, ...]
    conditions: Conditions
    capped: bool
    sandbox: SandboxSpec | None
    has_attachments: bool
    record: str | None
    replay: str | None
    cache: str | None
    fetched: tuple[str, ...] | None = None
    heartbeat_s: float = 1.0


class _Message(msgspec.Struct, array_like=True, gc=False):
    """A message; its fields go without their names."""


# --- from the run to a worker ---------------------------------------------------------------------


class Start(_Message, tag=1):
    """What to build."""

    settings: RunSettings


class Lease(_Message, tag=2):
    """An attempt to run: of which task (its JSON where it was not sent before) and which candidate.

    `before` is the attempt that it follows.
    """

    job: int
    task: str
    body: bytes | None
    candidate: int
    rollout: int
    number: int
    before: bytes | None


class Cancel(_Message, tag=3):
    """The attempt is not needed any more."""

    job: int


class Granted(_Message, tag=4):
    """It is the turn of a request: since when, by the run's clock, and whether turns have a rate."""

    call: int
    at: float
    spaced: bool


class Queued(_Message, tag=5):
    """A request waits for its turn; `outage` is whether for an endpoint that is down."""

    call: int
    why: str
    outage: bool


class Refused(_Message, tag=6):
    """A request must not be sent; `kind` is "stop", "budget" or "usage"."""

    call: int
    why: str
    kind: str


class Judged(_Message, tag=7):
    """What the failure of a request means: whether its endpoint is down, and whether it was a probe."""

    call: int
    outage: bool
    probe: bool


class Held(_Message, tag=8):
    """A reservation is made, or a wait is over."""

    call: int


class Stopping(_Message, tag=9):
    """The run starts nothing new."""


class End(_Message, tag=10):
    """There is nothing more to do."""


class Fetched(_Message, tag=11):
    """A part of a file of so many bytes, or of an archive of a folder; `why` is why there is none."""

    call: int
    data: bytes | None
    size: int
    is_folder: bool = False
    why: str = ""


class Unkept(_Message, tag=12):
    """What was to be kept could not be."""

    call: int
    why: str


# --- from a worker to the run ---------------------------------------------------------------------


class Hello(_Message, tag=20):
    """The worker is there."""

    version: int
    bakeoff: str


class WorkerReady(_Message, tag=21):
    """Everything is built."""


class Broken(_Message, tag=22):
    """It cannot be built; `usage` is whether that is a person's mistake."""

    why: str
    usage: bool


class Alive(_Message, tag=23):
    """The event loop of the worker goes round."""


class TurnRequest(_Message, tag=24):
    """A request wants its turn at a limiter."""

    call: int
    limiter: str
    begun: bool
    prompt_tokens: float
    answer_limit: float | None


class Answered(_Message, tag=25):
    """A request was answered, with so many tokens."""

    call: int
    input_tokens: int | None
    output_tokens: int | None


class Failed(_Message, tag=26):
    """A request failed; `kind` is that of the error, `question` a number for what was asked."""

    call: int
    kind: str
    why: str
    question: int
    transient: bool = False
    billable: bool = True
    status: int | None = None
    retry_after_s: float | None = None
    overload: str | None = None


class Dropped(_Message, tag=27):
    """A request was not sent, or was cut off."""

    call: int


class Headers(_Message, tag=28):
    """What an endpoint said of its limits beside an answer."""

    limiter: str
    limits: tuple[RateLimitHeaders, ...]


class BackOff(_Message, tag=29):
    """A request waits before it is tried again."""

    call: int
    limiter: str
    seconds: float
    begun: bool


class Hold(_Message, tag=30):
    """A request reserves what it may cost; `now` is whether it cannot wait for others."""

    call: int
    job: int
    usd: float | None
    tokens: int | None
    now: bool


class Settled(_Message, tag=31):
    """The cost of a request is known, and its reservation is released."""

    job: int
    usd: float | None
    tokens: int | None
    bill: Bill


class Billed(_Message, tag=32):
    """A try of a request of an attempt was billed."""

    job: int
    bill: Bill


class Booked(_Message, tag=39):
    """An attempt goes on with what one before it had spent, which the budget does not know of."""

    job: int
    bill: Bill


class Waits(_Message, tag=33):
    """What a trial waits for; None is that it works again."""

    job: int
    wait: str | None


class Output(_Message, tag=34):
    """A program of a trial printed something."""

    job: int
    text: str


class TurnEvent(_Message, tag=35):
    """A turn of a dialogue starts, or is over."""

    job: int
    number: int
    over: bool


class SpentSoFar(_Message, tag=36):
    """What the candidate of a trial that goes on has used up."""

    job: int
    spent: Spent


class Ended(_Message, tag=37):
    """An attempt ended; without its JSON where it was cancelled.

    `refused` is why one of its requests was not sent, `begun` whether any was answered.
    """

    job: int
    attempt: bytes | None
    begun: bool
    refused: str | None
    at_budget: bool


class Crashed(_Message, tag=40):
    """Not the attempt but the run failed: its folder cannot be written, or there is a mistake of ours.

    `kind` is "ledger", "usage" or "".
    """

    job: int
    kind: str
    why: str


class Fetch(_Message, tag=41):
    """A file of the run is needed, from this byte on."""

    call: int
    name: str
    offset: int


class Lookup(_Message, tag=42):
    """The cached answer with this key is needed; without a key, the saved steps of a trial."""

    call: int
    job: int
    key: str


class KeepAttachment(_Message, tag=43):
    """A picture or a file of a transcript."""

    name: str | None
    data: bytes


class KeepStep(_Message, tag=44):
    """A step of a trial, as JSON, to be saved before it goes on."""

    call: int
    job: int
    at: int
    entry: bytes


class KeepExchange(_Message, tag=45):
    """A line of a recording."""

    line: bytes


class KeepAnswer(_Message, tag=46):
    """An answer for the cache, as JSON."""

    key: str
    model: str
    completion: bytes


class Closed(_Message, tag=38):
    """The last word of a worker: what a person should read, and what was counted for a recording."""

    notes: tuple[str, ...]
    tallies: tuple[dict[str, int], ...]


ToWorker = (
    Start
    | Lease
    | Cancel
    | Granted
    | Queued
    | Refused
    | Judged
    | Held
    | Stopping
    | End
    | Fetched
    | Unkept
)
FromWorker = (
    Hello
    | WorkerReady
    | Broken
    | Alive
    | TurnRequest
    | Answered
    | Failed
    | Dropped
    | Headers
    | BackOff
    | Hold
    | Settled
    | Billed
    | Booked
    | Waits
    | Output
    | TurnEvent
    | SpentSoFar
    | Ended
    | Crashed
    | Fetch
    | Lookup
    | KeepAttachment
    | KeepStep
    | KeepExchange
    | KeepAnswer
    | Closed
)

messages_to_worker: Callable[[bytes], list[ToWorker]] = msgspec.msgpack.Decoder(
    list[ToWorker]
).decode
messages_from_worker: Callable[[bytes], list[FromWorker]] = msgspec.msgpack.Decoder(
    list[FromWorker]
).decode
encode_frame: Callable[[list[Any]], bytes] = msgspec.msgpack.Encoder().encode
