"""Runs: started, resumed, found again, read."""

import os
import platform
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from bakeoff._lib.clock import now
from bakeoff._lib.collector import rare_collections
from bakeoff._lib.redact import Redactor
from bakeoff.api.rigs import Parts, SharedRigs
from bakeoff.api.site import open_premises
from bakeoff.api.sources import Prepared
from bakeoff.api.spending import check_cap, forecast_of, prices_from, prices_of
from bakeoff.config.env_file import environment
from bakeoff.core.brief import Brief
from bakeoff.core.budget import NO_BILL, Bill
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
from bakeoff.core.record import TrialRecord, TrialRow
from bakeoff.core.stop import Stop
from bakeoff.core.values import Json
from bakeoff.core.workspace import SandboxSpec
from bakeoff.engine.budget import Budget
from bakeoff.engine.rescore import rescore_plan
from bakeoff.engine.run import run_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.models.limits import Gates
from bakeoff.models.tapes import Folders, open_tapes
from bakeoff.planning.differences import differences
from bakeoff.planning.order import ordered
from bakeoff.planning.rescored import rescored
from bakeoff.reports.artifacts import write_artifacts
from bakeoff.reports.files import write_summary
from bakeoff.stats.role_fidelity import role_fidelity
from bakeoff.stats.summarize import Summary, summarize
from bakeoff.stores.checkpoints import FileCheckpoints
from bakeoff.stores.folders import find_run, make_folder, new_folder, read_manifest, write_manifest
from bakeoff.stores.reader import SqliteLedger
from bakeoff.stores.sqlite import SqliteStore

DEFAULT_OUTPUT = Path("runs")
DEFAULT_PARALLEL = 8
VERSION = version("bakeoff")


@dataclass(frozen=True, kw_only=True)
class Start:
    """How and where a plan is run: in a new folder in `output`, or in exactly this `folder`."""

    output: Path = DEFAULT_OUTPUT
    folder: Path | None = None
    resume: str | None = None
    listener: Listener = ignore
    stop: Stop = field(default_factory=Stop)
    command: Sequence[str] = ()
    selection: Mapping[str, Json] = field(default_factory=dict)
    tapes: Folders = field(default_factory=Folders)
    env_file: Path | None = None


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

    def rows(self) -> Iterator[TrialRow]:
        """Yield each recorded trial without its body: what statistics need."""
        return self._ledger.rows()

    def attempts(self, name: str) -> Sequence[TrialRecord]:
        """Return all attempts at a trial, by its name or its task's id."""
        return self._ledger.attempts(name)

    def summary(self) -> Summary:
        """Return the statistics of what is recorded so far."""
        if self._ended_with is not None:
            return self._ended_with
        plan = self.plan
        summary = summarize(plan, self._ledger.rows(), run=self.id)
        notes = (*summary.notes, *self._of_the_roles(plan))
        return replace(summary, billed=self.billed(), notes=notes)

    def _of_the_roles(self, plan: Plan) -> list[str]:
        """Return what a person should know of the roles of dialogues, if there were any."""
        if all(task.dialogue is None for task in plan.tasks):
            return []
        said = role_fidelity(self._ledger.records()).in_words()
        return [said] if said else []

    def billed(self) -> Bill:
        """Return what the run was billed in all: every attempt at every trial, with its roles."""
        return self._ledger.billed()


def load_run(reference: str | Path = "latest", *, output: str | Path = DEFAULT_OUTPUT) -> Run:
    """Return a run by id, by path, or the newest one in *output*."""
    return Run(find_run(str(reference), Path(output)))


def prepared_again(reference: str, output: Path) -> Prepared:
    """Return the plan of an earlier run as the ledger keeps it; its files are not needed."""
    run = load_run(reference, output=output)
    plan, manifest = ordered(run.plan), run.manifest
    brief = Brief(
        name=manifest.name,
        tasks=(),
        conditions=plan.conditions,
        sources=manifest.sources,
        cap=manifest.cap,
        prices=manifest.prices,
        sandbox=manifest.sandbox,
        endpoints=manifest.endpoints,
    )
    return Prepared(brief=brief, plan=plan, own={}, folders=_folders(manifest))


async def execute(prepared: Prepared, start: Start) -> Run:
    """Run what is due of *prepared*, into a new folder or one that is resumed."""
    warning = _dearer_than_its_cap(prepared)
    redactor = Redactor()
    with closing(open_tapes(start.tapes, redactor, start.stop)) as tapes:
        parts = Parts(
            redactor=redactor,
            environ=_environ(start),
            own=prepared.own,
            folders=prepared.folders,
            tapes=tapes,
            prices=prices_of(prepared.brief),
            gates=Gates(prepared.brief.endpoints),
        )
        async with _rigged(prepared, start, parts) as rigs:
            folder = _folder(prepared, start)
            if warning and not start.resume:
                start.listener(Notice(warning))
            for name in parts.gates.idle():
                start.listener(Notice(f"endpoints: no model of this run is asked at {name}"))
            return await _execute(prepared, start, folder, rigs, redactor)


@asynccontextmanager
async def _rigged(prepared: Prepared, start: Start, parts: Parts) -> AsyncIterator[SharedRigs]:
    """Build every part that the plan names, and close them all at the end."""
    premises_open = open_premises(
        prepared.plan,
        prepared.brief.sandbox,
        environ=parts.environ,
        run=prepared.brief.name,
        tell=start.listener,
    )
    async with premises_open as premises:
        rigs = SharedRigs(prepared.plan, parts, premises=premises)
        try:
            yield rigs
        finally:
            await rigs.close()


