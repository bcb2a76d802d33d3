"""Figures as a person reads them; what is unknown is a dash."""

from bakeoff.stats.estimate import Interval

UNKNOWN = "–"


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
    """Return the ranks that somebody may have: `1`, `1–3`, or nothing where that is unknown."""
    if best is None or worst is None:
        return ""
    return str(best) if best == worst else f"{best}–{worst}"


def counted(value: int, noun: str) -> str:
    """Return a number with its noun: `1 model`, `3 models`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"
