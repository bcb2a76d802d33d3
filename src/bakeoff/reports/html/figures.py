"""The charts and tables of a run page: scores, differences, pass@k, categories, time and cost."""

from collections.abc import Iterator, Sequence

from bakeoff._lib.value_object import value_object
from bakeoff.reports.html.page import Column, named, remarks, table
from bakeoff.reports.html.text import esc
from bakeoff.reports.wording import decision, phrases
from bakeoff.reports.wording import phrases as summary_words
from bakeoff.stats.paired import NO_DECISION, Pair
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.rankings import RankedCandidate
from bakeoff.stats.summary import CandidateSummary, Group, PassRates, Summary

_ROW = 46
_BAR_TOP = 22
_BAR = 12
_STRIP = 22
_LONGEST_LABEL = 34
_MOST_PAIRS = 45
_MOST_GROUPS = 300
_MOST_KS = 6
_MOST_REMARKS = 8
_SCORE = (Column("Score"), Column("", "wide"), Column("95 % interval", "range"))
_TRUST = (Column("Passed"), Column("Coverage"), Column("Faults"))
_PAIR = (
    Column("A, against B"),
    Column("A − B"),
    Column("", "wide"),
    Column("95 % interval", "range"),
)
_SPEED = (
    Column("Candidate"), Column("Latency p50"), Column("p95"), Column("First token"),
    Column("Tokens in"), Column("Tokens out"), Column("Tokens/s"), Column("Cost"),
)  # fmt: skip


@value_object
class Bar:
    """One bar. `low` and `high` are its interval, `dots` the single values; `kind` is its colour."""

    label: str
    value: float | None
    text: str
    low: float | None = None
    high: float | None = None
    dots: tuple[float, ...] = ()
    kind: str = "plain"


def bar_chart(title: str, note: str, bars: Sequence[Bar], *, most: float | None = None) -> str:
    """Return a figure with a bar for each of *bars*; *most* is the end of the axis."""
    end = most or _end(bars)
    rows = "".join(_row(bar, number * _ROW, end) for number, bar in enumerate(bars))
    description = "; ".join(f"{bar.label}: {bar.text}" for bar in bars)
    return (
        f'<figure class="chart"><figcaption><b>{esc(title)}</b><span>{esc(note)}</span></figcaption>'
        f'<svg role="img" aria-label="{esc(f"{title}. {description}")}" width="100%" '
        f'height="{len(bars) * _ROW}">{rows}</svg></figure>'
    )


def _end(bars: Sequence[Bar]) -> float:
    """Return the end of the axis: the largest value drawn."""
    drawn = [value for bar in bars for value in (bar.value, bar.high, *bar.dots) if value]
    return max(drawn, default=1.0)


def strip(bar: Bar, *, most: float = 1.0) -> str:
    """Return one bar alone, for a cell of a table, from 0 to *most*."""
    return _alone(f"{bar.label}: {bar.text}", _drawn(bar, 5, most))


def around_zero(value: float, low: float | None, high: float | None, *, most: float) -> str:
    """Return a difference with its interval, on an axis from -*most* to *most*."""
    middle = _STRIP // 2
    parts = [
        f'<line class="axis" x1="0" x2="100%" y1="{middle}" y2="{middle}"/>',
        f'<line class="zero" x1="50%" x2="50%" y1="0" y2="{_STRIP}"/>',
    ]
    if low is not None and high is not None:
        parts.append(_whisker(_at_signed(low, most), _at_signed(high, most), middle))
    parts.append(f'<circle class="point" cx="{_at_signed(value, most)}" cy="{middle}" r="4.5"/>')
    return _alone(f"difference {value:+.3f}", "".join(parts))


def _alone(description: str, drawn: str) -> str:
    return f'<svg role="img" aria-label="{esc(description)}" width="100%" height="{_STRIP}">{drawn}</svg>'


