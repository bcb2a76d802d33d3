"""A comparison as one HTML file: no script, no request to anywhere, all foreign text as text."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from bakeoff.core.values import Json
from bakeoff.reports.comparison import Comparison, Competitor, in_order
from bakeoff.reports.html.figures import Bar, bar_chart
from bakeoff.reports.html.page import Column, Tile, header, listed, notes, page, table, tiles
from bakeoff.reports.html.text import chip, code, esc
from bakeoff.reports.html.trials import evidence
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.findings import Evidence
from bakeoff.reports.wording.phrases import Told
from bakeoff.stats.censored import TimeToSolve
from bakeoff.stats.head_to_head import Mean, Means, RolloutFigures
from bakeoff.stats.rankings import Placed, Ranking

_MOST_EVIDENCE = 20_000_000
_ELSEWHERE = '<p class="quiet">More is in the folder run/artifacts: this page is long enough.</p>'
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
those that finished: nobody knows what finishing would have taken. \
Rankings compare every two models with a permutation test over rollouts, adjusted after Holm; a rank \
range is what the data leave open at 95 %, whatever a rollout that broke would have taken. The mean time to solve is the area under a Kaplan-Meier \
curve up to the time limit: what was not solved or not finished is censored there, what broke at the \
moment it broke. \
All of it holds for this one task."""


def model_details(comparison: Comparison) -> str:
    """Return a part to open for each model, with as much of what it left as a browser can bear."""
    shown, room = [], _MOST_EVIDENCE
    for number, one in enumerate(in_order(comparison), start=1):
        rollouts = []
        for took, left in zip(one.figures.rollouts, one.evidence, strict=True):
            alone = one.figures.planned == 1
            told = _rollout(took, left, alone=alone) if room > 0 else _ELSEWHERE
            room -= len(told)
            rollouts.append(told)
        shown.append(_model(one, anchor(number), "".join(dict.fromkeys(rollouts))))
    return f"<h2>Models</h2>{''.join(shown)}"


def anchor(number: int) -> str:
    """Return where on the page the model with this *number*, in the order of a reader, is told of."""
    return f"model-{number}"


def _model(one: Competitor, at: str, rollouts: str) -> str:
    means = one.figures.means
    took = [phrases.seconds(means.seconds.value)] if means.seconds.value is not None else []
    if means.prompts.value is not None:
        took.append(f"{phrases.number(means.prompts.value)} prompts")
    nothing = '<p class="quiet">It has not been run yet.</p>'
    return (
        f'<details class="card model"><summary><h3>{esc(one.display_name)}</h3>'
        f"{chip(one.status, one.figures.rollouts)}"
        f'<span class="quiet">{esc(" · ".join(took))}</span></summary>'
        f'<div class="inside" id="{at}">{_facts(one)}{rollouts or nothing}</div></details>'
    )


def _facts(one: Competitor) -> str:
    pairs = [("Model", one.model)]
    pairs += [(told, _served(name, one.served.get(name))) for name, told in _SERVED.items()]
    if one.figures.to_solve is not None:
        pairs.append(("Time to solve", _to_solve(one.figures.to_solve)))
    return listed(pairs)


def _served(name: str, value: Json) -> str:
    if value is None:
        return ""
    if name == "size_bytes" and isinstance(value, int | float):
        return phrases.megabytes(value)
    return phrases.number(value) if isinstance(value, int | float) else str(value)


def _to_solve(found: TimeToSolve) -> str:
    """Return what is known of the time to solve, in a sentence."""
    told = f"solved and finished in {found.solved} of {phrases.counted(found.rollouts, 'rollout')}"
    if found.restricted_mean_s is None:
        return told
    told += f"; mean up to {phrases.seconds(found.horizon_s)}: {phrases.seconds(found.restricted_mean_s)}"
    if found.interval is not None:
        low, high = phrases.seconds(found.interval.low), phrases.seconds(found.interval.high)
        told += f" (95 %: {low} to {high}, {found.interval.method})"
    if found.median_s is not None:
        told += f"; median {phrases.seconds(found.median_s)}"
    return f"{told}; PAR2 {phrases.seconds(found.par2_s)}"


def _rollout(took: RolloutFigures, left: Evidence, *, alone: bool) -> str:
    shown = evidence(left, alone=alone)
    if alone:
        return f'<div class="rollout">{shown}</div>'
    time = f'<span class="quiet">{esc(phrases.seconds(took.seconds))}</span>'
    told = chip(took.verdict.value, [took])
    return (
        f'<details class="rollout"><summary>Rollout {took.rollout + 1} {told} {time}</summary>'
        f"{shown}</details>"
    )


def about(comparison: Comparison) -> str:
    """Return the machine, the task and how the figures were got."""
    machine = listed([(name, _told(value)) for name, value in _machine(comparison.machine)])
    return (
        '<h2>How it was measured</h2><div class="two">'
        f'<div class="card about"><h3>Machine</h3>{machine}</div>'
        f'<div class="card method"><h3>Method</h3><p>{esc(_METHOD)}</p></div></div>'
        '<h2>The task</h2><details class="card model"><summary>'
        f"<h3>What every model was told</h3></summary>"
        f'<div class="inside">{code(comparison.instruction, 60_000)}</div></details>'
    )


_MACHINE = {
    "cpu": "CPU",
    "cores": "Cores",
    "memory_bytes": "Memory",
    "os": "System",
    "python": "Python",
    "bakeoff": "Bakeoff",
    "ollama": "Ollama",
}


def _machine(machine: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    for name, told in _MACHINE.items():
        value = machine.get(name)
        if name == "memory_bytes" and isinstance(value, int | float):
            value = phrases.megabytes(value)
        yield told, value


def _told(value: Json) -> str:
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
        rate = f"{phrases.share(figures.rate)} ({phrases.share_range(figures.rate_interval)})"
    own = "" if one.display_name == one.model else f"<small>{esc(one.model)}</small>"
    lines = (
        phrases.UNKNOWN
        if means.added.value is None
        else f'<span class="plus">+{phrases.number(means.added.value)}</span> '
        f'<span class="minus">−{phrases.number(means.removed.value)}</span>'
    )
    told = chip(one.status, figures.rollouts)
    notes = f"<small>{esc(rate)}</small>" if rate else ""
    if one.error and not figures.finished:
        why = phrases.shortened(one.error, _REASON)
        notes += f'<small class="reason">{esc(why)}</small>'
    return [
        f'<a href="#{anchor(number)}">{esc(one.display_name)}</a>{own}',
        f'<span class="result">{told}{notes}</span>',
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
        nobody = "Nobody to rank: no model is known to have solved the task."
        return f'<h2>Rankings</h2><p class="quiet">{nobody}</p>'
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
        f'<p class="why">{esc(phrases.sentence(ranking.reason))}</p>'
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
    return told(place.value) if comparison.solved(place.candidate) else phrases.NOT_SOLVED


def _range(best: int | None, worst: int | None) -> str:
    told = phrases.rank_range(best, worst)
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
        ("Time", "of the agent", lambda m: m.seconds, phrases.seconds),
        ("Prompts", "sent to the model", lambda m: m.prompts, phrases.number),
        ("Tokens", "in and out", lambda m: m.tokens, phrases.number),
        ("Cost", "per rollout", lambda m: m.cost_usd, phrases.dollars),
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
