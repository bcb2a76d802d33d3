"""The bench of the host: the agent's room, its change, and the clean room in which it is graded."""

import os
import posixpath
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from bakeoff._lib import scratch
from bakeoff._lib.digest import digest
from bakeoff._lib.phrasing import noun
from bakeoff._lib.process import uncancelled
from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff.core.errors import ChangeTooLargeError, SandboxError
from bakeoff.core.sandbox import (
    Box,
    BoxSpec,
    Command,
    GatewayAddress,
    GradingWorkspace,
    Mount,
    OpenWorkspace,
    Sandbox,
)
from bakeoff.core.task import Task
from bakeoff.core.workspace import Change, Workspace
from bakeoff.workspaces import archive, pristine
from bakeoff.workspaces import grading as files
from bakeoff.workspaces.git import RefCache
from bakeoff.workspaces.globs import parts_of
from bakeoff.workspaces.grading import WorkspaceFiles
from bakeoff.workspaces.pristine import Pristine
from bakeoff.workspaces.protection import Protection
from bakeoff.workspaces.threads import in_thread

_SPARE = 8
_SAID = 8  # lines of a set-up command that failed
_ENVIRONMENT = {
    # whoever the box makes of the agent, git there must not mind whose files these are
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    # Python takes kept bytecode for fresh where a file changes twice in a second, as agents do
    "PYTHONDONTWRITEBYTECODE": "1",
}


@noun
class HostWorkspace:
    """An open box and its files; None where the box brings them all."""

    box: Box
    files: WorkspaceFiles | None
    undone: tuple[str, ...] = ()
    new_modules: tuple[str, ...] = ()

    @property
    def folder(self) -> Path | None:
        """The folder on the host that the box shows at its root."""
        return None if self.files is None else self.files.folder


