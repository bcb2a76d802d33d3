"""The folder of a run: created or reopened, with its ledger open and its manifest written."""

import platform
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bakeoff._lib.clock import now
from bakeoff._lib.redact import Redactor
from bakeoff._lib.value_object import value_object
from bakeoff._lib.version import __version__
from bakeoff.app.options import RunOptions
from bakeoff.app.prepare import PreparedRun
from bakeoff.app.run_results import earlier_manifest
from bakeoff.app.trial_parts import SharedTrialParts
from bakeoff.core.budget import NO_BILL, Bill
from bakeoff.core.errors import UsageError
from bakeoff.core.events import Event, Listener, Notice, TrialEnded
from bakeoff.core.plan import Plan
from bakeoff.core.run_spec import Manifest
from bakeoff.core.values import Json
from bakeoff.planning.resume import differences, merged, missing_from, remaining
from bakeoff.reports.artifacts import write_artifacts
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.stores.checkpoints import FileCheckpoints
from bakeoff.stores.folders import find_run, make_folder, new_folder, write_manifest
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.ledger_writer import LEDGER, SqliteStore
from bakeoff.stores.plan_blocks import PlanStream

DEFAULT_PARALLEL = 8


@value_object
class RunFolder:
    """The folder of a run that is running, its open ledger, and what was done and billed before.

    `plan` is what is run now. Its tasks come from the `stream`, where they are still being read.
    """

    path: Path
    plan: Plan
    stream: PlanStream | None
    store: SqliteStore
    done: int
    billed: Bill


@asynccontextmanager
async def open_run_folder(
    prepared: PreparedRun,
    options: RunOptions,
    whole_plan: Plan,
    parts: SharedTrialParts,
    redactor: Redactor,
) -> AsyncIterator[RunFolder]:
    """Make the folder of a new run or find that of an earlier one, and freeze the plan in its ledger.

    *whole_plan* is all that is planned there: with `only` that is more than is run now.
    """
    path = _folder(prepared, options)
    store = SqliteStore(path, redactor=redactor, version=__version__)
    stream = None
    try:
        for notice in (*store.damage.lines, *prepared.notices):
            options.listener(Notice(notice))
        if options.resume and options.source is not None and not whole_plan.streams:
            for line in _differences(prepared.plan, path):
                options.listener(Notice(f"{line}: its recorded trials cannot be reused"))
        parts.attachments = AttachmentStore(path)
        if parts.has_attachments:
            _keep_attachments(prepared.plan, parts.attachments)
        store.freeze(whole_plan)
        if prepared.places is not None:
            store.keep_places(prepared.places)
        plan = prepared.plan
        if plan.streams:
            plan, stream = _streaming(plan, path, parts, redactor)
        manifest = await _manifest(prepared, options, path, whole_plan, parts)
        write_manifest(path, manifest, redactor)
        store.keep_manifest(manifest)
        parts.checkpoints = FileCheckpoints(path, redactor)
        done, billed = 0, NO_BILL
        if options.resume:
            done = _finished(prepared.plan, path, whole_plan, store)
            billed = SqliteLedger(path).billed()
        yield RunFolder(path=path, plan=plan, stream=stream, store=store, done=done, billed=billed)
        if stream is not None and stream.whole:
            manifest = replace(manifest, planned=len(plan), tasks=plan.task_count, plan=plan.digest)
            write_manifest(path, manifest, redactor)
            store.keep_manifest(manifest)
    finally:
        if stream is not None:
            stream.close()
        await store.close()


def _streaming(
    plan: Plan, path: Path, parts: SharedTrialParts, redactor: Redactor
) -> tuple[Plan, PlanStream]:
    """Return *plan* with the tasks of its one block as they arrive in the ledger, and their stream."""
    (block,) = plan.blocks
    stream = PlanStream(path / LEDGER, block.tasks, redactor=redactor, check=parts.check)
    return replace(plan, blocks=(replace(block, tasks=stream.tasks),)), stream


def _keep_attachments(plan: Plan, attachments: AttachmentStore) -> None:
    """Copy every picture and file that *plan* asks about into the folder of the run."""
    for task in plan.tasks_at_hand:
        for attachment in task.attachments:
            attachments.keep(attachment)


def _folder(prepared: PreparedRun, options: RunOptions) -> Path:
    if options.resume:
        return find_run(options.resume, Path(options.output))
    if options.folder is not None:
        return make_folder(Path(options.folder))
    return new_folder(Path(options.output), options.name or prepared.spec.name, now())


def _finished(plan: Plan, path: Path, whole_plan: Plan, store: SqliteStore) -> int:
    """Return how many trials of *plan* are finished."""
    if plan is whole_plan:
        return SqliteLedger(path).finished(with_whole_blobs=True)
    due = sum(1 for _ in remaining(plan, store.next_attempts))
    return len(plan) - due


