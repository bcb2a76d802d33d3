"""`bakeoff explain`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text

from bakeoff._lib.sanitize import one_line
from bakeoff.app import load_run
from bakeoff.app.explaining import Explanation, write_group
from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, new_parser
from bakeoff.cli.views.tables import console, named_table, print_table
from bakeoff.core.errors import UsageError
from bakeoff.reports.explanation import (
    failure_line,
    headline,
    on_qualities,
    on_tasks,
    part_in_words,
)
from bakeoff.reports.wording.phrases import counted
from bakeoff.stats.explain import TaskPart

_MOST_TASKS, _MOST_FAILURES = 10, 8
_EXAMPLES = """\
  bakeoff explain                                     # the two candidates of the latest run
  bakeoff explain main ollama/qwen3:8b ollama/qwen3:14b
  bakeoff explain main A B --write lost.json --group behind
  bakeoff run lost.json --model ollama/qwen3:14b --rollouts 10"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "explain",
        "Say why two candidates of a run differ: the tasks and categories that carry the gap, flaky tasks,\n"
        "tasks that separate no candidates, tests that may be broken, and failures that look alike. A group of\n"
        "tasks can be written as a suite of its own.",
        examples=_EXAMPLES,
    )
    p.add_argument("words", nargs="*", metavar="[RUN] [A B]",
                   help="a run (default: latest) and two of its candidates (default: its only two)")  # fmt: skip
    p.add_argument("--write", type=Path, metavar="FILE.json",
                   help="write the tasks of a group as a suite, which asks and scores as the run did")  # fmt: skip
    p.add_argument("--group", default="gap", metavar="NAME",
                   help="which group: gap (the tasks on which they differ, the default), ahead, behind, flaky, "
                   "all-pass, none-pass, suspicious, category:NAME, failure-1, ...")  # fmt: skip
    p.add_argument("--all", action="store_true", help="list every task and every kind of failure")
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print the explanation, and write the group that is asked for."""
    reference, names = _words(args.words)
    run = load_run(reference, output=args.output)
    found = run.explain(*names)
    if args.as_json:
        print_json({**asdict(found), "groups": found.groups})
    else:
        print_explanation(found, everything=args.all)
    if args.write is not None:
        many = write_group(run, found, args.group, args.write)
        if not args.as_json:
            tasks = counted(many, "task")
            print(
                f"{args.write}: {tasks} ({args.group}); run with: bakeoff run {args.write} --model MODEL"
            )
    return 0


def _words(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the run and the candidates that are named."""
    if len(words) > 3:
        raise UsageError("name one run and two candidates: bakeoff explain [RUN] A B")
    if len(words) == 2:
        return "latest", words
    return (words[0] if words else "latest"), words[1:]


def print_explanation(found: Explanation, *, everything: bool) -> None:
    """Print what carries the gap, what tasks are like, and what failed."""
    out = console()
    out.print(Text(f"{found.run}: {headline(found)}", style="bold"))
    if len(found.categories) > 1:
        print_table(_categories(found), out)
    most = None if everything else _MOST_TASKS
    if carrying := [task for task in found.tasks if task.part]:
        print_table(_tasks(found, carrying[:most], of=len(carrying)), out)
    for line in (*on_tasks(found), *on_qualities(found)):
        out.print(Text(line))
    shown = found.failures if everything else found.failures[:_MOST_FAILURES]
    if shown:
        out.print()
        out.print(Text("failures that look alike, the most frequent first", style="bold"))
        for group in shown:
            out.print(Text(failure_line(group, (found.first, found.second))))
        if more := len(found.failures) - len(shown):
            out.print(Text(f"and {more} more kinds: --all lists them", style="dim"))
    if found.groups:
        out.print()
        out.print(Text("to run some of these tasks again: --write FILE.json --group "
                       + "|".join(list(found.groups)[:6]), style="dim"))  # fmt: skip


def _categories(found: Explanation) -> Table:
    """Return the parts of the categories; they add up to the difference."""
    heads = [
        "tasks",
        one_line(found.first, width=24),
        one_line(found.second, width=24),
        "part of the gap",
    ]
    table = named_table("by category", ["category"], heads)
    for part in found.categories:
        name = one_line(part.category) if part.category else "(none)"
        scores = f"{part.first:.3f}", f"{part.second:.3f}"
        table.add_row(
            Text(name), str(part.tasks), *scores, part_in_words(part.part, found.difference)
        )
    table.add_row(
        Text("together"),
        str(len(found.tasks)),
        "",
        "",
        part_in_words(found.difference or 0.0, found.difference),
    )
    return table


def _tasks(found: Explanation, shown: Sequence[TaskPart], *, of: int) -> Table:
    """Return the tasks that have a part in the gap, the largest first."""
    more = f" ({len(shown)} of {of}; --all lists them)" if len(shown) < of else ""
    heads = [one_line(found.first, width=24), one_line(found.second, width=24), "part of the gap"]
    table = named_table(f"tasks that carry the gap{more}", ["task"], heads)
    for part in shown:
        scores = f"{part.first:.2f}", f"{part.second:.2f}"
        table.add_row(
            Text(one_line(part.task)), *scores, part_in_words(part.part, found.difference)
        )
    return table
