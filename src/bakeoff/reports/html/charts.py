"""Charts as Vega-Lite specifications: drawn as SVG in a report, interactive in the viewer.

Colours are the variables of the style sheet, so a chart follows the page into the dark. A row of data has
its explanation as `tip`; where it is about trials, `candidate` and `category` say whose.
"""

import html
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff._lib.value_object import value_object
from bakeoff.reports.wording import decision, phrases
from bakeoff.stats.between_runs import Contrast
from bakeoff.stats.paired import Pair
from bakeoff.stats.rankings import Offer, pareto_front
from bakeoff.stats.summary import CandidateSummary, Group, Summary

if TYPE_CHECKING:
    from markupsafe import Markup

Spec: TypeAlias = dict[str, Any]

_TIP: Spec = {"field": "tip", "type": "nominal"}

WIDTH = 340
_ROW = 44
_MOST_ROWS = 40
_MOST_LINES = 8  # in one chart, each with a colour of its own
_MOST_HISTOGRAMS = 24
_HISTOGRAM_TOP = 21  # of a row, for its label
_MOST_TICKS = 6  # moments that are named below a chart
_MOST_LABELS = 16
_MOST_CELLS = 600
_MOST_MOMENTS = 120
_LONGEST_NAME = 60
_LONGEST_SHORT_NAME = 22
_LOGARITHMIC = 30  # times the least value: from there on, a linear axis shows a heap and a dot
_COLOURS = [f"var(--c{number})" for number in range(1, _MOST_LINES + 1)]
_CONFIG: Spec = {
    "aria": False,  # the figure has one label; a label for each mark would be read aloud
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--quiet)", "titleColor": "var(--quiet)", "titleFontWeight": "normal",
        "gridColor": "var(--line)", "domain": False, "ticks": False, "labelFontSize": 12,
        "titleFontSize": 12, "labelPadding": 6, "labelLimit": 120,
    },
    "legend": {"labelColor": "var(--text)", "labelFontSize": 12, "labelLimit": 180},
    "text": {"fontSize": 13},
}  # fmt: skip


@value_object
class Chart:
    """A figure: its specification, what it shows in words, and explanations of its marks."""

    title: str
    note: str
    spec: Spec
    description: str
    legend: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What the chart shows, as text for screen readers."""
        return f"{self.title}. {self.description}"

    @property
    def as_json(self) -> str:
        """The specification, for a page that draws it itself."""
        return json.dumps(clean(self.spec), separators=(",", ":"))

    @property
    def drawing(self) -> "Markup":
        """The chart as SVG, for a page that has no script."""
        from markupsafe import Markup

        return Markup(for_terminal(_opened(svg(self.spec), html.escape(self.label))))  # noqa: S704 -- drawn by Vega, which escapes


def svg(spec: Spec) -> str:
    """Return what *spec* draws; nothing is loaded for it."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(clean(spec), allowed_base_urls=[], show_warnings=False)
    return drawn


# The renderer measures text as XML, and what XML cannot hold ends the whole process, not just the chart; where it
# shortens a text it may cut a character beyond the first 65,536 in two.
_UNDRAWABLE = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd]")


