"""Runs: started, resumed, found again, read."""

import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from bakeoff._lib.clock import now
from bakeoff._lib.collector import rare_collections
from bakeoff._lib.redact import Redactor
from bakeoff.api.rigs import Parts, SharedRigs
from bakeoff.api.sources import Prepared
from bakeoff.core.brief import Brief
from bakeoff.core.errors import UsageError
from bakeoff.core.events import (
    Event,
    Listener,
    Notice,
    RunEnded,
    RunStarted,
    TrialEnded,
    ignore,
)
from bakeoff.core.manifest import Manifest
from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRecord
from bakeoff.core.stop import Stop
from bakeoff.core.values import Json
from bakeoff.engine.rescore import rescore_plan
from bakeoff.engine.run import run_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.planning.differences import differences
from bakeoff.planning.rescored import rescored
from bakeoff.reports.files import write_summary
from bakeoff.stats.summarize import Summary, summarize
from bakeoff.stores.folders import find_run, new_folder, read_manifest, write_manifest
from bakeoff.stores.reader import SqliteLedger
from bakeoff.stores.sqlite import SqliteStore

DEFAULT_OUTPUT = Path("runs")
DEFAULT_PARALLEL = 8
VERSION = version("bakeoff")


@dataclass(frozen=True, kw_only=True)
class Start:
    """How and where a plan is run."""

    output: Path = DEFAULT_OUTPUT
    resume: str | None = None
    listener: Listener = ignore
    stop: Stop = field(default_factory=Stop)
    command: Sequence[str] = ()
    selection: Mapping[str, Json] = field(default_factory=dict)


class Run:
    """A run that was started here or found again; reads its ledger, never writes."""

    def __init__(self, folder: Path, *, ended_with: Summary | None = None) -> None:
        self.folder = folder
        self._ended_with = ended_with
        self._ledger = SqliteLedger(folder)

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

    def trials(self) -> Iterator[TrialRecord]:
        """Yield each recorded trial with the attempt that counts."""
        return self._ledger.records()

    def attempts(self, name: str) -> Sequence[TrialRecord]:
        """Return all attempts at a trial, by its name or its task's id."""
        return self._ledger.attempts(name)

    def summary(self) -> Summary:
        """Return the statistics of what is recorded so far."""
        return self._ended_with or summarize(self.plan, self._ledger.rows(), run=self.id)


def load_run(reference: str | Path = "latest", *, output: str | Path = DEFAULT_OUTPUT) -> Run:
    """Return a run by id, by path, or the newest one in *output*."""
    return Run(find_run(str(reference), Path(output)))


def prepared_again(reference: str, output: Path) -> Prepared:
    """Return the plan of an earlier run as the ledger keeps it; its files are not needed."""
    run = load_run(reference, output=output)
    plan, manifest = run.plan, run.manifest
    brief = Brief(
        name=manifest.name, tasks=(), conditions=plan.conditions, sources=manifest.sources
    )
    return Prepared(brief=brief, plan=plan, own={}, folders=_folders(manifest))


async def execute(prepared: Prepared, start: Start) -> Run:
    """Run what is due of *prepared*, into a new folder or one that is resumed."""
    redactor = Redactor()
    parts = Parts(redactor=redactor, own=prepared.own, folders=prepared.folders)
    rigs = SharedRigs(prepared.plan, parts)
    try:
        folder = _folder(prepared, start)
        return await _execute(prepared, start, folder, rigs, redactor)
    finally:
        await rigs.close()


