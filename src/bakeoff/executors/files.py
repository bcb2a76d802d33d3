"""Files of a run for workers on other machines: what they need is fetched, what they make is sent.

Everything that is to be kept ends up where a run in one process keeps it, by the same code: nothing
here needs a file system that all machines share. A file is offered only once a task that names it was
leased, and only under a name made of what it is.
"""

import asyncio
import shutil
import tarfile
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from bakeoff._lib import scratch
from bakeoff._lib.digest import LEFT_OUT, digest, tree_digest
from bakeoff._lib.redact import Redactor
from bakeoff.core.attachment import AttachedBytes, Attachment
from bakeoff.core.errors import BakeoffError, LedgerError, SandboxError
from bakeoff.core.outcome import Completion, Request
from bakeoff.core.plan import Trial
from bakeoff.core.ports import Checkpoint, Checkpoints, Entry
from bakeoff.core.stop import Stop
from bakeoff.core.task import Task
from bakeoff.core.workspace import Reference, Tree, Workspace
from bakeoff.executors.link import Post
from bakeoff.executors.turns import Calls
from bakeoff.executors.wire import (
    Fetch,
    Fetched,
    Held,
    KeepAnswer,
    KeepAttachment,
    KeepExchange,
    KeepStep,
    Lookup,
    Unkept,
)
from bakeoff.models.recording.recorder import Exchange, Requester, line_of
from bakeoff.models.recording.replay import RecordingModes, cache_key
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.workspaces.pristine import RefCache, fetch_repository, repository_folder
from bakeoff.workspaces.threads import ThreadWork, in_thread

_PART = 4 << 20  # bytes of a file that go in one message
_MOST_IDLE = 64  # files that are kept packed, or unpacked, although nobody needs them now

_completion = msgspec.json.Decoder(Completion)


@dataclass(frozen=True, kw_only=True)
class TaskInput:
    """Something on the disk that a task names: a file, a folder, or a commit of a repository."""

    name: str
    path: str
    tree: Tree | None = None

    @property
    def commit(self) -> str | None:
        """The commit, where it is one."""
        return None if self.tree is None else self.tree.commit


def inputs_of(task: Task) -> Iterator[TaskInput]:
    """Yield what *task* needs from the disk."""
    for attachment in task.attachments:
        yield TaskInput(name=attachment.blob, path=attachment.path)
    workspace = task.workspace
    if workspace is None:
        return
    for tree in _trees(workspace):
        yield TaskInput(name=_tree_name(tree), path=tree.path, tree=tree)
    if workspace.reference is not None:
        yield _reference_input(workspace.reference)


def _trees(workspace: Workspace) -> Iterator[Tree]:
    yield from (*workspace.files, *workspace.hidden, *workspace.shown)
    if workspace.image is not None and workspace.image.context is not None:
        yield workspace.image.context


def _tree_name(tree: Tree) -> str:
    return digest([tree.path, tree.commit, tree.digest, list(tree.left_out)])[:32]


def _reference_input(reference: Reference) -> TaskInput:
    """Return what *reference* is made of: a script is run with the files beside it."""
    path = reference.path if reference.kind != "script" else str(Path(reference.path).parent)
    return TaskInput(name=digest(["reference", path])[:32], path=path)


def _with_paths(task: Task, places: Mapping[str, str]) -> Task:
    """Return *task* with its folders where *places* says that the inputs with their names are."""
    workspace = task.workspace
    if workspace is None:
        return task

    def moved(tree: Tree) -> Tree:
        return replace(tree, path=places[_tree_name(tree)]) if not tree.commit else tree

    image, reference = workspace.image, workspace.reference
    if image is not None and image.context is not None:
        image = replace(image, context=moved(image.context))
    if reference is not None:
        place = Path(places[_reference_input(reference).name])
        place = place / Path(reference.path).name if reference.kind == "script" else place
        reference = replace(reference, path=str(place))
    local = replace(
        task,
        workspace=replace(
            workspace,
            files=tuple(map(moved, workspace.files)),
            hidden=tuple(map(moved, workspace.hidden)),
            shown=tuple(map(moved, workspace.shown)),
            image=image,
            reference=reference,
        ),
    )
    local.__dict__["digest"] = task.digest
    return local


# --- on the side of the run -----------------------------------------------------------------------


