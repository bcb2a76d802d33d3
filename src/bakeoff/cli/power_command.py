"""`bakeoff power`."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from bakeoff._lib.argument_parser import count
from bakeoff.cli import print_json
from bakeoff.cli.options import ArgumentGroup, add_json, add_output, new_parser, two

if TYPE_CHECKING:
    from rich.table import Table

    from bakeoff.stats.power_plan import PowerPlan

_EXAMPLES = """\
  bakeoff power 0.05
  bakeoff power 0.05 --run latest
  bakeoff power 0.1 --run latest --pair ollama/qwen3:8b,openai/gpt-4.1-mini --tasks 200
  bakeoff power 0.05 --score 0.9 --candidates 4"""

_ASIDE = {"difference", "pair", "as_json", "debug"}


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "power",
        "Say how many tasks it takes to see a DIFFERENCE between two candidates, for each number of\n"
        "rollouts: by the spread of a run that was made, or by what is assumed.",
        examples=_EXAMPLES,
    )
    p.usage = "bakeoff power DIFFERENCE [OPTION ...]"
    p.add_argument("difference", type=_number, metavar="DIFFERENCE",
                   help="of mean scores, which go from 0 to 1: 0.05 are five points of a hundred")  # fmt: skip
    _add_pilot(p.add_argument_group("measured in a run"))
    _add_plan(p.add_argument_group("the planned run"))
    _add_assumed(p.add_argument_group("assumptions without a run"))
    add_json(p)
    return p


def _add_pilot(p: ArgumentGroup) -> None:
    p.add_argument("--run", metavar="RUN",
                   help="measure in this run: an id, the start of one, a folder, or `latest`")  # fmt: skip
    p.add_argument("--pair", type=two, metavar="A,B",
                   help="two of its candidates (default: the pair that takes the most tasks)")  # fmt: skip
    add_output(p)


def _add_plan(p: ArgumentGroup) -> None:
    p.add_argument("--rollouts", type=count, metavar="N", help="also for N rollouts")
    p.add_argument("--tasks", type=count, metavar="N",
                   help="how many tasks there are (default: those of the run)")  # fmt: skip
    p.add_argument("--candidates", type=count, metavar="N",
                   help="how many are compared, every two of them (default: those of the run, or 2)")  # fmt: skip
    p.add_argument("--trial-cost", type=_number, metavar="USD",
                   help="what a trial costs, in dollars (default: that of the run)")  # fmt: skip
    p.add_argument("--trial-time", type=_number, metavar="S",
                   help="the seconds that a trial adds to a run, fewer where many run at once "
                   "(default: those of the run)")  # fmt: skip
    p.add_argument("--alpha", type=_number, metavar="A",
                   help="the chance of a false alarm when there is no difference (default: 0.05)")  # fmt: skip
    p.add_argument("--power", type=_number, metavar="P",
                   help="the chance to detect the difference if it is real (default: 0.8)")  # fmt: skip


def _add_assumed(p: ArgumentGroup) -> None:
    p.add_argument("--score", type=_number, metavar="S", help="the mean score (default: 0.5)")
    p.add_argument("--noise", type=_number, metavar="SHARE",
                   help="how much of the variance of scores is chance between rollouts "
                   "(default: two thirds)")  # fmt: skip
    p.add_argument("--correlation", type=_number, metavar="R",
                   help="how strongly the two agree on which tasks are hard (default: 0.5)")  # fmt: skip


def main(args: Namespace) -> int:
    """Print how large a run must be."""
    from bakeoff import app

    options = {name: value for name, value in vars(args).items() if name not in _ASIDE}
    plan = app.power(args.difference, pair=args.pair, **options)
    if args.as_json:
        from bakeoff.reports.wording.power import as_json

        print_json(as_json(plan))
    else:
        _print(plan)
    return 0


def _print(plan: "PowerPlan") -> None:
    from rich.text import Text

    from bakeoff.cli.views.tables import console
    from bakeoff.reports.wording.power import answers, asked, grounds

    out = console()
    out.print(Text(asked(plan), style="italic"))
    if plan.sizes:
        out.print(_table(plan))
    for line in answers(plan):
        out.print(Text(line, style="bold"))
    for line in grounds(plan):
        out.print(Text(line, style="dim"))


def _table(plan: "PowerPlan") -> "Table":
    from bakeoff.cli.views.tables import named_table
    from bakeoff.reports.wording.phrases import UNKNOWN, counted, dollars, seconds

    table = named_table("", [], ["rollouts", "tasks", "trials"])
    likely = any(size.likely for size in plan.sizes)
    if likely:
        table.add_column("tasks, likely", justify="right", no_wrap=True)
    if plan.tasks is not None:
        shows = f"{counted(plan.tasks, 'task')} show{'s' if plan.tasks == 1 else ''}"
        table.add_column(shows, justify="right", no_wrap=True)
    priced = any(size.effort.cost_usd is not None for size in plan.sizes)
    timed = any(size.effort.seconds is not None for size in plan.sizes)
    for name in [*(["cost"] if priced else []), *(["time"] if timed else [])]:
        table.add_column(name, justify="right", no_wrap=True)
    for size in plan.sizes:
        row = [f"{size.rollouts:,}", f"{size.tasks:,}", f"{size.trials:,}"]
        if likely:
            row.append("{:,} to {:,}".format(*size.likely) if size.likely else UNKNOWN)
        if plan.tasks is not None:
            row.append(UNKNOWN if size.detectable is None else f"{size.detectable:.3f}")
        row += [dollars(size.effort.cost_usd)] if priced else []
        row += [seconds(size.effort.seconds)] if timed else []
        table.add_row(*row)
    return table


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a number, such as 0.05") from error
