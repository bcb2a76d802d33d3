"""`bakeoff batch` with a person in front of it: the live table, the results, the files and the reports."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bakeoff import app
from bakeoff._lib.clock import monotonic
from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.app.options import RunOptions
from bakeoff.cli import print_json
from bakeoff.cli.views import plan
from bakeoff.cli.views.progress import waits_in_words
from bakeoff.cli.views.tables import console
from bakeoff.cli.views.terminal import Level, LiveView, PlainLines, ProgressLine, fault_details
from bakeoff.core.candidate import Candidate
from bakeoff.core.errors import BakeoffError
from bakeoff.core.events import (
    Event,
    Notice,
    RunStarted,
    TrialEnded,
    TrialNotRun,
    TrialOutput,
    TrialSpent,
    TrialStarted,
    Waiting,
)
from bakeoff.core.outcome import Spent
from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRecord
from bakeoff.core.values import Json
from bakeoff.core.workspace import Tree
from bakeoff.frontends.batch.batch import BatchOptions, BatchRun, plan_batch, prepare_batch
from bakeoff.frontends.batch.files import Batch, names_of, write_report, write_result
from bakeoff.frontends.session import ExitCode, View, run_session
from bakeoff.reports.comparison import Comparison, Competitor, in_order
from bakeoff.reports.comparison import as_json as comparison_as_json
from bakeoff.reports.wording import phrases
from bakeoff.reports.wording.phrases import Formatter
from bakeoff.stats.head_to_head import RolloutFigures, RolloutVerdict, figures, shared_verdict
from bakeoff.stats.rankings import Ranking

_TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_AROUND_ROWS = 7  # lines of a screen that are not rows of models
_MARKS = {
    RolloutVerdict.SUCCESS: ("✓", "bold green"),
    RolloutVerdict.SUCCESS_AT_LIMIT: ("◷", "yellow"),
    RolloutVerdict.FAILED: ("✗", "red"),
    RolloutVerdict.ERROR: ("!", "red"),
    RolloutVerdict.TIMED_OUT: ("◷", "yellow"),
    RolloutVerdict.UNCHECKED: ("?", "yellow"),
}


def marked(status: str, rollouts: Sequence[RolloutFigures]) -> Text:
    """Return the *status* of a model with the mark and the colour of its *rollouts*."""
    verdict = shared_verdict(rollouts)
    mark, style = _MARKS.get(verdict, ("~", "")) if verdict else ("~" if rollouts else "·", "")
    return Text(f"{mark} {status}", style=style if rollouts else "dim")


@dataclass(slots=True)
class ModelRow:
    """One model: its status, and what its rollouts have used so far."""

    name: str
    planned: int
    done: list[RolloutFigures] = field(default_factory=list)
    running: dict[int, float] = field(default_factory=dict)
    spent: dict[int, Spent] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """Its status in a word or two."""
        if self.running:
            at = min(self.running) + 1
            return "running" if self.planned == 1 else f"running {at} of {self.planned}"
        return phrases.status(self.done, planned=self.planned) if self.done else "waiting"

    @property
    def finished(self) -> bool:
        """Whether all its rollouts have ended."""
        return len(self.done) >= self.planned

    @property
    def seconds(self) -> float:
        """Seconds of work, those under way included."""
        now = monotonic()
        return sum(r.seconds for r in self.done) + sum(now - t for t in self.running.values())

    @property
    def prompts(self) -> int:
        """Requests made to the model."""
        return sum(r.prompts for r in self.done) + sum(s.requests for s in self.spent.values())

    @property
    def tokens(self) -> int:
        """Tokens in and out, as far as they are known."""
        under_way = (s.usage for s in self.spent.values())
        return sum(r.tokens or 0 for r in self.done) + sum(
            (u.input_tokens or 0) + (u.output_tokens or 0) for u in under_way
        )

    def so_far(self) -> str:
        """Return its status and what it has used, in half a line."""
        took = f"{phrases.seconds(self.seconds)}, {phrases.counted(self.prompts, 'prompt')}"
        return f"{self.name} {self.status}: {took}, {phrases.counted(self.tokens, 'token')}"

    def cells(self) -> tuple[Text, ...]:
        """Return the row of the table."""
        status = marked(self.status, self.done)
        if self.running:
            turn = _TURNS[int(monotonic() * len(_TURNS)) % len(_TURNS)]
            status = Text(f"{turn} {self.status}", style="bold cyan")
        if not self.done and not self.running:
            return Text(self.name), status
        totals = (phrases.seconds(self.seconds), f"{self.prompts:,}", f"{self.tokens:,}")
        return (Text(self.name), status, *map(Text, totals))


class BatchProgress:
    """The rows of a batch, updated by events."""

    def __init__(
        self, title: str, plan: Plan, names: dict[str, str], done: Iterable[TrialRecord] = ()
    ) -> None:
        self._title = title
        self._began = monotonic()
        self._waiting: tuple[str, ...] = ()
        rollouts = plan.rollouts
        self.rows = {
            candidate.id: ModelRow(name=one_line(names[candidate.id], width=60), planned=rollouts)
            for candidate in plan.candidates
        }
        for record in done:
            if record.attempt.status.final:
                self.rows[record.candidate_id].done.append(figures(record.rollout, record.attempt))

    def take(self, event: Event) -> ProgressLine | None:
        """Count *event*; return a line where there is something to show."""
        if isinstance(event, TrialStarted):
            self.rows[event.trial.candidate.id].running[event.trial.rollout] = monotonic()
        elif isinstance(event, TrialSpent):
            self.rows[event.trial.candidate.id].spent[event.trial.rollout] = event.spent
        elif isinstance(event, TrialEnded):
            return self._ended(event)
        elif isinstance(event, TrialNotRun):
            self.rows[event.trial.candidate.id].running.pop(event.trial.rollout, None)
        elif isinstance(event, Waiting):
            self._waiting = waits_in_words(event.endpoints)
        elif isinstance(event, Notice):
            return ProgressLine(one_line(event.text, width=300), Level.NOTICE)
        elif isinstance(event, RunStarted):
            before = f", {self._finished} already done" if self._finished else ""
            return ProgressLine(
                f"{self._title}: {phrases.counted(len(self.rows), 'model')}{before}"
            )
        return None

    def _ended(self, event: TrialEnded) -> ProgressLine | None:
        row, rollout = self.rows[event.trial.candidate.id], event.trial.rollout
        row.spent.pop(rollout, None)
        if not event.last:
            return None
        row.running.pop(rollout, None)
        result = figures(rollout, event.attempt)
        row.done.append(result)
        which = f" rollout {rollout + 1}" if row.planned > 1 else ""
        line = f"{row.name}{which}: {result.verdict.value} in {phrases.seconds(result.seconds)}"
        line += f", {phrases.counted(result.prompts, 'prompt')}"
        if result.tokens is not None:
            line += f", {phrases.counted(result.tokens, 'token')}"
        fault = event.attempt.fault
        if fault is None:
            return ProgressLine(line)
        why = one_line(fault.message, width=200)
        return ProgressLine(f"{line} ({why})", Level.FAULT, fault_details(fault))

    @property
    def _finished(self) -> int:
        return sum(row.finished for row in self.rows.values())

    def so_far(self) -> str:
        """Return how far it is, in one line."""
        running = [row.so_far() for row in self.rows.values() if row.running]
        return "; ".join([f"{self._finished} of {len(self.rows)} done", *running, *self._waiting])

    def draw(self, room: ConsoleDimensions) -> RenderableType:
        """Return a table with a row for each model, or for as many as fit."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column("model", overflow="fold")
        table.add_column("status", no_wrap=True)
        for name in ("time", "prompts", "tokens"):
            table.add_column(name, justify="right", no_wrap=True)
        shown, left_out = _fitting(list(self.rows.values()), max(room.height - _AROUND_ROWS, 1))
        for row in shown:
            table.add_row(*row.cells())
        done = f"{self._finished} of {phrases.counted(len(self.rows), 'model')} done"
        since = phrases.duration(monotonic() - self._began)
        title = Text.assemble((self._title, "bold"), f": {done}, {since}")
        more = [Text(left_out, style="dim")] if left_out else []
        more += [Text(line, style="yellow") for line in self._waiting]
        return Group(title, table, *more)


