"""Answers from a recording: no network, no key, and a word about where a request diverged."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.redact import Redactor
from bakeoff.core.errors import LimitReached, ProviderError, UsageError
from bakeoff.core.outcome import Completion, Request
from bakeoff.models.divergence import described, differences, distance
from bakeoff.models.recording import SESSIONS
from bakeoff.models.tape import Asker, Exchange, Question, encoded, exchange_in, key_of, question_of

_COMPARED = 50  # exchanges that are looked at to find the nearest one


class Recording:
    """Every exchange in a folder, by where it stands; bodies stay on the disk.

    Where several sessions hold the same exchange, the newest counts.
    """

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self.redactor = redactor
        self.folder = folder
        self.diverged = 0
        self._damaged = 0
        self._of_asker: dict[int, int] = {}
        self._of_anybody: dict[int, int] = {}
        self._neighbours: dict[str, list[int]] | None = None
        paths = sorted(folder.glob(SESSIONS))
        if not paths:
            raise UsageError(f"there is no recording in {folder}; make one with --record {folder}")
        self._files = [path.open("rb") for path in paths]
        for number in range(len(self._files)):
            self._index(number)

    def find(self, key: str, asker: Asker, nth: int) -> Exchange | None:
        """Return what *asker* got then, else what somebody else got for the same question."""
        place = self._of_asker.get(_number(key, asker.trial, asker.role, nth))
        if place is None:
            place = self._of_anybody.get(_number(key, nth))
        return None if place is None else self._read(place)

    def explain(self, question: Question, asker: Asker) -> str:
        """Say where *question* leaves what was recorded."""
        self.diverged += 1
        who = f" for the role {asker.role!r}" if asker.role else ""
        start = f"replay: diverged: no recorded answer of {asker.model.full_name}{who}"
        near = [self._read(place) for place in self._near(asker)]
        if not near:
            return f"{start}; no request to it is in {self.folder}"
        now = json.loads(encoded(question))
        nearest = min(near, key=lambda exchange: distance(exchange.question, now))
        found = differences(nearest.question, now)
        if not found:
            return f"{start}; it was asked the same more often than recorded"
        return (
            f"{start}; the nearest recorded request ({nearest.trial}) differs in {described(found)}"
        )

    def words(self) -> list[str]:
        """Return what a person should know at the end."""
        said = []
        if self._damaged:
            said.append(
                f"{self.folder}: damaged lines, cut by a crash perhaps, were left out: "
                f"{self._damaged}"
            )
        if self.diverged:
            said.append(
                f"replay: requests that diverged from {self.folder}, and are faults: "
                f"{self.diverged}"
            )
        return said

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            file.close()

    def _index(self, number: int) -> None:
        first: dict[int, int] = {}
        for place, exchange in self._lines(number):
            if exchange is None:
                self._damaged += 1
                continue
            own = _number(exchange.key, exchange.trial, exchange.role, exchange.nth)
            self._of_asker[own] = place
            first.setdefault(_number(exchange.key, exchange.nth), place)
        self._of_anybody |= first

    def _lines(self, number: int) -> Iterator[tuple[int, Exchange | None]]:
        """Yield where each line stands, and what is in it where that is whole."""
        offset, count = 0, len(self._files)
        self._files[number].seek(0)
        for line in self._files[number]:
            exchange = None
            with suppress(ValueError, RecursionError):
                exchange = exchange_in(line)
            if line.strip():
                yield offset * count + number, exchange
            offset += len(line)

    def _read(self, place: int) -> Exchange:
        offset, number = divmod(place, len(self._files))
        file = self._files[number]
        file.seek(offset)
        return exchange_in(file.readline())

    def _near(self, asker: Asker) -> list[int]:
        """Return what to compare with: the same asker's exchanges, else some of the same model."""
        if self._neighbours is None:
            self._neighbours = self._by_name()
        own = self._neighbours.get(_name(asker.trial, asker.role))
        return own or self._neighbours.get(_name(asker.model.full_name), [])

    def _by_name(self) -> dict[str, list[int]]:
        # only once something diverged: a replay that fits needs none of it
        found: dict[str, list[int]] = {}
        for number in range(len(self._files)):
            for place, exchange in self._lines(number):
                if exchange is None:
                    continue
                model = str(exchange.question.get("model"))
                for name in (_name(exchange.trial, exchange.role), _name(model)):
                    places = found.setdefault(name, [])
                    if len(places) < _COMPARED:
                        places.append(place)
        return found


def _number(*parts: str | int) -> int:
    """Return a small number for what is looked up: a million of them must fit."""
    return int(digest_bytes(repr(parts).encode("utf-8", "surrogatepass"))[:16], 16)


def _name(*parts: str) -> str:
    return "\0".join(parts)


class ReplayedModel:
    """A model as it answered one asker when it was recorded."""

    def __init__(self, asker: Asker, recording: Recording) -> None:
        self._asker = asker
        self._recording = recording
        self._asked: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        """Return the recorded answer, or raise what was raised then."""
        question = question_of(request, self._asker)
        key = key_of(question, self._recording.redactor)
        exchange = self._recording.find(key, self._asker, self._asked[key])
        self._asked[key] += 1
        if exchange is None:
            raise ProviderError(self._recording.explain(question, self._asker), billable=False)
        for _ in range(exchange.lost):
            if request.on_lost:
                request.on_lost()
        if exchange.completion is not None:
            return exchange.completion
        if exchange.refusal is not None:
            raise exchange.refusal.error()
        if exchange.cut is not None and exchange.cut.trouble and request.on_retry:
            request.on_retry(exchange.cut.trouble)
        raise LimitReached(_cut(exchange))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _cut(exchange: Exchange) -> str:
    after = f" after {exchange.cut.after_s:.1f} s" if exchange.cut else ""
    return f"as recorded, the request was cut{after}"
