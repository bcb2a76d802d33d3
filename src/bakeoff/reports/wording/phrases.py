"""Formats numbers for people; an unknown value is a dash."""

from collections.abc import Callable, Sequence

from bakeoff.stats.estimate import Interval
from bakeoff.stats.head_to_head import RolloutFigures, RolloutVerdict

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


def dollars(value: float | None) -> str:
    """Return money, small amounts with more digits."""
    if value is None:
        return UNKNOWN
    return f"${value:.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


def share(value: float | None) -> str:
    """Return a share in per cent."""
    return UNKNOWN if value is None else f"{value:.0%}"


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


def p_value(value: float | None, *, alone: bool = True) -> str:
    """Return a p-value: `0.032`, `< 0.001`; not *alone*, with its sign: `= 0.032`."""
    if value is None:
        return UNKNOWN
    if value < 0.001:
        return "< 0.001"
    return f"{value:.3f}" if alone else f"= {value:.3f}"


def sentence(text: str | None) -> str:
    """Return *text* as a sentence."""
    if not text:
        return ""
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def shortened(text: str, most: int) -> str:
    """Return the first line of *text*, cut where it is longer than *most* characters."""
    line = text.splitlines()[0] if text else ""
    whole = len(line) <= most and line == text
    return line if whole else f"{line[: most - 1].rstrip()}…"


def counted(value: int, value_object: str) -> str:
    """Return a number with its noun: `1 model`, `3 models`."""
    return f"{value:,} {value_object}" if value == 1 else f"{value:,} {value_object}s"


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
