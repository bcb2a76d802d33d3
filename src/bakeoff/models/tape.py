"""What was said between us and a model, as it is kept: one exchange, one line of JSON.

An exchange is found again by its key, by who asked, and by how often that asker had asked just
that before. The key is everything that decides the answer: the model's name, parameters and
settings, the messages, tools, schema and API, and the rollout. Where the server is, is not part
of it, so that a recording outlives a port.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass

import msgspec
from msgspec.structs import asdict, replace

from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.redact import Redactor
from bakeoff._lib.untrusted import well_formed
from bakeoff.core.candidate import ModelSpec
from bakeoff.core.errors import ProviderError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.values import Json

Question = Mapping[str, Json]

_KEPT_ASIDE = frozenset({"parameters", "rollout"})  # they stand there under names of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks: a trial, for its candidate or (`role`) on behalf of one of its roles."""

    model: ModelSpec
    trial: str
    rollout: int
    role: str = ""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the endpoint instead of an answer."""

    message: str
    transient: bool = False
    billable: bool = True
    status: int | None = None

    @classmethod
    def of(cls, error: ProviderError) -> "Refusal":
        """Return *error* as data."""
        return cls(
            message=str(error),
            transient=error.transient,
            billable=error.billable,
            status=error.status,
        )

    def error(self) -> ProviderError:
        """Return the error that this is the data of."""
        return ProviderError(
            self.message, transient=self.transient, billable=self.billable, status=self.status
        )


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """No answer: whoever asked stopped waiting, and `trouble` says why it took so long."""

    after_s: float
    trouble: str | None = None


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A question, what it is found by, and how it ended: one of the last three is there.

    `nth` is how often the same asker had asked just that before, `lost` how many tries may have
    been billed though they brought nothing.
    """

    key: str
    trial: str
    role: str = ""
    nth: int = 0
    lost: int = 0
    question: dict[str, Json]
    completion: Completion | None = None
    refusal: Refusal | None = None
    cut: Cut | None = None


def question_of(request: Request, asker: Asker) -> Question:
    """Return *request* as data: what decides its answer, and nothing about where it is sent."""
    spec = asker.model
    return {
        "model": spec.full_name,
        "rollout": asker.rollout,
        "sample": request.rollout,
        "parameters": {**request.parameters, **spec.parameters},
        "settings": spec.identity()["settings"],
        **{name: part for name, part in lean(request).items() if name not in _KEPT_ASIDE},
    }


def key_of(question: Question, redactor: Redactor) -> str:
    """Return the key of *question*; a secret in it counts as what is kept of it."""
    return digest_bytes(redactor.data(encoded(question, sort_keys=True)))


def ended(begun: Exchange, how: Completion | Refusal | Cut, *, lost: int = 0) -> Exchange:
    """Return *begun* with its end."""
    match how:
        case Completion():
            return replace(begun, lost=lost, completion=how)
        case Refusal():
            return replace(begun, lost=lost, refusal=how)
        case Cut():
            return replace(begun, lost=lost, cut=how)


def line_of(exchange: Exchange, redactor: Redactor) -> bytes:
    """Return *exchange* as one line without secrets."""
    return redactor.data(encoded(exchange)) + b"\n"


def exchange_in(line: bytes) -> Exchange:
    """Return the exchange in *line*, or raise ValueError where there is no whole one."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        # somebody's own model may have said NaN, which only the lenient reader takes
        return msgspec.convert(json.loads(line), Exchange)


def encoded(value: object, *, sort_keys: bool = False) -> bytes:
    """Return *value* as compact JSON; what is no plain data is kept as its text."""
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys, default=_plain
    )
    return well_formed(text).encode()


def lean(noun: object) -> dict[str, Json]:
    """Return a dataclass as data, without the fields that say nothing beyond their default."""
    return {
        each.name: getattr(noun, each.name)
        for each in fields(noun)  # type: ignore[arg-type]  # whoever calls knows it is one
        if each.compare and getattr(noun, each.name) != _default(each)
    }


def _default(field: "Field[object]") -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return {k: v for k, v in asdict(value).items() if v is not None}
    if is_dataclass(value):
        return lean(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


_decoder = msgspec.json.Decoder(Exchange)
