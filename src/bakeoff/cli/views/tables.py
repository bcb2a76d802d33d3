"""Summaries as tables, on a terminal and in a pipe."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from bakeoff._lib.sanitize import one_line
from bakeoff.reports.wording.decision import (
    answer,
    effects_in_words,
    in_short,
    per_success,
    prompts_in_short,
    remarks,
    what_more_takes,
    worth_showing,
)
from bakeoff.reports.wording.phrases import (
    NO_LABEL,
    UNKNOWN,
    averages,
    billed,
    classified,
    conservation,
    counted,
    in_order,
    measured,
    order,
    p_value,
    shared_reasons,
)
from bakeoff.stats.classification import Classification
from bakeoff.stats.paired import Pair
from bakeoff.stats.pairwise import Pairwise
from bakeoff.stats.summary import CandidateSummary, Group, Summary

_SHORTEST_NAME = 16
_BETWEEN, _EDGES = 3, 2  # columns of the terminal that a table spends on space


def named_table(title: str, names: Iterable[str], figures: Iterable[str]) -> Table:
    """Return a table: names may fold, figures do not."""
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name, overflow="fold", min_width=8)
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    return table


def print_table(table: Table, out: Console) -> None:
    """Print *table*, or its rows one below the other where names would have no room beside figures."""
    if _needed(table.columns) <= out.width:
        title, table.title = table.title, None  # rich would fold it to the width of the table
        out.print(title, style="table.title")
        out.print(table)
        return
    out.print(Text(f"{table.title}\n"))
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        for line in _in_lines(table.columns, [_text(cell) for cell in cells], out.width):
            out.print(line)
    out.print()


def _needed(columns: Sequence[Column]) -> int:
    """Return how wide a terminal must be for a table of *columns* with readable names."""
    widths = [_width(column) for column in columns]
    return sum(widths) + _BETWEEN * (len(widths) - 1) + _EDGES


def _width(column: Column) -> int:
    longest = max(
        len(line) for cell in (column.header, *column.cells) for line in _text(cell).split("\n")
    )
    return longest if column.no_wrap else min(longest, _SHORTEST_NAME)


def _text(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _in_lines(columns: Sequence[Column], cells: Sequence[str], width: int) -> Iterator[Padding]:
    """Yield a row of a table as lines: its names, then each figure after its head."""
    names, figures = [], []
    for column, cell in zip(columns, cells, strict=True):
        pairs = list(_with_heads(_text(column.header), cell))
        if column.overflow != "fold":
            figures += [f"{head} {value}" for head, value in pairs]
        elif len(pairs) == 1:
            names.append(cell)
        else:
            names += [f"{head} {value}" for head, value in pairs]
    for parts, indent, style in ((names, 1, "bold"), (figures, 3, "")):
        for line in _filled(parts, width - indent):
            yield Padding(Text(line, style=style, overflow="fold"), (0, 0, 0, indent), expand=False)


def _filled(parts: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of *parts* with commas between them, as many on a line as fit."""
    line = ""
    for part in parts:
        if line and len(line) + len(part) + 2 > width:
            yield line
            line = ""
        line += f"{', ' if line else ''}{part}"
    if line:
        yield line


def _with_heads(head: str, cell: str) -> Iterator[tuple[str, str]]:
    """Yield each line of *cell* with its head; a head of several lines may belong to one."""
    heads, values = head.split("\n"), cell.split("\n")
    if len(heads) == len(values):
        yield from zip(heads, values, strict=True)
    else:
        yield " ".join(heads), " ".join(values)


_SHORTEST_VERDICT = 11


def print_pairwise(pairwise: Pairwise, out: Console) -> None:
    """Print the pairs, and what they were compared by."""
    shown = worth_showing(pairwise)
    if shown:
        print_table(_table(shown), out)
    lines = list(remarks(pairwise, shown))
    for line in lines:
        out.print(Text(line, style="dim"))
    if lines:
        out.print()


def _table(pairs: Sequence[Pair]) -> Table:
    """Return two lines for each pair, so that names have room on a narrow terminal."""
    planned = any(pair.detectable is not None for pair in pairs)
    heads = ["A - B\n95 % interval", "by chance\nsmallest gap" if planned else "by chance"]
    table = named_table("compared pairwise", ["A\nB"], heads)
    table.add_column("verdict", min_width=_SHORTEST_VERDICT)
    for pair in pairs:
        table.add_row(
            Text(f"{one_line(pair.first)}\n{one_line(pair.second)}"),
            *figures(pair, planned=planned),
            in_short(pair),
        )
    return table