class RunFiles:
    """What workers may fetch of a run, and where that which they send is kept."""

    def __init__(
        self,
        *,
        attachments: AttachmentStore,
        checkpoints: Checkpoints,
        recording: RecordingModes,
        named: Mapping[str, Path],
        repositories: Path,
    ) -> None:
        self._attachments = attachments
        self._checkpoints = checkpoints
        self._recording = recording
        self._repositories = repositories
        self._offered = {name: TaskInput(name=name, path=str(path)) for name, path in named.items()}
        self._packed: RefCache[Path] = RefCache(max_idle=_MOST_IDLE, discard=_discard)
        self._folder = scratch.new_folder("packed")

    async def close(self) -> None:
        """Remove what was packed."""
        await self._packed.close()
        scratch.remove(self._folder)

    def offer(self, task: Task) -> None:
        """Let workers fetch what *task* needs."""
        for each in inputs_of(self._attachments.task(task)):
            self._offered.setdefault(each.name, each)

    async def part(self, fetch: Fetch) -> Fetched:
        """Return a part of a file that was offered; of a folder, of an archive of it."""
        source = self._offered.get(fetch.name)
        try:
            if source is None:
                raise SandboxError(f"{fetch.name} is no file of a task that was leased")
            async with self._packed.acquire(source.name, lambda: self._pack(source)) as path:
                data, size = await asyncio.to_thread(_read_part, path, fetch.offset)
        except (OSError, BakeoffError) as error:
            return Fetched(fetch.call, None, 0, why=str(error))
        return Fetched(fetch.call, data, size, is_folder=path.parent == self._folder)

    async def _pack(self, source: TaskInput) -> Path:
        """Return *source* as one file: itself, or an archive in our folder."""
        path = Path(source.path)
        if source.commit is None and await asyncio.to_thread(path.is_file):
            return path
        packed = self._folder / f"{source.name}.tar"
        await in_thread(_write_archive, source, packed, cache=self._repositories)
        return packed

    def steps(self, trial: Trial) -> bytes:
        """Return the steps of *trial* that were saved before."""
        return msgspec.json.encode(self._checkpoints.of(trial).recorded())

    async def answer(self, key: str) -> bytes | None:
        """Return the cached answer to what has this *key*."""
        cache = self._recording.cache
        kept = None if cache is None else await cache.get(key)
        return None if kept is None else msgspec.json.encode(kept)

    async def keep_step(self, message: KeepStep, trial: Trial) -> None:
        """Save a step of *trial*."""
        entry: Entry = msgspec.json.decode(message.entry)
        await self._checkpoints.of(trial).add(entry, at=message.at)

    def keep_attachment(self, message: KeepAttachment) -> None:
        """Keep a picture or a file of a transcript."""
        self._attachments.keep(AttachedBytes.of(message.data, "an attachment", name=message.name))

    def keep_exchange(self, message: KeepExchange) -> None:
        """Keep an exchange with a model in the recording."""
        if self._recording.recorder is not None:
            self._recording.recorder.write(message.line)

    def keep_answer(self, message: KeepAnswer) -> None:
        """Keep an answer in the cache."""
        if self._recording.cache is not None:
            completion = _completion.decode(message.completion)
            self._recording.cache.put(message.key, message.model, completion)


async def _discard(path: Path) -> None:
    if path.suffix == ".tar" and scratch.base() in path.parents:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _read_part(path: Path, offset: int) -> tuple[bytes, int]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(offset)
        return file.read(_PART), size


def _write_archive(work: ThreadWork, source: TaskInput, into: Path, *, cache: Path) -> None:
    folder, left_out = Path(source.path), LEFT_OUT
    if source.tree is not None and source.commit is not None:
        folder, left_out = fetch_repository(work, source.tree, cache), frozenset()
    elif source.tree is not None:
        left_out |= frozenset(source.tree.left_out)
    if not folder.is_dir():
        raise SandboxError(f"{folder} is not there any more; the task needs it")

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        work.check_cancelled()
        return None if Path(member.name).name in left_out else member

    with tarfile.open(into, "w") as archive:
        archive.add(folder, arcname=".", filter=wanted)


