"""A worker process of a run: `python -m bakeoff.app.run_worker FD`, started by the run."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

from bakeoff._lib.process_setup import rare_collections, tune_for_one_command
from bakeoff._lib.redact import Redactor
from bakeoff.app.known_secrets import learn_plan
from bakeoff.app.pricing import prices_in
from bakeoff.app.run import new_event_loop
from bakeoff.app.trial_parts import Parts, SharedTrialParts
from bakeoff.app.workspaces import choose, opened_services
from bakeoff.core.plan import Block, Plan
from bakeoff.core.stop import Stop
from bakeoff.executors.processes import connect, die_with_parent
from bakeoff.executors.trial_worker import TrialWorker
from bakeoff.executors.wire import RunSettings
from bakeoff.formats.text.env import environment
from bakeoff.models.limits.settings import Limiters
from bakeoff.models.recording.replay import RecordingFolders, open_recording_modes
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.stores.checkpoints import FileCheckpoints


@asynccontextmanager
async def open_worker_parts(
    settings: RunSettings, limiters: Limiters, stop: Stop
) -> AsyncIterator[SharedTrialParts]:
    """Build every model, agent and sandbox of the run anew, here; the run has checked them all."""
    sys.path[:] = settings.path
    folders = tuple(map(Path, settings.folders))
    environ = environment(os.environ, named=_path(settings.env_file), here=Path()).values
    block = Block(tasks=(), candidates=settings.candidates)
    plan = Plan(blocks=(block,), conditions=settings.conditions)
    redactor = Redactor()
    learn_plan(plan, environ, redactor)
    recording_folders = RecordingFolders(
        record=_path(settings.record), replay=_path(settings.replay), cache=_path(settings.cache)
    )
    async with AsyncExitStack() as stack:
        recording = open_recording_modes(recording_folders, redactor, stop)
        stack.enter_context(closing(recording))
        sources = Parts(
            redactor=redactor,
            environ=environ,
            folders=folders,
            recording=recording,
            prices=prices_in(settings.prices),
            limiters=limiters,
        )
        services = None
        if settings.sandbox is not None:
            sandbox = choose(settings.sandbox, environ=environ, images=False, folders=folders)
            services = await stack.enter_async_context(
                opened_services(sandbox, environ=environ, run=settings.run)
            )
        parts = SharedTrialParts(plan, sources, workspace_services=services)
        stack.push_async_callback(parts.close)
        folder = Path(settings.folder)
        parts.attachments = AttachmentStore(folder)
        parts.has_attachments = settings.has_attachments
        parts.checkpoints = FileCheckpoints(folder, redactor)
        with rare_collections():
            yield parts


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
