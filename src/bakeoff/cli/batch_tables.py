"""What came of a batch, on a terminal and in a pipe: a table, the rankings, and what they are worth."""

from collections.abc import Callable
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bakeoff._lib.untrusted import one_line
from bakeoff.cli.batch_screen import STYLES
from bakeoff.cli.tables import console
from bakeoff.reports import in_words
from bakeoff.reports.comparison import Comparison, Competitor, in_order, status
from bakeoff.stats.rankings import Ranking

_MEDALS = (
    "\N{FIRST PLACE MEDAL}",
    "\N{SECOND PLACE MEDAL}",
    "\N{THIRD PLACE MEDAL}",
)


def print_batch(comparison: Comparison, folder: Path, *, verbose: bool = False) -> None:
    """Print the results, the rankings and where the reports are."""
    out = console()
    out.print(_results(comparison))
    result = comparison.result
    _print_ranking(out, comparison, "Fastest", result.fastest, in_words.seconds)
    _print_ranking(
        out, comparison, "Most Efficient (prompts)", result.most_efficient, in_words.number
    )
    _print_ranking(
        out,
        comparison,
        "Most Autonomous (interventions)",
        result.least_intervention,
        in_words.number,
    )
    if result.to_solve is not None and (verbose or comparison.setting.rollouts > 1):
        title = f"Time to solve (what was not solved counts {in_words.seconds(result.horizon_s)})"
        _print_ranking(out, comparison, title, result.to_solve, in_words.seconds)
    for note in result.notes:
        out.print(Text(f"note: {one_line(note, width=300)}", style="yellow"))
    out.print(Text(f"report: {folder / 'comparison_report.html'}", style="dim"))


def _results(comparison: Comparison) -> Table:
    title = f"{comparison.batch_id}: {one_line(comparison.title)}"
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", overflow="fold")
    table.add_column("result", no_wrap=True)
    for name in ("time", "prompts", "interv.", "files", "lines", "tokens", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in in_order(comparison):
        table.add_row(Text(one_line(one.display_name)), _verdict(one), *_figures(one))
    return table


def _verdict(one: Competitor) -> Text:
    told = status(one.figures)
    return Text(told, style=STYLES.get(told, ""))


def _figures(one: Competitor) -> list[str]:
    means = one.figures.means
    added, removed = in_words.number(means.added.value), in_words.number(means.removed.value)
    return [
        in_words.seconds(means.seconds.value),
        in_words.number(means.prompts.value),
        in_words.number(means.interventions.value),
        in_words.number(means.files.value),
        in_words.UNKNOWN if means.added.value is None else f"+{added} -{removed}",
        in_words.number(means.tokens.value),
        in_words.dollars(means.cost_usd.value),
    ]


def _print_ranking(
    out: Console,
    comparison: Comparison,
    title: str,
    ranking: Ranking,
    told: Callable[[float | None], str],
) -> None:
    if not ranking.placed:
        return
    why = f" ({ranking.reason})" if ranking.reason else ""
    out.print(Text(f"{title}{why}", style="bold"))
    for place in ranking.placed[:5]:
        medal = _MEDALS[place.rank - 1] if place.rank <= len(_MEDALS) else f"{place.rank:>2}"
        could = in_words.rank_range(place.best, place.worst)
        range_told = f"  (rank {could})" if could else ""
        name = one_line(comparison.named(place.candidate), width=60)
        out.print(Text(f"  {medal} {name}: {told(place.value)}{range_told}"))
