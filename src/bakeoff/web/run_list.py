"""The list of runs: found, filtered, sorted, and chosen to be compared."""

from collections.abc import Sequence
from typing import Any

from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Manifest
from bakeoff.reports.wording import phrases
from bakeoff.stores.folders import RunEntry
from bakeoff.stores.run_notes import RunNotes, read_notes
from bakeoff.web.rendering import Query, render
from bakeoff.web.runs import Runs, ViewedRun

SORTS = {
    "": "newest",
    "name": "name",
    "suite": "suite",
    "trials": "trials",
    "time": "time",
    "cost": "cost",
}
STATES = ("running", "done", "incomplete", "damaged")


@value_object
class RunState:
    """How a run stands: its kind for a filter, in words, and the style class of that."""

    kind: str
    text: str
    style: str


@value_object
class RunRow:
    """A run in the list of runs."""

    id: str
    name: str
    state: RunState
    suite: str = ""
    created_at: str = ""
    done: int = 0
    planned: int = 0
    faults: int = 0
    candidates: Sequence[str] = ()
    verdict: str = ""
    decided: bool = False
    cost: float | None = None
    time_s: float | None = None
    notes: RunNotes = RunNotes()
    trouble: str = ""

    @property
    def words(self) -> str:
        """What a search looks at."""
        texts = [self.id, self.name, self.suite, self.state.text, self.verdict, self.notes.note]
        return "\n".join([*texts, *self.candidates, *self.notes.tags]).casefold()

    def sort_key(self, by: str) -> tuple[bool, Any]:
        """Return what the list is sorted by; what is unknown comes last, and most comes before least."""
        values: dict[str, Any] = {
            "name": self.name.casefold(),
            "suite": self.suite.casefold(),
            "trials": -self.planned,
            "time": None if self.time_s is None else -self.time_s,
            "cost": None if self.cost is None else -self.cost,
        }
        value = values[by]
        return value is None, value if value is not None else 0


def runs_page(runs: Runs, query: Query) -> str:
    """Return the list of runs, of which a part may be asked for."""
    text, tag, state, by = (query.get(name, "") for name in ("q", "tag", "state", "sort"))
    rows = [_run_row(runs, entry) for entry in runs.entries()]
    shown = [
        row
        for row in rows
        if text.casefold() in row.words
        and (not tag or tag in row.notes.tags)
        and (not state or row.state.kind == state)
    ]
    if by in SORTS and by:
        shown.sort(key=lambda row: row.sort_key(by))
    return render(
        "runs_rows.html" if query.get("part") else "runs.html",
        rows=shown,
        total=len(rows),
        chosen={"q": text, "tag": tag, "state": state, "sort": by},
        tags=sorted({tag for row in rows for tag in row.notes.tags}),
        sorts=SORTS,
        states=STATES,
        output=str(runs.output),
    )


def state_part(run: ViewedRun) -> str:
    """Return the cell of the list that says how a run stands."""
    return render("run_state.html", row=_row(run, run.manifest))


def _run_row(runs: Runs, entry: RunEntry) -> RunRow:
    name = entry.folder.name
    run = runs.find(name)
    if entry.manifest is None or run is None:
        return _damaged(name, entry.trouble or "its files lead out of the folder of runs")
    try:
        return _row(run, entry.manifest)
    except UsageError as error:
        return _damaged(name, str(error))


def _row(run: ViewedRun, manifest: Manifest) -> RunRow:
    head = run.head()
    tail = phrases.shared_tail(candidate.id for candidate in manifest.candidates)
    return RunRow(
        id=run.id,
        name=_called(run, manifest),
        suite=manifest.name if manifest.run_name else "",
        created_at=manifest.created_at,
        state=state_of(run, manifest, head.done),
        done=head.done,
        planned=manifest.planned,
        faults=head.faults,
        candidates=tuple(candidate.id for candidate in manifest.candidates),
        verdict=head.verdict.replace(tail, "") if tail else head.verdict,
        decided=head.decided,
        cost=head.cost_usd,
        time_s=head.time_s,
        notes=read_notes(run.folder),
    )


def _called(run: ViewedRun, manifest: Manifest) -> str:
    name = manifest.run_name or manifest.name or run.id
    return f"{name}, shard {manifest.shard.name}" if manifest.shard else name


def _damaged(name: str, trouble: str) -> RunRow:
    state = RunState(kind="damaged", text="damaged", style="failed")
    return RunRow(id=name, name=name, state=state, trouble=trouble)


def state_of(run: ViewedRun, manifest: Manifest, done: int) -> RunState:
    """Return how a run with so many recorded trials stands."""
    if run.is_running:
        share = phrases.share(done / manifest.planned if manifest.planned else None)
        return RunState(kind="running", text=f"running, {share}", style="mixed")
    if done >= manifest.planned:
        return RunState(kind="done", text="done", style="success")
    if manifest.adaptive is not None:
        return RunState(kind="done", text="ended early", style="success")
    left = f"{manifest.planned - done:,} left"
    return RunState(kind="incomplete", text=left, style="timed-out")
