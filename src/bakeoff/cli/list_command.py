"""`bakeoff list`."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from bakeoff import app, registry
from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.app import inspection
from bakeoff.app.workspaces import works_here
from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, new_parser
from bakeoff.cli.views.tables import console
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Task

Row = dict[str, str | int | None]


def rows_of(kind: str, source: Path | None, output: Path) -> list[Row]:
    """Return one row for each thing of *kind*."""
    if kind == "runs":
        return [_run_row(entry) for entry in inspection.runs(output)]
    if kind == "tasks":
        return _task_rows(source)
    if kind == "models":
        return _model_rows(source)
    if kind == "sandboxes":
        return [{"sandbox": name, "here": line} for name, line in works_here()]
    of: registry.Kind = "agents" if kind == "agents" else "scorers"
    return [{kind[:-1]: n, "what": inspection.part_line(of, n)} for n in registry.names(of)]


def print_rows(kind: str, rows: list[Row]) -> None:
    """Print *rows* as a table."""
    out = console()
    if not rows:
        out.print(Text(f"there are no {kind}"))
        return
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_whole(v)) for v in row.values()))
    out.print(table)


def _whole(value: str | int | None) -> str:
    """Return *value* on one line, uncut: half of how to install something is no help."""
    return one_line("" if value is None else str(value), width=2000)


def _run_row(entry: inspection.RunListing) -> Row:
    scores = ["–" if score is None else f"{score:.3f}" for score in entry.scores]
    return {
        "run": entry.id,
        "name": entry.name,
        "state": entry.state,
        "score": ", ".join(scores),
        "candidates": ", ".join(entry.candidates),
        "done": entry.done,
        "planned": entry.planned,
        "started": entry.started,
    }


def _model_rows(config: Path | None) -> list[Row]:
    there = inspection.models(config)
    for trouble in there.troubles:
        print(for_terminal(trouble), file=sys.stderr)
    return [
        {
            "model": line.name,
            "size": None if line.size_bytes is None else f"{line.size_bytes / 1e6:,.0f} MB",
            "quantisation": line.quantization,
            "context": line.context_length,
            "digest": line.digest[:12] if line.digest else None,
            "what": line.note,
        }
        for line in there.models
    ]


def _task_rows(source: Path | None) -> list[Row]:
    if source is None:
        raise UsageError("tasks of what? Write: bakeoff list tasks SUITE")
    return [
        {
            "task": task.id,
            "category": task.category,
            "scorers": ", ".join(s.name for s in task.scorers) or "unchecked",
            "asks": one_line(_question(task), width=70),
        }
        for task in app.read(source, {}).tasks
    ]


def _question(task: Task) -> str:
    if task.dialogue is not None:
        return task.dialogue.objective
    if not task.messages:  # a prompt of the run asks it
        return ", ".join(f"{name}: {value}" for name, value in task.vars.items())
    return task.messages[-1].described


KINDS = ("runs", "tasks", "models", "agents", "scorers", "sandboxes")


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "list", "List runs, or the tasks, models, agents, scorers or sandboxes that can be used."
    )
    p.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    p.add_argument(
        "source",
        nargs="?",
        type=Path,
        metavar="SOURCE",
        help="whose tasks to list, or a models_config.yaml",
    )
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print one row for each thing."""
    rows = rows_of(args.kind, args.source, args.output)
    if args.as_json:
        print_json(rows)
    else:
        print_rows(args.kind, rows)
    return 0
