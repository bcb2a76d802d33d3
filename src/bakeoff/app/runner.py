"""Where the attempts of a run are run: in this event loop, or in workers."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from bakeoff._lib.redact import Redactor
from bakeoff.app.options import RunOptions
from bakeoff.app.prepare import PreparedRun
from bakeoff.app.run_folder import RunFolder
from bakeoff.app.trial_parts import SharedTrialParts
from bakeoff.app.workspaces import repositories
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.workspace import SandboxSpec
from bakeoff.engine.run import LocalRunner, TrialRunner
from bakeoff.executors.wire import RunSettings
from bakeoff.models.recording.replay import sessions_in
from bakeoff.stores.attachments import AttachmentStore

if TYPE_CHECKING:
    from bakeoff.executors.files import RunFiles
    from bakeoff.executors.ray import RayCluster

LOCAL, PROCESSES, RAY = "local", "processes", "ray"
EXECUTORS = (LOCAL, PROCESSES, RAY)
_WORKER = "bakeoff.app.run_worker"
_HEARTBEAT_S = 1.0
PRICES, REPLAY = "prices.toml", "replay"

_HERE = f"leave --executor out, or write --executor {LOCAL}"


def check_executor(prepared: PreparedRun, redactor: Redactor) -> None:
    """Raise where the workers that were asked for could not run the plan."""
    spec = prepared.spec
    if spec.ray_address is not None and spec.executor != RAY:
        raise UsageError(f"--ray-address {spec.ray_address}: that is for --executor {RAY}")
    if spec.executor == LOCAL:
        if spec.workers is not None:
            raise UsageError(
                f"--workers {spec.workers}: only --executor {PROCESSES} and {RAY} have workers"
            )
        return
    if spec.executor not in EXECUTORS:
        raise UsageError(
            f"no executor is called {spec.executor!r}; there are: {', '.join(EXECUTORS)}"
        )
    if prepared.own:
        raise UsageError(
            f"{next(iter(prepared.own))!r} was given as a Python object, which stays in this process: "
            f"name it as module:attribute, so that workers can import it, or {_HERE}"
        )
    for candidate in prepared.plan.candidates:
        if candidate.agent.name == "human":
            raise UsageError(f"agent 'human' needs the terminal of this process: {_HERE}")
    candidates = tuple(prepared.plan.candidates)
    data = msgspec.json.encode((candidates, prepared.plan.conditions))
    if redactor.data(data) != data:
        raise UsageError(
            "a secret of a model or an agent is written out, and workers are sent none: name an "
            f"environment variable instead (${{NAME}}), or {_HERE}"
        )


@asynccontextmanager
async def open_cluster(spec: RunSpec) -> AsyncIterator["RayCluster | None"]:
    """Connect to the Ray cluster that was asked for, if one was, while the block lasts."""
    if spec.executor != RAY:
        yield None
        return
    from bakeoff.executors.ray import connected

    async with connected(spec.ray_address or "auto") as cluster:
        yield cluster


@asynccontextmanager
async def open_runner(
    prepared: PreparedRun,
    options: RunOptions,
    folder: RunFolder,
    parts: SharedTrialParts,
    cluster: "RayCluster | None",
) -> AsyncIterator[TrialRunner]:
    """Start what runs the attempts, and end it with the block."""
    spec = prepared.spec
    if spec.executor == LOCAL:
        yield LocalRunner(parts)
        return
    from bakeoff.executors.coordinator import Coordinator, WorkerRules, coordinating
    from bakeoff.executors.processes import launcher

    settings = _settings(prepared, options, folder, parts)
    if cluster is not None:
        place = await cluster.place(with_boxes=parts.sandbox is not None)
        async with _run_files(spec, options, parts) as (files, names):
            coordinator = Coordinator(
                cluster.launcher(_WORKER, place, options.listener),
                replace(settings, fetched=names),
                parts,
                rules=WorkerRules(
                    workers=1, lease_s=options.worker_lease, most=place.boxes or None
                ),
                listener=options.listener,
                files=files,
            )
            async with (
                coordinating(coordinator, options.stop),
                cluster.filling(place, coordinator.grow, workers=spec.workers),
            ):
                yield coordinator
        return
    coordinator = Coordinator(
        launcher(_WORKER),
        settings,
        parts,
        rules=WorkerRules(workers=number_of_workers(spec), lease_s=options.worker_lease),
        listener=options.listener,
        on_killed=parts.clean_up,
    )
    async with coordinating(coordinator, options.stop):
        yield coordinator


@asynccontextmanager
async def _run_files(
    spec: RunSpec, options: RunOptions, parts: SharedTrialParts
) -> AsyncIterator[tuple["RunFiles", tuple[str, ...]]]:
    """Open what workers on other machines are given of the run; also the names of what they begin with."""
    from bakeoff.executors.files import RunFiles

    named = {} if spec.prices is None else {PRICES: Path(spec.prices)}
    if options.recording.replay is not None:
        named |= {f"{REPLAY}/{path.name}": path for path in sessions_in(options.recording.replay)}
    assert isinstance(parts.attachments, AttachmentStore)  # noqa: S101 -- the folder of the run is open
    assert parts.checkpoints is not None  # noqa: S101
    files = RunFiles(
        attachments=parts.attachments,
        checkpoints=parts.checkpoints,
        recording=parts.recording,
        named=named,
        repositories=repositories(os.environ),
    )
    try:
        yield files, tuple(named)
    finally:
        await files.close()


def number_of_workers(spec: RunSpec) -> int:
    """Return how many workers are started: as many as there are cores, where nothing is said."""
    return spec.workers or len(os.sched_getaffinity(0))


def _settings(
    prepared: PreparedRun, options: RunOptions, folder: RunFolder, parts: SharedTrialParts
) -> RunSettings:
    """Return what a worker builds its parts from."""
    spec, recording = prepared.spec, options.recording
    sandbox = None
    if parts.sandbox is not None:
        sandbox = SandboxSpec(name=parts.sandbox, settings=spec.sandbox.settings)
    return RunSettings(
        run=spec.name,
        folder=str(folder.path.resolve()),
        path=tuple(sys.path),
        folders=tuple(map(str, prepared.folders)),
        env_file=_text(options.env_file),
        prices=spec.prices,
        candidates=tuple(prepared.plan.candidates),
        conditions=prepared.plan.conditions,
        capped=bool(spec.cap),
        sandbox=sandbox,
        has_attachments=parts.has_attachments,
        record=_text(recording.record),
        replay=_text(recording.replay),
        cache=_text(recording.cache),
        heartbeat_s=min(_HEARTBEAT_S, options.worker_lease / 4),
    )


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
