"""A plan is run: into a new folder, or into one that is resumed."""

import platform
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path

from bakeoff._lib.clock import now
from bakeoff._lib.gc_tuning import rare_collections
from bakeoff._lib.redact import Redactor, url_secrets
from bakeoff.app.endpoint_watch import EndpointWatch
from bakeoff.app.known_secrets import learn_plan
from bakeoff.app.pricing import check_cap, forecast_of, prices_of
from bakeoff.app.run_results import Run, summarized
from bakeoff.app.sources import PreparedRun
from bakeoff.app.start import (
    DEFAULT_PARALLEL,
    VERSION,
    Start,
    discreet,
    discreet_errors,
    environ_of,
    filed,
)
from bakeoff.app.trial_parts import Parts, SharedTrialParts
from bakeoff.app.workspaces import open_premises
from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Listener, Notice, RunEnded, RunStarted
from bakeoff.core.manifest import Manifest
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import Adaptive
from bakeoff.engine.adaptive import AdaptiveSelection
from bakeoff.engine.budget import Budget
from bakeoff.engine.run import run_plan
from bakeoff.executors.local import LocalExecutor
from bakeoff.models.limits.settings import Limiters
from bakeoff.models.recording.modes import open_tapes
from bakeoff.planning.resume import differences, merged, missing_from, remaining
from bakeoff.stores.checkpoints import FileCheckpoints
from bakeoff.stores.folders import (
    check_run_name,
    find_run,
    make_folder,
    new_folder,
    read_manifest,
    write_manifest,
)
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import SqliteStore


async def execute(prepared: PreparedRun, start: Start) -> Run:
    """Run what is due of *prepared*, into a new folder or one that is resumed."""
    warning = _dearer_than_its_cap(prepared)
    if start.name is not None:
        check_run_name(start.name)
    whole = _whole(prepared, start)
    redactor = Redactor()
    environ = environ_of(start)
    learn_plan(whole, environ, redactor)
    for name in prepared.brief.endpoints:
        redactor.add(url_secrets(name))
    start = replace(start, listener=discreet(start.listener, redactor))
    tapes_open = closing(open_tapes(start.tapes, redactor, start.stop))
    with discreet_errors(redactor), tapes_open as tapes:
        parts = Parts(
            redactor=redactor,
            environ=environ,
            own=prepared.own,
            folders=prepared.folders,
            tapes=tapes,
            prices=prices_of(prepared.brief),
            gates=Limiters(prepared.brief.endpoints, patience=prepared.brief.patience),
        )
        async with _rigged(prepared, start, parts) as rigs:
            folder = _folder(prepared, start)
            if warning and not start.resume:
                start.listener(Notice(warning))
            for name in parts.gates.idle():
                start.listener(Notice(f"endpoints: no model of this run is asked at {name}"))
            return await _execute(prepared, start, _Place(folder, whole), rigs, redactor)


@dataclass(frozen=True)
class _Place:
    """The folder of a run, and all that is planned there: more than is run now with `only`."""

    folder: Path
    whole: Plan


@asynccontextmanager
async def _rigged(
    prepared: PreparedRun, start: Start, parts: Parts
) -> AsyncIterator[SharedTrialParts]:
    """Build every part that the plan names, and close them all at the end."""
    premises_open = open_premises(
        prepared.plan,
        prepared.brief.sandbox,
        environ=parts.environ,
        run=prepared.brief.name,
        tell=start.listener,
        folders=parts.folders,
    )
    async with premises_open as premises:
        rigs = SharedTrialParts(prepared.plan, parts, premises=premises)
        try:
            await rigs.check_roles()
            await rigs.start_scorers()
            yield rigs
        finally:
            await rigs.close()