def clean(value: Any) -> Any:
    """Return a specification whose texts are harmless and whose numbers are finite."""
    if isinstance(value, str):
        return _UNDRAWABLE.sub("\ufffd", for_terminal(value))
    if isinstance(value, dict):
        return {key: clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_ROLES = re.compile(r' (?:role="graphics-[a-z]+"|aria-[a-z]+="[^"]*")')
_HEAD = re.compile(r"<svg [^>]*?(width=[^>]*)>")


def _opened(drawn: str, label: str) -> str:
    """Return an SVG with one label, and without what it needs only in a file of its own."""
    drawn = _ROLES.sub("", drawn)
    return _HEAD.sub(lambda m: f'<svg role="img" aria-label="{label}" {m[1]}>', drawn, count=1)


@value_object
class Bar:
    """One bar. `low` and `high` are its interval, `dots` the single values; `kind` is its colour.

    `tip` explains it, and `candidate` is whose trials it stands for.
    """

    label: str
    value: float | None
    text: str
    low: float | None = None
    high: float | None = None
    dots: tuple[float, ...] = ()
    kind: str = "plain"
    tip: str = ""
    candidate: str | None = None


def bar_chart(title: str, note: str, bars: Sequence[Bar], *, most: float | None = None) -> Chart:
    """Return a chart with a bar for each of *bars*; *most* is the end of the axis."""
    shown = bars[:_MOST_ROWS]
    rows = [_bar_row(number, bar) for number, bar in enumerate(shown)]
    dots = [{"n": n, "value": value} for n, bar in enumerate(shown) for value in bar.dots]
    spec = _rows_spec(rows, [0, most or _end(shown)], [
        _mark("track", "bar", {"x": {"datum": most or _end(shown)}}, height=12, color="var(--soft)"),
        _mark("bar", "bar", {"x": _x("value"), "color": {
            "field": "kind", "legend": None, "scale": {
                "domain": ["plain", "success", "unsolved"],
                "range": ["var(--bar)", "var(--bar-good)", "var(--bar-bad)"]}}}, height=12),
        *_whisker(),
        {"data": {"values": dots}, **_mark("dot", "point", {"x": _x("value")}, size=24, filled=True,
         fill="var(--card)", stroke="var(--whisker)", strokeWidth=1, opacity=1)},
    ])  # fmt: skip
    description = "; ".join(f"{bar.label}: {bar.text}" for bar in shown)
    return Chart(
        title=title, note=note, spec=spec, description=description, legend=_more(bars, shown)
    )


def _bar_row(number: int, bar: Bar) -> Spec:
    return {
        "n": number, "label": one_line(bar.label, width=_LONGEST_NAME), "text": bar.text,
        "value": bar.value, "low": bar.low, "high": bar.high, "kind": bar.kind,
        "tip": bar.tip or f"{bar.label}: {bar.text}", "candidate": bar.candidate,
    }  # fmt: skip


def _end(bars: Sequence[Bar]) -> float:
    """Return the end of the axis: the largest value drawn."""
    drawn = [value for bar in bars for value in (bar.value, bar.high, *bar.dots) if value]
    return max(drawn, default=1.0)


def _more(all_: Sequence[object], shown: Sequence[object]) -> tuple[str, ...]:
    more = len(all_) - len(shown)
    return (f"{more:,} more are in the table",) if more else ()


def _rows_spec(rows: Sequence[Spec], domain: Sequence[float], layers: Sequence[Spec]) -> Spec:
    """Return a chart of rows: each with its label and its figure above what the layers draw."""
    words = [
        _mark("label", "text", {"text": {"field": "label"}, "x": {"value": 0}},
              align="left", dy=-11, color="var(--text)", limit=WIDTH - 112),
        _mark("figure", "text", {"text": {"field": "text"}, "x": {"value": WIDTH}},
              align="right", dy=-11, color="var(--quiet)", limit=80),
    ]  # fmt: skip
    x = {"type": "quantitative", "axis": None, "scale": {"domain": list(domain), "nice": False}}
    return {
        **_frame(WIDTH, _ROW * max(len(rows), 1)),
        "data": {"values": list(rows)},
        "encoding": {
            "tooltip": _TIP,
            "y": {"field": "n", "type": "ordinal", "axis": None, "scale": {"padding": 0}},
            "x": x,
        },
        "layer": [*layers, *words],
    }


def _frame(width: int | Spec, height: int | Spec) -> Spec:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json", "config": _CONFIG,
        "background": None, "padding": 2, "width": width, "height": height,
    }  # fmt: skip


def _mark(name: str, kind: str, encoding: Spec, **settings: Any) -> Spec:
    down = {"yOffset": 8} if kind in {"bar", "point", "rule", "tick"} else {}
    return {
        "name": name,
        "mark": {"type": kind, "clip": False, **down, **settings},
        "encoding": encoding,
    }


