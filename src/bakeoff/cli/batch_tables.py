"""What came of a batch, on a terminal and in a pipe: a table, the rankings, and what they are worth."""

from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bakeoff._lib.untrusted import one_line
from bakeoff.cli.batch_progress import marked
from bakeoff.cli.tables import console
from bakeoff.reports import in_words
from bakeoff.reports.comparison import Comparison, Competitor, in_order
from bakeoff.reports.in_words import Told
from bakeoff.stats.rankings import Ranking

_WIDE = 110
_NARROW = 72
_ONLY_WIDE = frozenset({"interv.", "files", "lines"})
_ALSO_NARROW = frozenset({"time"})
_SHORTEST_NAME = 12
_SHORTEST_RESULT = 11
_MEDALS = (
    "\N{FIRST PLACE MEDAL}",
    "\N{SECOND PLACE MEDAL}",
    "\N{THIRD PLACE MEDAL}",
)


def print_batch(
    comparison: Comparison, folder: Path, *, verbose: bool = False, out: Console | None = None
) -> None:
    """Print the results, the rankings, and at the end who solved the task and where the report is."""
    out, result = out or console(), comparison.result
    out.print(_results(comparison, width=out.width))
    for one in in_order(comparison):
        if one.error and not one.figures.finished:
            why = f"{one_line(one.display_name, width=60)}: {one_line(one.error, width=300)}"
            out.print(Text(why, style="dim"), no_wrap=True, overflow="ellipsis")
    for title, ranking, told in _rankings(comparison, verbose=verbose):
        _print_ranking(out, comparison, title, ranking, told)
    for note in result.notes:
        out.print(Text(f"note: {one_line(note, width=300)}", style="yellow"))
    if short := _in_short(comparison):
        out.print(Text(short, style="bold"))
    out.print(Text(f"report: {folder / 'comparison_report.html'}", style="dim"))


def _in_short(comparison: Comparison) -> str:
    """Return who solved the task, and who was the fastest, in a line; nothing where nobody knows."""
    result, fastest = comparison.result, comparison.result.fastest
    if not result.successful:
        known = result.complete and not result.undecided
        return "no model solved the task" if known else ""
    many = in_words.counted(len(result.contenders), "model")
    told = f"{result.successful} of {many} solved the task"
    if not fastest.placed:
        return told
    first = fastest.placed[0]
    name = one_line(comparison.named(first.candidate), width=60)
    chance = len(fastest.placed) > 1 and not fastest.decided
    return (
        f"{told}; fastest: {name}, {in_words.seconds(first.value)}"
        f"{', which may be chance' if chance else ''}"
    )


def _rankings(comparison: Comparison, *, verbose: bool) -> Iterator[tuple[str, Ranking, Told]]:
    result = comparison.result
    yield "Fastest", result.fastest, in_words.seconds
    yield "Most Efficient, by prompts", result.most_efficient, in_words.number
    yield "Most Autonomous, by interventions", result.least_intervention, in_words.number
    several = comparison.setting.rollouts > 1 or result.successful > len(result.fastest.placed)
    if result.to_solve is not None and (verbose or several):
        limit = in_words.duration(result.horizon_s or 0.0)
        title = f"Time to solve, not solved counts {limit}"
        yield title, result.to_solve, in_words.seconds


def _results(comparison: Comparison, *, width: int) -> Table:
    """Return a row for each model; on a narrow terminal, what was changed is left to the report."""
    title = f"{comparison.batch_id}: {one_line(comparison.title)}"
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", overflow="fold", min_width=_SHORTEST_NAME)
    table.add_column("result", min_width=_SHORTEST_RESULT)
    rows = [(one, _figures(one)) for one in in_order(comparison)]
    shown = [name for name in rows[0][1] if _fits(name, width)]
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for one, figures in rows:
        verdict = marked(one.status, one.figures.rollouts)
        model = Text(one_line(one.display_name))
        table.add_row(model, verdict, *(figures[name] for name in shown))
    return table


def _fits(column: str, width: int) -> bool:
    if width < _NARROW:
        return column in _ALSO_NARROW
    return width >= _WIDE or column not in _ONLY_WIDE


def _figures(one: Competitor) -> dict[str, str]:
    means = one.figures.means
    added, removed = in_words.number(means.added.value), in_words.number(means.removed.value)
    return {
        "time": in_words.seconds(means.seconds.value),
        "prompts": in_words.number(means.prompts.value),
        "interv.": in_words.number(means.interventions.value),
        "files": in_words.number(means.files.value),
        "lines": in_words.UNKNOWN if means.added.value is None else f"+{added} -{removed}",
        "tokens": in_words.number(means.tokens.value),
        "cost": in_words.dollars(means.cost_usd.value),
    }


def _print_ranking(
    out: Console,
    comparison: Comparison,
    title: str,
    ranking: Ranking,
    told: Told,
) -> None:
    if not ranking.placed:
        return
    values = {place.value for place in ranking.placed}
    if len(ranking.placed) > 1 and len(values) == 1:
        out.print(Text.assemble((title, "bold"), f"  all equal: {told(values.pop())}"))
        return
    why = f"  {ranking.reason}" if ranking.reason else ""
    out.print(Text.assemble((title, "bold"), (why, "dim")))
    for place in ranking.placed[:5]:
        solved = comparison.solved(place.candidate)
        has_medal = solved and place.rank <= len(_MEDALS)
        medal = _MEDALS[place.rank - 1] if has_medal else f"{place.rank:>2}"
        could = in_words.rank_range(place.best, place.worst)
        range_told = f"  (rank {could})" if could else ""
        name = one_line(comparison.named(place.candidate), width=60)
        figure = told(place.value) if solved else in_words.NOT_SOLVED
        out.print(Text(f"  {medal} {name}: {figure}{range_told}"))
