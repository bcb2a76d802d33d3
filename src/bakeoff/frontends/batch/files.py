"""The files of a batch: a folder with the run itself, and the results and reports made from it."""

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import msgspec

from bakeoff import app
from bakeoff._lib.files import digested_name, write_atomic
from bakeoff._lib.sanitize import well_formed
from bakeoff.core.candidate import AgentSpec, Candidate, Conditions
from bakeoff.core.errors import UsageError
from bakeoff.core.plan import Plan
from bakeoff.core.record import Attempt, TrialRecord
from bakeoff.core.run_spec import Manifest
from bakeoff.core.task import Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import SandboxSpec
from bakeoff.frontends.batch.models import ModelCatalog, ModelOffer, report_name
from bakeoff.frontends.session import pretty_json
from bakeoff.planning.resume import differences
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
from bakeoff.stores.folders import (
    INNER,
    choose_folder,
    folder_at,
    folders_in,
    fresh_folder,
    numbered,
)
from bakeoff.stores.ledger_writer import LEDGER

STATE = "batch.json"
_PREFIX = "batch_"
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_LATEST = ":latest"


@dataclass(frozen=True, kw_only=True)
class BatchState:
    """What a batch stores beside its ledger; `sessions` are the times at which it was started."""

    task: str
    parallel: int
    machine: dict[str, Json] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    sessions: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The folder of a batch."""

    folder: Path

    @property
    def id(self) -> str:
        """The name of the batch: that of its folder."""
        return self.folder.name

    @property
    def run(self) -> Path:
        """The folder of the run itself, as `bakeoff show` takes it."""
        return self.folder / INNER

    @property
    def started(self) -> bool:
        """Whether there is a ledger to resume; a batch may have been killed before that."""
        ledger = self.run / LEDGER
        return ledger.is_file() and ledger.stat().st_size > 0

    def state(self) -> BatchState:
        """Read the state of the batch."""
        path = self.folder / STATE
        try:
            return msgspec.json.decode(path.read_bytes(), type=BatchState)
        except OSError as error:
            raise UsageError(f"{self.folder} is not the folder of a batch: no {STATE}") from error
        except msgspec.DecodeError as error:
            raise UsageError(f"{path} is damaged: {error}; start a new batch") from error

    def remember(self, state: BatchState) -> None:
        """Write *state*."""
        self.write(STATE, pretty_json(state))

    def remove_unless_started(self) -> None:
        """Remove the folder of a batch of which nothing was run."""
        if not self.started:
            shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name: str, data: bytes) -> None:
        """Write one of the files of the batch, atomically."""
        try:
            write_atomic(self.folder / name, data)
        except OSError as error:
            raise UsageError(
                f"{self.folder / name} cannot be written: {error.strerror}; the results are kept in "
                f"{self.run}: make room, then continue with --resume {self.id}"
            ) from error


def new_batch(output: Path, moment: datetime) -> Batch:
    """Make the folder of a new batch; two that start in the same second never share one."""
    names = numbered(f"{_PREFIX}{moment.strftime('%Y%m%d_%H%M%S')}", "_")
    return Batch(folder=fresh_folder(output, names, what="batch"))


def find_batch(reference: str, output: Path) -> Batch:
    """Return a batch by its path, its id, the start of that, or the newest as `latest`."""
    folder = folder_at(reference, output, STATE, own=(STATE, INNER))
    if folder is None:
        folders = [f for f in folders_in(output, STATE) if f.name.startswith(_PREFIX)]
        folder = choose_folder(reference, folders, what="batch", where=output)
    return Batch(folder=folder)


def with_session(state: BatchState, moment: float) -> BatchState:
    """Return *state* with one more start."""
    return replace(state, sessions=(*state.sessions, moment))


def names_of(candidates: tuple[Candidate, ...]) -> dict[str, str]:
    """Return the name of each candidate's model, by candidate: the shortest that no other has."""
    ways = [
        {c.id: report_name(c.model) for c in candidates},
        {c.id: c.model.full_name for c in candidates},
        {c.id: c.model.label or c.id for c in candidates},
    ]
    taken = [Counter(name.casefold() for name in names.values()) for names in ways]
    return {
        c.id: next(
            (names[c.id] for names, seen in zip(ways, taken, strict=True)
             if seen[names[c.id].casefold()] == 1),
            c.id,
        )
        for c in candidates
    }  # fmt: skip