def _x(field: str) -> Spec:
    return {"field": field, "type": "quantitative", "stack": None}


def _whisker() -> Iterable[Spec]:
    both = {"x": _x("low"), "x2": {"field": "high"}}
    yield _mark("whisker", "rule", both, color="var(--whisker)", strokeWidth=1.5)
    for end in ("low", "high"):
        yield _mark(
            f"{end}_end", "tick", {"x": _x(end)}, color="var(--whisker)", thickness=1.5, size=10
        )


# --- scores and differences -------------------------------------------------------------------


def scores(candidates: Sequence[CandidateSummary]) -> Chart:
    """Return the mean score of each candidate with its interval."""
    short = short_names((c.candidate for c in candidates), width=_LONGEST_NAME)
    bars = [_score_bar(c.candidate, short[c.candidate], c.total) for c in candidates]
    return bar_chart("Score", "mean of tasks, 95 % interval", bars, most=1.0)


def _score_bar(name: str, label: str, group: Group) -> Bar:
    interval = group.score.interval
    return Bar(
        label=label,
        value=group.score.mean,
        text=phrases.score(group.score.mean),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        tip=_score_in_words(name, group),
        candidate=name,
    )


def _score_in_words(name: str, group: Group) -> str:
    """Return a score with its interval and what it stands on."""
    score = group.score
    between = f", 95 % interval {phrases.interval(score.interval)}" if score.interval else ""
    passed = f"; {group.passed:,} of {score.trials:,} trials passed" if score.trials else ""
    return f"{name}: {phrases.score(score.mean)}{between}{passed}"


def differences(pairs: Sequence[Pair], *, names: Sequence[str] | None = None) -> Chart:
    """Return the difference of each pair with its interval, around zero."""
    shown = pairs[:_MOST_ROWS]
    short = short_names((n for p in shown for n in (p.first, p.second)), width=_LONGEST_NAME)
    labels = [f"{short[p.first]} − {short[p.second]}" for p in shown] if names is None else names
    rows = [
        _pair_row(number, pair, label)
        for number, (pair, label) in enumerate(zip(shown, labels, strict=False))
    ]
    most = max(
        (abs(row[end] or 0.0) for row in rows for end in ("low", "high", "value")), default=0
    )
    most = most or 1.0
    spec = _rows_spec(rows, [-most, most], [
        _mark("axis", "rule", {"x": {"datum": -most}, "x2": {"datum": most}}, color="var(--line)"),
        _mark("zero", "tick", {"x": {"datum": 0}}, color="var(--quiet)", thickness=1.5, size=22),
        *_whisker(),
        _mark("point", "point", {"x": _x("value"), "color": {
            "field": "kind", "legend": None, "scale": {
                "domain": ["decided", "open"], "range": ["var(--bar-good)", "var(--bar)"]}}},
            filled=True, size=90, opacity=1),
    ])  # fmt: skip
    description = "; ".join(f"{row['label']}: {row['text']}" for row in rows)
    legend = ("Green: decided. Right of the line the first of the two is better.",)
    return Chart(
        title="Difference",
        note="of mean scores, 95 % interval",
        spec=spec,
        description=description,
        legend=(*legend, *_more(pairs, shown)),
    )


def _pair_row(number: int, pair: Pair, label: str) -> Spec:
    interval = pair.interval
    between = (
        f", 95 % interval {phrases.interval(interval, phrases.difference)}" if interval else ""
    )
    return {
        "n": number,
        "label": one_line(label, width=2 * _LONGEST_NAME),
        "text": phrases.difference(pair.difference),
        "tip": f"{label}: {phrases.difference(pair.difference)}{between}; {pair.verdict}",
        "value": pair.difference,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "kind": "open" if pair.better is None else "decided",
    }


def contrasts(found: Sequence[Contrast]) -> Chart:
    """Return what became of each candidate between two runs, around zero."""
    return differences([contrast.pair for contrast in found], names=[_couple(c) for c in found])


def _couple(contrast: Contrast) -> str:
    same = contrast.before == contrast.after
    return contrast.after if same else f"{contrast.after} − {contrast.before}"


