"""A comparison as one HTML file: no script, no request to anywhere, all foreign text as text."""

from collections.abc import Callable, Iterator, Sequence

from bakeoff.reports import in_words
from bakeoff.reports.comparison import Comparison, Competitor, in_order
from bakeoff.reports.html_batch_models import about, anchor, model_details
from bakeoff.reports.html_charts import Bar, bar_chart
from bakeoff.reports.html_page import Column, Tile, header, notes, page, table, tiles
from bakeoff.reports.html_text import chip, esc
from bakeoff.reports.in_words import Told
from bakeoff.stats.head_to_head import Mean, Means
from bakeoff.stats.rankings import Placed, Ranking


def render(comparison: Comparison) -> str:
    """Return the whole page."""
    return "".join(page(f"{comparison.title}: {comparison.batch_id}", _body(comparison)))


def _body(comparison: Comparison) -> Iterator[str]:
    yield _header(comparison)
    yield _tiles(comparison)
    yield notes(comparison.result.notes)
    yield _results(comparison)
    yield _podiums(comparison)
    yield _charts(comparison)
    yield model_details(comparison)
    yield about(comparison)
    yield (
        "<footer>Made by Bakeoff from the ledger in <code>run/</code>; "
        "<code>bakeoff show</code> and <code>bakeoff eval</code> work on it.</footer>"
    )


def _header(comparison: Comparison) -> str:
    setting = comparison.setting
    facts = [
        f"task {comparison.task}",
        f"agent {setting.agent}",
        f"sandbox {setting.sandbox}" if setting.sandbox else "no sandbox",
        f"limit {in_words.duration(setting.limit_s)}" if setting.limit_s else "no time limit",
        in_words.counted(setting.rollouts, "rollout") + " per model",
        f"judged by {setting.judge}" if setting.judge else "",
        f"helped by {setting.instructor}" if setting.instructor else "",
        in_words.moment(comparison.timestamp),
    ]
    return header("Batch comparison", comparison.batch_id, comparison.title, facts)


def _tiles(comparison: Comparison) -> str:
    result = comparison.result
    shown = [
        Tile(str(len(comparison.competitors)), "models tested"),
        Tile(str(result.successful), "solved the task", "good" if result.successful else ""),
        Tile(str(result.failed), "did not", "bad" if result.failed else ""),
    ]
    if result.broken:
        shown.append(Tile(str(result.broken), "broke", "bad"))
    if result.undecided:
        shown.append(Tile(str(result.undecided), "undecided"))
    return tiles([*shown, Tile(in_words.seconds(comparison.total_time_s), "in all")])


# --- results ----------------------------------------------------------------------------------

_COLUMNS = (
    Column("Model"), Column("Result", "left"), Column("Time"), Column("Prompts"),
    Column("Interventions"), Column("Files"), Column("Lines"), Column("Tokens"), Column("Cost"),
)  # fmt: skip


_REASON = 90  # characters; all of it is with the model below


def _results(comparison: Comparison) -> str:
    rows = [_row(one, n) for n, one in enumerate(in_order(comparison), start=1)]
    return f"<h2>Results</h2>{table(_COLUMNS, rows)}"


def _row(one: Competitor, number: int) -> list[str]:
    figures, means = one.figures, one.figures.means
    several = figures.planned > 1
    rate = ""
    if several and figures.rate is not None:
        rate = f"{in_words.share(figures.rate)} ({in_words.share_range(figures.rate_interval)})"
    own = "" if one.display_name == one.model else f"<small>{esc(one.model)}</small>"
    lines = (
        in_words.UNKNOWN
        if means.added.value is None
        else f'<span class="plus">+{in_words.number(means.added.value)}</span> '
        f'<span class="minus">−{in_words.number(means.removed.value)}</span>'
    )
    told = chip(one.status, figures.rollouts)
    notes = f"<small>{esc(rate)}</small>" if rate else ""
    if one.error and not figures.finished:
        why = in_words.shortened(one.error, _REASON)
        notes += f'<small class="reason">{esc(why)}</small>'
    return [
        f'<a href="#{anchor(number)}">{esc(one.display_name)}</a>{own}',
        f'<span class="result">{told}{notes}</span>',
        in_words.seconds(means.seconds.value),
        in_words.number(means.prompts.value),
        in_words.number(means.interventions.value),
        in_words.number(means.files.value),
        f"<span>{lines}</span>",
        in_words.number(means.tokens.value),
        in_words.dollars(means.cost_usd.value),
    ]


# --- rankings ---------------------------------------------------------------------------------


