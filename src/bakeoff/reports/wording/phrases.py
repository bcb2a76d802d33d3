"""Numbers and summaries formatted for people; an unknown value is a dash."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from bakeoff._lib.sanitize import one_line
from bakeoff.core.budget import Bill
from bakeoff.stats.classification import Classification, Measured
from bakeoff.stats.estimate import Estimate, Interval
from bakeoff.stats.head_to_head import RolloutFigures, RolloutVerdict
from bakeoff.stats.pace import NO_EFFORT, Effort, Pace
from bakeoff.stats.pairwise import BY_SCORE
from bakeoff.stats.summary import BUCKET_NAMES, Buckets, CandidateSummary, PassRates, Summary
from bakeoff.stats.variance import VarianceSplit

Formatter = Callable[[float | None], str]  # formats one kind of figure

UNKNOWN = "–"
NOT_SOLVED = "not solved"
_OTHERWISE = {
    RolloutVerdict.UNCHECKED: "unchecked",
    RolloutVerdict.ERROR: "broken",
    RolloutVerdict.CANCELLED: "cancelled",
}


def seconds(value: float | None) -> str:
    """Return a duration: `420 ms`, `3.2 s`, `2 min 05 s`, `1 h 10 min`."""
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def duration(value: float) -> str:
    """Return a duration in whole seconds, for progress: `59 s`, `2 min 05 s`, `1 h 10 min`."""
    return f"{round(value)} s" if round(value) < 60 else seconds(value)


def moment(iso: str) -> str:
    """Return a moment in UTC to the minute: `2026-11-16 12:23 UTC`."""
    return f"{iso[:16].replace('T', ' ')} UTC"


def number(value: float | None) -> str:
    """Return a count or a mean of counts: `1,234`, `2.5`."""
    if value is None:
        return UNKNOWN
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


_MUCH = 0.001  # dollars: less is written with more digits


def dollars(value: float | None) -> str:
    """Return money, small amounts with more digits."""
    if value is None:
        return UNKNOWN
    if value >= 1 or value == 0:
        return f"${value:.2f}"
    digits = 4 if value >= _MUCH else 1 - math.floor(math.log10(value))
    return f"${value:.{digits}f}"


def in_words(effort: Effort) -> str:
    """Return money and time: `$1.20 and 3 min 05 s`; empty where nothing is known."""
    known = [dollars(effort.cost_usd)] if effort.cost_usd else []
    if effort.seconds is not None:
        known.append(seconds(effort.seconds))
    return " and ".join(known)


def share(value: float | None) -> str:
    """Return a share in per cent."""
    return UNKNOWN if value is None else f"{value:.0%}"


def timed(phases: Mapping[str, float]) -> str:
    """Return how long each phase took: `agent 3.2 s · scoring 420 ms`."""
    return " · ".join(f"{name} {seconds(value)}" for name, value in phases.items())


def megabytes(value: float | None) -> str:
    """Return a size."""
    if value is None:
        return UNKNOWN
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:,.0f} MB"


def share_range(interval: Interval | None) -> str:
    """Return an interval of shares, or nothing."""
    return "" if interval is None else f"{interval.low:.0%} to {interval.high:.0%}"


def rank_range(best: int | None, worst: int | None) -> str:
    """Return a range of ranks: `1`, `1–3`, or an empty text if it is unknown."""
    if best is None or worst is None:
        return ""
    return str(best) if best == worst else f"{best}–{worst}"


def score(value: float | None) -> str:
    """Return a score, or a difference of scores without its sign."""
    return UNKNOWN if value is None else f"{value:.3f}"


def amount(value: float) -> str:
    """Return the size of a difference; one that is not 0 is never written as 0."""
    written = f"{abs(value):.3f}"
    return f"{abs(value):.1g}" if value and not float(written) else written


def difference(value: float | None) -> str:
    """Return a difference of scores, with a sign that is as wide as its digits."""
    return UNKNOWN if value is None else f"{value:+.3f}".replace("-", "−")


def interval(bounds: Interval | None, formatter: Formatter = score) -> str:
    """Return an interval as text: `0.351 to 0.721`."""
    return UNKNOWN if bounds is None else f"{formatter(bounds.low)} to {formatter(bounds.high)}"


def measured(figure: Measured | Estimate) -> str:
    """Return a number with its interval: `0.671 (0.512 to 0.798)`."""
    value = figure.mean if isinstance(figure, Estimate) else figure.value
    bounds = "" if figure.interval is None else f" ({interval(figure.interval)})"
    return f"{score(value)}{bounds}"


def classified(classification: Classification) -> Iterator[tuple[str, str]]:
    """Yield the numbers of a candidate over all labels, each after its name."""
    yield "accuracy", measured(classification.accuracy)
    yield "macro F1", measured(classification.macro_f1)
    yield "MCC", measured(classification.mcc)


NO_LABEL = "no label"
CLASSIFICATION_NOTES = (
    "An answer without a label, or with several, is wrong; a fault is missing.",
    "Accuracy is the mean over tasks, everything else is of the table of all scored trials.",
)


def p_value(value: float | None) -> str:
    """Return a p-value: `0.032`, `< 0.001`."""
    if value is None:
        return UNKNOWN
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def in_runs(p: float | None) -> str:
    """Return a p-value in words: `in 3.2 % of runs`."""
    if p is None:
        return "in an unknown share of runs"
    if p < 0.001:
        return "in less than 0.1 % of runs"
    return f"in {100 * p:.1f} % of runs".replace(".0 %", " %")


def sentence(text: str | None) -> str:
    """Return *text* as a sentence."""
    if not text:
        return ""
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


_PARTS = " · "  # of the name of a candidate: its prompt, its agent, its model


def shared_tail(names: Iterable[str]) -> str:
    """Return the last parts that the names of all candidates share, of which each has others before; mostly the model."""
    split = [name.split(_PARTS) for name in dict.fromkeys(names)]
    shared: list[str] = []
    while len(split) > 1 and all(len(parts) > 1 for parts in split):
        last = {parts.pop() for parts in split}
        if len(last) > 1:
            break
        shared.insert(0, last.pop())
    return "".join(_PARTS + part for part in shared)


def shortened(text: str, most: int) -> str:
    """Return the first line of *text*, cut where it is longer than *most* characters."""
    line = text.splitlines()[0] if text else ""
    whole = len(line) <= most and line == text
    return line if whole else f"{line[: most - 1].rstrip()}…"


def counted(value: int, noun: str) -> str:
    """Return a number with its noun: `1 model`, `3 models`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def status(rollouts: Sequence[RolloutFigures], *, planned: int) -> str:
    """Return the status of a model: `timed out`; for several rollouts `2 of 3 solved, 1 broken`.

    For several rollouts it includes how many solved ones were stopped at the limit.
    """
    if not rollouts:
        return "not run"
    if planned == 1:
        return rollouts[0].verdict.value
    known = [r.verdict.solved for r in rollouts if r.verdict.solved is not None]
    parts = [f"{sum(known)} of {len(known)} solved"] if known else []
    if stopped := sum(r.verdict is RolloutVerdict.SUCCESS_AT_LIMIT for r in rollouts):
        parts.append(f"{stopped} of them stopped at limit")
    for verdict, word in _OTHERWISE.items():
        if many := sum(r.verdict is verdict for r in rollouts):
            parts.append(f"{many} {word}")
    return ", ".join(parts)