def short_names(names: Iterable[str], *, width: int = _LONGEST_SHORT_NAME) -> dict[str, str]:
    """Return names for where there is little room: without the last parts that all of them share, and cut."""
    given = list(names)
    tail = phrases.shared_tail(given)
    return {name: one_line(name.removesuffix(tail), width=width) for name in given}


# --- what it costs ----------------------------------------------------------------------------


def trade_offs(candidates: Sequence[CandidateSummary]) -> list[Chart]:
    """Return score against cost and score against time, each with the Pareto front, where known."""
    kinds: tuple[tuple[str, str, Callable[[Group], float | None], phrases.Formatter, str], ...] = (
        ("cost", "US dollars", lambda g: g.tokens.cost_usd, phrases.dollars, "$~g"),
        ("time", "median latency of a request, seconds", lambda g: g.latency.p50_s, phrases.seconds,
         "~g"),
    )  # fmt: skip
    charts = []
    for name, unit, price, formatter, axis in kinds:
        offers = [
            Offer(candidate=c.candidate, price=value, score=c.total.score.mean)
            for c in candidates
            if (value := price(c.total)) is not None and c.total.score.mean is not None
        ]
        if len(offers) > 1 and any(offer.price for offer in offers):
            charts.append(_trade_off(name, unit, offers, formatter, axis))
    return charts


def _labels() -> Iterable[Spec]:
    """Yield the names of points: written towards the other half of the chart, above the point or below it."""
    for side, align, dx in (("left", "left", 7), ("right", "right", -7)):
        for place, dy in (("above", -9), ("below", 12)):
            mark = {
                "type": "text", "align": align, "dx": dx, "dy": dy, "fontSize": 11, "color": "var(--text)",
            }  # fmt: skip
            here = {"filter": f"datum.half == '{side}' && datum.place == '{place}'"}
            yield {"name": f"label_{side}_{place}", "transform": [here], "mark": mark,
                   "encoding": {"text": {"field": "name"}}}  # fmt: skip


def _below(offers: Sequence[Offer]) -> set[str]:
    """Return the candidates whose names would be on that of another one if they stood above their points."""
    apart = (max(o.score for o in offers) - min(o.score for o in offers)) / 12
    below: set[str] = set()
    above: list[float] = []
    for offer in sorted(offers, key=lambda o: -o.score):
        if any(score - offer.score < apart for score in above):
            below.add(offer.candidate)
        else:
            above.append(offer.score)
    return below


def _trade_off(
    name: str, unit: str, offers: Sequence[Offer], formatter: phrases.Formatter, axis: str
) -> Chart:
    front = {offer.candidate for offer in pareto_front(offers)}
    named = front if len(offers) > _MOST_LABELS else {offer.candidate for offer in offers}
    short, prices = (
        short_names(offer.candidate for offer in offers),
        [offer.price for offer in offers],
    )
    logarithmic = min(prices) > 0 and max(prices) / min(prices) > _LOGARITHMIC
    middle = math.sqrt(min(prices) * max(prices)) if logarithmic else max(prices) / 2
    below = _below([offer for offer in offers if offer.candidate in named])
    rows = [
        {
            "price": offer.price, "score": offer.score, "front": offer.candidate in front,
            "half": "left" if offer.price <= middle else "right",
            "place": "below" if offer.candidate in below else "above",
            "name": short[offer.candidate] if offer.candidate in named else "",
            "tip": _offer_in_words(offer, formatter), "candidate": offer.candidate,
        }
        for offer in offers
    ]  # fmt: skip
    x = {
        "field": "price", "type": "quantitative", "title": unit, "axis": {"format": axis, "tickCount": 5},
        "scale": {"type": "log"} if logarithmic else {"zero": True, "nice": True},
    }  # fmt: skip
    y = {
        "field": "score",
        "type": "quantitative",
        "title": "score",
        "scale": {"zero": False, "padding": 14},
    }
    on_front = {"filter": "datum.front"}
    spec = {
        **_frame(WIDTH - 50, 230),
        "data": {"values": rows},
        "encoding": {"x": x, "y": y, "tooltip": _TIP},
        "layer": [
            {"name": "front", "transform": [on_front],
             "mark": {"type": "line", "interpolate": "step-after", "color": "var(--good)", "opacity": 0.6}},
            {"name": "point", "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
             "encoding": {"color": {"field": "front", "type": "nominal", "legend": None, "scale": {
                 "domain": [True, False], "range": ["var(--bar-good)", "var(--bar-bad)"]}}}},
            *_labels(),
        ],
    }  # fmt: skip
    description = "; ".join(_offer_in_words(offer, formatter) for offer in offers)
    return Chart(
        title=f"Score against {name}",
        note="up and to the left is better",
        spec=spec,
        description=description,
        legend=("Green: the Pareto front; nothing scores as much for less.",),
    )


