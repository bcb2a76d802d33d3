"""`bakeoff top`."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from bakeoff.cli.options import add_output, add_run, new_parser

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bakeoff.app import Run

_EVERY_S = 1.0
_EXAMPLES = """\
  bakeoff top
  bakeoff top main --once"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "top",
        "Watch a run that another process runs: how far each candidate is, what broke, and what the\n"
        "endpoints do. It ends when the run does, or with Ctrl-C, which does not touch the run.",
        examples=_EXAMPLES,
    )
    add_run(p)
    p.add_argument("--once", action="store_true", help="print how it is now, and end")
    add_output(p)
    return p


def main(args: Namespace) -> int:
    """Show the run until it ends."""
    import time

    from rich.live import Live

    from bakeoff import app
    from bakeoff.cli.views.tables import console
    from bakeoff.stores.writing import being_written

    run, out = app.load_run(args.run, output=args.output), console()
    if args.once or not out.is_terminal or not being_written(run.folder):
        out.print(_drawn(run))
        return 0
    with Live(_drawn(run), console=out, auto_refresh=False) as live:
        try:
            while being_written(run.folder):
                time.sleep(_EVERY_S)
                live.update(_drawn(run), refresh=True)
        except KeyboardInterrupt:
            pass
    return 0


def _drawn(run: "Run") -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from bakeoff._lib.sanitize import one_line
    from bakeoff.reports.wording import phrases
    from bakeoff.stores.ledger_reader import SqliteLedger
    from bakeoff.stores.live_status import read_live_status
    from bakeoff.stores.queries import LedgerQueries
    from bakeoff.stores.writing import being_written

    queries = LedgerQueries(SqliteLedger(run.folder, trusting=True))
    progress, planned = queries.progress(), run.manifest.planned
    ended = sum(one.ended for one in progress)
    state = "running" if being_written(run.folder) else "not running"
    head = f"{one_line(run.id)}  {state}  {ended:,} of {planned:,} trials"
    cost = run.billed().cost_usd
    parts: list[RenderableType] = [
        Text(head if cost is None else f"{head}  {phrases.dollars(cost)} billed", "bold"),
        _table(("candidate", "ended", "mean", "passed", "faulted", "tokens", "cost"), [
            (one_line(one.candidate), f"{one.ended:,}", phrases.score(one.mean_score),
             f"{one.passed:,} of {one.scored:,}", f"{one.statuses.get('faulted', 0):,}",
             phrases.number(one.tokens), phrases.dollars(one.cost_usd))
            for one in progress
        ]),
    ]  # fmt: skip
    for candidate, boundary, many in queries.faults()[:5]:
        text = f"{phrases.counted(many, 'trial')} of {one_line(candidate)} broke: {boundary}"
        parts.append(Text(text, "red"))
    if status := read_live_status(run.folder):
        parts.append(_table(("endpoint", "in flight", "at once", "waiting", "rate", "state"), [
            (one_line(one.endpoint), f"{one.under_way:,}",
             "any" if one.at_once is None else f"{one.at_once:,}", f"{one.waiting:,}",
             phrases.UNKNOWN if one.per_s is None else f"{one.per_s:.1f}/s",
             f"down: {one_line(one.reason)}" if one.reason else "answers")
            for one in status.endpoints
        ]))  # fmt: skip
    return Group(*parts)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if not number or head == "state" else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
