"""The pages of the viewer: what each is made from."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from bakeoff._lib.value_object import value_object
from bakeoff.app.comparing import compare
from bakeoff.core.candidate import EndpointState
from bakeoff.core.errors import UsageError
from bakeoff.core.record import TrialFilter, TrialLine, TrialRecord
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.reports.comparison import comparison_notes, verdict
from bakeoff.reports.html import charts
from bakeoff.reports.html.run import described, shared_settings, tables, tiles
from bakeoff.reports.html.templates import environment
from bakeoff.reports.wording import decision, phrases
from bakeoff.reports.wording.findings import evidence_of
from bakeoff.stats.head_to_head import figures
from bakeoff.stores.folders import RunEntry
from bakeoff.stores.live_status import read_live_status
from bakeoff.stores.queries import CandidateProgress, TrialEntry, TrialQuery
from bakeoff.web.runs import Runs, ViewedRun

TEMPLATES = Path(__file__).parent / "templates"
PAGE = 100
_MATRIX_PAGE = 50
_MOST_PAIRS = 45
_MOST_SIDES = 4
_MOST_HITS = 200
_AROUND = 80  # characters before what was found

T = TypeVar("T")
Query = Mapping[str, str]


def render(template: str, **values: Any) -> str:
    """Return what *template* makes of the values."""
    env = environment(TEMPLATES)
    return env.get_template(template).render(address=address, entry_address=entry_address, **values)


def address(*parts: str, **query: object) -> str:
    """Return the address of a page; empty values of the query are left out."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    given = [(k, str(v)) for k, v in query.items() if v not in {"", None, 0}]
    return f"{path}?{urlencode(given)}" if given else path


def entry_address(run: str, entry: TrialEntry, which: TrialQuery | None = None) -> str:
    """Return the address of the page of a trial, found among those that *which* asks for."""
    filters = {} if which is None else _as_query(which)
    return address("run", run, "trial", of=entry.task_id, by=entry.candidate_id,
                   rollout=entry.rollout, **filters)  # fmt: skip


# --- runs -------------------------------------------------------------------------------------


@value_object
class RunRow:
    """A run in the list of runs."""

    id: str
    name: str
    created_at: str
    state: str
    kind: str
    done: int
    planned: int
    candidates: Sequence[str]
    best: str
    cost: float | None
    trouble: str = ""

    def sort_key(self, by: str) -> tuple[bool, Any]:
        """Return what the list is sorted by; what is unknown comes last."""
        value: Any = {"cost": self.cost, "name": self.name.lower(), "trials": self.planned}.get(by)
        return value is None, value if value is not None else 0


def runs_page(runs: Runs, query: Query) -> str:
    """Return the list of runs, of which a part may be asked for."""
    text, by = query.get("q", ""), query.get("sort", "")
    rows = [_run_row(runs, entry) for entry in runs.entries()]
    shown = [row for row in rows if text.casefold() in _words(row)]
    if by in {"cost", "name", "trials"}:
        shown.sort(key=lambda row: row.sort_key(by))
    template = "runs_rows.html" if query.get("part") else "runs.html"
    return render(template, rows=shown, total=len(rows), q=text, sort=by, output=str(runs.output))


def _words(row: RunRow) -> str:
    return "\n".join([row.id, row.name, row.state, *row.candidates]).casefold()


def _run_row(runs: Runs, entry: RunEntry) -> RunRow:
    manifest, name = entry.manifest, entry.folder.name
    run = runs.find(name)
    if manifest is None or run is None:
        return _damaged(name, entry.trouble or "its files lead out of the folder of runs")
    try:
        done, cost = run.queries.ended(), run.ledger.billed().cost_usd
    except UsageError as error:
        return _damaged(name, str(error))
    state, kind = _state(run, manifest, done)
    return RunRow(
        id=name,
        name=manifest.run_name or manifest.name or name,
        created_at=manifest.created_at,
        state=state,
        kind=kind,
        done=done,
        planned=manifest.planned,
        candidates=tuple(c.id for c in manifest.candidates),
        best=_best(run.progress()),
        cost=cost,
    )


def _damaged(name: str, trouble: str) -> RunRow:
    return RunRow(id=name, name=name, created_at="", state="damaged", kind="failed", done=0,
                  planned=0, candidates=(), best="", cost=None, trouble=trouble)  # fmt: skip


def _best(progress: Sequence[CandidateProgress]) -> str:
    means = [(one.mean_score, one.candidate) for one in progress if one.mean_score is not None]
    if not means:
        return ""
    mean, name = max(means)
    return f"{phrases.score(mean)} {name}" if len(means) > 1 else phrases.score(mean)