def _offer_in_words(offer: Offer, formatter: phrases.Formatter) -> str:
    return f"{offer.candidate}: {phrases.score(offer.score)} at {formatter(offer.price)}"


# --- rollouts and categories ------------------------------------------------------------------


# a click on a name in the legend leaves only its line
_CHOSEN: Spec = {
    "name": "chosen",
    "select": {"type": "point", "fields": ["name"]},
    "bind": "legend",
}


def _by_name(names: Iterable[str]) -> Spec:
    """Return the encodings of a chart with a line for each name: its colour, and whether it is chosen."""
    shown = list(dict.fromkeys(names))
    return {
        "color": {"field": "name", "type": "nominal", "sort": None,
                  "scale": {"domain": shown, "range": _COLOURS[: len(shown)]},
                  "legend": {"orient": "bottom", "columns": 2, "columnPadding": 28, "title": None}},
        "opacity": {"condition": {"param": "chosen", "value": 1}, "value": 0.1},
    }  # fmt: skip


def passes(candidates: Sequence[CandidateSummary]) -> Chart | None:
    """Return pass@k and pass^k over k; None where it cannot be drawn or has more lines than colours."""
    if len(candidates) > _MOST_LINES:
        return None
    short = short_names(c.candidate for c in candidates)
    rows = [
        {"name": short[c.candidate], "k": rate.k, "value": value, "kind": kind,
         "tip": f"{c.candidate}: {kind.replace('k', str(rate.k))} {phrases.score(value)}", "candidate": c.candidate}
        for c in candidates
        for rate in c.total.passes
        for kind, value in (("pass@k", rate.pass_at), ("pass^k", rate.pass_hat))
        if value is not None
    ]  # fmt: skip
    if not rows:
        return None
    spec = {
        **_frame(WIDTH - 40, 220),
        "data": {"values": rows},
        "params": [_CHOSEN],
        "mark": {"type": "line", "point": {"size": 40}, "strokeWidth": 2},
        "encoding": {
            **_by_name(str(row["name"]) for row in rows), "tooltip": _TIP,
            "x": {"field": "k", "type": "ordinal", "axis": {"labelAngle": 0, "grid": False}},
            "y": {"field": "value", "type": "quantitative", "title": None, "scale": {"domain": [0, 1]}},
            "strokeDash": {"field": "kind", "type": "nominal", "legend": None,
                           "scale": {"domain": ["pass@k", "pass^k"], "range": [[1, 0], [5, 4]]}},
        },
    }  # fmt: skip
    return Chart(
        title="pass@k and pass^k",
        note="solid: at least one of k passes; dashed: all of k do",
        spec=spec,
        description="the table below has the figures",
    )


