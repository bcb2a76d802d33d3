"""Where models are asked, and how much of it."""

from dataclasses import dataclass
from typing import TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointLimits:
    """What may go to an endpoint at most; None is no limit. `adaptive` finds how many at once."""

    max_concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    adaptive: bool = True

    def stricter(self, other: "EndpointLimits") -> "EndpointLimits":
        """Return what both allow."""
        return EndpointLimits(
            max_concurrency=_least(self.max_concurrency, other.max_concurrency),
            rpm=_least(self.rpm, other.rpm),
            tpm=_least(self.tpm, other.tpm),
            adaptive=self.adaptive and other.adaptive,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an endpoint that is down is waited for, and how often it is tried meanwhile.

    An endpoint at which nothing has succeeded is given up after so many `equal_rejections` (faults
    that will not pass), or when nobody was reached there for `unreached_s`; not with `keep_going`.
    Where it does not wait (`waits`), an outage is not told apart: every request spends its tries.
    """

    waits: bool = True
    give_up_after_s: float = 900.0
    keep_going: bool = False
    equal_rejections: int = 5
    unreached_s: float = 10.0
    first_probe_s: float = 0.1
    longest_probe_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointWait:
    """Why requests wait at an endpoint at this moment.

    `next_s` is when the next one may go, None where that depends on one under way; `down_s` is for
    how long the endpoint has been down, with the `reason`, and `given_up_in_s` says for how much
    longer that is waited for.
    """

    endpoint: str
    waiting: int
    under_way: int
    at_once: int | None = None
    next_s: float | None = None
    down_s: float | None = None
    given_up_in_s: float = 0.0
    reason: str = ""


def _least(a: N | None, b: N | None) -> N | None:
    return b if a is None else a if b is None else min(a, b)
