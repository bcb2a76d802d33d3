"""`bakeoff show`."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import zip_longest

import msgspec
from rich.console import Console
from rich.text import Text

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.app import Run
from bakeoff.app.labels import read_labels
from bakeoff.cli import print_json
from bakeoff.cli.options import add_json, add_output, add_run, new_parser
from bakeoff.cli.views.tables import console
from bakeoff.core.errors import UsageError
from bakeoff.core.outcome import Outcome
from bakeoff.core.record import Fault, Score, TrialFilter, TrialRecord
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import Change
from bakeoff.reports.wording.phrases import counted

_COLOURS = {"completed": "32", "limited": "33", "faulted": "31", "cancelled": "2"}
_ROLES = {"user": "bold yellow", "assistant": "bold blue", "tool": "bold magenta"}
_MOST_OF_A_NAME, _MOST_OF_A_TEXT = 60, 60


def as_data(run: Run, name: str | None, which: TrialFilter, search: str | None) -> Json:
    """Return the trials that are asked for, or all attempts of those called *name*, as plain data."""
    if name is not None:
        records = list(_attempts(run, name))
    elif which == TrialFilter(candidates=[], categories=[]) and not search:
        records = list(run.trials())
    else:
        chosen = {line.name for line in run.lines(which, search=search)}
        records = [record for record in run.trials() if record.name in chosen]
    data: Json = msgspec.to_builtins(records)
    return data


def print_run(run: Run, which: TrialFilter, search: str | None) -> None:
    """Print a line for each recorded trial that is asked for."""
    out = console()
    manifest = run.manifest
    trials, tasks = counted(manifest.planned, "trial"), counted(manifest.tasks, "task")
    out.print(Text(f"{run.id}: {trials} planned, {tasks}", "bold"))
    for candidate in manifest.candidates:
        out.print(Text(f"candidate {one_line(candidate.id)}"))
    lines = list(run.lines(which, search=search))
    names = [one_line(line.name, width=_MOST_OF_A_NAME) for line in lines]
    width = max((len(name) for name in names), default=0)
    rest = max(20, out.width - width - 31) if out.is_terminal else _MOST_OF_A_TEXT
    if lines:
        print(f"{'trial':{width}}  status     score       time  answer or fault")
    for name, line in zip(names, lines, strict=True):
        score = "–" if line.score is None else f"{line.score:.2f}"
        status = f"{line.status:9}"
        if out.color_system:
            status = f"\x1b[{_COLOURS[line.status]}m{status}\x1b[0m"
        text = one_line(line.text, width=min(rest, _MOST_OF_A_TEXT))
        print(f"{name:{width}}  {status}  {score:>5}  {line.elapsed_s:7.2f} s  {text}".rstrip())
    if not lines:
        out.print(Text("no recorded trial matches"))
    for note in run.damage().lines:
        out.print(Text(one_line(note, width=1000), style="red"))


def print_trial(run: Run, name: str) -> None:
    """Print every attempt at the trials called *name*, whole, and what a person said of each trial."""
    out = console()
    records = _attempts(run, name)
    labels = read_labels(run.folder)
    asked = None
    for record, later in zip_longest(records, records[1:]):
        task = run.asked(record)
        if task != asked:
            _print_task(out, task)
            asked = task
        _print_attempt(out, record)
        label = labels.get((record.task_id, record.candidate_id, record.rollout))
        if label is not None and (later is None or later.name != record.name):
            said = ": ".join(filter(None, (label.text, label.note)))
            out.print(Text(f"labelled {one_line(said, width=1000)}", style="bold"))


def _attempts(run: Run, name: str) -> Sequence[TrialRecord]:
    records = run.attempts(name)
    if not records:
        raise UsageError(f"no trial {name!r} is recorded in {run.id}; see: bakeoff show {run.id}")
    return records


def _print_task(out: Console, task: Task) -> None:
    for message in task.messages:
        _print_message(out, message)
    if task.prompt is not None:
        out.print(Text("prompt (sent instead to a completions API)", style="bold"))
        out.print(Text(for_terminal(task.prompt)))
    if task.tools is not None:
        names = [tool.name for tool in task.tools.tools]
        servers = [f"those of {server.address}" for server in task.tools.servers]
        out.print(Text(f"tools: {one_line(', '.join([*names, *servers]))}", style="dim"))
    for number, turn in enumerate(task.turns, 1):
        expects = "" if turn.expect is None else f" (expected: {one_line(str(turn.expect))})"
        out.print(
            Text(f"turn {number}: {one_line(turn.message().described)}{expects}", style="dim")
        )
    if task.target is not None:
        out.print(Text(f"expected: {one_line(str(task.target))}", style="dim"))


def _print_attempt(out: Console, record: TrialRecord) -> None:
    attempt = record.attempt
    when = datetime.fromtimestamp(attempt.started_at, UTC).isoformat(timespec="seconds")
    out.rule(Text(f"{one_line(record.name)}, attempt {attempt.number}"))
    out.print(Text(f"{attempt.status.value}, {attempt.elapsed_s:.2f} s, started {when}", "dim"))
    if attempt.outcome is not None:
        _print_outcome(out, attempt.outcome)
    if attempt.fault is not None:
        _print_fault(out, attempt.fault)
    for score in attempt.scores:
        out.print(coloured_score(score))
    if attempt.phases:
        phases = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in attempt.phases.items())
        out.print(Text(phases, style="dim"))
    for who, spent in {"": attempt.spent, **attempt.roles}.items():
        if spent.flags:
            flags = ", ".join(map(one_line, spent.flags))
            out.print(Text(f"{f'{who}: ' if who else ''}flags: {flags}", style="dim"))
    usage = attempt.spent.usage
    out.print(Text(f"tokens in/out {usage.input_tokens}/{usage.output_tokens}", style="dim"))


def _print_outcome(out: Console, outcome: Outcome) -> None:
    for message in outcome.transcript:
        _print_message(out, message)
    if outcome.change is not None:
        _print_change(out, outcome.change)
    if outcome.stop_reason:
        out.print(Text(f"stopped: {one_line(outcome.stop_reason)}", style="dim"))
    if errors := outcome.notes.get("tool_errors"):
        out.print(Text(f"tool calls that were answered with an error: {errors}", style="dim"))


def _print_fault(out: Console, fault: Fault) -> None:
    out.print(Text(f"fault ({fault.boundary}): {for_terminal(fault.message)}", "red"))
    if fault.traceback is not None:
        out.print(Text(for_terminal(fault.traceback), style="dim"))


_DIFF = (
    ("diff --git ", "bold blue"), ("+++ ", "bold"), ("--- ", "bold"), ("@@", "cyan"), ("+", "green"),
    ("-", "red"),
)  # fmt: skip


def coloured_patch(patch: str) -> Text:
    """Return a patch with its lines in colours, safe for a terminal."""
    text = Text()
    for line in for_terminal(patch).split("\n"):
        style = next((style for start, style in _DIFF if line.startswith(start)), "")
        text.append(f"{line}\n", style)
    text.right_crop()
    return text


def coloured_score(score: Score) -> Text:
    """Return a score in a line, with its reason: green where it is full, red where it is nothing."""
    style = "green" if score.value >= 1 else "red" if score.value <= 0 else "yellow"
    text = Text(f"score {one_line(score.label)} ")
    text.append(f"{score.value:.3f}", style)
    why = f": {one_line(score.explanation, width=300)}" if score.explanation else ""
    return text.append(f" (weight {score.weight:g}){why}")


def _print_change(out: Console, change: Change) -> None:
    counts = f"{change.files} files changed, {change.added} lines added, {change.removed} removed"
    out.print(Text(counts, style="bold cyan"))
    out.print(coloured_patch(change.patch))
    for path in change.left_out:
        out.print(Text(f"left out: {one_line(path)}", style="dim"))


def _print_message(out: Console, message: Message) -> None:
    answers = "" if message.tool_call_id is None else f" answers {one_line(message.tool_call_id)}"
    style = _ROLES.get(message.role, "bold cyan")
    out.print(Text(f"{one_line(message.role)}{answers}", style=style))
    if message.reasoning:
        out.print(Text(for_terminal(message.reasoning), style="dim italic"))
    if message.content or not message.tool_calls:
        out.print(Text(for_terminal(message.described)))
    for attachment in message.attachments:
        kind = f"{attachment.media_type}, {attachment.size:,} bytes, blobs/{attachment.blob}"
        out.print(Text(for_terminal(f"{attachment.label}: {kind}"), style="magenta"))
    for call in message.tool_calls:
        out.print(Text(for_terminal(f"calls {call.name} {call.arguments}"), style="magenta"))


_EXAMPLES = """\
  bakeoff show latest --failed --category sums
  bakeoff show latest --faulted --search timeout
  bakeoff show latest capital@ollama/qwen3:8b#0"""