def file_names(models: dict[str, str]) -> dict[str, str]:
    """Return the name of each model's file; of two equal names the later one gets a digest."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for key, model in models.items():
        plain = _PLAIN.sub("_", model.removesuffix(_LATEST)).strip("._")[:80]
        if not plain or plain.casefold() in taken:
            # `org_m` is plain by itself, and `org/m` may have had that name before
            plain = digested_name(model)
        taken.add(plain.casefold())
        names[key] = f"{plain}_result.json"
    return names


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """The plan of a batch as its ledger has it."""

    task: Task
    candidates: tuple[Candidate, ...]
    conditions: Conditions
    rollouts: int
    sandbox: SandboxSpec

    @property
    def agent(self) -> AgentSpec:
        """The agent, which all candidates of a batch share."""
        return self.candidates[0].agent

    def offers(self, catalog: ModelCatalog, more: Sequence[ModelOffer]) -> tuple[ModelOffer, ...]:
        """Return the models of the batch as they are today, and *more* that it has not had."""
        today = {offer.key: offer for offer in catalog.offers}
        digests = {offer.spec.full_name: offer.digest for offer in catalog.offers}
        specs = (candidate.model for candidate in self.candidates)
        before = (ModelOffer(spec=spec, digest=digests.get(spec.full_name)) for spec in specs)
        offers = {offer.key: today.get(offer.key, offer) for offer in before}
        for offer in more:
            offers.setdefault(offer.key, offer)
        return tuple(offers.values())

    def seats(self) -> dict[str, dict[str, Json]]:
        """Return what each candidate was, with its conditions, by its id."""
        return {c.id: {**c.identity(), **self.conditions.identity()} for c in self.candidates}


def earlier(batch: Batch) -> Earlier:
    """Read the plan of *batch* from its ledger."""
    run = app.load_run(batch.run)
    plan = run.plan
    (task,) = plan.tasks
    return Earlier(
        task=task,
        candidates=tuple(plan.candidates),
        conditions=plan.conditions,
        rollouts=plan.rollouts,
        sandbox=run.manifest.sandbox,
    )


def refuse_what_differs(
    before: Earlier, plan: Plan, state: BatchState, offers: Sequence[ModelOffer], batch: Batch
) -> None:
    """Raise where what would be run now differs from what was run: one report cannot show both."""
    (task,) = plan.tasks
    if task.id != before.task.id:
        raise UsageError(
            f"{batch.id} is a batch of the task {before.task.id!r}, not of {task.id!r}; start a new "
            "batch for it"
        )
    agent = next(iter(plan.candidates)).agent
    if agent != before.agent:
        raise another_agent(before, agent.name, batch)
    lines = differences(plan, {before.task.id: before.task}, before.seats())
    lines += [_other_digest(offer, state) for offer in offers if _other_digest(offer, state)]
    if lines:
        listed = "\n  ".join(lines)
        raise UsageError(
            f"{batch.id} cannot be resumed, since one report would mix results that differ in:\n"
            f"  {listed}\nPut it back as it was, or start a new batch"
        )


def another_agent(before: Earlier, name: str, batch: Batch) -> UsageError:
    """Return the error for an agent that *batch* was not started with."""
    return UsageError(
        f"{batch.id} is a batch with the agent {before.agent.name!r}, not with {name!r}; "
        "start a new batch for it"
    )


def _other_digest(offer: ModelOffer, state: BatchState) -> str:
    then = state.digests.get(offer.spec.full_name)
    if then is None or offer.digest is None or then == offer.digest:
        return ""
    return (
        f"model {offer.name!r} is another one now: its digest is {offer.digest[:12]}, "
        f"it was {then[:12]}"
    )


# --- results and reports --------------------------------------------------------------------------


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
