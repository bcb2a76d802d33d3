"""A batch as its ledger has it, and the files that show it."""

from collections.abc import Iterable, Mapping, Sequence

from bakeoff import app
from bakeoff._lib.sanitize import well_formed
from bakeoff.core.candidate import Candidate
from bakeoff.core.plan import Plan
from bakeoff.core.record import Attempt, TrialRecord
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.frontends.batch.folders import Batch, BatchState, file_names, names_of
from bakeoff.frontends.session import pretty_json
from bakeoff.reports.comparison import (
    Comparison,
    Competitor,
    Setting,
    as_csv,
    as_json,
    result_as_json,
)
from bakeoff.reports.html.batch import render
from bakeoff.reports.wording.findings import evidence_of
from bakeoff.stats.head_to_head import Contender, Entry, contender, figures, head_to_head

REPORT = "comparison_report"


def write_result(batch: Batch, candidate: Candidate) -> None:
    """Write the file of one model, without looking at the others."""
    run = app.load_run(batch.run)
    plan = run.plan
    (task,) = plan.tasks
    counting = {r.rollout: r for r in run.attempts(f"{task.id}@{candidate.id}")}  # the last counts
    records = [counting[rollout] for rollout in sorted(counting)]
    took = contender(_entry(candidate, plan, records), _limit_s(plan, task))
    names = names_of(tuple(plan.candidates))
    competitor = _competitor(candidate, names[candidate.id], took, records, run.manifest)
    batch.write(file_names(names)[candidate.id], pretty_json(result_as_json(task.id, competitor)))


def write_report(batch: Batch) -> Comparison:
    """Write every file of the batch from its ledger, and return what they show."""
    comparison = compare(batch)
    files = file_names({c.figures.candidate: c.model for c in comparison.competitors})
    for competitor in comparison.competitors:
        if competitor.evidence:
            data = result_as_json(comparison.task, competitor)
            batch.write(files[competitor.figures.candidate], pretty_json(data))
    batch.write(f"{REPORT}.json", pretty_json(as_json(comparison)))
    batch.write(f"{REPORT}.csv", well_formed(as_csv(comparison)).encode())
    batch.write(f"{REPORT}.html", well_formed(render(comparison)).encode())
    return comparison


def compare(batch: Batch) -> Comparison:
    """Return what the ledger of *batch* says."""
    run, state = app.load_run(batch.run), batch.state()
    plan, manifest = run.plan, run.manifest
    candidates, (task,) = tuple(plan.candidates), plan.tasks
    records = _by_candidate(candidates, run.trials())
    result = head_to_head(
        [_entry(c, plan, records[c.id]) for c in candidates], limit_s=_limit_s(plan, task)
    )
    names = names_of(candidates)
    took = {c.candidate: c for c in result.contenders}
    return Comparison(
        batch_id=batch.id,
        task=task.id,
        title=task.name or task.id,
        instruction="\n\n".join(message.content for message in task.messages),
        timestamp=manifest.created_at,
        total_time_s=_total_time_s(state, [r.attempt for some in records.values() for r in some]),
        setting=_setting(plan, manifest, state),
        machine=state.machine,
        competitors=tuple(
            _competitor(c, names[c.id], took[c.id], records[c.id], manifest) for c in candidates
        ),
        result=result,
    )


def _by_candidate(
    candidates: Sequence[Candidate], records: Iterable[TrialRecord]
) -> dict[str, list[TrialRecord]]:
    by_candidate: dict[str, list[TrialRecord]] = {c.id: [] for c in candidates}
    for record in sorted(records, key=lambda record: record.rollout):
        by_candidate[record.candidate_id].append(record)
    return by_candidate


def _entry(candidate: Candidate, plan: Plan, records: Sequence[TrialRecord]) -> Entry:
    names = names_of(tuple(plan.candidates))
    return Entry(
        candidate=candidate.id,
        name=candidate.model.label or names[candidate.id],
        planned=plan.rollouts,
        rollouts=tuple(figures(record.rollout, record.attempt) for record in records),
    )


def _limit_s(plan: Plan, task: Task) -> float | None:
    limits = [s for s in (plan.conditions.limits.time_s, task.time_s) if s is not None]
    return min(limits, default=None)


def _competitor(
    candidate: Candidate,
    name: str,
    took: Contender,
    records: Sequence[TrialRecord],
    manifest: Manifest,
) -> Competitor:
    return Competitor(
        model=name,
        display_name=candidate.model.label or name,
        figures=took,
        evidence=tuple(evidence_of(record) for record in records),
        served=_table(manifest.served.get(candidate.model.full_name)),
    )


def _table(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _setting(plan: Plan, manifest: Manifest, state: BatchState) -> Setting:
    roles = plan.conditions.roles
    agent = next(iter(plan.candidates)).agent
    return Setting(
        agent=agent.label or agent.name,
        sandbox=manifest.sandbox.name,
        limit_s=plan.conditions.limits.time_s,
        rollouts=plan.rollouts,
        parallel=state.parallel,
        judge=roles["judge"].full_name if "judge" in roles else None,
        instructor=roles["instructor"].full_name if "instructor" in roles else None,
    )


def _total_time_s(state: BatchState, attempts: Sequence[Attempt]) -> float:
    """Return for how long the batch was worked on: each session until its last attempt was over."""
    starts, total = sorted(state.sessions), 0.0
    for start, after in zip(starts, [*starts[1:], float("inf")], strict=True):
        ends = [a.started_at + a.elapsed_s for a in attempts if start <= a.started_at < after]
        total += max(ends, default=start) - start
    return total
