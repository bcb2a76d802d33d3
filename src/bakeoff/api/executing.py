"""A plan is run: into a new folder, or into one that is resumed."""

import platform
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

from bakeoff._lib.clock import now
from bakeoff._lib.collector import rare_collections
from bakeoff._lib.redact import Redactor
from bakeoff.api.rigs import Parts, SharedRigs
from bakeoff.api.runs import Run, summarized
from bakeoff.api.site import open_premises
from bakeoff.api.sources import Prepared
from bakeoff.api.spending import check_cap, forecast_of, prices_of
from bakeoff.api.start import DEFAULT_PARALLEL, VERSION, Start, discreet, environ_of, filed
from bakeoff.core.adaptive import Adaptive
from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.core.errors import UsageError
from bakeoff.core.events import (
    Listener,
    Notice,
    RunEnded,
    RunStarted,
)
from bakeoff.core.manifest import Manifest
from bakeoff.core.plan import Plan
from bakeoff.engine.budget import Budget
from bakeoff.engine.run import run_plan
from bakeoff.engine.until_decided import UntilDecided
from bakeoff.executors.local import LocalExecutor
from bakeoff.models.limits import Gates
from bakeoff.models.tapes import open_tapes
from bakeoff.planning.differences import differences
from bakeoff.stores.checkpoints import FileCheckpoints
from bakeoff.stores.folders import find_run, make_folder, new_folder, read_manifest, write_manifest
from bakeoff.stores.reader import SqliteLedger
from bakeoff.stores.sqlite import SqliteStore


async def execute(prepared: Prepared, start: Start) -> Run:
    """Run what is due of *prepared*, into a new folder or one that is resumed."""
    warning = _dearer_than_its_cap(prepared)
    redactor = Redactor()
    with closing(open_tapes(start.tapes, redactor, start.stop)) as tapes:
        parts = Parts(
            redactor=redactor,
            environ=environ_of(start),
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
        if adaptive := brief.adaptive is not None:
            start.listener(Notice(f"adaptive: {ends_when(brief.adaptive, len(plan))}"))
        start.listener(
            RunStarted(folder.name, str(folder), len(plan), done, brief.cap, billed, adaptive)
        )
        with rare_collections():
            await run_plan(
                plan,
                store=store,
                rigs=rigs,
                executor=LocalExecutor(brief.parallel or DEFAULT_PARALLEL, pause_s=brief.pause_s),
                stop=start.stop,
                tell=filed(discreet(start.listener, redactor), folder, redactor),
                budget=budget,
                until=_until(prepared, folder),
            )
    finally:
        await store.close()
    for line in rigs.last_words():
        start.listener(Notice(line))
    start.listener(RunEnded(folder.name, start.stop.requested, at_budget=budget.reached))
    return summarized(folder)


def ends_when(rule: Adaptive, trials: int) -> str:
    """Return in words when an adaptive run of at most so many *trials* ends."""
    known = f", or their difference known to within {rule.precision:g}" if rule.precision else ""
    return f"it ends when the candidates are told apart{known}; {trials:,} trials at most"


def _until(prepared: Prepared, folder: Path) -> UntilDecided | None:
    """Return when the run may end early, knowing what was finished before."""
    if prepared.brief.adaptive is None:
        return None
    until = UntilDecided(prepared.plan, prepared.brief.adaptive)
    until.recall(SqliteLedger(folder).rows())
    return until


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
        adaptive=prepared.brief.adaptive,
    )
    if not start.resume:
        return manifest
    try:
        return replace(manifest, created_at=read_manifest(folder).created_at)
    except UsageError:
        return manifest  # killed before its first manifest was written