def _state(run: ViewedRun, manifest: Manifest, done: int) -> tuple[str, str]:
    if run.is_running:
        return "running", "mixed"
    if done >= manifest.planned:
        return "done", "success"
    if manifest.adaptive is not None:
        return "ended", "success"
    return f"{manifest.planned - done:,} left", "timed-out"


# --- one run ----------------------------------------------------------------------------------


def run_page(run: ViewedRun) -> str:
    """Return the page of a run; its parts are asked for by the page."""
    manifest = run.manifest
    return render(
        "run_page.html",
        run=run,
        name=manifest.run_name or manifest.name or run.id,
        manifest=manifest,
        live=_live(run, manifest),
        settings=tuple(shared_settings(manifest)),
        candidates=tuple(described(manifest)),
    )


def live_part(run: ViewedRun) -> str:
    """Return how far the run has come."""
    return render("run_live.html", run=run, live=_live(run, run.manifest))


@value_object
class Live:
    """How far a run has come."""

    is_running: bool
    ended: int
    planned: int
    candidates: Sequence[CandidateProgress]
    cost_usd: float | None
    rate: float | None
    left_s: float | None
    faults: Sequence[tuple[str, str, int]]
    endpoints: Sequence[EndpointState] = ()

    @property
    def share(self) -> float:
        """The part of the plan that has a record."""
        return self.ended / self.planned if self.planned else 0.0


def _live(run: ViewedRun, manifest: Manifest) -> Live:
    progress, ended = run.progress(), run.queries.ended()
    status = read_live_status(run.folder) if run.is_running else None
    rate = run.rate(ended) if run.is_running else None
    return Live(
        is_running=run.is_running,
        ended=ended,
        planned=manifest.planned,
        candidates=progress,
        cost_usd=run.ledger.billed().cost_usd,
        rate=rate,
        left_s=(manifest.planned - ended) / rate if rate else None,
        faults=run.queries.faults() if any("faulted" in p.statuses for p in progress) else (),
        endpoints=status.endpoints if status else (),
    )


def results_part(run: ViewedRun) -> str:
    """Return the verdict, the figures and the charts of a run."""
    summary = run.summary()
    shown = {k: list(v) for k, v in charts.of_run(summary, pairs=_MOST_PAIRS).items()}
    return render(
        "run_results.html",
        run=run,
        is_running=run.is_running,
        is_partial=bool(summary.buckets.not_run + summary.buckets.cancelled),
        summary=summary,
        headline=decision.answer(summary),
        tiles=tuple(tiles(summary)),
        tables=tables(summary),
        charts=shown,
    )


def distributions_part(run: ViewedRun) -> str:
    """Return how latency, first token and tokens are distributed."""
    order = [candidate.id for candidate in run.plan.candidates]
    measures = (
        ("Latency", "seconds that a trial waited for its model", "model_s"),
        ("First token", "seconds", "first_token_s"),
        ("Output tokens", "of a trial", "output_tokens"),
    )
    drawn = []
    for title, note, measure in measures:
        width, counts = run.queries.distribution(measure)
        if counts:
            drawn.append(charts.distribution(title, note, width, counts, order))
    return render("run_distributions.html", charts=drawn)


def matrix_part(run: ViewedRun, query: Query) -> str:
    """Return a page of tasks × candidates, the tasks that tell candidates apart first."""
    skip, differing = _whole(query.get("skip")), bool(query.get("differing"))
    rows, many = run.queries.matrix(limit=_MATRIX_PAGE, skip=skip, only_differing=differing)
    return render(
        "run_matrix.html",
        run=run,
        rows=rows,
        many=many,
        skip=skip,
        step=_MATRIX_PAGE,
        differing=differing,
        candidates=[candidate.id for candidate in run.plan.candidates],
        shade=charts.shade,
    )


# --- trials -----------------------------------------------------------------------------------


def _as_query(which: TrialQuery) -> dict[str, str]:
    return {name: getattr(which, name) for name in ("candidate", "category", "status", "fault", "result", "task")}  # fmt: skip


def _asked_for(query: Query) -> TrialQuery:
    given = {name: query.get(name, "") for name in _as_query(TrialQuery())}
    return TrialQuery(**given)


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 12 else 0


@value_object
class Hit:
    """A trial in which a text was found, with what stands around it in the answer or the fault."""

    task_id: str
    candidate_id: str
    rollout: int
    status: str
    score: float | None
    before: str
    found: str
    after: str