def parser() -> ArgumentParser:
    """Return what the command takes."""
    p = new_parser(
        "show",
        "Show a run, or one trial of it with everything that was said.",
        examples=_EXAMPLES,
    )
    add_run(p)
    p.add_argument("trial", nargs="?", metavar="TRIAL",
                   help="TASK, TASK@CANDIDATE or TASK@CANDIDATE#ROLLOUT")  # fmt: skip
    p.add_argument("--failed", action="store_true",
                   help="only trials whose answer was wrong")  # fmt: skip
    p.add_argument("--faulted", action="store_true",
                   help="only trials that broke; with --failed, both")  # fmt: skip
    p.add_argument("--candidate", action="append", default=[], dest="candidates", metavar="C",
                   help="only of this candidate; may be repeated")  # fmt: skip
    p.add_argument("--category", action="append", default=[], dest="categories", metavar="C",
                   help="only of this category; may be repeated")  # fmt: skip
    p.add_argument("--search", metavar="TEXT",
                   help="only with this text in the name, the question, the answer or the fault")  # fmt: skip
    add_output(p)
    add_json(p)
    return p


def main(args: Namespace) -> int:
    """Print the run, or the trial."""
    from bakeoff import app
    from bakeoff.core.errors import UsageError
    from bakeoff.core.record import TrialFilter

    run = app.load_run(args.run, output=args.output)
    which = TrialFilter(
        failed=args.failed,
        faulted=args.faulted,
        candidates=args.candidates,
        categories=args.categories,
    )
    if args.trial is not None and (
        which != TrialFilter(candidates=[], categories=[]) or args.search
    ):
        raise UsageError("a filter is for the list of trials; leave it out to see one trial")
    if args.as_json:
        print_json(as_data(run, args.trial, which, args.search))
    elif args.trial is None:
        print_run(run, which, args.search)
    else:
        print_trial(run, args.trial)
    return 0
