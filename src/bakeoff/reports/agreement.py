"""How far two scorers agree, in plain sentences."""

from collections.abc import Iterator

from bakeoff._lib.sanitize import one_line
from bakeoff.reports.wording.phrases import counted
from bakeoff.stats.agreement import Agreement

_MOST_NAMED = 8
_SCALES = {
    "kappa": "0 is what chance would give, 1 is always the same",
    "alpha": "0 is what chance would give, 1 is always the same; small differences count little",
}


def headline(found: Agreement) -> str:
    """Return how often the two say the same, and whether one may be taken for the other."""
    names = f"{one_line(found.first)} and {one_line(found.second)}"
    where = f"on {counted(found.answers, 'answer')} to {counted(found.tasks, 'task')}"
    if found.same is None or found.value is None:
        return f"{names} {where}: {found.reason}"
    what = "the same verdict" if found.table is not None else "the same score"
    text = f"{names} give {what} {_in_100(found.same)} {where}"
    if found.interval is None or found.interval.low < found.limit <= found.interval.high:
        return f"{text}; whether one may stand for the other is not clear yet"
    enough = "surely too little" if found.weak else "enough"
    return f"{text}: {enough} for one to stand for the other"


def _in_100(share: float) -> str:
    return f"in {100 * share:.1f}".removesuffix(".0") + " of 100 cases"


def details(found: Agreement) -> Iterator[str]:
    """Yield the number with its interval, the table, and where the two differ."""
    if found.value is not None:
        between = ""
        if found.interval is not None:
            between = f" ({found.interval.low:.2f} to {found.interval.high:.2f})"
        yield f"{found.measure} {found.value:.2f}{between}: {_SCALES[found.measure]}; {found.limit:g} is the least to rely on"
    if found.table is not None:
        (both, first), (second, neither) = found.table
        yield (
            f"both pass {both:,}, only {one_line(found.first)} {first:,}, "
            f"only {one_line(found.second)} {second:,}, neither {neither:,}"
        )
    elif found.mean_first is not None and found.mean_second is not None:
        yield f"mean score {found.mean_first:.3f} and {found.mean_second:.3f}"
    if found.apart:
        shown = [
            f"{one_line(a.trial)} ({a.first:.2f} and {a.second:.2f})"
            for a in found.apart[:_MOST_NAMED]
        ]
        more = len(found.apart) - len(shown)
        yield (
            f"furthest apart: {', '.join(shown)}"
            + (f", and {more:,} more (--json has all)" if more else "")
            + "; see: bakeoff show RUN TRIAL"
        )