class HostWorkspaces:
    """Sets up workspaces in private folders of this machine, for boxes of one *sandbox*.

    *cache* keeps repositories for later runs; everything else is gone when the bench is closed.
    """

    def __init__(self, *, sandbox: Sandbox, cache: Path, run: str) -> None:
        self._sandbox = sandbox
        self._cache = cache
        self._run = run
        self._shelf: RefCache[Pristine] = RefCache(spare=_SPARE, discard=_discard)

    async def close(self) -> None:
        """Give back what is held for the whole run."""
        await self._shelf.close()

    @asynccontextmanager
    async def open(
        self,
        task: Task,
        *,
        label: str,
        gateway: GatewayAddress | None,
        mounts: tuple[Mount, ...],
        environment: Mapping[str, str],
    ) -> AsyncIterator[OpenWorkspace]:
        """Open the agent's room: the files, one commit, set-up done; nothing hidden."""
        workspace = _workspace(task)
        async with AsyncExitStack() as stack:
            own = await self._own_files(stack, workspace)
            spec = await self._spec(workspace, label, own)
            spec = replace(
                spec,
                mounts=(*_shown_mounts(workspace), *mounts),
                gateway=gateway,
                network=workspace.network,
                environment={**spec.environment, **environment},
            )
            box = await self._opened(stack, spec)
            await _set_up(box, workspace)
            if workspace.setup and own is not None:
                await _check_shared(box, workspace, own)
                own = await in_thread(files.after_set_up, own)
            yield HostWorkspace(box=box, files=own)

    async def change(self, task: Task, workspace: OpenWorkspace) -> Change:
        """Stop the room's box and return what was changed in it."""
        await workspace.box.stop()
        if _workspace(task).whole_box:
            packed, gone = await workspace.box.change()
            count = await in_thread(archive.count_files, packed)
            return Change(patch="", files=count + len(gone), archive=packed, gone=gone)
        if not isinstance(workspace, HostWorkspace) or workspace.files is None:
            raise SandboxError("the room of this change was not opened by this bench")
        if (
            workspace.folder is None
            or workspace.folder.is_symlink()
            or not workspace.folder.is_dir()
        ):
            raise ChangeTooLargeError("the agent removed the folder that it works in")
        return await in_thread(files.change, workspace.files)

    @asynccontextmanager
    async def open_for_grading(
        self,
        task: Task,
        change: Change | None,
        *,
        label: str,
        protected: tuple[str, ...] = (),
        mounts: tuple[Mount, ...] = (),
        texts: Mapping[str, str] = MappingProxyType({}),
        environment: Mapping[str, str] = MappingProxyType({}),
        read_once: tuple[str, ...] = (),
    ) -> AsyncIterator[GradingWorkspace]:
        """Open a fresh room with the pristine files, the change, and only then what is hidden."""
        workspace, protection = _workspace(task), _protection(task, protected, environment)
        async with AsyncExitStack() as stack:
            lent = await self._lent(stack, workspace)
            shown = (*_shown_mounts(workspace), *_hidden_mounts(lent), *mounts)
            # what a set-up or the verifier of a whole machine installs must be within its reach
            network = workspace.network if workspace.setup or workspace.whole_box else False
            own = await self._own_files(stack, workspace)
            spec = await self._spec(workspace, label, own)
            spec = replace(spec, mounts=shown, network=network, grading=True)
            if own is None:
                spec = replace(spec, mounts=(*shown, *_text_mounts(stack, workspace, texts)))
                yield await self._whole(stack, workspace, spec, change, protection)
                return
            own = replace(own, texts=texts)
            if not workspace.setup:
                own = await in_thread(files.prepare_grading, own, change, protection)
                mounts = await in_thread(files.pinned, own, workspace.root, read_once)
                spec = replace(spec, pinned=mounts)
            box = await self._opened(stack, spec)
            if workspace.setup:
                await _set_up(box, workspace)
                await _check_shared(box, workspace, own)
                own = await in_thread(files.after_set_up, own)
                own = await in_thread(files.prepare_grading, own, change, protection)
            yield HostWorkspace(box=box, files=own, undone=own.undone, new_modules=own.new_modules)

    async def _whole(
        self,
        stack: AsyncExitStack,
        workspace: Workspace,
        spec: BoxSpec,
        change: Change | None,
        protection: Protection,
    ) -> HostWorkspace:
        """Return a clean room whose files all come from an image and from the change of a box."""
        undone: tuple[str, ...] = ()
        if change is not None and change.archive is not None:
            covered = [mount.target for mount in spec.mounts]
            packed, gone, undone = await in_thread(
                archive.graded, change, workspace, protection, covered
            )
            spec = replace(spec, archive=packed, gone=gone)
        box = await self._opened(stack, spec)
        if spec.archive is None:
            await _set_up(box, workspace)  # else what it made is in the archive
        return HostWorkspace(box=box, files=None, undone=undone)

    async def _lent(self, stack: AsyncExitStack, workspace: Workspace) -> Pristine:
        paths = [tree.path for tree in (*workspace.files, *workspace.hidden)]

        async def build() -> Pristine:
            return await in_thread(pristine.build, workspace, cache=self._cache)

        key = digest([workspace.identity(), paths])
        return await stack.enter_async_context(self._shelf.lend(key, build))

    async def _own_files(
        self, stack: AsyncExitStack, workspace: Workspace
    ) -> WorkspaceFiles | None:
        """Return a private copy of the files; None where the box brings them all."""
        if workspace.whole_box:
            return None
        lent = await self._lent(stack, workspace)
        place = scratch.new_folder("room")
        stack.push_async_callback(_removed, place)
        return await in_thread(files.furnish, place, lent)

    async def _spec(self, workspace: Workspace, label: str, own: WorkspaceFiles | None) -> BoxSpec:
        return BoxSpec(
            label=f"{self._run} {label}",
            folder=None if own is None else own.folder,
            root=workspace.root,
            workdir=workspace.start,
            image=await self._sandbox.image(workspace.image),
            environment={**_ENVIRONMENT, **workspace.environment},
            limits=workspace.limits,
        )

    async def _opened(self, stack: AsyncExitStack, spec: BoxSpec) -> Box:
        box = await self._sandbox.open(spec)
        stack.push_async_callback(_closed, box)
        return box


