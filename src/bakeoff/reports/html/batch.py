"""A batch comparison as one self-contained HTML file."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from bakeoff.core.values import Json
from bakeoff.reports.comparison import Comparison, Competitor, in_order
from bakeoff.reports.html.figures import Bar, bar_chart
from bakeoff.reports.html.page import Column, Tile, header, listed, notes, page, table, tiles
from bakeoff.reports.html.text import chip, code, esc
from bakeoff.reports.html.trials import evidence_html
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.findings import Evidence
from bakeoff.reports.wording.phrases import Formatter
from bakeoff.stats.censored import TimeToSolve
from bakeoff.stats.head_to_head import Mean, Means, RolloutFigures
from bakeoff.stats.rankings import RankedCandidate, Ranking

_MOST_EVIDENCE = 20_000_000
_ELSEWHERE = (
    '<p class="quiet">This page is at its size limit; the rest is in the folder run/artifacts.</p>'
)
_SERVED = {
    "digest": "Digest",
    "quantization": "Quantisation",
    "size_bytes": "Size",
    "context_length": "Context length",
    "parameter_count": "Parameters",
    "family": "Family",
}
_METHOD = """\
Success is what the hidden check, or else the judge, said of the work in a clean copy of the files; \
without either the result is unchecked. Time is the agent's own, without set-up and grading. Prompts \
are requests made to the model, interventions are messages that the instructor had to add after the first. \
A model counts as successful where more than half of its rollouts solved the task. \
Work that passes though its agent was stopped at the limit is a success, and is not ranked among \
those that finished: it is unknown how long finishing would have taken. \
Rankings compare every two models with a permutation test over rollouts, adjusted after Holm; a rank \
range is what the data leave open at 95 %, whatever a rollout that broke would have taken. The mean time to solve is the area under a Kaplan-Meier \
curve up to the time limit: what was not solved or not finished is censored there, what broke at the \
moment it broke. \
All of it holds for this one task."""
_MACHINE = {
    "cpu": "CPU",
    "cores": "Cores",
    "memory_bytes": "Memory",
    "os": "System",
    "python": "Python",
    "bakeoff": "Bakeoff",
    "ollama": "Ollama",
}
_COLUMNS = (
    Column("Model"), Column("Result", "left"), Column("Time"), Column("Prompts"),
    Column("Interventions"), Column("Files"), Column("Lines"), Column("Tokens"), Column("Cost"),
)  # fmt: skip
_REASON = 90  # characters; the section of the model has the whole text
_ALL_CHARTS = 5
_UNPRICED = (
    '<p class="quiet below">No chart of cost: no price is known for any of these models.</p>'
)


def model_details(comparison: Comparison) -> str:
    """Return an expandable section per model, with evidence up to the size limit."""
    shown, remaining = [], _MOST_EVIDENCE
    for number, competitor in enumerate(in_order(comparison), start=1):
        rollouts = []
        for rollout, evidence in zip(competitor.figures.rollouts, competitor.evidence, strict=True):
            alone = competitor.figures.planned == 1
            html = _rollout(rollout, evidence, alone=alone) if remaining > 0 else _ELSEWHERE
            remaining -= len(html)
            rollouts.append(html)
        shown.append(_model(competitor, anchor(number), "".join(dict.fromkeys(rollouts))))
    return f"<h2>Models</h2>{''.join(shown)}"


def anchor(number: int) -> str:
    """Return the element id of the section of the model with this *number*."""
    return f"model-{number}"


def _model(competitor: Competitor, element_id: str, rollouts: str) -> str:
    means = competitor.figures.means
    totals = [phrases.seconds(means.seconds.value)] if means.seconds.value is not None else []
    if means.prompts.value is not None:
        totals.append(f"{phrases.number(means.prompts.value)} prompts")
    nothing = '<p class="quiet">It has not been run yet.</p>'
    return (
        f'<details class="card model"><summary><h3>{esc(competitor.display_name)}</h3>'
        f"{chip(competitor.status, competitor.figures.rollouts)}"
        f'<span class="quiet">{esc(" · ".join(totals))}</span></summary>'
        f'<div class="inside" id="{element_id}">{_facts(competitor)}{rollouts or nothing}</div></details>'
    )


def _facts(competitor: Competitor) -> str:
    pairs = [("Model", competitor.model)]
    pairs += [
        (label, _served(name, competitor.served.get(name))) for name, label in _SERVED.items()
    ]
    if competitor.figures.to_solve is not None:
        pairs.append(("Time to solve", _to_solve(competitor.figures.to_solve)))
    return listed(pairs)