_HARDLY = 0.05  # of a standard error: less is no reason to pay for rollouts
_TWICE_THE_TASKS = 0.5**0.5  # of the standard error is left, whatever it comes from
_MOST_NAMES = 5


def more_rollouts(split: VarianceSplit, again: Effort = NO_EFFORT) -> str | None:
    """Return the effect of more rollouts on the standard error; None if it is unknown.

    Twice the rollouts take as much *again* as what was run, and so do twice the tasks.
    """
    if split.icc is None or split.rollouts is None:
        return None
    now = split.se(tasks=split.tasks, rollouts=split.rollouts)
    if now is None or split.se_twice_rollouts is None:
        return None
    if split.se_any_rollouts is not None and 1 - split.se_any_rollouts / now < _HARDLY:
        return "more rollouts would hardly help: the variance is between tasks"
    took = in_words(again)
    return (
        f"twice the rollouts would shrink the error by {_by(split.se_twice_rollouts / now)}, "
        f"twice the tasks by {_by(_TWICE_THE_TASKS)}{f'; either takes about {took}' if took else ''}"
    )


def _by(left: float) -> str:
    return f"{100 * (1 - left):.0f} %"


def by_k(rates: Iterable[PassRates]) -> Mapping[int, PassRates]:
    """Return pass rates by k."""
    return {rate.k: rate for rate in rates}


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
    return [(name.replace("_", " "), getattr(buckets, name)) for name in BUCKET_NAMES]


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
        for reason in _reasons(candidate, summary.pace):
            yield f"{one_line(candidate.candidate)}: {reason}"


def shared_reasons(summary: Summary) -> Iterator[str]:
    """Yield the same reasons, with candidates that share a reason grouped."""
    candidates_by_reason: dict[str, list[str]] = {}
    for candidate in summary.candidates:
        for reason in _reasons(candidate, summary.pace):
            candidates_by_reason.setdefault(reason, []).append(one_line(candidate.candidate))
    for reason, names in candidates_by_reason.items():
        if len(names) == len(summary.candidates):
            yield reason
        elif len(names) <= _MOST_NAMES:
            yield f"{', '.join(names)}: {reason}"
        else:
            yield f"{counted(len(names), 'candidate')}: {reason}"


def _reasons(candidate: CandidateSummary, pace: Pace | None) -> Iterator[str]:
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
    if more := more_rollouts(candidate.variance, _again(candidate, pace)):
        yield more


def averages(summary: Summary) -> Iterator[str]:
    """Yield the mean of each candidate over its categories, each category weighing the same."""
    for candidate in in_order(summary):
        if candidate.macro is not None:
            mean = measured(candidate.macro)
            yield f"{one_line(candidate.candidate)}: mean over categories, each weighing the same: {mean}"


def _again(candidate: CandidateSummary, pace: Pace | None) -> Effort:
    """Return what the trials of *candidate* would take once more."""
    if pace is None:
        return NO_EFFORT
    took = pace.of(candidate.total.buckets.ran)
    return Effort(cost_usd=candidate.total.tokens.cost_usd, seconds=took.seconds)


def open_bounds(candidate: CandidateSummary) -> tuple[float, float] | None:
    """Return the bounds of the mean if trials are missing; None otherwise."""
    group = candidate.total
    return group.score_bounds if group.coverage < 1 and group.score.mean is not None else None
