"""A comparison as one HTML file: no script, no request to anywhere, all foreign text as text."""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from bakeoff.reports import in_words
from bakeoff.reports.comparison import Comparison, Competitor, in_order
from bakeoff.reports.html_charts import Bar, bar_chart
from bakeoff.reports.html_details import about, anchor, model_details
from bakeoff.reports.html_style import STYLE
from bakeoff.reports.html_text import chip, esc
from bakeoff.reports.in_words import Told
from bakeoff.stats.head_to_head import Mean, Means
from bakeoff.stats.rankings import Ranking


def render(comparison: Comparison) -> str:
    """Return the whole page."""
    body = "".join(
        (
            _header(comparison),
            _tiles(comparison),
            _notes(comparison.result.notes),
            _results(comparison),
            _podiums(comparison),
            _charts(comparison),
            model_details(comparison),
            about(comparison),
            "<footer>Made by Bakeoff from the ledger in <code>run/</code>; "
            "<code>bakeoff show</code> and <code>bakeoff eval</code> work on it.</footer>",
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">\n'
        f"<title>{esc(comparison.title)}: {esc(comparison.batch_id)}</title>\n"
        f"<style>{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n"
    )


def _policy() -> str:
    """Return what the page may load: its own style sheet, and nothing else at all."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
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
        comparison.timestamp[:16].replace("T", " ") + " UTC",
    ]
    items = "".join(f"<li>{esc(fact)}</li>" for fact in facts if fact)
    return (
        f'<header><div class="eyebrow"><span>Batch comparison</span> · {esc(comparison.batch_id)}</div>'
        f'<h1>{esc(comparison.title)}</h1><ul class="facts">{items}</ul></header>'
    )


def _tiles(comparison: Comparison) -> str:
    result = comparison.result
    failed = result.failed - result.broken
    tiles = [
        ("", str(len(comparison.competitors)), "models tested"),
        ("good" if result.successful else "", str(result.successful), "solved the task"),
        ("bad" if failed else "", str(failed), "did not"),
    ]
    if result.broken:
        tiles.append(("bad", str(result.broken), "broke"))
    if result.undecided:
        tiles.append(("", str(result.undecided), "undecided"))
    tiles.append(("", in_words.seconds(comparison.total_time_s), "in all"))
    shown = "".join(
        f'<div class="tile {kind}"><b>{esc(figure)}</b><span>{esc(what)}</span></div>'
        for kind, figure, what in tiles
    )
    return f'<section class="tiles" aria-label="Summary">{shown}</section>'


def _notes(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{esc(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


# --- results ----------------------------------------------------------------------------------


def _results(comparison: Comparison) -> str:
    names = ["Model", "Result", "Time", "Prompts", "Interventions", "Files", "Lines", "Tokens", "Cost"]  # fmt: skip
    heads = "".join(
        f'<th scope="col"{" class=left" if name == "Result" else ""}>{name}</th>' for name in names
    )
    rows = "".join(_row(one, n) for n, one in enumerate(in_order(comparison), start=1))
    return (
        '<h2>Results</h2><div class="card table"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(one: Competitor, number: int) -> str:
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
    cells = [
        ("Result", f"<span>{told}{f'<small>{esc(rate)}</small>' if rate else ''}</span>"),
        ("Time", in_words.seconds(means.seconds.value)),
        ("Prompts", in_words.number(means.prompts.value)),
        ("Interventions", in_words.number(means.interventions.value)),
        ("Files", in_words.number(means.files.value)),
        ("Lines", f"<span>{lines}</span>"),
        ("Tokens", in_words.number(means.tokens.value)),
        ("Cost", in_words.dollars(means.cost_usd.value)),
    ]  # fmt: skip
    shown = "".join(
        f'<td data-name="{name}"{" class=left" if name == "Result" else ""}>{value}</td>'
        for name, value in cells
    )
    name = f'<a href="#{anchor(number)}">{esc(one.display_name)}</a>'
    return f"<tr><td>{name}{own}</td>{shown}</tr>"


# --- rankings ---------------------------------------------------------------------------------


def _podiums(comparison: Comparison) -> str:
    result = comparison.result
    if not result.successful and result.to_solve is None:
        nobody = "Nobody to rank: no model is known to have solved the task."
        return f'<h2>Rankings</h2><p class="quiet">{nobody}</p>'
    cards = [
        _podium(comparison, "Fastest", "time until done, among the successful",
                result.fastest, in_words.seconds),
        _podium(comparison, "Most efficient", "prompts sent, among the successful",
                result.most_efficient, in_words.number),
        _podium(comparison, "Most autonomous", "human interventions, among the successful",
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
        f'<li><span class="medal m{place.rank}">{place.rank}</span>'
        f'<span class="name">{esc(comparison.named(place.candidate))}</span>'
        f'<span class="figure">{esc(told(place.value))}</span>'
        f"{_range(place.best, place.worst)}</li>"
        for place in ranking.placed
    )
    shown = f"<ol>{items}</ol>" if items else '<p class="quiet">No model solved the task.</p>'
    why = f'<p class="why">{esc(_sentence(ranking.reason))}</p>' if items and ranking.reason else ""
    return (
        f'<div class="card podium"><h3>{esc(title)}</h3><p class="quiet">{esc(what)}</p>{shown}{why}'
        "</div>"
    )


def _sentence(text: str | None) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


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
