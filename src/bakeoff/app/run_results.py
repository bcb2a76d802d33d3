"""Runs on the disk: found by id, name or path, and read."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.process_setup import rare_collections
from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.core.budget import Bill
from bakeoff.core.dialogue import INSTRUCTOR
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.record import (
    Status,
    TaskTotals,
    TrialFailure,
    TrialFilter,
    TrialLine,
    TrialRecord,
    TrialRow,
)
from bakeoff.core.run_spec import Adaptive, Manifest
from bakeoff.core.task import Task
from bakeoff.formats.prompts import asked_by
from bakeoff.reports.files import write_summary
from bakeoff.reports.wording.decision import Headline, answer
from bakeoff.stats.between_runs import run_scores
from bakeoff.stats.estimate import IntervalMethod
from bakeoff.stats.pace import Pace
from bakeoff.stats.role_fidelity import role_fidelity
from bakeoff.stats.summarize import summarize as summarize_rows
from bakeoff.stats.summary import Summary
from bakeoff.stores.damage import Damage
from bakeoff.stores.folders import find_run, read_manifest
from bakeoff.stores.ledger_reader import SqliteLedger

if TYPE_CHECKING:
    from bakeoff.app.explaining import Explanation
    from bakeoff.app.trial_table import TrialTable


class Run:
    """A run that was started here or found again; reads its ledger, never writes."""

    def __init__(
        self,
        folder: Path,
        *,
        ended_with: Summary | None = None,
        ledger: SqliteLedger | None = None,
    ) -> None:
        self.folder = folder
        self._ended_with = ended_with
        self._ledger = ledger or SqliteLedger(folder)

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    @property
    def id(self) -> str:
        """The name of the run: that of its folder."""
        return self.folder.name

    @property
    def manifest(self) -> Manifest:
        """What the run promised."""
        return read_manifest(self.folder)

    @property
    def plan(self) -> Plan:
        """Every trial of the run."""
        return self._ledger.planned()

    @property
    def plan_is_open(self) -> bool:
        """Whether only its data set knows the rest of the plan: its rows were not all read."""
        return self._ledger.plan_is_open

    def trials(self) -> "TrialTable":
        """Return the recorded trials: to iterate over, or as a data frame."""
        from bakeoff.app.trial_table import TrialTable  # a run needs no reports

        return TrialTable(self)

    def records(self) -> Iterator[TrialRecord]:
        """Yield each recorded trial with the attempt that counts."""
        return self._ledger.records()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, scores and charts so far."""
        from bakeoff.app.notebook import run_as_html

        return run_as_html(self)

    def rows(self) -> Iterator[TrialRow]:
        """Yield each recorded trial without its body: what statistics need."""
        return self._ledger.rows()

    def totals(self) -> Iterator[TaskTotals]:
        """Yield the trials of each candidate and task, added up by the ledger."""
        return self._ledger.totals()

    def failures(self, candidates: Collection[str]) -> Iterator[TrialFailure]:
        """Yield each trial of *candidates* that did not pass, with why."""
        return self._ledger.failures(candidates)

    def explain(self, first: str | None = None, second: str | None = None) -> "Explanation":
        """Return why two candidates differ: the tasks, categories and failures that carry the gap."""
        from bakeoff.app.explaining import explain  # a run needs none of it

        return explain(self, first, second)

    def lines(
        self, which: TrialFilter | None = None, *, search: str | None = None
    ) -> Iterator[TrialLine]:
        """Yield recorded trials in a line each: all, or those that *which* and *search* ask for.

        The text is searched for in names, questions, answers and faults, in upper or lower case.
        """
        which = which or TrialFilter()
        self._refuse_unknown_names(which)
        text = (search or "").casefold()
        asked = {task.id for task in self.plan.tasks if text in question(task)} if text else ()
        for line in self._ledger.lines(which):
            if (
                line.task_id in asked
                or text in line.text.casefold()
                or text in line.name.casefold()
            ):
                yield line

    def _refuse_unknown_names(self, which: TrialFilter) -> None:
        if not which.candidates and not which.categories:
            return
        plan = self.plan
        candidates = [candidate.id for candidate in plan.candidates]
        categories = {task.category for task in plan.tasks if task.category}
        for kind, names, known in (
            ("candidate", which.candidates, candidates),
            ("category", which.categories, categories),
        ):
            for name in names:
                if name not in known:
                    hint = did_you_mean(name, known)
                    raise UsageError(f"no {kind} {name!r} in {self.id}: {hint}")

    def attempts(self, name: str) -> Sequence[TrialRecord]:
        """Return all attempts at a trial, by its name or its task's id."""
        return self._ledger.attempts(name)

    def asked(self, record: TrialRecord) -> Task:
        """Return the task of *record* as its candidate was asked it, with the prompt filled in."""
        plan = self.plan
        task = next(task for task in plan.tasks if task.id == record.task_id)
        candidate = next(c for c in plan.candidates if c.id == record.candidate_id)
        return asked_by(candidate.prompt, task)

    def summary(
        self,
        *,
        interval: IntervalMethod = "auto",
        margin: float | None = None,
        force: bool = False,
    ) -> Summary:
        """Return the statistics of what is recorded so far, with the *interval* of scores asked for.

        With a *margin*, it is said which candidates are equivalent within it. Candidates that were not asked
        alike are compared without a verdict, unless *force* insists on one.
        """
        if self._ended_with is not None and interval == "auto" and margin is None and not force:
            return self._ended_with
        return self.summary_of(self.plan, interval=interval, margin=margin, force=force)

    def headline(self, *, margin: float | None = None) -> Headline:
        """Return the result in one sentence, as every report begins."""
        return answer(self.summary(margin=margin))

    def summary_of(
        self,
        plan: Plan,
        *,
        interval: IntervalMethod = "auto",
        margin: float | None = None,
        force: bool = False,
    ) -> Summary:
        """Return the statistics of what is recorded of *plan*, which is that of the run."""
        rows, adaptive = self._ledger.rows(), self._adaptive()
        summary = summarize_rows(
            plan,
            rows,
            run=self.id,
            adaptive=adaptive,
            interval=interval,
            records=self._ledger.records,
            margin=margin,
            force=force,
        )
        notes = (
            *summary.notes,
            *self._of_the_roles(plan),
            *self._of_the_rows(plan),
            *self.damage().lines,
        )
        billed = self.billed()
        pace = Pace(
            trials=summary.buckets.ran, cost_usd=billed.cost_usd, seconds=self._ledger.worked_s()
        )
        return replace(summary, billed=billed, pace=pace, notes=notes)

    def _adaptive(self) -> Adaptive | None:
        """Return whether the run was to end when it was sure, and how sure."""
        manifest = earlier_manifest(self.folder)
        return None if manifest is None else manifest.adaptive

    def _of_the_rows(self, plan: Plan) -> list[str]:
        """Return how much of a data set was read, where the run was stopped before all of it was."""
        if not self.plan_is_open:
            return []
        return [
            f"{plan.task_count:,} rows of its data set were read when it was stopped; the others are "
            "not counted here"
        ]

    def _of_the_roles(self, plan: Plan) -> list[str]:
        """Return what a person should know of the roles of dialogues, if there were any."""
        if INSTRUCTOR not in plan.conditions.roles:  # there are no dialogues
            return []
        if all(task.dialogue is None for task in plan.tasks):
            return []
        sentence = role_fidelity(self._ledger.records()).in_words()
        return [sentence] if sentence else []

    def damage(self) -> Damage:
        """Return what of the run is damaged, as far as it was read."""
        return self._ledger.damage()

    def billed(self) -> Bill:
        """Return what the run was billed in all: every attempt at every trial, with its roles."""
        return self._ledger.billed()