async def _execute(
    prepared: PreparedRun, start: Start, place: _Place, rigs: SharedTrialParts, redactor: Redactor
) -> Run:
    plan, brief, folder = prepared.plan, prepared.brief, place.folder
    store = SqliteStore(folder, redactor=redactor, version=VERSION)
    try:
        for notice in (*store.damage.lines, *prepared.notices):
            start.listener(Notice(notice))
        if start.resume:
            for line in _differences(plan, folder):
                start.listener(Notice(f"{line}: its recorded trials cannot be reused"))
        store.freeze(place.whole)
        before = _manifest_before(folder) if start.resume else None
        manifest = _manifest(prepared, start, place, sandbox=rigs.sandbox)
        served = await rigs.served(plan)
        if before is not None:
            _tell_another_sandbox(before.sandbox.name, rigs.sandbox, start.listener)
            name = start.name or before.run_name
            manifest = replace(manifest, created_at=before.created_at, run_name=name)
            served = {**before.served, **served}
        manifest = replace(manifest, served=served)
        write_manifest(folder, manifest, redactor)
        store.keep_manifest(manifest)
        rigs.checkpoints = FileCheckpoints(folder, redactor)
        if brief.warm_up:
            await rigs.warm_up(plan, start.listener)
        done, billed = _known(place, plan, store) if start.resume else (0, NO_BILL)
        budget = Budget(brief.cap, before=billed)
        if adaptive := brief.adaptive is not None:
            start.listener(Notice(f"adaptive: {ends_when(brief.adaptive, len(plan))}"))
        start.listener(
            RunStarted(
                folder.name,
                str(folder),
                len(plan),
                done,
                brief.cap,
                billed,
                adaptive,
                plan.trials_by_candidate(),
            )
        )
        watch = EndpointWatch(rigs.gates, start.listener, redactor)
        async with watch.watching(start.stop, rigs.nothing_left):
            with rare_collections():
                await run_plan(
                    plan,
                    store=store,
                    parts_source=rigs,
                    executor=LocalExecutor(
                        brief.parallel or DEFAULT_PARALLEL, pause_s=brief.pause_s
                    ),
                    stop=start.stop,
                    emit=filed(start.listener, folder, redactor),
                    budget=budget,
                    selection=_until(prepared, folder),
                )
    finally:
        await store.close()
    for line in rigs.last_words():
        start.listener(Notice(line))
    start.listener(
        RunEnded(
            folder.name,
            start.stop.requested or bool(watch.given_up),
            budget.reached,
            watch.given_up,
        )
    )
    return summarized(folder)


def ends_when(rule: Adaptive, trials: int) -> str:
    """Return in words when an adaptive run of at most so many *trials* ends."""
    known = f", or their difference known to within {rule.precision:g}" if rule.precision else ""
    return f"it ends when the candidates are separated{known}; {trials:,} trials at most"


def _until(prepared: PreparedRun, folder: Path) -> AdaptiveSelection | None:
    """Return when the run may end early, knowing what was finished before."""
    if prepared.brief.adaptive is None:
        return None
    until = AdaptiveSelection(prepared.plan, prepared.brief.adaptive)
    until.restore(SqliteLedger(folder).rows())
    return until


def _known(place: _Place, plan: Plan, store: SqliteStore) -> tuple[int, Bill]:
    """Return how many trials of *plan* are finished, and what everything so far was billed."""
    ledger = SqliteLedger(place.folder)
    if plan is place.whole:
        return ledger.finished(), ledger.billed()
    due = sum(1 for _ in remaining(plan, store.next_attempts))
    return len(plan) - due, ledger.billed()


def _dearer_than_its_cap(prepared: PreparedRun) -> str | None:
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


def _whole(prepared: PreparedRun, start: Start) -> Plan:
    """Return all that is planned once *prepared* is: what a run promised, a resume must keep."""
    if not start.resume:
        return prepared.plan
    folder = find_run(start.resume, start.output)
    ledger = SqliteLedger(folder)
    if not ledger.begun:
        return prepared.plan
    before = ledger.planned()
    if not start.only:
        if missing := missing_from(prepared.plan, before):
            raise UsageError(
                f"{folder.name} has planned more than this asks for ({'; '.join(missing)}), and "
                "those results would leave its reports: ask for as much as before, or add --only "
                "to run just this part and keep the rest"
            )
        return prepared.plan
    if prepared.brief.adaptive is not None:
        raise UsageError("an adaptive run chooses its trials itself: --only cannot go with it")
    if apart := _differences(prepared.plan, folder):
        raise UsageError(
            f"--only keeps the rest of {folder.name}, which was run otherwise ({'; '.join(apart)}): "
            "start a new run, or resume the whole of it without --only"
        )
    return merged(before, prepared.plan)


def _folder(prepared: PreparedRun, start: Start) -> Path:
    if start.resume:
        return find_run(start.resume, start.output)
    if start.folder is not None:
        return make_folder(start.folder)
    return new_folder(start.output, start.name or prepared.brief.name, now())


def _differences(plan: Plan, folder: Path) -> list[str]:
    tasks, seats = SqliteLedger(folder).known()
    known = {
        name: {**seat.candidate.identity(), **seat.conditions.identity()}
        for name, seat in seats.items()
    }
    return differences(plan, tasks, known)


def _manifest(
    prepared: PreparedRun, start: Start, place: _Place, *, sandbox: str | None
) -> Manifest:
    plan, folder = place.whole, place.folder
    return Manifest(
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
        run_name=start.name,
        patience=prepared.brief.patience,
    )


def _manifest_before(folder: Path) -> Manifest | None:
    """Return what the run that is resumed promised; None where it was killed before it could."""
    try:
        return read_manifest(folder)
    except UsageError:
        return None


def _tell_another_sandbox(before: str | None, now: str | None, tell: Listener) -> None:
    if before and now and before != now:
        tell(Notice(f"sandbox: trials run in {now} now, earlier ones of this run in {before}"))
