"""The page of a run, the parts that it asks for, and its buttons: keep notes, stop, resume."""

from collections.abc import Mapping, Sequence

from bakeoff._lib.clock import timestamp
from bakeoff._lib.sanitize import for_terminal
from bakeoff._lib.value_object import value_object
from bakeoff.app.run_control import LOG, not_resumable, resume_run, stop_run
from bakeoff.core.candidate import EndpointState
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Manifest
from bakeoff.reports.html import charts
from bakeoff.reports.html.run import described, shared_settings, tables
from bakeoff.reports.wording import decision
from bakeoff.stores.live_status import read_live_status
from bakeoff.stores.queries import CandidateProgress
from bakeoff.stores.run_notes import MOST_NOTE, RunNotes, read_notes, tags_in, write_notes
from bakeoff.web.rendering import Query, address, render, whole
from bakeoff.web.run_list import RunState, state_of
from bakeoff.web.runs import ViewedRun

_MATRIX_PAGE = 50
_MOST_PAIRS = 45
_MOST_LOG = 4_000
_LONGEST_HEAD = 60  # the name of a candidate above its column


def run_page(run: ViewedRun) -> str:
    """Return the page of a run; its parts are asked for by the page."""
    manifest = run.manifest
    return render(
        "run_page.html",
        run=run,
        name=_name(run, manifest),
        manifest=manifest,
        live=_live(run, manifest),
        notes=read_notes(run.folder),
        trouble="",
        is_part=False,
        settings=tuple(shared_settings(manifest)),
        candidates=tuple(described(manifest)),
    )


def notes_part(run: ViewedRun, trouble: str = "") -> str:
    """Return the tags and the note of a run, and the form to change them."""
    return render("run_notes.html", run=run, notes=read_notes(run.folder), trouble=trouble)


def live_part(run: ViewedRun, trouble: str = "") -> str:
    """Return how far the run has come, and the buttons for what can be done about it."""
    manifest = run.manifest
    live = _live(run, manifest, trouble)
    return render("run_live.html", run=run, name=_name(run, manifest), live=live, is_part=True)


def _name(run: ViewedRun, manifest: Manifest) -> str:
    return manifest.run_name or manifest.name or run.id


@value_object
class Live:
    """How far a run has come; `is_starting` says that a process was started to resume it."""

    is_running: bool
    is_starting: bool
    ended: int
    planned: int
    candidates: Sequence[CandidateProgress]
    cost_usd: float | None
    rate: float | None
    left_s: float | None
    faults: Sequence[tuple[str, str, int]]
    state: RunState
    endpoints: Sequence[EndpointState] = ()
    time_s: float | None = None
    trouble: str = ""
    not_resumable: str = ""

    @property
    def share(self) -> float:
        """The part of the plan that has a record."""
        return self.ended / self.planned if self.planned else 0.0


def _live(run: ViewedRun, manifest: Manifest, trouble: str = "") -> Live:
    progress, is_running, ended = run.progress(), run.is_running, run.queries.ended()
    status = read_live_status(run.folder) if is_running else None
    rate = run.rate(ended) if is_running else None
    return Live(
        is_running=is_running,
        is_starting=not is_running and run.resumed is not None and run.resumed.poll() is None,
        ended=ended,
        planned=max(manifest.planned, ended),  # the rows of a data set may still come
        candidates=progress,
        cost_usd=run.billed().cost_usd,
        rate=rate,
        left_s=max(manifest.planned - ended, 0) / rate if rate else None,
        faults=run.faults() if any("faulted" in p.statuses for p in progress) else (),
        state=state_of(run, manifest, ended),
        endpoints=status.endpoints if status else (),
        time_s=run.queries.time_s(timestamp() if is_running else None),
        trouble=trouble or _resume_trouble(run),
        not_resumable="" if is_running else not_resumable(manifest),
    )


def _resume_trouble(run: ViewedRun) -> str:
    """Return what a process that was to resume the run said before it gave up."""
    if run.resumed is None or not run.resumed.poll():
        return ""
    try:
        said = (run.folder / LOG).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        said = f"{LOG} cannot be read: {error.strerror}"
    return run.redactor.text(said[-_MOST_LOG:].strip())


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
        headline=decision.short_answer(summary),
        tables=tables(summary),
        charts=shown,
    )


def distributions_part(run: ViewedRun) -> str:
    """Return how latency, first token and tokens are distributed."""
    order = [candidate.id for candidate in run.plan.candidates]
    measures = (
        ("Latency", "seconds that a trial waited for its model", "model_s"),
        ("First token", "seconds until the first token", "first_token_s"),
        ("Output tokens", "output tokens of a trial", "output_tokens"),
    )
    drawn = []
    for title, unit, measure in measures:
        width, counts = run.distribution(measure)
        if counts:
            drawn.append(charts.distribution(title, unit, width, counts, order))
    return render("run_distributions.html", run=run, charts=drawn)


def matrix_part(run: ViewedRun, query: Query) -> str:
    """Return a page of tasks × candidates, the tasks that tell candidates apart first."""
    skip, differing = whole(query.get("skip")), bool(query.get("differing"))
    rows, many = run.queries.matrix(limit=_MATRIX_PAGE, skip=skip, only_differing=differing)
    candidates = [candidate.id for candidate in run.plan.candidates]
    return render(
        "run_matrix.html",
        run=run,
        rows=rows,
        many=many,
        skip=skip,
        step=_MATRIX_PAGE,
        differing=differing,
        candidates=candidates,
        short=charts.short_names(candidates, width=_LONGEST_HEAD),
        shade=charts.shade,
        here=lambda **more: address("run", run.id, "matrix", **more),
    )


# --- what its buttons do --------------------------------------------------------------------------


def keep_notes(run: ViewedRun, form: Mapping[str, str]) -> str:
    """Keep the tags and the note of a form, and return them as the page shows them."""
    try:
        note = for_terminal(form.get("note", "")).strip()[:MOST_NOTE]
        write_notes(run.folder, RunNotes(tags=tags_in(form.get("tags", "")), note=note))
    except UsageError as error:
        return notes_part(run, str(error))
    return notes_part(run)


def stop(run: ViewedRun, _: Mapping[str, str]) -> str:
    """Stop the run as Ctrl-C does, and return how far it is."""
    try:
        stop_run(run.folder)
    except UsageError as error:
        return live_part(run, str(error))
    run.stopping += 1
    return live_part(run)


def resume(run: ViewedRun, _: Mapping[str, str]) -> str:
    """Resume the run in a process of its own, and return how far it is."""
    try:
        run.resumed = resume_run(run.folder)
    except UsageError as error:
        return live_part(run, str(error))
    run.stopping = 0
    return live_part(run)