def _fitting(rows: Sequence[ModelRow], most: int) -> tuple[Sequence[ModelRow], str]:
    """Return the rows that fit, running ones first, and a line about the others."""
    if len(rows) <= most:
        return rows, ""
    by_interest = sorted(rows, key=lambda row: (not row.running, row.finished))
    chosen = {id(row) for row in by_interest[:most]}
    hidden = [row for row in rows if id(row) not in chosen]
    waiting = sum(not row.finished for row in hidden)
    counts = {"done": len(hidden) - waiting, "waiting": waiting}
    listed = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    return [row for row in rows if id(row) in chosen], f"not shown: {listed}"


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
    for competitor in in_order(comparison):
        if competitor.error and not competitor.figures.finished:
            why = f"{one_line(competitor.display_name, width=60)}: {one_line(competitor.error, width=300)}"
            out.print(Text(why, style="dim"), no_wrap=True, overflow="ellipsis")
    for title, ranking, wording in _rankings(comparison, verbose=verbose):
        _print_ranking(out, comparison, title, ranking, wording)
    for note in result.notes:
        out.print(Text(f"note: {one_line(note, width=300)}", style="yellow"))
    if short := _in_short(comparison):
        out.print(Text(short, style="bold"))
    out.print(Text(f"report: {folder / 'comparison_report.html'}", style="dim"))


