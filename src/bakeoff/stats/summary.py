"""The summary of a run, of a candidate and of a category."""

from collections.abc import Mapping
from dataclasses import dataclass

from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.stats.estimate import Estimate
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.variance import VarianceSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Every planned trial is in exactly one of them."""

    scored: int = 0
    unchecked: int = 0
    limited: int = 0
    model_error: int = 0
    infrastructure_fault: int = 0
    cancelled: int = 0
    not_run: int = 0
    not_needed: int = 0

    @property
    def planned(self) -> int:
        """All of them together."""
        return (
            self.scored
            + self.unchecked
            + self.limited
            + self.model_error
            + self.infrastructure_fault
            + self.cancelled
            + self.not_run
            + self.not_needed
        )

    @property
    def ran(self) -> int:
        """Those that came to an end, whatever it was."""
        return self.planned - self.cancelled - self.not_run - self.not_needed

    @property
    def faults(self) -> int:
        """What broke, on either side."""
        return self.model_error + self.infrastructure_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRates:
    """pass@k and pass^k for one k; None where some task has fewer rollouts."""

    k: int
    pass_at: float | None
    pass_hat: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Totals over the trials that report them; None is unknown."""

    input: int | None
    output: int | None
    output_per_s: float | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds; of the requests to the model, not of queues or scoring."""

    p50_s: float | None
    p95_s: float | None
    first_token_p50_s: float | None
    first_token_p95_s: float | None
    load_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What is known of one candidate, in one category or in all (None)."""

    category: str | None
    buckets: Buckets
    score: Estimate
    score_bounds: tuple[float, float] | None
    coverage: float
    passed: int
    passes: tuple[PassRates, ...]
    tokens: Tokens
    latency: Latency
    extra_attempts: int
    flags: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSummary:
    """One candidate: everything, then by category, and why its score is unsure."""

    candidate: str
    scripted: bool
    total: Group
    categories: tuple[Group, ...]
    variance: VarianceSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a run; `billed` is its total cost, including roles, retries and failed attempts.

    `pairwise` compares the candidates on the tasks they share; None where there is only one. Of the
    `notes`, `warnings` are those that put the result in doubt.
    `pass_rule` says what it takes to pass.
    """

    run: str
    tasks: int
    rollouts: int
    buckets: Buckets
    candidates: tuple[CandidateSummary, ...]
    notes: tuple[str, ...]
    billed: Bill = NO_BILL
    pairwise: Pairwise | None = None
    warnings: tuple[str, ...] = ()
    pass_rule: str = ""