def _served(name: str, value: Json) -> str:
    if value is None:
        return ""
    if name == "size_bytes" and isinstance(value, int | float):
        return phrases.megabytes(value)
    return phrases.number(value) if isinstance(value, int | float) else str(value)


def _to_solve(time: TimeToSolve) -> str:
    """Return the time to solve in one sentence."""
    text = f"solved and finished in {time.solved} of {phrases.counted(time.rollouts, 'rollout')}"
    if time.restricted_mean_s is None:
        return text
    text += (
        f"; mean up to {phrases.seconds(time.horizon_s)}: {phrases.seconds(time.restricted_mean_s)}"
    )
    if time.interval is not None:
        low, high = phrases.seconds(time.interval.low), phrases.seconds(time.interval.high)
        text += f" (95 %: {low} to {high}, {time.interval.method})"
    if time.median_s is not None:
        text += f"; median {phrases.seconds(time.median_s)}"
    return f"{text}; PAR2 {phrases.seconds(time.par2_s)}"


def _rollout(rollout: RolloutFigures, evidence: Evidence, *, alone: bool) -> str:
    shown = evidence_html(evidence, alone=alone)
    if alone:
        return f'<div class="rollout">{shown}</div>'
    time = f'<span class="quiet">{esc(phrases.seconds(rollout.seconds))}</span>'
    verdict = chip(rollout.verdict.value, [rollout])
    return (
        f'<details class="rollout"><summary>Rollout {rollout.rollout + 1} {verdict} {time}</summary>'
        f"{shown}</details>"
    )


def about(comparison: Comparison) -> str:
    """Return the machine, the method and the task."""
    machine = listed([(name, _as_text(value)) for name, value in _machine(comparison.machine)])
    return (
        '<h2>How it was measured</h2><div class="two">'
        f'<div class="card about"><h3>Machine</h3>{machine}</div>'
        f'<div class="card method"><h3>Method</h3><p>{esc(_METHOD)}</p></div></div>'
        '<h2>The task</h2><details class="card model"><summary>'
        f"<h3>Instruction given to every model</h3></summary>"
        f'<div class="inside">{code(comparison.instruction, 60_000)}</div></details>'
    )