def _search(run: ViewedRun, which: TrialQuery, text: str) -> list[Hit]:
    """Return the first trials with *text* in their question, answer, fault or name."""
    chosen = TrialFilter(
        failed=which.result == "failed",
        faulted=which.status == "faulted",
        candidates=[which.candidate] if which.candidate else [],
        categories=[which.category] if which.category else [],
    )
    lines = run.run.lines(chosen, search=text)
    return [_hit(line, run.redactor.text(line.text), text) for line in islice(lines, _MOST_HITS)]


def _hit(line: TrialLine, said: str, text: str) -> Hit:
    candidate, _, rollout = line.name[len(line.task_id) + 1 :].rpartition("#")
    at = said.casefold().find(text.casefold())
    start, end = (at, at + len(text)) if at >= 0 else (0, 0)
    return Hit(
        task_id=line.task_id,
        candidate_id=candidate,
        rollout=int(rollout),
        status=line.status,
        score=line.score,
        before=said[max(start - _AROUND, 0) : start],
        found=said[start:end],
        after=said[end : end + 2 * _AROUND],
    )


def trials_page(run: ViewedRun, query: Query) -> str:
    """Return the trials that are asked for, a page of them."""
    which, skip, part = _asked_for(query), _whole(query.get("skip")), query.get("part")
    if text := query.get("text", ""):
        hits = _search(run, which, text)
        return _trials(run, part, which=which, hits=hits, most=_MOST_HITS, searched=text)
    found = run.queries.trials(which, limit=PAGE + 1, skip=skip)
    shown = found[:PAGE]
    more = address("run", run.id, "trials", skip=skip + PAGE, part="more", **_as_query(which))
    values = {
        "entries": shown,
        "which": which,
        "more": more if len(found) > PAGE else "",
        "skip": skip,
    }
    if part == "more":
        return render("trials_more.html", run=run, **values)
    return _trials(run, part, **values, many=run.queries.count(which), hits=None, searched="")


def _trials(run: ViewedRun, part: str | None, **values: Any) -> str:
    if part:
        return render("trials_rows.html", run=run, **values)
    return render(
        "trials.html",
        run=run,
        **values,
        candidates=[candidate.id for candidate in run.plan.candidates],
        categories=run.queries.categories(),
    )


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
    task_id, candidate = query.get("of", ""), query.get("by", "")
    rollout, which = _whole(query.get("rollout")), _asked_for(query)
    entries = run.queries.trials_of(task_id)
    sides = [_side(run, task_id, candidate, rollout)]
    others = [
        entry for entry in entries if entry.candidate_id != candidate and entry.rollout == rollout
    ]
    beside = query.get("beside", "")
    if beside:
        chosen = [e for e in others if beside in {"all", e.candidate_id}][: _MOST_SIDES - 1]
        sides += [_side(run, task_id, entry.candidate_id, rollout) for entry in chosen]
    whole = [side for side in sides if side is not None]
    if sides[0] is None:
        return None
    before, after = run.queries.beside(which, task_id, candidate, rollout)
    task = sides[0].task
    return render(
        "trial_page.html",
        is_asked_alike=all(side.task == task for side in whole),
        run=run,
        task_id=task_id,
        task=task,
        sides=whole,
        others=others,
        same=[entry for entry in entries if entry.candidate_id == candidate],
        before=entry_address(run.id, before, which) if before else "",
        after=entry_address(run.id, after, which) if after else "",
        back=address("run", run.id, "trials", **_as_query(which)),
        beside=beside,
        here=lambda **changed: address("run", run.id, "trial", of=task_id, by=candidate,
                                       rollout=rollout, **_as_query(which), **changed),
        which=which,
        evidence_of=evidence_of,
        figures=figures,
    )  # fmt: skip


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


# --- comparing --------------------------------------------------------------------------------


def compare_page(runs: Runs, names: Sequence[str]) -> str:
    """Return two runs side by side: differences with intervals, and what moved."""
    found = [run for name in names if (run := runs.find(name)) is not None]
    if len(found) != 2:
        return render("message.html", title="Compare", text="Choose two runs in the list of runs.")
    before, after = sorted(found, key=lambda run: (run.manifest.created_at, run.id))
    try:
        result = compare(before.run, after.run)
    except UsageError as error:
        return render("message.html", title="Compare", text=str(error))
    return render(
        "compare.html",
        result=result,
        before=before,
        after=after,
        chart=charts.contrasts(result.contrasts),
        verdict=verdict,
        notes=tuple(comparison_notes(result.contrasts, only_before=result.only_before,
                                     only_after=result.only_after)),
    )  # fmt: skip