def _podiums(comparison: Comparison) -> str:
    result = comparison.result
    if not result.successful and result.to_solve is None:
        nobody = "Nobody to rank: no model is known to have solved the task."
        return f'<h2>Rankings</h2><p class="quiet">{nobody}</p>'
    cards = [
        _podium(comparison, "Fastest", "time until done, among those that solved it and finished",
                result.fastest, in_words.seconds),
        _podium(comparison, "Most efficient", "prompts sent, among those that solved it and finished",
                result.most_efficient, in_words.number),
        _podium(comparison, "Most autonomous", "human interventions, among those that solved it and finished",
                result.least_intervention, in_words.number),
    ]  # fmt: skip
    if result.to_solve is not None and result.to_solve.placed:
        limit = in_words.seconds(result.horizon_s)
        what = f"mean time to solve; what was not solved counts {limit}"
        cards.append(
            _podium(comparison, "Surest and fastest", what, result.to_solve, in_words.seconds)
        )
    four = " four" if len(cards) == 4 else ""
    return f'<h2>Rankings</h2><section class="podiums{four}">{"".join(cards)}</section>'


def _podium(comparison: Comparison, title: str, what: str, ranking: Ranking, told: Told) -> str:
    items = "".join(
        f'<li><span class="{_medal(comparison, place)}">{place.rank}</span>'
        f'<span class="name">{esc(comparison.named(place.candidate))}</span>'
        f'<span class="figure">{esc(_figure(comparison, place, told))}</span>'
        f"{_range(place.best, place.worst)}</li>"
        for place in ranking.placed
    )
    nobody = '<p class="quiet">No model solved the task and finished.</p>'
    shown = f"<ol>{items}</ol>" if items else nobody
    why = (
        f'<p class="why">{esc(in_words.sentence(ranking.reason))}</p>'
        if items and ranking.reason
        else ""
    )
    return (
        f'<div class="card podium"><h3>{esc(title)}</h3><p class="quiet">{esc(what)}</p>{shown}{why}'
        "</div>"
    )


def _medal(comparison: Comparison, place: Placed) -> str:
    return f"medal m{place.rank}" if comparison.solved(place.candidate) else "medal"


def _figure(comparison: Comparison, place: Placed, told: Told) -> str:
    return told(place.value) if comparison.solved(place.candidate) else in_words.NOT_SOLVED


def _range(best: int | None, worst: int | None) -> str:
    told = in_words.rank_range(best, worst)
    if not told:
        return ""
    could = f"rank {told} at 95 %" if best == worst else f"could be rank {told}"
    return f'<span class="range">{esc(could)}</span>'


# --- charts -----------------------------------------------------------------------------------


def _charts(comparison: Comparison) -> str:
    shown = in_order(comparison)
    charts = [
        bar_chart("Success", "share of rollouts, 95 % interval (Wilson)",
                  [_rate(c) for c in shown], most=1.0),
        *_figures(shown),
    ]  # fmt: skip
    shape, unpriced = (" five", "") if len(charts) == _ALL_CHARTS else (" four", _UNPRICED)
    return (
        f'<h2>Charts</h2><p class="quiet">{_legend(shown)}</p>'
        f'<section class="charts{shape}">{"".join(charts)}</section>{unpriced}'
    )


_ALL_CHARTS = 5
_UNPRICED = (
    '<p class="quiet below">No chart of cost: no price is known for any of these models.</p>'
)


def _legend(shown: Sequence[Competitor]) -> str:
    several = any(c.figures.planned > 1 for c in shown)
    told = (
        "Bars are means with 95 % intervals, dots are rollouts" if several else "One rollout each"
    )
    unsolved = any(c.figures.success is False for c in shown)
    return f"{told}; grey: did not solve the task." if unsolved else f"{told}."


def _figures(shown: Sequence[Competitor]) -> Iterator[str]:
    kinds: list[tuple[str, str, Callable[[Means], Mean], Told]] = [
        ("Time", "of the agent", lambda m: m.seconds, in_words.seconds),
        ("Prompts", "sent to the model", lambda m: m.prompts, in_words.number),
        ("Tokens", "in and out", lambda m: m.tokens, in_words.number),
        ("Cost", "per rollout", lambda m: m.cost_usd, in_words.dollars),
    ]
    for title, note, taken, told in kinds:
        means = [(c, taken(c.figures.means)) for c in shown]
        if title == "Cost" and all(mean.value is None for _, mean in means):
            continue  # no price is known: there is nothing to draw
        yield bar_chart(title, note, [_bar(c, mean, told(mean.value)) for c, mean in means])


def _bar(one: Competitor, mean: Mean, told: str) -> Bar:
    interval = mean.interval
    return Bar(
        label=one.display_name,
        value=mean.value,
        told=told,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        dots=mean.values if len(mean.values) > 1 else (),
        kind="plain" if one.figures.success is not False else "unsolved",
    )


def _rate(one: Competitor) -> Bar:
    figures = one.figures
    told = one.status if figures.rate is None else f"{figures.passed} of {figures.decided}"
    interval = figures.rate_interval
    return Bar(
        label=one.display_name,
        value=figures.rate,
        told=told,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        kind="success",
    )