class FileGiver:
    """Serves one worker with the files of the run."""

    def __init__(
        self,
        files: RunFiles,
        post: Post,
        trial_of: Callable[[int], Trial | None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._files = files
        self._post = post
        self._trial_of = trial_of
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def handlers(self) -> dict[type, Callable[..., None]]:
        """What to call with each message."""
        files = self._files
        return {
            Fetch: lambda message: self._start(self._fetch(message)),
            Lookup: lambda message: self._start(self._lookup(message)),
            KeepStep: lambda message: self._start(self._keep_step(message)),
            KeepAttachment: self._or_fail(files.keep_attachment),
            KeepExchange: self._or_fail(files.keep_exchange),
            KeepAnswer: self._or_fail(files.keep_answer),
        }

    def close(self) -> None:
        """Serve nobody any more."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _or_fail(self, keep: Callable[[Any], None]) -> Callable[[Any], None]:
        def kept(message: object) -> None:
            try:
                keep(message)
            except BakeoffError as error:  # the run cannot go on where nothing can be kept
                self._on_failure(error)

        return kept

    async def _fetch(self, message: Fetch) -> None:
        self._post(await self._files.part(message))

    async def _lookup(self, message: Lookup) -> None:
        if message.key:
            data = await self._files.answer(message.key)
        else:
            trial = self._trial_of(message.job)
            data = None if trial is None else self._files.steps(trial)
        self._post(Fetched(message.call, data, len(data or b"")))

    async def _keep_step(self, message: KeepStep) -> None:
        if (trial := self._trial_of(message.job)) is None:
            return  # it was cancelled meanwhile
        try:
            await self._files.keep_step(message, trial)
        except LedgerError as error:
            self._post(Unkept(message.call, str(error)))
        else:
            self._post(Held(message.call))


# --- on the side of a worker ----------------------------------------------------------------------


class WorkerFiles:
    """The files of a run, as a worker on another machine has them: in a private *folder*."""

    def __init__(self, calls: Calls, folder: Path, *, repositories: Path) -> None:
        self._calls = calls
        self.folder = folder
        self._inputs = folder / "inputs"
        self._inputs.mkdir()
        self._repositories = repositories
        self._fetched: RefCache[Path] = RefCache(max_idle=_MOST_IDLE, discard=_remove)
        self._sent: set[str] = set()
        self._trials: dict[str, tuple[int, list[Entry]]] = {}

    async def close(self) -> None:
        """Remove what was fetched."""
        await self._fetched.close()

    async def named(self, name: str) -> Path:
        """Fetch a file of the run that settings name, and keep it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        await self._fetch(name, path)
        return path

    @asynccontextmanager
    async def local(self, trial: Trial, job: int) -> AsyncIterator[Trial]:
        """Hold everything that *trial* needs here; yield it with the places where that is."""
        store = AttachmentStore(self.folder)
        places: dict[str, str] = {}
        steps: list[Entry] = []
        if trial.task.dialogue is not None:
            steps = await self._steps(job)
        async with AsyncExitStack() as stack:
            for each in inputs_of(trial.task):
                held = self._fetched.acquire(each.name, self._maker(each))
                place = await stack.enter_async_context(held)
                places[each.name] = str(place)
            for attachment in trial.task.attachments:
                kept = Path(store.kept(attachment).path)
                await asyncio.to_thread(_copy, Path(places[attachment.blob]), kept)
            self._trials[trial.name] = job, steps
            try:
                task = _with_paths(trial.task, places)
                yield replace(trial, task=task)
            finally:
                self._trials.pop(trial.name, None)

    def of(self, trial: Trial) -> Checkpoint:
        """Return the checkpoint of *trial*."""
        job, steps = self._trials[trial.name]
        return _RemoteCheckpoint(self._calls, job, steps)

    def keep_said(self, attachment: Attachment) -> None:
        """Send the content of *attachment* of a transcript; an agent may have removed it since."""
        there = isinstance(attachment, AttachedBytes) or Path(attachment.path).is_file()
        if attachment.blob not in self._sent and there:
            self._sent.add(attachment.blob)
            self._calls.post(KeepAttachment(attachment.name, attachment.read()))

    def task(self, task: Task) -> Task:
        """Return *task* with the copies of its attachments that are here."""
        return AttachmentStore(self.folder).task(task)

    async def _steps(self, job: int) -> list[Entry]:
        found = await self._calls.ask(lambda call: Lookup(call, job, ""))
        return [] if found.data is None else msgspec.json.decode(found.data)

    def _maker(self, source: TaskInput) -> Callable[[], Awaitable[Path]]:
        async def make() -> Path:
            tree = source.tree
            if tree is not None and tree.commit is not None:
                return await self._repository(source, tree)
            if tree is not None and await asyncio.to_thread(_is_here, tree):
                return Path(tree.path)
            return await self._fetch(source.name, self._inputs / source.name)

        return make

    async def _repository(self, source: TaskInput, tree: Tree) -> Path:
        """Fetch a repository to where workspaces look for it, for all workers of this machine."""
        place = repository_folder(tree, self._repositories)
        if not place.is_dir():
            self._repositories.mkdir(parents=True, exist_ok=True)
            fetched = await self._fetch(source.name, self._inputs / source.name)
            new = place.with_name(f"{self.folder.name}-{place.name}")
            await asyncio.to_thread(shutil.copytree, fetched, new, symlinks=True)
            await asyncio.to_thread(_move, new, place)
            await asyncio.to_thread(scratch.remove, fetched)
        return place

    async def _fetch(self, name: str, into: Path) -> Path:
        """Fetch what the run calls *name* to the path *into*."""
        packed = into.with_name(f"{into.name}.part")
        packed.unlink(missing_ok=True)
        offset, size, is_folder = 0, 1, False
        while offset < size:
            start = offset
            part = await self._calls.ask(lambda call: Fetch(call, name, start))  # noqa: B023
            if part.data is None:
                raise SandboxError(f"a file of the run is not available: {part.why}")
            await asyncio.to_thread(_append, packed, part.data)
            size, is_folder = part.size, part.is_folder
            offset += len(part.data)
            if not part.data:
                break
        await asyncio.to_thread(_put, packed, into, is_folder)
        return into


class _RemoteCheckpoint:
    """The steps of one trial, which the run keeps."""

    def __init__(self, calls: Calls, job: int, steps: Sequence[Entry]) -> None:
        self._calls = calls
        self._job = job
        self._steps = steps

    def recorded(self) -> Sequence[Entry]:
        """Return the steps that were saved before."""
        return self._steps

    async def add(self, entry: Entry, *, at: int) -> None:
        """Save one more step; it is on the disk of the run when this returns."""
        data = msgspec.json.encode(entry)
        kept = await self._calls.ask(lambda call: KeepStep(call, self._job, at, data))
        if isinstance(kept, Unkept):
            raise LedgerError(kept.why)


class RemoteRecorder:
    """The recording of the run, as one of its workers has it."""

    def __init__(self, post: Post, redactor: Redactor, stop: Stop) -> None:
        self.redactor = redactor
        self.tally: Counter[str] = Counter()
        self._post = post
        self._stop = stop

    @property
    def ending(self) -> bool:
        """Whether what is cut now is cut by the end of the run, not by a trial's own limit."""
        return self._stop.requested

    def keep(self, exchange: Exchange) -> None:
        """Send *exchange*."""
        self.write(line_of(exchange, self.redactor))

    def write(self, line: bytes) -> None:
        """Send the line of an exchange."""
        self._post(KeepExchange(line))

    def words(self) -> list[str]:
        """Return nothing: the run counts."""
        return []

    def close(self) -> None:
        """Do nothing: there is no file here."""


class RemoteCache:
    """The cache of the run, as one of its workers has it."""

    def __init__(self, calls: Calls, redactor: Redactor) -> None:
        self.tally: Counter[str] = Counter()
        self._calls = calls
        self._redactor = redactor

    def key_of(self, request: Request, requester: Requester) -> str:
        """Return the key of a request."""
        return cache_key(request, requester, self._redactor)

    async def get(self, key: str) -> Completion | None:
        """Return the answer cached under *key*."""
        found = await self._calls.ask(lambda call: Lookup(call, 0, key))
        return None if found.data is None else _completion.decode(found.data)

    def put(self, key: str, model: str, completion: Completion) -> None:
        """Cache an answer, unless there is one."""
        self._calls.post(KeepAnswer(key, model, msgspec.json.encode(completion)))

    def words(self) -> list[str]:
        """Return nothing: the run counts."""
        return []

    def close(self) -> None:
        """Do nothing: there is no file here."""


def _is_here(tree: Tree) -> bool:
    """Whether the folder of *tree* is on this machine under the same path, and is the same."""
    folder = Path(tree.path)
    return folder.is_dir() and tree_digest(folder, without=tree.left_out) == tree.digest


def _copy(path: Path, into: Path) -> None:
    into.parent.mkdir(exist_ok=True)
    if not into.exists():
        shutil.copyfile(path, into)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _put(packed: Path, into: Path, is_folder: bool) -> None:  # noqa: FBT001 -- one of two kinds
    if into.is_dir():
        scratch.remove(into)
    if not is_folder:
        packed.rename(into)
        return
    with tarfile.open(packed) as archive:
        archive.extractall(into, filter="fully_trusted")  # noqa: S202 -- the run made it
    packed.unlink()


def _move(new: Path, place: Path) -> None:
    try:
        new.rename(place)
    except OSError:
        scratch.remove(new)
        if not place.is_dir():
            raise  # not lost to another worker, so something else is wrong


async def _remove(path: Path) -> None:
    if path.parent.name == "inputs":
        await asyncio.to_thread(scratch.remove, path)
