"""The figures of a run on its page: scores, differences, pass@k, categories, time and cost."""

from collections.abc import Iterator, Sequence

from bakeoff.reports import decision, in_words, summary_words
from bakeoff.reports.html_charts import Bar, around_zero, strip
from bakeoff.reports.html_page import Column, named, remarks, table
from bakeoff.stats.paired import NO_DECISION, Pair
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.rankings import Placed
from bakeoff.stats.summary import CandidateSummary, Group, PassRates, Summary

_MOST_PAIRS = 45
_MOST_GROUPS = 300
_MOST_KS = 6
_MOST_REMARKS = 8


def figures(summary: Summary) -> Iterator[str]:
    """Yield each table that there is something for."""
    yield from _scores(summary)
    if summary.pairwise is not None:
        yield from _differences(summary.pairwise)
    if any(len(one.total.passes) > 1 for one in summary.candidates):
        yield from _passes(summary_words.in_order(summary), summary.pass_rule)
    if any(len(one.categories) > 1 for one in summary.candidates):
        yield from _categories(summary_words.in_order(summary))
    yield from _speed(summary)


# --- scores -----------------------------------------------------------------------------------

_SCORE = (Column("Score"), Column("", "wide"), Column("95 % interval", "range"))
_TRUST = (Column("Passed"), Column("Coverage"), Column("Faults"))


def _scores(summary: Summary) -> Iterator[str]:
    placed = summary.pairwise.ranks if summary.pairwise else ()
    ranks = {one.candidate: one for one in placed}
    ranked = [Column("Rank")] if len(placed) > 2 and placed[0].best is not None else []
    columns = (Column("Candidate"), *ranked, *_SCORE, *_TRUST)
    yield "<h2>Scores</h2>"
    rows = (
        [_name(one), *([_rank(ranks.get(one.candidate))] if ranked else []), *_score(one.total),
         *_trust(one.total)]
        for one in summary_words.in_order(summary)
    )  # fmt: skip
    yield table(columns, rows)
    told = list(summary_words.shared_reasons(summary))
    more = (
        f"{len(told) - _MOST_REMARKS:,} more lines: bakeoff summarize"
        if told[_MOST_REMARKS:]
        else ""
    )
    ordered = map(in_words.sentence, summary_words.order(summary))
    yield remarks([in_words.sentence(summary.pass_rule), *ordered, *told[:_MOST_REMARKS], more])


def _rank(placed: Placed | None) -> str:
    return in_words.rank_range(placed.best, placed.worst) if placed else in_words.UNKNOWN


def _name(one: CandidateSummary) -> str:
    return named(one.candidate) + ("<small>scripted</small>" if one.scripted else "")


def _score(group: Group) -> list[str]:
    score = group.score
    bar = Bar(
        label="score",
        value=score.mean,
        told=in_words.score(score.mean),
        low=score.interval.low if score.interval else None,
        high=score.interval.high if score.interval else None,
    )
    return [f"<b>{in_words.score(score.mean)}</b>", strip(bar), in_words.interval(score.interval)]


def _trust(group: Group) -> list[str]:
    known = group.score.trials
    passed = f"{group.passed:,} of {known:,}" if known else in_words.UNKNOWN
    return [passed, in_words.share(group.coverage), f"{group.buckets.faults:,}"]


# --- differences ------------------------------------------------------------------------------

_PAIR = (
    Column("A, against B"),
    Column("A − B"),
    Column("", "wide"),
    Column("95 % interval", "range"),
)


def _differences(found: Pairwise) -> Iterator[str]:
    shown = decision.worth_showing(found, most=_MOST_PAIRS)
    yield "<h2>Differences</h2>"
    if shown:
        ends = [abs(end) for p in shown if p.interval for end in (p.interval.low, p.interval.high)]
        most = max([*ends, *(abs(p.difference or 0.0) for p in shown)]) or 1.0
        planned = any(pair.detectable is not None for pair in shown)
        seen = (Column("p (Holm)"), *([Column("MDE")] if planned else []))
        columns = (*_PAIR, *seen, Column("Verdict", "left words"))
        yield table(columns, ([*_pair(pair, most, planned=planned)] for pair in shown))
    yield remarks(
        in_words.sentence(line) for line in decision.remarks(found, shown, with_ranks=False)
    )