def _in_short(comparison: Comparison) -> str:
    """Return who solved the task and who was fastest, in a line; nothing where that is unknown."""
    result, fastest = comparison.result, comparison.result.fastest
    if not result.successful:
        known = result.complete and not result.undecided
        return "no model solved the task" if known else ""
    many = phrases.counted(len(result.contenders), "model")
    solved = f"{result.successful} of {many} solved the task"
    if not fastest.placed:
        return solved
    first = fastest.placed[0]
    name = one_line(comparison.named(first.candidate), width=60)
    chance = len(fastest.placed) > 1 and not fastest.decided
    return (
        f"{solved}; fastest: {name}, {phrases.seconds(first.value)}"
        f"{', which may be chance' if chance else ''}"
    )


def _rankings(comparison: Comparison, *, verbose: bool) -> Iterator[tuple[str, Ranking, Formatter]]:
    result = comparison.result
    yield "Fastest", result.fastest, phrases.seconds
    yield "Most Efficient, by prompts", result.most_efficient, phrases.number
    yield "Most Autonomous, by interventions", result.least_intervention, phrases.number
    several = comparison.setting.rollouts > 1 or result.successful > len(result.fastest.placed)
    if result.to_solve is not None and (verbose or several):
        limit = phrases.duration(result.horizon_s or 0.0)
        title = f"Time to solve, not solved counts {limit}"
        yield title, result.to_solve, phrases.seconds


def _results(comparison: Comparison, *, width: int) -> Table:
    """Return a row for each model; on a narrow terminal, what was changed is left to the report."""
    title = f"{comparison.batch_id}: {one_line(comparison.title)}"
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", overflow="fold", min_width=_SHORTEST_NAME)
    table.add_column("result", min_width=_SHORTEST_RESULT)
    rows = [(competitor, _figures(competitor)) for competitor in in_order(comparison)]
    shown = [name for name in rows[0][1] if _fits(name, width)]
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for competitor, shown_figures in rows:
        verdict = marked(competitor.status, competitor.figures.rollouts)
        model = Text(one_line(competitor.display_name))
        table.add_row(model, verdict, *(shown_figures[name] for name in shown))
    return table


def _fits(column: str, width: int) -> bool:
    if width < _NARROW:
        return column in _ALSO_NARROW
    return width >= _WIDE or column not in _ONLY_WIDE


def _figures(competitor: Competitor) -> dict[str, str]:
    means = competitor.figures.means
    added, removed = phrases.number(means.added.value), phrases.number(means.removed.value)
    return {
        "time": phrases.seconds(means.seconds.value),
        "prompts": phrases.number(means.prompts.value),
        "interv.": phrases.number(means.interventions.value),
        "files": phrases.number(means.files.value),
        "lines": phrases.UNKNOWN if means.added.value is None else f"+{added} -{removed}",
        "tokens": phrases.number(means.tokens.value),
        "cost": phrases.dollars(means.cost_usd.value),
    }


def _print_ranking(
    out: Console,
    comparison: Comparison,
    title: str,
    ranking: Ranking,
    wording: Formatter,
) -> None:
    if not ranking.placed:
        return
    values = {place.value for place in ranking.placed}
    if len(ranking.placed) > 1 and len(values) == 1:
        out.print(Text.assemble((title, "bold"), f"  all equal: {wording(values.pop())}"))
        return
    why = f"  {ranking.reason}" if ranking.reason else ""
    out.print(Text.assemble((title, "bold"), (why, "dim")))
    for place in ranking.placed[:5]:
        solved = comparison.solved(place.candidate)
        has_medal = solved and place.rank <= len(_MEDALS)
        medal = _MEDALS[place.rank - 1] if has_medal else f"{place.rank:>2}"
        could = phrases.rank_range(place.best, place.worst)
        rank_range = f"  (rank {could})" if could else ""
        name = one_line(comparison.named(place.candidate), width=60)
        figure = wording(place.value) if solved else phrases.NOT_SOLVED
        out.print(Text(f"  {medal} {name}: {figure}{rank_range}"))


