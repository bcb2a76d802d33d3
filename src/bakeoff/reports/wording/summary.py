"""What a summary says beside its figures, in lines: what is missing, what it cost, how it is known."""

from collections.abc import Iterator

from bakeoff._lib.sanitize import one_line
from bakeoff.core.budget import Bill
from bakeoff.reports.wording.phrases import counted
from bakeoff.stats.pairwise import BY_SCORE
from bakeoff.stats.summary import Buckets, CandidateSummary, Summary
from bakeoff.stats.variance import VarianceSplit

_HARDLY = 0.05  # of a standard error: less is no reason to pay for rollouts
_TWICE_THE_TASKS = 0.5**0.5  # of the standard error is left, whatever it comes from


def more_rollouts(split: VarianceSplit) -> str | None:
    """Return what more rollouts would do to the standard error; None where that is not known."""
    if split.icc is None or split.rollouts is None:
        return None
    now = split.se(tasks=split.tasks, rollouts=split.rollouts)
    if now is None or split.se_twice_rollouts is None:
        return None
    if split.se_any_rollouts is not None and 1 - split.se_any_rollouts / now < _HARDLY:
        return "more rollouts would hardly help: it is the tasks that differ"
    return (
        f"twice the rollouts would shrink the error by {_by(split.se_twice_rollouts / now)}, "
        f"twice the tasks by {_by(_TWICE_THE_TASKS)}"
    )


def _by(left: float) -> str:
    return f"{100 * (1 - left):.0f} %"


_MOST_NAMES = 5


def in_order(summary: Summary) -> list[CandidateSummary]:
    """Return the candidates from the first in rank to the last; who has no rank comes at the end."""
    placed = summary.pairwise.ranks if summary.pairwise else ()
    rank = {one.candidate: one.rank for one in placed}
    last = len(summary.candidates) + 1
    return sorted(summary.candidates, key=lambda one: rank.get(one.candidate, last))


def order(summary: Summary) -> Iterator[str]:
    """Yield what the order of the rows is that of, where it is not that of the scores."""
    found = summary.pairwise
    if found is not None and found.ordered_by != BY_SCORE:
        yield f"rows are in the order of the {found.ordered_by}: nobody gains a place by faults"


def conservation(buckets: Buckets) -> str:
    """Return where every planned trial is: `24 planned = 20 scored + 4 not run`."""
    told = " + ".join(f"{n} {name}" for name, n in in_buckets(buckets) if n or name == "scored")
    return f"{buckets.planned} planned = {told}"


def in_buckets(buckets: Buckets) -> list[tuple[str, int]]:
    """Return the name of each bucket as people write it, and how many trials are in it."""
    return [(name.replace("_", " "), getattr(buckets, name)) for name in Buckets.__slots__]


def billed(bill: Bill) -> str | None:
    """Return what the whole run cost, where anything is known of it."""
    if bill.cost_usd is None and not bill.unsure_usd:
        return None
    told = f"billed in all, with roles, retries and failed attempts: ${bill.cost_usd or 0.0:.4f}"
    if bill.unsure_usd:
        told += f", and at most ${bill.unsure_usd:.4f} for answers of unknown cost"
    if bill.unpriced:
        told += f"; the cost of {counted(bill.unpriced, 'request')} is unknown"
    return told


def reasons(summary: Summary) -> Iterator[str]:
    """Yield for each candidate how its score is known, and what it could be with what is missing."""
    for one in summary.candidates:
        for told in _reasons(one):
            yield f"{one_line(one.candidate)}: {told}"


def shared_reasons(summary: Summary) -> Iterator[str]:
    """Yield the same, but what holds for several candidates only once."""
    found: dict[str, list[str]] = {}
    for one in summary.candidates:
        for told in _reasons(one):
            found.setdefault(told, []).append(one_line(one.candidate))
    for told, names in found.items():
        if len(names) == len(summary.candidates):
            yield told
        elif len(names) <= _MOST_NAMES:
            yield f"{', '.join(names)}: {told}"
        else:
            yield f"{counted(len(names), 'candidate')}: {told}"


def _reasons(one: CandidateSummary) -> Iterator[str]:
    score = one.total.score
    if score.interval is not None:
        yield f"interval by {score.interval.method}, {counted(score.tasks, 'task')}"
    elif score.reason:
        yield score.reason
    if bounds := open_bounds(one):
        yield (
            f"with what is missing, the mean of trials lies "
            f"between {bounds[0]:.3f} and {bounds[1]:.3f}"
        )
    if more := more_rollouts(one.variance):
        yield more


def open_bounds(one: CandidateSummary) -> tuple[float, float] | None:
    """Return where the mean would lie if all that is missing were there; None where nothing is."""
    group = one.total
    return group.score_bounds if group.coverage < 1 and group.score.mean is not None else None
