"""The remarks of a summary: missing trials, cost, and how each score was computed."""

from collections.abc import Iterator

from bakeoff._lib.sanitize import one_line
from bakeoff.core.budget import Bill
from bakeoff.reports.wording.phrases import counted
from bakeoff.stats.pairwise import BY_SCORE
from bakeoff.stats.summary import Buckets, CandidateSummary, Summary
from bakeoff.stats.variance import VarianceSplit

_HARDLY = 0.05  # of a standard error: less is no reason to pay for rollouts
_TWICE_THE_TASKS = 0.5**0.5  # of the standard error is left, whatever it comes from
_MOST_NAMES = 5


def more_rollouts(split: VarianceSplit) -> str | None:
    """Return the effect of more rollouts on the standard error; None if it is unknown."""
    if split.icc is None or split.rollouts is None:
        return None
    now = split.se(tasks=split.tasks, rollouts=split.rollouts)
    if now is None or split.se_twice_rollouts is None:
        return None
    if split.se_any_rollouts is not None and 1 - split.se_any_rollouts / now < _HARDLY:
        return "more rollouts would hardly help: the variance is between tasks"
    return (
        f"twice the rollouts would shrink the error by {_by(split.se_twice_rollouts / now)}, "
        f"twice the tasks by {_by(_TWICE_THE_TASKS)}"
    )


def _by(left: float) -> str:
    return f"{100 * (1 - left):.0f} %"


def in_order(summary: Summary) -> list[CandidateSummary]:
    """Return the candidates by rank; those without a rank come last."""
    ranked = summary.pairwise.ranks if summary.pairwise else ()
    rank = {candidate.candidate: candidate.rank for candidate in ranked}
    last = len(summary.candidates) + 1
    return sorted(summary.candidates, key=lambda candidate: rank.get(candidate.candidate, last))


def order(summary: Summary) -> Iterator[str]:
    """Yield what the rows are sorted by, if it is not the score."""
    pairwise = summary.pairwise
    if pairwise is not None and pairwise.ordered_by != BY_SCORE:
        yield f"rows are in the order of the {pairwise.ordered_by}: faults never improve a rank"


def conservation(buckets: Buckets) -> str:
    """Return the bucket counts of all planned trials: `24 planned = 20 scored + 4 not run`."""
    parts = " + ".join(f"{n} {name}" for name, n in in_buckets(buckets) if n or name == "scored")
    return f"{buckets.planned} planned = {parts}"


def in_buckets(buckets: Buckets) -> list[tuple[str, int]]:
    """Return the display name and the number of trials of each bucket."""
    return [(name.replace("_", " "), getattr(buckets, name)) for name in Buckets.__slots__]


def billed(bill: Bill) -> str | None:
    """Return the total cost of the run; None if nothing is known about it."""
    if bill.cost_usd is None and not bill.unsure_usd:
        return None
    text = f"billed in total, including roles, retries and failed attempts: ${bill.cost_usd or 0.0:.4f}"
    if bill.unsure_usd:
        text += f", and at most ${bill.unsure_usd:.4f} for answers of unknown cost"
    if bill.unpriced:
        text += f"; the cost of {counted(bill.unpriced, 'request')} is unknown"
    return text


def reasons(summary: Summary) -> Iterator[str]:
    """Yield for each candidate how its score was computed, and its bounds if trials are missing."""
    for candidate in summary.candidates:
        for reason in _reasons(candidate):
            yield f"{one_line(candidate.candidate)}: {reason}"


def shared_reasons(summary: Summary) -> Iterator[str]:
    """Yield the same reasons, with candidates that share a reason grouped."""
    candidates_by_reason: dict[str, list[str]] = {}
    for candidate in summary.candidates:
        for reason in _reasons(candidate):
            candidates_by_reason.setdefault(reason, []).append(one_line(candidate.candidate))
    for reason, names in candidates_by_reason.items():
        if len(names) == len(summary.candidates):
            yield reason
        elif len(names) <= _MOST_NAMES:
            yield f"{', '.join(names)}: {reason}"
        else:
            yield f"{counted(len(names), 'candidate')}: {reason}"


def _reasons(candidate: CandidateSummary) -> Iterator[str]:
    score = candidate.total.score
    if score.interval is not None:
        yield f"interval by {score.interval.method}, {counted(score.tasks, 'task')}"
    elif score.reason:
        yield score.reason
    if bounds := open_bounds(candidate):
        yield (
            f"counting what is missing, the mean of trials lies "
            f"between {bounds[0]:.3f} and {bounds[1]:.3f}"
        )
    if more := more_rollouts(candidate.variance):
        yield more


def open_bounds(candidate: CandidateSummary) -> tuple[float, float] | None:
    """Return the bounds of the mean if trials are missing; None otherwise."""
    group = candidate.total
    return group.score_bounds if group.coverage < 1 and group.score.mean is not None else None
