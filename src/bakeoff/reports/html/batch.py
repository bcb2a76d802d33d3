"""A batch comparison as one self-contained HTML file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING

from bakeoff._lib.value_object import value_object
from bakeoff.core.values import Json
from bakeoff.reports.comparison import Comparison, Competitor, in_order
from bakeoff.reports.html.charts import Bar, Chart, bar_chart
from bakeoff.reports.html.run import Tile
from bakeoff.reports.html.templates import pages, part
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.phrases import Formatter
from bakeoff.stats.censored import TimeToSolve
from bakeoff.stats.head_to_head import Mean, Means
from bakeoff.stats.rankings import RankedCandidate, Ranking

if TYPE_CHECKING:
    from markupsafe import Markup

_MOST_EVIDENCE = 20_000_000
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
Rankings compare every two models with a permutation test over rollouts, with allowance for the number of pairs; a rank \
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
_REASON = 90  # characters; the section of the model has the whole text
_ALL_CHARTS = 5


def render(comparison: Comparison) -> str:
    """Return the whole page."""
    shown = in_order(comparison)
    charts = [_success(shown), *_figures(shown)]
    return "".join(
        pages(
            "batch.html",
            comparison=comparison,
            facts=tuple(_facts(comparison)),
            tiles=tuple(_tiles(comparison)),
            rows=tuple(starmap(_row, enumerate(shown, start=1))),
            podiums=tuple(_podiums(comparison)),
            solve_times=tuple(_solve_times(comparison)),
            charts=charts,
            legend=_legend(shown),
            is_priced=len(charts) == _ALL_CHARTS,
            models=_models(shown),
            machine=tuple(_machine(comparison.machine)),
            method=_METHOD,
        )
    )


def _facts(comparison: Comparison) -> Iterator[str]:
    setting = comparison.setting
    yield f"task {comparison.task}"
    yield f"agent {setting.agent}"
    yield f"sandbox {setting.sandbox}" if setting.sandbox else "no sandbox"
    yield f"limit {phrases.duration(setting.limit_s)}" if setting.limit_s else "no time limit"
    yield phrases.counted(setting.rollouts, "rollout") + " per model"
    yield f"judged by {setting.judge}" if setting.judge else ""
    yield f"helped by {setting.instructor}" if setting.instructor else ""
    yield phrases.moment(comparison.timestamp)


def _tiles(comparison: Comparison) -> Iterator[Tile]:
    result = comparison.result
    yield Tile(str(len(comparison.competitors)), "models tested")
    yield Tile(str(result.successful), "solved the task", "good" if result.successful else "")
    yield Tile(str(result.failed), "did not", "bad" if result.failed else "")
    if result.broken:
        yield Tile(str(result.broken), "broke", "bad")
    if result.undecided:
        yield Tile(str(result.undecided), "undecided")
    yield Tile(phrases.seconds(comparison.total_time_s), "in all")


# --- results ----------------------------------------------------------------------------------


@value_object
class ResultRow:
    """A model in the table of results."""

    anchor: str
    competitor: Competitor
    rate: str
    why: str


def _row(number: int, competitor: Competitor) -> ResultRow:
    figures = competitor.figures
    rate = ""
    if figures.planned > 1 and figures.rate is not None:
        rate = f"{phrases.share(figures.rate)} ({phrases.share_range(figures.rate_interval)})"
    is_explained = competitor.error and not figures.finished
    return ResultRow(
        anchor=_anchor(number),
        competitor=competitor,
        rate=rate,
        why=phrases.shortened(competitor.error or "", _REASON) if is_explained else "",
    )


def _anchor(number: int) -> str:
    """Return the element id of the section of the model with this *number*."""
    return f"model-{number}"


# --- models -----------------------------------------------------------------------------------


@value_object
class ModelSection:
    """A model with what it did; `rollouts` are its rollouts, one after another."""

    anchor: str
    competitor: Competitor
    totals: str
    facts: tuple[tuple[str, str], ...]
    rollouts: "tuple[Markup, ...]"


def _models(shown: Sequence[Competitor]) -> Iterator[ModelSection]:
    """Yield a section per model, with evidence up to the size limit."""
    left = _MOST_EVIDENCE
    for number, competitor in enumerate(shown, start=1):
        rollouts = []
        for rollout, evidence in zip(competitor.figures.rollouts, competitor.evidence, strict=True):
            if left <= 0:
                text = "This page is at its size limit; the rest is in the folder run/artifacts."
                rollouts.append(part("components.html", "quiet", text))
                break
            alone = competitor.figures.planned == 1
            rollouts.append(part("batch_parts.html", "rollout", rollout, evidence, alone))
            left -= len(rollouts[-1])
        yield ModelSection(
            anchor=_anchor(number),
            competitor=competitor,
            totals=_totals(competitor.figures.means),
            facts=tuple(_model_facts(competitor)),
            rollouts=tuple(rollouts),
        )


def _totals(means: Means) -> str:
    totals = [phrases.seconds(means.seconds.value)] if means.seconds.value is not None else []
    if means.prompts.value is not None:
        totals.append(f"{phrases.number(means.prompts.value)} prompts")
    return " · ".join(totals)


def _model_facts(competitor: Competitor) -> Iterator[tuple[str, str]]:
    yield "Model", competitor.model
    for name, label in _SERVED.items():
        yield label, _served(name, competitor.served.get(name))
    if competitor.figures.to_solve is not None:
        yield "Time to solve", _to_solve(competitor.figures.to_solve)


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


def _machine(machine: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for name, label in _MACHINE.items():
        value = machine.get(name)
        if name == "memory_bytes" and isinstance(value, int | float):
            value = phrases.megabytes(value)
        yield label, "" if value is None else str(value)


# --- rankings ---------------------------------------------------------------------------------


@value_object
class PodiumPlace:
    """A model on a podium."""

    rank: int
    medal: str
    name: str
    figure: str
    range: str


@value_object
class Podium:
    """One ranking."""

    title: str
    what: str
    places: tuple[PodiumPlace, ...]
    why: str


_MOST_CURVES = 10


def _solve_times(comparison: Comparison) -> Iterator[str]:
    """Yield how the times to solve of every two models differ as a whole."""
    tested = [each for each in comparison.result.solve_times if each.p_holm is not None]
    for each in tested[:_MOST_CURVES]:
        pair = " and ".join(comparison.named(name) for name in (each.first, each.second))
        apart = "differ" if (each.p_holm or 0.0) < _SURELY else "are not told apart"
        yield (
            f"Times to solve of {pair} as a whole {apart}: equals would differ as much "
            f"{phrases.in_runs(each.p_holm)}, by chance (log-rank test)."
        )
    if len(tested) > _MOST_CURVES:
        yield f"{len(tested) - _MOST_CURVES:,} more pairs are in the JSON report."


_SURELY = 0.05


def _podiums(comparison: Comparison) -> Iterator[Podium]:
    result = comparison.result
    if not result.successful and result.to_solve is None:
        return
    yield _podium(comparison, "Fastest", "time until done, among those that solved it and finished",
                  result.fastest, phrases.seconds)  # fmt: skip
    yield _podium(comparison, "Most efficient", "prompts sent, among those that solved it and finished",
                  result.most_efficient, phrases.number)  # fmt: skip
    yield _podium(comparison, "Most autonomous",
                  "human interventions, among those that solved it and finished",
                  result.least_intervention, phrases.number)  # fmt: skip
    if result.to_solve is not None and result.to_solve.placed:
        limit = phrases.seconds(result.horizon_s)
        what = f"mean time to solve; what was not solved counts {limit}"
        yield _podium(comparison, "Surest and fastest", what, result.to_solve, phrases.seconds)


def _podium(
    comparison: Comparison, title: str, what: str, ranking: Ranking, formatter: Formatter
) -> Podium:
    places = tuple(_place(comparison, place, formatter) for place in ranking.placed)
    why = phrases.sentence(ranking.reason) if places else ""
    return Podium(title=title, what=what, places=places, why=why)


def _place(comparison: Comparison, place: RankedCandidate, formatter: Formatter) -> PodiumPlace:
    is_solved = comparison.solved(place.candidate)
    ranks = phrases.rank_range(place.best, place.worst)
    could = f"rank {ranks} at 95 %" if place.best == place.worst else f"could be rank {ranks}"
    return PodiumPlace(
        rank=place.rank,
        medal=f"medal m{place.rank}" if is_solved else "medal",
        name=comparison.named(place.candidate),
        figure=formatter(place.value) if is_solved else phrases.NOT_SOLVED,
        range=could if ranks else "",
    )


# --- charts -----------------------------------------------------------------------------------


def _success(shown: Sequence[Competitor]) -> Chart:
    bars = [_rate(competitor) for competitor in shown]
    return bar_chart("Success", "share of rollouts, 95 % interval (Wilson)", bars, most=1.0)


def _legend(shown: Sequence[Competitor]) -> str:
    several = any(c.figures.planned > 1 for c in shown)
    text = (
        "Bars are means with 95 % intervals, dots are rollouts" if several else "One rollout each"
    )
    unsolved = any(c.figures.success is False for c in shown)
    return f"{text}; grey: did not solve the task." if unsolved else f"{text}."


def _figures(shown: Sequence[Competitor]) -> Iterator[Chart]:
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