def _row(bar: Bar, top: int, end: float) -> str:
    label = bar.label if len(bar.label) <= _LONGEST_LABEL else f"{bar.label[:_LONGEST_LABEL]}…"
    return (
        f'<text class="label" x="0" y="{top + 14}">{esc(label)}</text>'
        f'<text class="value" x="100%" y="{top + 14}" text-anchor="end">{esc(bar.text)}</text>'
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
    """Return the position of *value* on the axis in per cent, clamped to its ends."""
    return f"{min(max(value / end, 0.0), 1.0) * 100:.2f}%"


def _at_signed(value: float, most: float) -> str:
    """Return the position of *value* on an axis from -*most* to *most*."""
    return _at(value + most, 2 * most)


def figures(summary: Summary) -> Iterator[str]:
    """Yield each table that has data."""
    yield from _scores(summary)
    if summary.pairwise is not None:
        yield from _differences(summary.pairwise)
    if any(len(candidate.total.passes) > 1 for candidate in summary.candidates):
        yield from _passes(summary_words.in_order(summary), summary.pass_rule)
    if any(len(candidate.categories) > 1 for candidate in summary.candidates):
        yield from _categories(summary_words.in_order(summary))
    yield from _speed(summary)


# --- scores -----------------------------------------------------------------------------------


def _scores(summary: Summary) -> Iterator[str]:
    placed = summary.pairwise.ranks if summary.pairwise else ()
    ranks = {candidate.candidate: candidate for candidate in placed}
    ranked = [Column("Rank")] if len(placed) > 2 and placed[0].best is not None else []
    columns = (Column("Candidate"), *ranked, *_SCORE, *_TRUST)
    yield "<h2>Scores</h2>"
    rows = (
        [_name(candidate), *([_rank(ranks.get(candidate.candidate))] if ranked else []), *_score(candidate.total),
         *_trust(candidate.total)]
        for candidate in summary_words.in_order(summary)
    )  # fmt: skip
    yield table(columns, rows)
    reasons = list(summary_words.shared_reasons(summary))
    more = (
        f"{len(reasons) - _MOST_REMARKS:,} more lines: bakeoff summarize"
        if reasons[_MOST_REMARKS:]
        else ""
    )
    ordered = map(phrases.sentence, summary_words.order(summary))
    yield remarks([phrases.sentence(summary.pass_rule), *ordered, *reasons[:_MOST_REMARKS], more])


def _rank(placed: RankedCandidate | None) -> str:
    return phrases.rank_range(placed.best, placed.worst) if placed else phrases.UNKNOWN


def _name(candidate: CandidateSummary) -> str:
    return named(candidate.candidate) + ("<small>scripted</small>" if candidate.scripted else "")


def _score(group: Group) -> list[str]:
    score = group.score
    bar = Bar(
        label="score",
        value=score.mean,
        text=phrases.score(score.mean),
        low=score.interval.low if score.interval else None,
        high=score.interval.high if score.interval else None,
    )
    return [f"<b>{phrases.score(score.mean)}</b>", strip(bar), phrases.interval(score.interval)]


def _trust(group: Group) -> list[str]:
    known = group.score.trials
    passed = f"{group.passed:,} of {known:,}" if known else phrases.UNKNOWN
    return [passed, phrases.share(group.coverage), f"{group.buckets.faults:,}"]


# --- differences ------------------------------------------------------------------------------


def _differences(pairwise: Pairwise) -> Iterator[str]:
    shown = decision.worth_showing(pairwise, most=_MOST_PAIRS)
    yield "<h2>Differences</h2>"
    if shown:
        ends = [abs(end) for p in shown if p.interval for end in (p.interval.low, p.interval.high)]
        most = max([*ends, *(abs(p.difference or 0.0) for p in shown)]) or 1.0
        planned = any(pair.detectable is not None for pair in shown)
        seen = (Column("p (Holm)"), *([Column("MDE")] if planned else []))
        columns = (*_PAIR, *seen, Column("Verdict", "left words"))
        yield table(columns, ([*_pair(pair, most, planned=planned)] for pair in shown))
    yield remarks(
        phrases.sentence(line) for line in decision.remarks(pairwise, shown, with_ranks=False)
    )


def _pair(pair: Pair, most: float, *, planned: bool) -> Iterator[str]:
    low, high = (pair.interval.low, pair.interval.high) if pair.interval else (None, None)
    yield f"{named(pair.first)}<small>against {named(pair.second)}</small>"
    yield f"<b>{phrases.difference(pair.difference)}</b>"
    yield around_zero(pair.difference or 0.0, low, high, most=most)
    yield phrases.interval(pair.interval, phrases.difference)
    yield phrases.p_value(pair.p_holm)
    if planned:
        yield phrases.score(pair.detectable)
    kind = "mixed" if pair.better is None else "success"
    verdict = NO_DECISION if pair.better is None else decision.in_short(pair)
    small = f"<small>{named(pair.undecided)}</small>" if pair.undecided else ""
    yield f'<span><span class="chip {kind}">{named(verdict)}</span>{small}</span>'


# --- pass@k, categories -----------------------------------------------------------------------


def _passes(candidates: Sequence[CandidateSummary], rule: str) -> Iterator[str]:
    ks = sorted({rate.k for candidate in candidates for rate in candidate.total.passes})
    # the first ones and the last; the others are in the JSON report
    ks = ks if len(ks) <= _MOST_KS else [*ks[: _MOST_KS - 1], ks[-1]]
    yield "<h2>pass@k and pass^k</h2>"
    columns = (Column("Candidate"), *(Column(f"k = {k}") for k in ks))
    yield table(
        columns,
        ([_name(candidate), *_rates(candidate.total.passes, ks)] for candidate in candidates),
    )
    about = "At least one of k rollouts passes; below it: all of k do."
    yield remarks([about, phrases.sentence(rule)])


def _rates(passes: Sequence[PassRates], ks: Sequence[int]) -> Iterator[str]:
    known = {rate.k: rate for rate in passes}
    for k in ks:
        rate = known.get(k)
        at, hat = (rate.pass_at, rate.pass_hat) if rate else (None, None)
        yield f"<span>{phrases.score(at)}<small>{phrases.score(hat)}</small></span>"


def _categories(candidates: Sequence[CandidateSummary]) -> Iterator[str]:
    groups = [
        (g.category or "", candidate, g) for candidate in candidates for g in candidate.categories
    ]
    shown = sorted(groups, key=lambda group: group[0])[:_MOST_GROUPS]
    yield "<h2>By category</h2>"
    columns = (Column("Category"), Column("Tasks"), *_SCORE, *_TRUST)
    rows = (
        [f"{named(name)}<small>{named(candidate.candidate)}</small>", f"{group.score.tasks:,}",
         *_score(group), *_trust(group)]
        for name, candidate, group in shown
    )  # fmt: skip
    yield table(columns, rows)
    if len(groups) > len(shown):
        yield remarks([f"{len(groups) - len(shown):,} more in summary.json"])


# --- time and cost ----------------------------------------------------------------------------


def _speed(summary: Summary) -> Iterator[str]:
    yield "<h2>Time, tokens and cost</h2>"
    yield table(
        _SPEED,
        (
            [_name(candidate), *_took(candidate.total)]
            for candidate in summary_words.in_order(summary)
        ),
    )
    explanation = "Latency is that of a request to the model, without queues and scoring."
    yield remarks([explanation, phrases.sentence(summary_words.billed(summary.billed))])


def _took(group: Group) -> list[str]:
    tokens, latency = group.tokens, group.latency
    return [
        phrases.seconds(latency.p50_s),
        phrases.seconds(latency.p95_s),
        phrases.seconds(latency.first_token_p50_s),
        phrases.number(tokens.input),
        phrases.number(tokens.output),
        phrases.number(tokens.output_per_s),
        phrases.dollars(tokens.cost_usd),
    ]
