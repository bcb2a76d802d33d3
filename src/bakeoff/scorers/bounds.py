"""Scorers that hold an answer to a bound: latency, cost, length."""

import math
from dataclasses import dataclass
from typing import Literal

from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.outcome import Outcome, Spent
from bakeoff.core.ports import Context
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.scorers.text import word_count


@dataclass(frozen=True, kw_only=True)
class LatencyBound:
    """1 where the model took `max_s` seconds at most, and `first_token_max_s` to its first token.

    The time is that of all requests of the attempt, without queues and retries. The first token is
    known where the answer was streamed.
    """

    max_s: float | None = None
    first_token_max_s: float | None = None

    def __post_init__(self) -> None:
        if self.max_s is None and self.first_token_max_s is None:
            raise UsageError("scorer 'latency': set `max_s`, `first_token_max_s` or both")
        _over_zero("latency", max_s=self.max_s, first_token_max_s=self.first_token_max_s)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Compare what was measured."""
        spent = _spent(context, "latency")
        late = []
        if self.max_s is not None and spent.model_s > self.max_s:
            late.append(f"it took {spent.model_s:.2f} s, and may take {self.max_s:g} s")
        if self.first_token_max_s is not None:
            first = spent.first_token_s
            if first is None:
                raise ScorerError(
                    "scorer 'latency': the time to the first token is not known; "
                    'set "stream": true in `parameters`, or leave out `first_token_max_s`'
                )
            if first > self.first_token_max_s:
                late.append(
                    f"the first token took {first:.2f} s, and may take {self.first_token_max_s:g} s"
                )
        return Score(
            scorer="latency",
            value=float(not late),
            explanation="; ".join(late) or None,
            details={"model_s": spent.model_s, "first_token_s": spent.first_token_s},
        )


@dataclass(frozen=True, kw_only=True)
class CostBound:
    """1 where the candidate's requests of the attempt cost `max_usd` dollars at most.

    A cost that is not known is a fault, not a verdict.
    """

    max_usd: float

    def __post_init__(self) -> None:
        _over_zero("cost", max_usd=self.max_usd)

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Compare what was billed."""
        cost = _spent(context, "cost").usage.cost_usd
        if cost is None:
            raise ScorerError(
                "scorer 'cost': what the answer cost is not known; give the model its prices"
            )
        right = cost <= self.max_usd
        return Score(
            scorer="cost",
            value=float(right),
            explanation=None if right else f"it cost ${cost:.6g}, and may cost ${self.max_usd:g}",
            details={"cost_usd": cost},
        )


@dataclass(frozen=True, kw_only=True)
class LengthBound:
    """1 where the answer has from `min` to `max` words, characters or tokens.

    Tokens are the output tokens that the endpoint reports for the attempt, with reasoning where it
    counts that; unknown ones are a fault, not a verdict.
    """

    unit: Literal["words", "characters", "tokens"] = "words"
    min: int = 0
    max: int | None = None

    def __post_init__(self) -> None:
        if not self.min and self.max is None:
            raise UsageError("scorer 'length': set `min`, `max` or both")
        if self.min < 0 or (self.max is not None and self.max < self.min):
            raise UsageError(
                f"scorer 'length': `min` is {self.min} and `max` is {self.max}; "
                "use 0 or more, and a `max` that is not below `min`"
            )

    async def score(self, task: Task, outcome: Outcome, context: Context) -> Score:  # noqa: ARG002
        """Count."""
        count = self._count(outcome.answer, context)
        right = self.min <= count and (self.max is None or count <= self.max)
        wanted = f"at least {self.min}" if self.max is None else f"{self.min} to {self.max}"
        return Score(
            scorer="length",
            value=float(right),
            explanation=None if right else f"{count} {self.unit}, and {wanted} were expected",
            details={self.unit: count},
        )

    def _count(self, answer: str, context: Context) -> int:
        if self.unit == "words":
            return word_count(answer)
        if self.unit == "characters":
            return len(answer)
        tokens = _spent(context, "length").usage.output_tokens
        if tokens is None:
            raise ScorerError(
                "scorer 'length': the endpoint reports no output tokens; count words or characters"
            )
        return tokens


def _spent(context: Context, scorer: str) -> Spent:
    if context.spent is None:
        raise ScorerError(f"scorer {scorer!r}: it is not known what the answer took")
    return context.spent


def _over_zero(scorer: str, **bounds: float | None) -> None:
    for name, value in bounds.items():
        if value is not None and (not math.isfinite(value) or value <= 0):
            raise UsageError(f"scorer {scorer!r}: `{name}` is {value}; use a number over 0")