def _pair(pair: Pair, most: float, *, planned: bool) -> Iterator[str]:
    low, high = (pair.interval.low, pair.interval.high) if pair.interval else (None, None)
    yield f"{named(pair.first)}<small>against {named(pair.second)}</small>"
    yield f"<b>{in_words.difference(pair.difference)}</b>"
    yield around_zero(pair.difference or 0.0, low, high, most=most)
    yield in_words.interval(pair.interval, in_words.difference)
    yield in_words.p_value(pair.p_holm)
    if planned:
        yield in_words.score(pair.detectable)
    kind = "mixed" if pair.better is None else "success"
    told = NO_DECISION if pair.better is None else decision.in_short(pair)
    small = f"<small>{named(pair.undecided)}</small>" if pair.undecided else ""
    yield f'<span><span class="chip {kind}">{named(told)}</span>{small}</span>'


# --- pass@k, categories -----------------------------------------------------------------------


def _passes(candidates: Sequence[CandidateSummary], rule: str) -> Iterator[str]:
    ks = sorted({rate.k for one in candidates for rate in one.total.passes})
    # the first ones and the last: what is between can be guessed, or read as JSON
    ks = ks if len(ks) <= _MOST_KS else [*ks[: _MOST_KS - 1], ks[-1]]
    yield "<h2>pass@k and pass^k</h2>"
    columns = (Column("Candidate"), *(Column(f"k = {k}") for k in ks))
    yield table(columns, ([_name(one), *_rates(one.total.passes, ks)] for one in candidates))
    about = "At least one of k rollouts passes; below it: all of k do."
    yield remarks([about, in_words.sentence(rule)])


def _rates(passes: Sequence[PassRates], ks: Sequence[int]) -> Iterator[str]:
    known = {rate.k: rate for rate in passes}
    for k in ks:
        rate = known.get(k)
        at, hat = (rate.pass_at, rate.pass_hat) if rate else (None, None)
        yield f"<span>{in_words.score(at)}<small>{in_words.score(hat)}</small></span>"


def _categories(candidates: Sequence[CandidateSummary]) -> Iterator[str]:
    groups = [(g.category or "", one, g) for one in candidates for g in one.categories]
    shown = sorted(groups, key=lambda group: group[0])[:_MOST_GROUPS]
    yield "<h2>By category</h2>"
    columns = (Column("Category"), Column("Tasks"), *_SCORE, *_TRUST)
    rows = (
        [f"{named(name)}<small>{named(one.candidate)}</small>", f"{group.score.tasks:,}",
         *_score(group), *_trust(group)]
        for name, one, group in shown
    )  # fmt: skip
    yield table(columns, rows)
    if len(groups) > len(shown):
        yield remarks([f"{len(groups) - len(shown):,} more in summary.json"])


# --- time and cost ----------------------------------------------------------------------------

_SPEED = (
    Column("Candidate"), Column("Latency p50"), Column("p95"), Column("First token"),
    Column("Tokens in"), Column("Tokens out"), Column("Tokens/s"), Column("Cost"),
)  # fmt: skip


def _speed(summary: Summary) -> Iterator[str]:
    yield "<h2>Time, tokens and cost</h2>"
    yield table(
        _SPEED, ([_name(one), *_took(one.total)] for one in summary_words.in_order(summary))
    )
    told = "Latency is that of a request to the model, without queues and scoring."
    yield remarks([told, in_words.sentence(summary_words.billed(summary.billed))])


def _took(group: Group) -> list[str]:
    tokens, latency = group.tokens, group.latency
    return [
        in_words.seconds(latency.p50_s),
        in_words.seconds(latency.p95_s),
        in_words.seconds(latency.first_token_p50_s),
        in_words.number(tokens.input),
        in_words.number(tokens.output),
        in_words.number(tokens.output_per_s),
        in_words.dollars(tokens.cost_usd),
    ]