async def _execute(
    prepared: Prepared, start: Start, folder: Path, rigs: SharedRigs, redactor: Redactor
) -> Run:
    plan, brief = prepared.plan, prepared.brief
    store = SqliteStore(folder, redactor=redactor, version=VERSION)
    try:
        for notice in prepared.notices:
            start.listener(Notice(notice))
        if start.resume:
            _tell_differences(plan, folder, start.listener)
        store.freeze(plan)
        manifest = _manifest(prepared, start, folder, sandbox=rigs.sandbox)
        write_manifest(folder, replace(manifest, served=await rigs.served(plan)), redactor)
        rigs.checkpoints = FileCheckpoints(folder, redactor)
        if brief.warm_up:
            await rigs.warm_up(plan, start.listener)
        done, billed = _known(folder) if start.resume else (0, NO_BILL)
        budget = Budget(brief.cap, before=billed)
        start.listener(RunStarted(folder.name, str(folder), len(plan), done, brief.cap, billed))
        with rare_collections():
            await run_plan(
                plan,
                store=store,
                rigs=rigs,
                executor=LocalExecutor(brief.parallel or DEFAULT_PARALLEL, pause_s=brief.pause_s),
                stop=start.stop,
                tell=_filed(_discreet(start.listener, redactor), folder, redactor),
                budget=budget,
            )
    finally:
        await store.close()
    for line in rigs.last_words():
        start.listener(Notice(line))
    start.listener(RunEnded(folder.name, start.stop.requested, at_budget=budget.reached))
    return _summarized(folder)


def _known(folder: Path) -> tuple[int, Bill]:
    """Return how many trials are finished, and what all that was done so far was billed."""
    ledger = SqliteLedger(folder)
    return ledger.finished(), ledger.billed()


def _dearer_than_its_cap(prepared: Prepared) -> str | None:
    """Return a warning where the cap may end the run; raise where the cap could not be kept."""
    cap = prepared.brief.cap
    if not cap:
        check_cap(prepared.plan, prices_of(prepared.brief), cap)
        return None
    may = forecast_of(prepared.plan, prepared.brief)
    if cap.cost_usd is not None and may.cost_usd is not None and may.cost_usd > cap.cost_usd:
        return f"it may cost ${may.cost_usd:.4f}, more than the ${cap.cost_usd:.4f} of --max-cost"
    tokens = None if may.output_tokens is None else may.input_tokens + may.output_tokens
    if cap.tokens is not None and tokens is not None and tokens > cap.tokens:
        return f"it may take {tokens:,} tokens, more than the {cap.tokens:,} of --max-tokens"
    return None


async def score_again(
    reference: str, start: Start, *, anew: Brief | None = None, sandbox: str | None = None
) -> Run:
    """Score the stored answers of a run again, with the scoring and the roles of *anew*, if any."""
    folder = find_run(reference, start.output)
    ledger = SqliteLedger(folder)
    before = ledger.planned()
    plan = rescored(before, anew.tasks if anew else ())
    redactor = Redactor()
    manifest = read_manifest(folder)
    parts = Parts(
        redactor=redactor,
        environ=_environ(start),
        folders=_folders(manifest),
        prices=prices_from(anew.prices if anew else None, manifest.prices),
        gates=Gates({**manifest.endpoints, **(anew.endpoints if anew else {})}),
    )
    roles = {**plan.conditions.roles, **(anew.conditions.roles if anew else {})}
    where = SandboxSpec(name=sandbox) if sandbox else manifest.sandbox
    premises_open = open_premises(
        plan, where, environ=parts.environ, run=manifest.name, tell=start.listener
    )
    async with premises_open as premises:
        rigs = SharedRigs(plan, parts, roles=roles, ask_candidates=False, premises=premises)
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
                tell=_filed(_discreet(start.listener, redactor), folder, redactor),
            )
        finally:
            await store.close()
            await rigs.close()
    start.listener(RunEnded(folder.name, stopped_early=not adopted))
    return _summarized(folder)


def _environ(start: Start) -> Mapping[str, str]:
    """Return what the models of a run may read: the shell's variables, then those of a file."""
    found = environment(os.environ, named=start.env_file, here=Path())
    if found.said:
        start.listener(Notice(found.said))
    return found.values


def _discreet(listener: Listener, redactor: Redactor) -> Listener:
    """Return a listener that is told what went wrong without the secrets in it."""

    def tell(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.attempt.fault is not None:
            fault = event.attempt.fault
            fault = replace(fault, message=redactor.text(fault.message))
            event = replace(event, attempt=replace(event.attempt, fault=fault))
        listener(event)

    return tell


def _filed(listener: Listener, folder: Path, redactor: Redactor) -> Listener:
    """Return a listener before which the files of each workspace trial are written."""

    def tell(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.trial.task.workspace is not None:
            write_artifacts(folder, event.trial.name, event.attempt, redactor)
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
    if start.folder is not None:
        return make_folder(start.folder)
    return new_folder(start.output, prepared.brief.name, now())


def _tell_differences(plan: Plan, folder: Path, tell: Listener) -> None:
    tasks, seats = SqliteLedger(folder).known()
    known = {
        name: {**seat.candidate.identity(), **seat.conditions.identity()}
        for name, seat in seats.items()
    }
    for line in differences(plan, tasks, known):
        tell(Notice(f"{line}: its recorded trials cannot be reused"))


def _manifest(prepared: Prepared, start: Start, folder: Path, *, sandbox: str | None) -> Manifest:
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
        cap=prepared.brief.cap,
        prices=prepared.brief.prices,
        sandbox=replace(prepared.brief.sandbox, name=sandbox),
        endpoints=prepared.brief.endpoints,
    )
    if not start.resume:
        return manifest
    try:
        return replace(manifest, created_at=read_manifest(folder).created_at)
    except UsageError:
        return manifest  # killed before its first manifest was written
