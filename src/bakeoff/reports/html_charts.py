"""Bar charts as inline SVG: no script, no library; they stretch, and their text does not."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.reports.html_text import esc

_ROW = 46
_BAR_TOP = 22
_BAR = 12
_STRIP = 22
_LONGEST_LABEL = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar. `low` and `high` are its interval, `dots` the single values; `kind` is its colour."""

    label: str
    value: float | None
    told: str
    low: float | None = None
    high: float | None = None
    dots: tuple[float, ...] = ()
    kind: str = "plain"


def bar_chart(title: str, note: str, bars: Sequence[Bar], *, most: float | None = None) -> str:
    """Return a figure with a bar for each of *bars*; *most* is the end of the axis."""
    end = most or _end(bars)
    rows = "".join(_row(bar, number * _ROW, end) for number, bar in enumerate(bars))
    told = "; ".join(f"{bar.label}: {bar.told}" for bar in bars)
    return (
        f'<figure class="chart"><figcaption><b>{esc(title)}</b><span>{esc(note)}</span></figcaption>'
        f'<svg role="img" aria-label="{esc(f"{title}. {told}")}" width="100%" '
        f'height="{len(bars) * _ROW}">{rows}</svg></figure>'
    )


def _end(bars: Sequence[Bar]) -> float:
    """Return where the axis ends: at the largest thing that is drawn."""
    drawn = [value for bar in bars for value in (bar.value, bar.high, *bar.dots) if value]
    return max(drawn, default=1.0)


def strip(bar: Bar, *, most: float = 1.0) -> str:
    """Return one bar alone, for a cell of a table, from 0 to *most*."""
    return _alone(f"{bar.label}: {bar.told}", _drawn(bar, 5, most))


def around_zero(value: float, low: float | None, high: float | None, *, most: float) -> str:
    """Return a difference with its interval, on an axis from -*most* to *most*."""
    middle = _STRIP // 2
    parts = [
        f'<line class="axis" x1="0" x2="100%" y1="{middle}" y2="{middle}"/>',
        f'<line class="zero" x1="50%" x2="50%" y1="0" y2="{_STRIP}"/>',
    ]
    if low is not None and high is not None:
        parts.append(_whisker(_beside(low, most), _beside(high, most), middle))
    parts.append(f'<circle class="point" cx="{_beside(value, most)}" cy="{middle}" r="4.5"/>')
    return _alone(f"difference {value:+.3f}", "".join(parts))


def _alone(told: str, drawn: str) -> str:
    return f'<svg role="img" aria-label="{esc(told)}" width="100%" height="{_STRIP}">{drawn}</svg>'


def _row(bar: Bar, top: int, end: float) -> str:
    label = bar.label if len(bar.label) <= _LONGEST_LABEL else f"{bar.label[:_LONGEST_LABEL]}…"
    return (
        f'<text class="label" x="0" y="{top + 14}">{esc(label)}</text>'
        f'<text class="value" x="100%" y="{top + 14}" text-anchor="end">{esc(bar.told)}</text>'
        f"{_drawn(bar, top + _BAR_TOP, end)}"
    )


def _drawn(bar: Bar, top: int, end: float) -> str:
    """Return a bar on its track, with its dots and its whisker."""
    middle = top + _BAR // 2
    parts = [f'<rect class="track" x="0" y="{top}" width="100%" height="{_BAR}" rx="3"/>']
    if bar.value:
        parts.append(
            f'<rect class="bar {bar.kind}" x="0" y="{top}" '
            f'width="{_at(bar.value, end)}" height="{_BAR}" rx="3"/>'
        )
    parts += [
        f'<circle class="dot" cx="{_at(value, end)}" cy="{middle}" r="2.5"/>' for value in bar.dots
    ]
    if bar.low is not None and bar.high is not None:
        parts.append(_whisker(_at(bar.low, end), _at(bar.high, end), middle))
    return "".join(parts)


def _whisker(low: str, high: str, middle: int) -> str:
    return (
        f'<line class="whisker" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>'
        f'<line class="whisker" x1="{low}" x2="{low}" y1="{middle - 5}" y2="{middle + 5}"/>'
        f'<line class="whisker" x1="{high}" x2="{high}" y1="{middle - 5}" y2="{middle + 5}"/>'
    )


def _at(value: float, end: float) -> str:
    """Return how far along the axis *value* is; never beyond its ends."""
    return f"{min(max(value / end, 0.0), 1.0) * 100:.2f}%"


def _beside(value: float, most: float) -> str:
    """Return how far along an axis that goes both ways *value* is."""
    return _at(value + most, 2 * most)