async def _execute(
    prepared: Prepared, start: Start, folder: Path, rigs: SharedRigs, redactor: Redactor
) -> Run:
    plan, brief = prepared.plan, prepared.brief
    store = SqliteStore(folder, redactor=redactor, version=VERSION)
    try:
        if start.resume:
            _tell_differences(plan, folder, start.listener)
        store.freeze(plan)
        write_manifest(folder, _manifest(prepared, start, folder), redactor)
        done = SqliteLedger(folder).finished() if start.resume else 0
        start.listener(RunStarted(folder.name, str(folder), len(plan), done))
        with rare_collections():
            await run_plan(
                plan,
                store=store,
                rigs=rigs,
                executor=LocalExecutor(brief.parallel or DEFAULT_PARALLEL, pause_s=brief.pause_s),
                stop=start.stop,
                tell=_discreet(start.listener, redactor),
            )
    finally:
        await store.close()
    start.listener(RunEnded(folder.name, start.stop.requested))
    return _summarized(folder)


async def score_again(reference: str, start: Start, *, anew: Brief | None = None) -> Run:
    """Score the stored answers of a run again, with the scoring and the roles of *anew*, if any."""
    folder = find_run(reference, start.output)
    ledger = SqliteLedger(folder)
    before = ledger.planned()
    plan = rescored(before, anew.tasks if anew else ())
    redactor = Redactor()
    parts = Parts(redactor=redactor, folders=_folders(read_manifest(folder)))
    roles = {**plan.conditions.roles, **(anew.conditions.roles if anew else {})}
    rigs = SharedRigs(plan, parts, roles=roles, ask_candidates=False)
    store = SqliteStore(folder, redactor=redactor, version=VERSION)
    try:
        store.freeze(before)
        start.listener(RunStarted(folder.name, str(folder), ledger.answered(), 0))
        adopted = await rescore_plan(
            plan,
            ledger=ledger,
            store=store,
            rigs=rigs,
            executor=LocalExecutor(DEFAULT_PARALLEL),
            stop=start.stop,
            tell=_discreet(start.listener, redactor),
        )
    finally:
        await store.close()
        await rigs.close()
    start.listener(RunEnded(folder.name, stopped_early=not adopted))
    return _summarized(folder)


def _discreet(listener: Listener, redactor: Redactor) -> Listener:
    """Return a listener that is told what went wrong without the secrets in it."""

    def tell(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.attempt.fault is not None:
            fault = event.attempt.fault
            fault = replace(fault, message=redactor.text(fault.message))
            event = replace(event, attempt=replace(event.attempt, fault=fault))
        listener(event)

    return tell


def _folders(manifest: Manifest) -> tuple[Path, ...]:
    """Return where the files of a run were: a person's own Python may lie beside them."""
    return tuple(dict.fromkeys(Path(source.path).resolve().parent for source in manifest.sources))


def _summarized(folder: Path) -> Run:
    """Return the run that has just ended, with its summary written and at hand."""
    summary = Run(folder).summary()
    write_summary(folder, summary)
    return Run(folder, ended_with=summary)


def _folder(prepared: Prepared, start: Start) -> Path:
    if start.resume:
        return find_run(start.resume, start.output)
    return new_folder(start.output, prepared.brief.name, now())


def _tell_differences(plan: Plan, folder: Path, tell: Listener) -> None:
    tasks, seats = SqliteLedger(folder).known()
    known = {
        name: {**seat.candidate.identity(), **seat.conditions.identity()}
        for name, seat in seats.items()
    }
    for line in differences(plan, tasks, known):
        tell(Notice(f"{line}: its recorded trials cannot be reused"))


def _manifest(prepared: Prepared, start: Start, folder: Path) -> Manifest:
    plan = prepared.plan
    manifest = Manifest(
        run=folder.name,
        name=prepared.brief.name,
        created_at=now().isoformat(),
        bakeoff=VERSION,
        python=sys.version.split()[0],
        platform=platform.platform(),
        planned=len(plan),
        tasks=sum(1 for _ in plan.tasks),
        plan=plan.digest,
        candidates=tuple(plan.candidates),
        conditions=plan.conditions,
        sources=prepared.brief.sources,
        command=tuple(start.command),
        selection=start.selection,
    )
    if not start.resume:
        return manifest
    try:
        return replace(manifest, created_at=read_manifest(folder).created_at)
    except UsageError:
        return manifest  # killed before its first manifest was written