def question(task: Task) -> str:
    """Return what a task asks in lower case, for a search."""
    objective = task.dialogue.objective if task.dialogue else ""
    return "\n".join([objective, *(message.content for message in task.messages)]).casefold()


def load_run(reference: str | Path = "latest", *, output: str | Path = DEFAULT_OUTPUT) -> Run:
    """Return a run by id, by path, or the newest one in *output*."""
    return Run(find_run(str(reference), Path(output)))


def summarize(
    run: Run | str | Path,
    *,
    output: str | Path = DEFAULT_OUTPUT,
    interval: IntervalMethod = "auto",
    margin: float | None = None,
    force: bool = False,
) -> Summary:
    """Return the statistics of a run, with the *interval* of scores that is asked for.

    With a *margin*, it is said which candidates are equivalent within it. With *force*, there is a verdict
    on candidates whose conditions differ, too.
    """
    found = run if isinstance(run, Run) else load_run(run, output=output)
    with rare_collections():
        return found.summary(interval=interval, margin=margin, force=force)


def earlier_manifest(folder: Path) -> Manifest | None:
    """Return what the run that is resumed promised; None where it was killed before it could."""
    try:
        return read_manifest(folder)
    except UsageError:
        return None


def failed_tasks(run: Run) -> set[str]:
    """Return the ids of the tasks that a candidate of *run* failed or faulted on, in any rollout."""
    return {
        row.task_id
        for row in run.rows()
        if row.status == Status.FAULTED or (row.passed is not None and not row.passed)
    }


def changed_tasks(before: Run, after: Run) -> set[str]:
    """Return the ids of the tasks whose mean score, of any candidate of both runs, is not the same."""
    old, new = run_scores(before.rows()), run_scores(after.rows())
    return {
        task
        for candidate in old.keys() & new.keys()
        for task in old[candidate].keys() & new[candidate].keys()
        if old[candidate][task].mean != new[candidate][task].mean
    }


def refuse_a_plan_with_holes(run: Run) -> None:
    """Raise where a part of the plan is damaged: without it, its trials would be forgotten."""
    damage = run.damage()
    if not damage.whole:
        raise UsageError("; ".join(damage.lines))


def folders_of(manifest: Manifest) -> tuple[Path, ...]:
    """Return the folders of a run's source files: user code may be beside them."""
    return tuple(dict.fromkeys(Path(source.path).resolve().parent for source in manifest.sources))


def summarized(folder: Path, plan: Plan) -> Run:
    """Return the run of *plan* that has just ended, with its summary written and at hand."""
    summary = Run(folder).summary_of(plan)
    write_summary(folder, summary)
    return Run(folder, ended_with=summary)
