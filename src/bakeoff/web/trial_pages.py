"""The trials of a run, filtered and searched, and the page of one trial."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff._lib.value_object import value_object
from bakeoff.app.labels import MOST_NOTE, RIGHT, WRONG, TrialLabel, keep_label
from bakeoff.core.errors import UsageError
from bakeoff.core.record import TrialRecord
from bakeoff.core.task import Task
from bakeoff.reports.html.charts import short_names
from bakeoff.reports.wording.findings import evidence_of
from bakeoff.stats.head_to_head import figures
from bakeoff.stores.queries import SearchedText, TrialEntry, TrialQuery
from bakeoff.web.rendering import Query, address, entry_address, render, whole
from bakeoff.web.runs import ViewedRun

PAGE = 100
_LOOK_S = 0.12  # into records for one page, which then goes on where it was
_READ_S = 0.08  # the records of a page of trials, for the beginning of what was said in each
_MOST_SIDES = 4
_AROUND = 80  # characters before what was found
_BEGINNING = 240  # characters of an answer
_MOST_WHY = 160
_LONGEST_NAME = 60  # of another candidate
_RESULTS = ("passed", "failed", "partial", "unscored")
_STATUSES = ("completed", "limited", "faulted", "cancelled")
_UNLABELLED, _DISPUTED = "none", "not as scored"
_LABELLED = ("right", "wrong", _DISPUTED, _UNLABELLED)
_BOUNDARIES = ("provider", "agent", "sandbox", "scorer")


@value_object
class TrialView:
    """Which trials a page shows: what its address says, and no more."""

    candidate: str = ""
    category: str = ""
    tag: str = ""
    status: str = ""
    result: str = ""
    fault: str = ""
    scorer: str = ""
    least: str = ""
    most: str = ""
    task: str = ""
    text: str = ""
    label: str = ""

    @classmethod
    def of(cls, query: Query) -> "TrialView":
        """Return what an address asks for."""
        return cls(**{name: query.get(name, "") for name in _NAMES})

    @property
    def as_query(self) -> Mapping[str, str]:
        """The part of an address that asks for it."""
        return {name: value for name in _NAMES if (value := getattr(self, name))}

    @property
    def looks_inside(self) -> bool:
        """Whether the records of trials have to be read for it."""
        return bool(self.text or self.scorer)

    def columns(self, run: ViewedRun) -> TrialQuery:
        """Return the part of it that the columns of the ledger answer."""
        labelled = _labelled(run, self.label) if self.label in _LABELLED else None
        return TrialQuery(
            keys=labelled if self.label != _UNLABELLED else None,
            without=labelled or () if self.label == _UNLABELLED else (),
            candidate=self.candidate,
            category=self.category,
            status=self.status,
            fault=self.fault,
            result=self.result,
            task=self.task,
            least=_score(self.least),
            most=_score(self.most),
            tasks=run.tags.get(self.tag, ()) if self.tag else None,
        )


_NAMES = tuple(TrialView.__dataclass_fields__)


def _labelled(run: ViewedRun, which: str) -> list[int]:
    """Return the keys of the trials whose label is *which*, of all that have one for those without."""
    labels = {key: label for key, label in run.labels.items() if label.text}
    found = []
    for entry in run.queries.trials_of(*{task for task, _, _ in labels}):
        label = labels.get((entry.task_id, entry.candidate_id, entry.rollout))
        if label is not None and _fits(which, label.value, passed=entry.passed):
            found.append(entry.key)
    return found


def _fits(which: str, value: float | None, *, passed: bool | None) -> bool:
    if which == _UNLABELLED:
        return True
    if which == _DISPUTED:
        return value in (0, 1) and passed is not None and bool(value) != bool(passed)
    return value == (1 if which == "right" else 0)


def _score(text: str) -> float | None:
    """Return a score that was typed; None for anything else."""
    try:
        return float(text)
    except ValueError:
        return None


@value_object
class TrialListRow:
    """A trial in the list with the beginning of its answer or fault, or what stands around the text that was searched for.

    `why` is what a scorer said against the answer.
    """

    entry: TrialEntry
    why: str = ""
    before: str = ""
    found: str = ""
    after: str = ""


@value_object
class Rows:
    """A part of the list of trials, and where it goes on."""

    rows: Sequence[TrialListRow]
    after: int | None
    looked_at: int = 0


def trials_page(run: ViewedRun, query: Query) -> str:
    """Return the trials that are asked for, a page of them."""
    view, after, part = TrialView.of(query), whole(query.get("after")) or None, query.get("part")
    found = _found(run, view, after)
    more = address("run", run.id, "trials", part="more", after=found.after, **view.as_query)
    values: dict[str, Any] = {
        "run": run,
        "view": view,
        "rows": found.rows,
        "labels": run.labels,
        "short": short_names((c.id for c in run.plan.candidates), width=_LONGEST_NAME),
        "looked_at": found.looked_at,
        "more": more if found.after is not None else "",
    }
    if part == "more":
        return render("trials_more.html", **values)
    many = None if view.looks_inside else run.count(view.columns(run))
    if part:
        return render("trials_rows.html", **values, many=many)
    return render(
        "trials.html",
        **values,
        many=many,
        candidates=[candidate.id for candidate in run.plan.candidates],
        categories=run.queries.categories(),
        tags=sorted(run.tags),
        scorers=run.scorers,
        labelled=_LABELLED,
        results=_RESULTS,
        statuses=_STATUSES,
        boundaries=_BOUNDARIES,
    )


def _found(run: ViewedRun, view: TrialView, after: int | None) -> Rows:
    which = view.columns(run)
    if not view.looks_inside:
        found = run.queries.trials_said(which, limit=PAGE + 1, within_s=_READ_S, after=after)
        place = found[PAGE - 1][0].key if len(found) > PAGE else None
        return Rows(rows=[_row(run, entry, said) for entry, said in found[:PAGE]], after=place)
    looked = run.queries.scan(which, _wanted(run, view), limit=PAGE, within_s=_LOOK_S, after=after)
    pairs = zip(looked.entries, looked.said, strict=True)
    rows = [_row(run, entry, said, view.text) for entry, said in pairs]
    return Rows(rows=rows, after=looked.after, looked_at=looked.looked_at)


def _wanted(run: ViewedRun, view: TrialView) -> Callable[[TrialEntry, SearchedText], bool]:
    """Return what tells whether a trial has the text that was searched for, and was marked down by the scorer."""
    text = view.text.casefold()
    asking = run.asking(view.text) if text else frozenset()

    def is_wanted(entry: TrialEntry, said: SearchedText) -> bool:
        if view.scorer and not said.is_marked_down_by(view.scorer):
            return False
        return not text or entry.task_id in asking or text in said.text.casefold()

    return is_wanted


def _row(
    run: ViewedRun, entry: TrialEntry, said: SearchedText | None, text: str = ""
) -> TrialListRow:
    """Return a line of the list; secrets are taken out before it is cut."""
    if said is None:
        return TrialListRow(entry=entry, after="…")
    why = one_line(run.redactor.text(said.why[: 8 * _MOST_WHY]), width=_MOST_WHY)
    shown = run.redactor.text(said.text if text else said.text[: 8 * _BEGINNING])
    start = shown.casefold().find(text.casefold()) if text else -1
    if start < 0:
        return TrialListRow(entry=entry, why=why, after=one_line(shown, width=_BEGINNING))
    end = start + len(text)
    return TrialListRow(
        entry=entry,
        why=why,
        before=shown[max(start - _AROUND, 0) : start],
        found=shown[start:end],
        after=shown[end : end + 2 * _AROUND],
    )


# --- one trial --------------------------------------------------------------------------------


@value_object
class Side:
    """One trial on the page of a trial, with all its attempts; the last one counts."""

    candidate: str
    rollout: int
    attempts: Sequence[TrialRecord]
    task: Task | None

    @property
    def last(self) -> TrialRecord:
        """The attempt that counts."""
        return self.attempts[-1]


def trial_page(run: ViewedRun, query: Query) -> str | None:
    """Return one trial, beside those of other candidates if that is asked for; None if it is not there."""
    task_id, candidate, view = query.get("of", ""), query.get("by", ""), TrialView.of(query)
    entries = run.queries.trials_of(task_id)
    first = min((e.rollout for e in entries if e.candidate_id == candidate), default=0)
    rollout = whole(query["rollout"]) if "rollout" in query else first
    sides = [_side(run, task_id, candidate, rollout)]
    others = [
        entry for entry in entries if entry.candidate_id != candidate and entry.rollout == rollout
    ]
    beside = query.get("beside", "")
    if beside:
        chosen = [e for e in others if beside in {"all", e.candidate_id}][: _MOST_SIDES - 1]
        sides += [_side(run, task_id, entry.candidate_id, rollout) for entry in chosen]
    whole_sides = [side for side in sides if side is not None]
    if sides[0] is None:
        return None
    before, after = _beside(run, view, entries, sides[0].last)
    going = {**view.as_query, "beside": beside}
    task = sides[0].task
    here = {"of": task_id, "by": candidate, "rollout": rollout, **view.as_query}
    return render(
        "trial_page.html",
        is_asked_alike=all(side.task == task for side in whole_sides),
        run=run,
        task_id=task_id,
        task=task,
        sides=whole_sides,
        labels=run.labels,
        no_label=TrialLabel(),
        others=others,
        same=[entry for entry in entries if entry.candidate_id == candidate],
        before=entry_address(run.id, before, going) if before else "",
        after=entry_address(run.id, after, going) if after else "",
        back=address("run", run.id, "trials", **view.as_query),
        beside=beside,
        short=short_names((c.id for c in run.plan.candidates), width=_LONGEST_NAME),
        here=lambda **changed: address("run", run.id, "trial", **{**here, **changed}),
        view=view,
        evidence_of=evidence_of,
        figures=figures,
    )


def _beside(
    run: ViewedRun, view: TrialView, entries: Sequence[TrialEntry], record: TrialRecord
) -> tuple[TrialEntry | None, TrialEntry | None]:
    """Return the trials before and after one in the view that a person came from."""
    where = (record.task_id, record.candidate_id, record.rollout)
    key = next((e.key for e in entries if (e.task_id, e.candidate_id, e.rollout) == where), None)
    if key is None:
        return None, None  # the plan of today has it no more
    which = view.columns(run)
    if not view.looks_inside:
        return run.queries.beside(which, key)
    wanted = _wanted(run, view)
    after = run.queries.scan(which, wanted, limit=1, within_s=_LOOK_S, after=key)
    before = run.queries.scan(which, wanted, limit=1, within_s=_LOOK_S, before=key)
    return next(iter(before.entries), None), next(iter(after.entries), None)


def _side(run: ViewedRun, task_id: str, candidate: str, rollout: int) -> Side | None:
    records = [
        record
        for record in run.records(f"{task_id}@{candidate}#{rollout}")
        if (record.task_id, record.candidate_id, record.rollout) == (task_id, candidate, rollout)
    ]
    if not records:
        return None
    task = run.asked(task_id, candidate)
    return Side(candidate=candidate, rollout=rollout, attempts=records, task=task)


def label_trial(run: ViewedRun, form: Mapping[str, str]) -> str:
    """Keep what a person says of a trial, and return it as the page shows it."""
    key = form.get("of", ""), form.get("by", ""), whole(form.get("rollout"))
    label = run.labels.get(key, TrialLabel())
    trouble = ""
    if not any((e.candidate_id, e.rollout) == key[1:] for e in run.queries.trials_of(key[0])):
        trouble = "There is no such trial."
    else:
        said = form.get("label", label.text)
        note = one_line(for_terminal(form.get("note", label.note)), width=MOST_NOTE)
        label = TrialLabel(
            text=said if said in {RIGHT, WRONG, label.text} else "", note=note.strip()
        )
        try:
            keep_label(run.folder, key, label)
        except UsageError as error:
            trouble = str(error)
    place = whole(form.get("place"))
    return render("trial_label.html", run=run, key=key, label=label, trouble=trouble, place=place)
