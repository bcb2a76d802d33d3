"""A worker process of a run: `python -m bakeoff.app.run_worker FD`, started by the run."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff._lib.process_setup import rare_collections, tune_for_one_command
from bakeoff._lib.redact import Redactor
from bakeoff.app.known_secrets import learn_plan
from bakeoff.app.pricing import prices_in
from bakeoff.app.run import new_event_loop
from bakeoff.app.runner import PRICES, REPLAY
from bakeoff.app.trial_parts import PartBuilder, SharedTrialParts
from bakeoff.app.workspaces import choose, opened_services, reap, repositories
from bakeoff.core.plan import Block, Plan
from bakeoff.core.stop import Stop
from bakeoff.executors.files import RemoteCache, RemoteRecorder, WorkerFiles
from bakeoff.executors.processes import connect, die_with_parent
from bakeoff.executors.trial_worker import TrialWorker
from bakeoff.executors.turns import Calls, RemoteLimiters
from bakeoff.executors.wire import RunSettings
from bakeoff.formats.text.env import environment
from bakeoff.models.recording.replay import (
    Recording,
    RecordingFolders,
    RecordingModes,
    open_recording_modes,
)
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.stores.checkpoints import FileCheckpoints


@asynccontextmanager
async def open_worker_parts(
    settings: RunSettings, limiters: RemoteLimiters, stop: Stop
) -> AsyncIterator[SharedTrialParts]:
    """Build every model, agent and sandbox of the run anew, here; the run has checked them all."""
    apart = settings.fetched is not None
    sys.path[:] = _with_existing(settings.path) if apart else settings.path
    folders = tuple(map(Path, settings.folders))
    environ = _environment(settings)
    block = Block(tasks=(), candidates=settings.candidates)
    plan = Plan(blocks=(block,), conditions=settings.conditions)
    redactor = Redactor()
    learn_plan(plan, environ, redactor)
    async with AsyncExitStack() as stack:
        files = await _fetched_files(settings, limiters.calls, environ, stack) if apart else None
        recording = await _recording(settings, files, limiters.calls, redactor, stop)
        stack.enter_context(closing(recording))
        prices = settings.prices
        if files is not None and prices is not None:
            prices = str(await files.named(PRICES))
        sources = PartBuilder(
            redactor=redactor,
            environ=environ,
            folders=folders,
            recording=recording,
            prices=prices_in(prices),
            limiters=limiters,
        )
        services = None
        if settings.sandbox is not None:
            sandbox = choose(settings.sandbox, environ=environ, images=False, folders=folders)
            services = await stack.enter_async_context(
                opened_services(sandbox, environ=environ, run=settings.run)
            )
            if apart:
                await reap(sandbox)  # what workers left that were lost on this machine
        parts = SharedTrialParts(plan, sources, workspace_services=services)
        stack.push_async_callback(parts.close)
        folder = Path(settings.folder)
        parts.attachments = files or AttachmentStore(folder)
        parts.has_attachments = settings.has_attachments
        parts.checkpoints = files or FileCheckpoints(folder, redactor)
        parts.files = files
        with rare_collections():
            yield parts


async def _fetched_files(
    settings: RunSettings, calls: Calls, environ: Mapping[str, str], stack: AsyncExitStack
) -> WorkerFiles:
    """Return the files of a run that is on another machine."""
    folder = scratch.new_folder("worker")
    stack.callback(scratch.remove, folder)
    files = WorkerFiles(calls, folder, repositories=repositories(environ))
    stack.push_async_callback(files.close)
    for name in settings.fetched or ():
        await files.named(name)
    return files


async def _recording(
    settings: RunSettings,
    files: WorkerFiles | None,
    calls: Calls,
    redactor: Redactor,
    stop: Stop,
) -> RecordingModes:
    """Open the recorder, the recording and the cache that were asked for."""
    if files is None:
        folders = RecordingFolders(
            record=_path(settings.record),
            replay=_path(settings.replay),
            cache=_path(settings.cache),
        )
        return open_recording_modes(folders, redactor, stop)
    return RecordingModes(
        recorder=RemoteRecorder(calls.post, redactor, stop) if settings.record else None,
        recording=Recording(files.folder / REPLAY, redactor) if settings.replay else None,
        cache=RemoteCache(calls, redactor) if settings.cache else None,
    )


def _environment(settings: RunSettings) -> Mapping[str, str]:
    """Return the variables that models may read; a file with more of them may not be on this machine."""
    named = _path(settings.env_file)
    if settings.fetched is not None and named is not None and not named.is_file():
        named = None
    return environment(os.environ, named=named, here=Path()).values


def _with_existing(path: Sequence[str]) -> list[str]:
    """Return where Python is found here, and besides where the run finds it and this machine has that."""
    return [*sys.path, *(each for each in path if each not in sys.path and Path(each).is_dir())]


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


async def work(line: socket.socket) -> None:
    """Work for the run at the other end of *line*."""
    worker: TrialWorker | None = None

    def receive(frame: bytes) -> None:
        if worker is not None:
            worker.receive(frame)

    def on_gone() -> None:
        if worker is not None:
            worker.run_is_gone()

    frames = await connect(line, receive, on_gone)
    worker = TrialWorker(frames.send, open_worker_parts)
    await worker.work()


def main() -> None:
    """Work until the run is over, or gone."""
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    tune_for_one_command()
    line = socket.socket(fileno=fd)
    line.set_inheritable(False)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work(line))


if __name__ == "__main__":
    main()