def _machine(machine: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    for name, label in _MACHINE.items():
        value = machine.get(name)
        if name == "memory_bytes" and isinstance(value, int | float):
            value = phrases.megabytes(value)
        yield label, value


def _as_text(value: Json) -> str:
    return "" if value is None else str(value)


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
        f"limit {phrases.duration(setting.limit_s)}" if setting.limit_s else "no time limit",
        phrases.counted(setting.rollouts, "rollout") + " per model",
        f"judged by {setting.judge}" if setting.judge else "",
        f"helped by {setting.instructor}" if setting.instructor else "",
        phrases.moment(comparison.timestamp),
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
    return tiles([*shown, Tile(phrases.seconds(comparison.total_time_s), "in all")])


# --- results ----------------------------------------------------------------------------------


def _results(comparison: Comparison) -> str:
    rows = [
        _row(competitor, number) for number, competitor in enumerate(in_order(comparison), start=1)
    ]
    return f"<h2>Results</h2>{table(_COLUMNS, rows)}"


def _row(competitor: Competitor, number: int) -> list[str]:
    figures, means = competitor.figures, competitor.figures.means
    several = figures.planned > 1
    rate = ""
    if several and figures.rate is not None:
        rate = f"{phrases.share(figures.rate)} ({phrases.share_range(figures.rate_interval)})"
    own = (
        ""
        if competitor.display_name == competitor.model
        else f"<small>{esc(competitor.model)}</small>"
    )
    lines = (
        phrases.UNKNOWN
        if means.added.value is None
        else f'<span class="plus">+{phrases.number(means.added.value)}</span> '
        f'<span class="minus">−{phrases.number(means.removed.value)}</span>'
    )
    result = chip(competitor.status, figures.rollouts)
    notes = f"<small>{esc(rate)}</small>" if rate else ""
    if competitor.error and not figures.finished:
        why = phrases.shortened(competitor.error, _REASON)
        notes += f'<small class="reason">{esc(why)}</small>'
    return [
        f'<a href="#{anchor(number)}">{esc(competitor.display_name)}</a>{own}',
        f'<span class="result">{result}{notes}</span>',
        phrases.seconds(means.seconds.value),
        phrases.number(means.prompts.value),
        phrases.number(means.interventions.value),
        phrases.number(means.files.value),
        f"<span>{lines}</span>",
        phrases.number(means.tokens.value),
        phrases.dollars(means.cost_usd.value),
    ]


# --- rankings ---------------------------------------------------------------------------------


def _podiums(comparison: Comparison) -> str:
    result = comparison.result
    if not result.successful and result.to_solve is None:
        nothing = "Nothing to rank: no model is known to have solved the task."
        return f'<h2>Rankings</h2><p class="quiet">{nothing}</p>'
    cards = [
        _podium(comparison, "Fastest", "time until done, among those that solved it and finished",
                result.fastest, phrases.seconds),
        _podium(comparison, "Most efficient", "prompts sent, among those that solved it and finished",
                result.most_efficient, phrases.number),
        _podium(comparison, "Most autonomous", "human interventions, among those that solved it and finished",
                result.least_intervention, phrases.number),
    ]  # fmt: skip
    if result.to_solve is not None and result.to_solve.placed:
        limit = phrases.seconds(result.horizon_s)
        what = f"mean time to solve; what was not solved counts {limit}"
        cards.append(
            _podium(comparison, "Surest and fastest", what, result.to_solve, phrases.seconds)
        )
    four = " four" if len(cards) == 4 else ""
    return f'<h2>Rankings</h2><section class="podiums{four}">{"".join(cards)}</section>'


def _podium(
    comparison: Comparison, title: str, what: str, ranking: Ranking, formatter: Formatter
) -> str:
    items = "".join(
        f'<li><span class="{_medal(comparison, place)}">{place.rank}</span>'
        f'<span class="name">{esc(comparison.named(place.candidate))}</span>'
        f'<span class="figure">{esc(_figure(comparison, place, formatter))}</span>'
        f"{_range(place.best, place.worst)}</li>"
        for place in ranking.placed
    )
    nothing = '<p class="quiet">No model solved the task and finished.</p>'
    shown = f"<ol>{items}</ol>" if items else nothing
    why = (
        f'<p class="why">{esc(phrases.sentence(ranking.reason))}</p>'
        if items and ranking.reason
        else ""
    )
    return (
        f'<div class="card podium"><h3>{esc(title)}</h3><p class="quiet">{esc(what)}</p>{shown}{why}'
        "</div>"
    )


def _medal(comparison: Comparison, place: RankedCandidate) -> str:
    return f"medal m{place.rank}" if comparison.solved(place.candidate) else "medal"


def _figure(comparison: Comparison, place: RankedCandidate, formatter: Formatter) -> str:
    return formatter(place.value) if comparison.solved(place.candidate) else phrases.NOT_SOLVED


def _range(best: int | None, worst: int | None) -> str:
    ranks = phrases.rank_range(best, worst)
    if not ranks:
        return ""
    could = f"rank {ranks} at 95 %" if best == worst else f"could be rank {ranks}"
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


def _legend(shown: Sequence[Competitor]) -> str:
    several = any(c.figures.planned > 1 for c in shown)
    text = (
        "Bars are means with 95 % intervals, dots are rollouts" if several else "One rollout each"
    )
    unsolved = any(c.figures.success is False for c in shown)
    return f"{text}; grey: did not solve the task." if unsolved else f"{text}."


def _figures(shown: Sequence[Competitor]) -> Iterator[str]:
    kinds: list[tuple[str, str, Callable[[Means], Mean], Formatter]] = [
        ("Time", "of the agent", lambda m: m.seconds, phrases.seconds),
        ("Prompts", "sent to the model", lambda m: m.prompts, phrases.number),
        ("Tokens", "in and out", lambda m: m.tokens, phrases.number),
        ("Cost", "per rollout", lambda m: m.cost_usd, phrases.dollars),
    ]
    for title, note, taken, formatter in kinds:
        means = [(c, taken(c.figures.means)) for c in shown]
        if title == "Cost" and all(mean.value is None for _, mean in means):
            continue  # no price is known
        yield bar_chart(title, note, [_bar(c, mean, formatter(mean.value)) for c, mean in means])


def _bar(competitor: Competitor, mean: Mean, text: str) -> Bar:
    interval = mean.interval
    return Bar(
        label=competitor.display_name,
        value=mean.value,
        text=text,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        dots=mean.values if len(mean.values) > 1 else (),
        kind="plain" if competitor.figures.success is not False else "unsolved",
    )


def _rate(competitor: Competitor) -> Bar:
    figures = competitor.figures
    text = competitor.status if figures.rate is None else f"{figures.passed} of {figures.decided}"
    interval = figures.rate_interval
    return Bar(
        label=competitor.display_name,
        value=figures.rate,
        text=text,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        kind="success",
    )