@value_object
class TimePoint:
    """A score with its interval at one moment of many; `starts` where scores changed."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    tip: str
    when: str = ""
    link: str | None = None
    starts: bool = False


def over_time(title: str, note: str, points: Sequence[TimePoint]) -> Chart:
    """Return a score from run to run with its intervals; a line stands where scores changed."""
    shown = points[-_MOST_MOMENTS:]
    rows = [
        {"n": n, "value": p.value, "low": p.low, "high": p.high, "tip": p.tip, "starts": p.starts, "link": p.link}
        for n, p in enumerate(shown)
    ]  # fmt: skip
    step = max(math.ceil(len(shown) / _MOST_TICKS), 1)
    named = {n: shown[n].when for n in range(len(shown) - 1, -1, -step)}
    x: Spec = {"field": "n", "type": "quantitative", "title": None,
               "axis": {"values": sorted(named), "grid": False,
                        "labelExpr": f"{json.dumps({str(n): when for n, when in named.items()})}[datum.value]"},
               "scale": {"domain": [-0.5, max(len(rows) - 0.5, 0.5)], "nice": False}}  # fmt: skip
    y: Spec = {"field": "value", "type": "quantitative", "title": None, "scale": {"domain": [0, 1]}}
    spec = {
        **_frame(2 * WIDTH, 200),
        "data": {"values": rows},
        "encoding": {"x": x, "tooltip": _TIP},
        "layer": [
            {"name": "change", "transform": [{"filter": "datum.starts"}],
             "mark": {"type": "rule", "color": "var(--bad)", "strokeDash": [4, 3], "xOffset": -6}},
            {"name": "interval", "mark": {"type": "rule", "color": "var(--whisker)", "strokeWidth": 1.5},
             "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
            {"name": "line", "mark": {"type": "line", "color": "var(--c1)", "strokeWidth": 2},
             "encoding": {"y": y}},
            {"name": "point", "mark": {"type": "point", "filled": True, "size": 45, "color": "var(--c1)",
             "opacity": 1}, "encoding": {"y": y}},
        ],
    }  # fmt: skip
    return Chart(
        title=title,
        note=note,
        spec=spec,
        description="; ".join(point.tip for point in shown),
        legend=_more(points, shown),
    )


def categories(candidates: Sequence[CandidateSummary]) -> Chart | None:
    """Return the mean score of each candidate in each category as a heat map; None where it is too large."""
    short = short_names(c.candidate for c in candidates)
    rows = [
        {
            "column": short[c.candidate],
            "row": one_line(group.category or "none", width=_LONGEST_SHORT_NAME),
            "text": f"{group.score.mean:.2f}",
            "shade": shade(group.score.mean),
            "tip": f"{group.category or 'none'}, {_score_in_words(c.candidate, group)}",
            "candidate": c.candidate,
            "category": group.category,
        }
        for c in candidates
        for group in c.categories
        if group.score.mean is not None
    ]  # fmt: skip
    names = len({row["row"] for row in rows})
    if not rows or len(candidates) > 2 * _MOST_LINES or len(rows) > _MOST_CELLS or names < 2:
        return None
    shades: Mapping[str, tuple[str, str]] = {
        "all": ("var(--good-soft)", "var(--good)"), "most": ("var(--accent-soft)", "var(--accent)"),
        "some": ("var(--warn-soft)", "var(--warn)"), "zero": ("var(--bad-soft)", "var(--bad)"),
    }  # fmt: skip
    step = max(46, (WIDTH - 90) // len(candidates))
    spec = {
        **_frame({"step": step}, {"step": 28}),
        "data": {"values": rows},
        "encoding": {
            "tooltip": _TIP,
            "x": {"field": "column", "type": "nominal", "title": None, "sort": None,
                  "axis": {"orient": "top", "labelAngle": 0 if len(candidates) < 4 else -40,
                           "labelLimit": step if len(candidates) < 4 else 150}},
            "y": {"field": "row", "type": "nominal", "title": None},
        },
        "layer": [
            {"name": "cell", "mark": {"type": "rect", "stroke": "var(--card)", "strokeWidth": 3},
             "encoding": {"color": _shades(shades, 0)}},
            {"name": "score", "mark": {"type": "text", "fontSize": 12},
             "encoding": {"text": {"field": "text"}, "color": _shades(shades, 1)}},
        ],
    }  # fmt: skip
    spec["resolve"] = {"scale": {"color": "independent"}}
    return Chart(
        title="Score by category",
        note="mean of tasks",
        spec=spec,
        description="the table below has the figures",
    )


def distribution(
    title: str, unit: str, width: float, counts: Mapping[str, Sequence[int]], order: Sequence[str]
) -> Chart:
    """Return how many trials of each candidate are in each bin of this *width*, a row for each; the last bin is open."""
    every = [name for name in order if name in counts]
    shown = every[:_MOST_HISTOGRAMS]
    short = short_names(shown)
    height = (_ROW - _HISTOGRAM_TOP) / _ROW
    rows = [
        {"y": n + 1, "y2": n + 1 - height * many / max(counts[name]),
         "x": place * width, "x2": (place + 1) * width,
         "tip": f"{name}: {phrases.counted(many, 'trial')} {_bin_in_words(place, width, len(counts[name]))}",
         "candidate": name}
        for n, name in enumerate(shown)
        for place, many in enumerate(counts[name])
        if many
    ]  # fmt: skip
    names = [{"n": n, "name": short[name]} for n, name in enumerate(shown)]
    y: Spec = {"type": "quantitative", "axis": None,
               "scale": {"domain": [0, len(shown)], "reverse": True, "nice": False}}  # fmt: skip
    end = width * max(len(row) for row in counts.values())
    x: Spec = {"field": "x", "type": "quantitative", "title": unit, "axis": {"tickCount": 6},
               "scale": {"domain": [0, end], "nice": False}}  # fmt: skip
    spec = {
        **_frame(WIDTH - 10, _ROW * len(shown)),
        "layer": [
            {"name": "base", "data": {"values": names}, "mark": {"type": "rule", "color": "var(--line)"},
             "encoding": {"y": {**y, "field": "base"}}, "transform": [{"calculate": "datum.n + 1", "as": "base"}]},
            {"name": "bin", "data": {"values": rows},
             "mark": {"type": "rect", "color": "var(--bar)", "stroke": "var(--card)", "strokeWidth": 0.5},
             "encoding": {"x": x, "x2": {"field": "x2"}, "y": {**y, "field": "y"}, "y2": {"field": "y2"},
                          "tooltip": _TIP}},
            {"name": "label", "data": {"values": names},
             "mark": {"type": "text", "align": "left", "baseline": "top", "dy": 7, "fontSize": 12,
                      "color": "var(--text)", "limit": WIDTH - 20},
             "encoding": {"text": {"field": "name"}, "x": {"value": 0}, "y": {**y, "field": "n"}}},
        ],
    }  # fmt: skip
    return Chart(
        title=title,
        note="how many trials, each row on a scale of its own",
        spec=spec,
        description="trials of each candidate in each bin; the table above has medians",
        legend=_more(every, shown),
    )


def _bin_in_words(place: int, width: float, bins: int) -> str:
    start = f"{place * width:.3g}"
    return f"from {start} on" if place == bins - 1 else f"from {start} to {(place + 1) * width:.3g}"


def _shades(shades: Mapping[str, tuple[str, str]], which: int) -> Spec:
    scale = {"domain": list(shades), "range": [pair[which] for pair in shades.values()]}
    return {"field": "shade", "type": "nominal", "legend": None, "scale": scale}


def shade(mean: float) -> str:
    """Return the style class of a score: all, most, some or zero."""
    if mean >= 1:
        return "all"
    return "most" if mean >= 0.5 else "some" if mean > 0 else "zero"


def of_run(summary: Summary, *, pairs: int) -> Mapping[str, Sequence[Chart]]:
    """Return the charts of a run by section, those that its data allow; at most *pairs* differences."""
    candidates = phrases.in_order(summary)
    shown = decision.worth_showing(summary.pairwise, most=pairs) if summary.pairwise else []
    several = any(len(candidate.total.passes) > 1 for candidate in candidates)
    return {
        "scores": [scores(candidates)],
        "differences": [differences(shown)] if shown else [],
        "trade_offs": trade_offs(candidates),
        "passes": [chart for chart in [passes(candidates)] if chart and several],
        "categories": [chart for chart in [categories(candidates)] if chart],
    }