def _workspace(task: Task) -> Workspace:
    if task.workspace is None:
        raise SandboxError(f"task {task.id!r} has no workspace")
    return task.workspace


def _protection(task: Task, more: tuple[str, ...], environment: Mapping[str, str]) -> Protection:
    workspace = _workspace(task)
    start = "/".join(parts_of(workspace.workdir))
    tops = {top.encode() for top in ("", start, "src", f"{start}/src".lstrip("/"))}
    told = "\n".join(message.content for message in task.messages)
    return Protection(
        patterns=(*workspace.protected, *more),
        tops=tops | set(_python_path(workspace, environment)),
        asked_for=told,
        trusts_system=workspace.trust_system_changes,
    )


def _python_path(workspace: Workspace, environment: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the folders of the workspace that Python is told to import from."""
    told = {**workspace.environment, **environment}.get("PYTHONPATH", "")
    for folder in filter(None, told.split(":")):
        place = posixpath.normpath(posixpath.join(workspace.start, folder))
        inside = posixpath.relpath(place, workspace.root)
        if inside != ".." and not inside.startswith("../"):
            yield os.fsencode("" if inside == "." else inside)


def _shown_mounts(workspace: Workspace) -> tuple[Mount, ...]:
    return tuple(Mount(source=tree.path, target=tree.at) for tree in workspace.shown)


def _text_mounts(
    stack: AsyncExitStack, workspace: Workspace, texts: Mapping[str, str]
) -> list[Mount]:
    """Return the mounts of *texts* for a box whose files all come from an image."""
    if not texts:
        return []
    place = scratch.new_folder("texts")
    stack.push_async_callback(_removed, place)
    mounts = []
    for number, (name, text) in enumerate(texts.items()):
        file = place / str(number)
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        file.chmod(0o755)
        mounts.append(Mount(source=str(file), target=posixpath.join(workspace.root, name)))
    return mounts


def _hidden_mounts(lent: Pristine) -> tuple[Mount, ...]:
    return tuple(Mount(source=str(place), target=at) for at, place in files.hidden_elsewhere(lent))


async def _set_up(box: Box, workspace: Workspace) -> None:
    for line in workspace.setup:
        ran = await box.run(Command(argv=("sh", "-c", line), time_s=workspace.limits.setup_s))
        if ran.code == 0:
            continue
        how = ran.stopped or f"it ended with code {ran.code}"
        said = " / ".join(for_terminal(ran.output).strip().splitlines()[-_SAID:])
        raise SandboxError(f"the set-up command {one_line(line)!r} failed ({how}): {said}")


async def _check_shared(box: Box, workspace: Workspace, own: WorkspaceFiles) -> None:
    """Raise where the box works on a copy of the files.

    What the set-up made would not be seen here, and what is to be graded would not get there.
    """
    mark = f".bakeoff-{secrets.token_hex(8)}"
    (own.folder / mark).touch()
    try:
        ran = await box.run(Command(argv=("test", "-e", f"{workspace.root}/{mark}"), time_s=60.0))
    finally:
        (own.folder / mark).unlink(missing_ok=True)
    if ran.code != 0:
        raise SandboxError(
            "this sandbox works on a copy of the files, which set-up commands do not allow; do in "
            "the task's image what its `setup` does, or choose another: --sandbox docker"
        )


async def _closed(box: Box) -> None:
    await uncancelled(box.close())


async def _removed(place: Path) -> None:
    await in_thread(lambda _: scratch.remove(place))


async def _discard(lent: Pristine) -> None:
    await _removed(lent.folder)