def without_finished_tasks(prepared: PreparedRun, options: RunOptions) -> PreparedRun:
    """Return *prepared* without its tasks where all of its trials are finished, so that none is read.

    Only for a plan that was taken from the run's own ledger.
    """
    if not options.resume or options.source is not None or options.only:
        return prepared
    ledger = SqliteLedger(find_run(options.resume, Path(options.output)))
    if ledger.finished(with_whole_blobs=True) < len(prepared.plan):
        return prepared
    blocks = tuple(replace(block, tasks=()) for block in prepared.plan.blocks)
    return replace(prepared, plan=replace(prepared.plan, blocks=blocks))


def refuse_unprepared(prepared: PreparedRun, needed: PreparedRun, folder: RunFolder) -> None:
    """Raise where trials are due although the run was finished a moment ago."""
    if needed is not prepared and folder.done < len(prepared.plan):
        raise UsageError(f"{folder.path.name} was changed by another process; resume it again")


def check_earlier_plan(prepared: PreparedRun, options: RunOptions) -> Plan:
    """Return all that is planned in the run's folder: a resume must keep what the run promised."""
    if not options.resume or (options.source is None and not options.only):
        return prepared.plan  # without a source, it was read from there
    folder = find_run(options.resume, Path(options.output))
    ledger = SqliteLedger(folder)
    if not ledger.begun:
        return prepared.plan
    before = ledger.planned()
    if not options.only:
        if missing := missing_from(prepared.plan, before):
            raise UsageError(
                f"{folder.name} has planned more than this asks for ({'; '.join(missing)}), and "
                "those results would leave its reports: ask for as much as before, or add --only "
                "to run just this part and keep the rest"
            )
        return prepared.plan
    if prepared.spec.adaptive is not None:
        raise UsageError("an adaptive run chooses its trials itself: --only cannot go with it")
    if apart := _differences(prepared.plan, folder):
        raise UsageError(
            f"--only keeps the rest of {folder.name}, which was run otherwise ({'; '.join(apart)}): "
            "start a new run, or resume the whole of it without --only"
        )
    return merged(before, prepared.plan)


def _differences(plan: Plan, folder: Path) -> list[str]:
    tasks, seats = SqliteLedger(folder).known()
    known = {
        name: {**seat.candidate.identity(), **seat.conditions.identity()}
        for name, seat in seats.items()
    }
    return differences(plan, tasks, known)


async def _manifest(
    prepared: PreparedRun,
    options: RunOptions,
    path: Path,
    plan: Plan,
    parts: SharedTrialParts,
) -> Manifest:
    """Return the manifest of the run; one that is resumed keeps its date and its name."""
    spec, served = prepared.spec, await parts.served(prepared.plan)
    manifest = Manifest(
        run=path.name,
        name=spec.name,
        created_at=now().isoformat(),
        bakeoff=__version__,
        python=sys.version.split()[0],
        platform=platform.platform(),
        planned=len(plan),
        tasks=plan.task_count,
        plan="" if plan.streams else plan.digest,
        candidates=tuple(plan.candidates),
        conditions=plan.conditions,
        sources=spec.sources,
        command=tuple(options.command),
        selection=_selection(options, spec.name),
        cap=spec.cap,
        prices=spec.prices,
        sandbox=replace(spec.sandbox, name=parts.sandbox),
        endpoints=spec.endpoints,
        adaptive=spec.adaptive,
        run_name=options.name,
        patience=spec.patience,
        served=served,
        shard=prepared.shard,
        recording=_recording(options),
    )
    before = earlier_manifest(path) if options.resume else None
    if before is None:
        return manifest
    _tell_other_sandbox(before.sandbox.name, parts.sandbox, options.listener)
    return replace(
        manifest,
        sandbox=manifest.sandbox if parts.sandbox else before.sandbox,
        created_at=before.created_at,
        run_name=options.name or before.run_name,
        served={**before.served, **served},
        shard=before.shard if options.only else manifest.shard,
        merged=before.merged,
        recording=manifest.recording or before.recording,
    )


def _recording(options: RunOptions) -> str | None:
    """Return the folder that the run is recorded in; None where it is not."""
    return None if options.record is None else str(Path(options.record).resolve())


def _selection(options: RunOptions, parent: str) -> dict[str, Json]:
    """Return which part of *parent* is run; earlier runs by their ids, nothing where all of it is."""
    selection = options.selection_as_data
    output = Path(options.output)
    if options.failed_in is not None:
        selection["failed_in"] = find_run(options.failed_in, output).name
    if options.changed_in is not None:
        selection["changed_in"] = [find_run(name, output).name for name in options.changed_in]
    return {**selection, "parent": parent} if selection else {}


def _tell_other_sandbox(before: str | None, current: str | None, listener: Listener) -> None:
    if before and current and before != current:
        listener(
            Notice(f"sandbox: trials run in {current} now, earlier ones of this run in {before}")
        )


def with_artifacts(listener: Listener, folder: Path, redactor: Redactor) -> Listener:
    """Return a listener that writes the files of a workspace trial before *listener* hears of it."""

    def listen(event: Event) -> None:
        if isinstance(event, TrialEnded) and event.trial.task.workspace is not None:
            write_artifacts(folder, event.trial, event.attempt, redactor)
        listener(event)

    return listen
