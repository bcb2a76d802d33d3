"""A loopback server of OpenAI's chat API that refuses, fails, queues or goes away, by a rule.

Only a benchmark or a test may use it: it reads Content-Length and nothing else of a request.
`GET` on any path returns what it has counted, as JSON.
"""

import asyncio
import json
import random
import sys
import time
import urllib.request
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field

import uvloop

from perf.fast_server import REPLY, Connection, serve, server_process

_CUT = REPLY[: len(REPLY) // 2]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a server does. Shares are of requests, by chance from `seed`.

    `refused`, `failed`, `reset` and `cut` are shares: HTTP 429, HTTP 500, a reset connection, half
    a body. `per_second` is a sliding window. More than `places` at once are refused, more than
    `workers` wait. While `shut_s` has not passed since the first request, everything is refused.
    """

    latency_s: float = 0.05
    refused: float = 0.0
    failed: float = 0.0
    reset: float = 0.0
    cut: float = 0.0
    retry_after_s: float | None = None
    per_second: int | None = None
    places: int | None = None
    workers: int | None = None
    shut_s: float = 0.0
    seed: int = 1


@dataclass
class _State:
    rule: Rule
    chance: random.Random
    window: deque[float] = field(default_factory=deque)
    under_way: int = 0
    waiting: deque["_Connection"] = field(default_factory=deque)
    answered: int = 0
    refused: int = 0
    first_at: float = 0.0
    first_answer_at: float = 0.0
    last_answer_at: float = 0.0

    def refuses(self) -> bool:
        rule, now = self.rule, time.monotonic()
        self.first_at = self.first_at or now
        if now < self.first_at + rule.shut_s:
            return True
        if rule.places is not None and self.under_way >= rule.places:
            return True
        if rule.per_second is not None:
            while self.window and self.window[0] <= now - 1:
                self.window.popleft()
            if len(self.window) >= rule.per_second:
                return True
            self.window.append(now)
        return False

    def counts(self) -> dict[str, float]:
        return {
            "answered": self.answered,
            "refused": self.refused,
            "first_answer_s": self.first_answer_at - self.first_at,
            "answers_s": self.last_answer_at - self.first_answer_at,
        }


class _Connection(Connection):
    """Answers by the rule; a client has one request under way on each connection."""

    state: _State

    def take(self, request: bytes) -> None:
        """Count the request, or return the counts."""
        if request.startswith(b"GET"):
            body = json.dumps(self.state.counts()).encode()
            self.transport.write(_head("200 OK", body))
        else:
            self._take()

    def _take(self) -> None:
        state = self.state
        rule, number = state.rule, state.chance.random()
        if state.refuses() or number < rule.refused:
            return self._refuse()
        if number < rule.refused + rule.reset:
            return self.transport.abort()
        if rule.workers is not None and state.under_way >= rule.workers:
            state.waiting.append(self)
            return None
        state.under_way += 1
        return self.work(number - rule.refused - rule.reset)

    def work(self, number: float) -> None:
        """Answer after a while, or fail where *number* falls into a share."""
        rule, loop = self.state.rule, asyncio.get_running_loop()
        kind = "500" if number < rule.failed else "cut" if number < rule.failed + rule.cut else ""
        loop.call_later(rule.latency_s, self._answer, kind)

    def _answer(self, kind: str) -> None:
        state = self.state
        if state.waiting:
            state.waiting.popleft().work(1.0)
        else:
            state.under_way -= 1
        if kind == "500":
            self.transport.write(_head("500 Internal Server Error", b'{"error":"oops"}'))
        elif kind == "cut":
            self.transport.write(_CUT)
            self.transport.close()
        else:
            state.answered += 1
            state.last_answer_at = time.monotonic()
            state.first_answer_at = state.first_answer_at or state.last_answer_at
            self.transport.write(REPLY)

    def _refuse(self) -> None:
        self.state.refused += 1
        after_s = self.state.rule.retry_after_s
        header = b"" if after_s is None else b"Retry-After: %g\r\n" % after_s
        self.transport.write(_head("429 Too Many Requests", b'{"error":"slow down"}', header))


def _head(status: str, body: bytes, header: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    start = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n" % status.encode()
    return start + header + length + body


async def _serve(rule: Rule) -> None:
    _Connection.state = _State(rule, random.Random(rule.seed))
    await serve(_Connection)


def serving(rule: Rule) -> AbstractContextManager[str]:
    """Start a server with this *rule* in a process of its own and give its base URL."""
    return server_process("perf.limit_server", json.dumps(asdict(rule)))


def counts(url: str) -> dict[str, float]:
    """Return what the server at *url* has counted."""
    with urllib.request.urlopen(url) as reply:
        answer: dict[str, float] = json.loads(reply.read())
    return answer


if __name__ == "__main__":
    uvloop.run(_serve(Rule(**json.loads(sys.argv[1]))))