def figures(pair: Pair, *, planned: bool) -> tuple[str, str]:
    """Return how far apart the two are, and how surely; with what could be seen, if *planned*."""
    seen = f"\n{_number_table(pair.detectable, '.3f')}" if planned else ""
    apart = f"{_number_table(pair.difference, '+.3f')}\n{_interval_table(pair)}"
    return apart, p_value(pair.p_holm) + seen


def _number_table(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _interval_table(pair: Pair) -> str:
    if pair.interval is None:
        return UNKNOWN
    return f"[{pair.interval.low:.3f}, {pair.interval.high:.3f}]"


_PIPE_WIDTH = 160
_LONGEST_NOTE = 500


def console() -> Console:
    """Return the console for results: as wide as the terminal, or wide enough for a pipe."""
    plain = Console(emoji=False)  # `:on:` in a name is no picture
    return plain if plain.is_terminal else Console(width=_PIPE_WIDTH, emoji=False)


def print_summary(
    summary: Summary, *, folder: Path | None = None, out: Console | None = None
) -> None:
    """Print the statistics of a run, all but the verdict: that comes last, see `print_verdict`."""
    out = out or console()
    print_table(_score_table(summary), out)
    for line in order(summary):
        out.print(Text(f"{line}\n", style="dim"))
    if summary.pairwise is not None:
        print_pairwise(summary.pairwise, out)
    _print_effects(summary, out)
    if any(len(c.categories) > 1 for c in summary.candidates):
        print_table(_category_table(in_order(summary)), out)
        for line in averages(summary):
            out.print(Text(line, style="dim"))
        out.print()
    _print_classification(summary, out)
    if any(len(c.total.passes) > 1 for c in summary.candidates):
        print_table(_pass_table(in_order(summary), summary.pass_rule, width=out.width), out)
    print_table(_speed_table(in_order(summary)), out)
    if cost_line := billed(summary.billed):
        out.print(Text(cost_line))
    out.print(Text(conservation(summary.buckets), style="dim"))
    for reason in shared_reasons(summary):
        out.print(Text(reason, style="dim"))
    for note in summary.notes:
        style = "yellow" if note in summary.warnings else "dim"
        out.print(Text(f"note: {one_line(note, width=_LONGEST_NOTE)}", style=style))
    if folder is not None:
        where = "" if folder.parent == Path("runs") else f" --output {folder.parent}"
        name = f"{folder.name}{where}"
        see = f"kept in {folder}; see: bakeoff report {name}, bakeoff show {name}"
        out.print(Text(see, style="dim"))


def _print_effects(summary: Summary, out: Console) -> None:
    if not summary.main_effects:
        return
    out.print(Text("main effects: the mean over the other factor, task by task", style="bold"))
    for line in effects_in_words(summary):
        out.print(Text(line))
    out.print()


_MOST_LABELLED, _MOST_IN_A_TABLE = 3, 8


def _print_classification(summary: Summary, out: Console) -> None:
    """Print how candidates classified; for a few of them, by label and with the confusion table."""
    if not summary.classification:
        return
    known = {each.candidate: each for each in summary.classification}
    listed = [known[c.candidate] for c in in_order(summary) if c.candidate in known]
    heads = [name for name, _ in classified(listed[0])]
    table = named_table("as classifiers", ["candidate"], heads)
    for each in listed:
        table.add_row(one_line(each.candidate), *(text for _, text in classified(each)))
    print_table(table, out)
    if len(listed) > _MOST_LABELLED:
        out.print(Text("by label: see summary.json or bakeoff report\n", style="dim"))
        return
    for each in listed:
        print_table(_label_table(each), out)
        if len(each.labels) <= _MOST_IN_A_TABLE:
            print_table(_confusion_table(each), out)


def _label_table(classification: Classification) -> Table:
    title = f"{one_line(classification.candidate)} by label"
    table = named_table(title, ["label"], ["trials", "precision", "recall", "F1"])
    for each in classification.by_label:
        figures = (each.precision, each.recall, each.f1)
        table.add_row(Text(one_line(each.label)), f"{each.trials:,}", *map(measured, figures))
    return table


def _confusion_table(classification: Classification) -> Table:
    names = [one_line(label) for label in classification.labels]
    title = f"{one_line(classification.candidate)}: expected label, and how often which was given"
    table = named_table(title, ["expected"], [*names, NO_LABEL])
    for name, row in zip(names, classification.confusion, strict=True):
        table.add_row(Text(name), *(f"{count:,}" for count in row))
    return table


def print_verdict(summary: Summary, *, out: Console | None = None) -> None:
    """Print in a line what the run says: who is better, or how good the one candidate is."""
    out = out or console()
    so_far = " so far" if summary.buckets.not_run or summary.buckets.cancelled else ""
    pairwise, found = summary.pairwise, answer(summary)
    text = found.text.removesuffix(".")
    if pairwise is not None and not found.decided:  # a name stays as it is written
        text = f"{text[0].lower()}{text[1:]}"
    kind = "result" if pairwise is None else "verdict"
    out.print(Text(f"\n{kind}{so_far}: {text}", style="bold"))
    for line in (prompts_in_short(summary), what_more_takes(summary), per_success(summary)):
        if line:
            out.print(Text(line))


def _score_table(summary: Summary) -> Table:
    rollouts = f" × {counted(summary.rollouts, 'rollout')}" if summary.rollouts > 1 else ""
    title = f"{summary.run}: {counted(summary.tasks, 'task')}{rollouts}"
    table = named_table(title, ["candidate"], ["score", "95 % interval", "coverage", "faults"])
    for c in in_order(summary):
        table.add_row(_name(c), *_score_figures(c.total))
    return table


def _score_figures(group: Group) -> list[str]:
    return [
        _number(group.score.mean, 3),
        _interval(group),
        f"{group.coverage:.0%}",
        str(group.buckets.faults),
    ]


def _speed_table(candidates: Iterable[CandidateSummary]) -> Table:
    figures = ["tokens\nin/out", "tok/s", "latency\np50/p95", "first\ntoken", "cost"]
    table = named_table("speed and cost", ["candidate"], figures)
    for c in candidates:
        tokens, latency = c.total.tokens, c.total.latency
        table.add_row(
            _name(c),
            f"{_count(tokens.input)}/{_count(tokens.output)}",
            _number(tokens.output_per_s, 1),
            f"{seconds(latency.p50_s)}/{seconds(latency.p95_s)}",
            seconds(latency.first_token_p50_s),
            cost(tokens.cost_usd),
        )
    return table


def _name(c: CandidateSummary) -> Text:
    return Text(one_line(c.candidate) + (" (scripted)" if c.scripted else ""))


def _category_table(candidates: Iterable[CandidateSummary]) -> Table:
    shown = list(candidates)
    names = ["category", "candidate"] if len(shown) > 1 else ["category"]
    rows = [(g.category or "", c.candidate, g) for c in shown for g in c.categories]
    missing = any(g.coverage < 1 or g.buckets.faults for _, _, g in rows)
    figures = ["score", "95 % interval", *(["coverage", "faults"] if missing else [])]
    table = named_table("by category", names, ["tasks", *figures])
    for category, candidate, group in sorted(rows, key=lambda row: row[0]):
        cells = [Text(one_line(name)) for name in (category, candidate)[: len(names)]]
        table.add_row(*cells, str(group.score.tasks), *_score_figures(group)[: len(figures)])
    return table


def _pass_table(candidates: Iterable[CandidateSummary], rule: str, *, width: int) -> Table:
    shown = list(candidates)
    ks = sorted({p.k for c in shown for p in c.total.passes})
    fit = max((width - 24) // 15, 2)
    if (
        len(ks) > fit
    ):  # the first ones and the last: what is between can be guessed, or read as JSON
        ks = [*ks[: fit - 1], ks[-1]]
    about = f"; {rule}" if rule else ""
    title = f"pass@k / pass^k (at least one, all of k rollouts{about})"
    table = named_table(title, ["candidate"], [f"k = {k}" for k in ks])
    for c in shown:
        rates = {p.k: f"{_number(p.pass_at, 3)}/{_number(p.pass_hat, 3)}" for p in c.total.passes}
        table.add_row(_name(c), *(rates.get(k, "–") for k in ks))
    return table


def _interval(group: Group) -> str:
    interval = group.score.interval
    return "–" if interval is None else f"[{interval.low:.3f}, {interval.high:.3f}]"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def cost(usd: float | None) -> str:
    """Return dollars, to the hundredth of a cent."""
    return "–" if usd is None else f"${usd:.4f}"


def seconds(value: float | None) -> str:
    """Return a time that is short."""
    if value is None:
        return "–"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