_EVERY_S = 30.0


def print_plan(options: BatchOptions, *, as_json: bool) -> int:
    """Print what would be run; no folder is made."""
    prepared, notices = plan_batch(options)
    (task,) = prepared.plan.tasks
    limits_s = (prepared.spec.conditions.limits.time_s, task.time_s)
    more: dict[str, Json] = {
        "files": [_files_of(tree) for tree in task.workspace.files] if task.workspace else [],
        "checked_by": [scorer.name for scorer in task.scorers],
        "time_limit_s": min((s for s in limits_s if s is not None), default=None),
        "parallel": prepared.spec.parallel,
    }
    return plan.print_plan(prepared, as_json=as_json, more=more, notices=notices)


def _files_of(tree: Tree) -> str:
    where = f"{tree.path}/{tree.subdir}" if tree.subdir else tree.path
    return f"{where} at commit {tree.commit[:12]}" if tree.commit else where


def run(options: BatchOptions, *, resume: str, as_json: bool = False, debug: bool = False) -> int:
    """Run the batch and write its reports; *resume* is the command that resumes it, without its id."""
    batch_run = prepare_batch(options)
    batch, settings = batch_run.batch, batch_run.settings
    view = _view(batch_run, debug=debug)

    def write_files(event: Event) -> None:
        if isinstance(event, RunStarted):
            batch.remember(batch_run.state)
        elif isinstance(event, TrialEnded) and event.last and settings.save_intermediate:
            _write_result(batch, event.trial.candidate, view)
        elif isinstance(event, TrialOutput) and settings.verbose:
            view.say(f"{event.trial.candidate.id}: {one_line(event.text)}")

    try:
        for notice in batch_run.notices:
            view(Notice(notice))
        run_options = RunOptions(
            batch_run.spec,
            executor=options.executor,
            workers=options.workers,
            ray_address=options.ray_address,
            env_file=options.env_file,
            give_up_after=options.give_up_after_s,
            keep_going=options.keep_going,
        )
        run_options = run_options.in_folder(batch.run, resumed=batch_run.resumed)
        result = run_session(run_options, view, files=write_files)
    finally:
        batch.remove_unless_started()
    comparison = write_report(batch) if batch.started else None
    if comparison is not None:
        _print_report(comparison, batch_run, as_json=as_json)
    for line in result.next_steps(f"{resume} {batch.id}"):
        print(for_terminal(line), file=sys.stderr)
    if comparison is None or result.stopped_early:
        return result.exit_code
    return ExitCode.OK if comparison.result.successful else ExitCode.ERROR


def _print_report(comparison: Comparison, batch_run: BatchRun, *, as_json: bool) -> None:
    if as_json:
        print_json(comparison_as_json(comparison))
    else:
        verbose = batch_run.settings.verbose
        print_batch(comparison, batch_run.batch.folder, verbose=verbose)


def _view(batch_run: BatchRun, *, debug: bool) -> View:
    planned, batch = batch_run.prepared.plan, batch_run.batch
    names = names_of(tuple(planned.candidates))
    labels = {c.id: c.model.label or names[c.id] for c in planned.candidates}
    earlier = app.load_run(batch.run).trials() if batch_run.resumed else ()
    title = f"{batch.id}, {batch_run.spec.tasks[0].id}"
    progress = BatchProgress(title, planned, labels, earlier)
    if batch_run.settings.show_progress and sys.stderr.isatty():
        return LiveView(progress, debug=debug)
    quiet = not batch_run.settings.show_progress
    return PlainLines(progress, every_s=_EVERY_S, quiet=quiet, debug=debug)


def _write_result(batch: Batch, candidate: Candidate, view: View) -> None:
    """Write the file of one model; where that fails, the ledger has its results and the run goes on."""
    try:
        write_result(batch, candidate)
    except BakeoffError as error:
        view(Notice(str(error)))
