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


def _least(a: N | None, b: N | None) -> N | None:
    return b if a is None else a if b is None else min(a, b)
