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
_ONLY_WIDE = frozenset({"interv.", "files", "lines"})
_SHORTEST_NAME = 12
_MEDALS = (
    "\N{FIRST PLACE MEDAL}",
    "\N{SECOND PLACE MEDAL}",
    "\N{THIRD PLACE MEDAL}",
)


def print_batch(comparison: Comparison, folder: Path, *, verbose: bool = False) -> None:
    """Print the results, the rankings and where the reports are."""
    out, result = console(), comparison.result
    out.print(_results(comparison, width=out.width))
    for one in in_order(comparison):
        if one.error and not one.figures.finished:
            why = f"{one_line(one.display_name, width=60)}: {one_line(one.error, width=300)}"
            out.print(Text(why, style="dim"), no_wrap=True, overflow="ellipsis")
    if result.complete and not result.successful and not result.undecided:
        out.print(Text("no model solved the task", style="bold"))
    for title, ranking, told in _rankings(comparison, verbose=verbose):
        _print_ranking(out, comparison, title, ranking, told)
    for note in result.notes:
        out.print(Text(f"note: {one_line(note, width=300)}", style="yellow"))
    out.print(Text(f"report: {folder / 'comparison_report.html'}", style="dim"))


def _rankings(comparison: Comparison, *, verbose: bool) -> Iterator[tuple[str, Ranking, Told]]:
    result = comparison.result
    yield "Fastest", result.fastest, in_words.seconds
    yield "Most Efficient, by prompts", result.most_efficient, in_words.number
    yield "Most Autonomous, by interventions", result.least_intervention, in_words.number
    several = comparison.setting.rollouts > 1 or result.successful > len(result.fastest.placed)
    if result.to_solve is not None and (verbose or several):
        limit = in_words.duration(result.horizon_s or 0.0)
        yield f"Time to solve, {limit} where it was not", result.to_solve, in_words.seconds


def _results(comparison: Comparison, *, width: int) -> Table:
    """Return a row for each model; on a narrow terminal, what was changed is left to the report."""
    title = f"{comparison.batch_id}: {one_line(comparison.title)}"
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", overflow="fold", min_width=_SHORTEST_NAME)
    table.add_column("result")
    rows = [(one, _figures(one)) for one in in_order(comparison)]
    shown = [name for name in rows[0][1] if width >= _WIDE or name not in _ONLY_WIDE]
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for one, figures in rows:
        verdict = marked(one.status, one.figures.rollouts)
        model = Text(one_line(one.display_name))
        table.add_row(model, verdict, *(figures[name] for name in shown))
    return table


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
    why = f"  {ranking.reason}" if ranking.reason else ""
    out.print(Text.assemble((title, "bold"), (why, "dim")))
    for place in ranking.placed[:5]:
        medal = _MEDALS[place.rank - 1] if place.rank <= len(_MEDALS) else f"{place.rank:>2}"
        could = in_words.rank_range(place.best, place.worst)
        range_told = f"  (rank {could})" if could else ""
        name = one_line(comparison.named(place.candidate), width=60)
        out.print(Text(f"  {medal} {name}: {told(place.value)}{range_told}"))
