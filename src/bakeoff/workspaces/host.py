"""Workspaces on this host: opened for an agent, read as a change, opened again for grading."""

import os
import posixpath
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bakeoff._lib import scratch
from bakeoff._lib.digest import digest
from bakeoff._lib.process import run_to_completion
from bakeoff._lib.sanitize import for_terminal, one_line
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import ChangeTooLargeError, SandboxError
from bakeoff.core.sandbox import (
    Box,
    BoxSpec,
    Command,
    GatewayAddress,
    GradingSpec,
    GradingWorkspace,
    Mount,
    OpenWorkspace,
    Sandbox,
)
from bakeoff.core.task import Task
from bakeoff.core.workspace import Change, Workspace
from bakeoff.workspaces import archive, grading, pristine
from bakeoff.workspaces.globs import path_parts
from bakeoff.workspaces.grading import WorkspaceFiles
from bakeoff.workspaces.pristine import Pristine, RefCache
from bakeoff.workspaces.protection import Protection
from bakeoff.workspaces.threads import in_thread

_MAX_IDLE = 8
_ERROR_LINES = 8  # lines of a set-up command that failed
_ENVIRONMENT = {
    # git in the box must accept files that belong to another user
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    # Python reuses stale bytecode where a file changes twice within a second, as with agents
    "PYTHONDONTWRITEBYTECODE": "1",
}


@value_object
class HostWorkspace:
    """An open box and its files; `files` is None where they all come from an image."""

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

    *cache* keeps repositories for later runs; everything else is removed by `close`.
    """

    def __init__(self, *, sandbox: Sandbox, cache: Path, run: str) -> None:
        self._sandbox = sandbox
        self._cache = cache
        self._run = run
        self._pristine_cache: RefCache[Pristine] = RefCache(max_idle=_MAX_IDLE, discard=_discard)

    async def close(self) -> None:
        """Release what is held for the whole run, and wait until closed workspaces are removed."""
        await self._pristine_cache.close()
        await in_thread(lambda _: scratch.wait_removed())

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
        """Open the agent's workspace: the files with one commit, set up, without hidden files."""
        workspace = _workspace(task)
        async with AsyncExitStack() as stack:
            files = await self._copy_files(stack, workspace, will_be_read=True)
            spec = await self._spec(workspace, label, files)
            spec = replace(
                spec,
                mounts=(*_shown_mounts(workspace), *mounts),
                gateway=gateway,
                network=workspace.network,
                environment={**spec.environment, **environment},
            )
            box = await self._open_box(stack, spec)
            await _set_up(box, workspace)
            if workspace.setup and files is not None:
                await _check_shared(box, workspace, files)
                files = await in_thread(grading.after_set_up, files)
            yield HostWorkspace(box=box, files=files)

    async def change(self, task: Task, workspace: OpenWorkspace) -> Change:
        """Stop the box of *workspace* and return what was changed in it."""
        await workspace.box.stop()
        if _workspace(task).whole_box:
            packed, gone = await workspace.box.change()
            count = await in_thread(archive.count_files, packed)
            return Change(patch="", files=count + len(gone), archive=packed, gone=gone)
        if not isinstance(workspace, HostWorkspace) or workspace.files is None:
            raise SandboxError("this workspace was not opened here, so its change cannot be read")
        if (
            workspace.folder is None
            or workspace.folder.is_symlink()
            or not workspace.folder.is_dir()
        ):
            raise ChangeTooLargeError("the agent removed the folder that it works in")
        return await in_thread(grading.change, workspace.files)

    @asynccontextmanager
    async def open_for_grading(
        self,
        task: Task,
        change: Change | None,
        *,
        label: str,
        spec: GradingSpec = GradingSpec(),  # noqa: B008 -- frozen
    ) -> AsyncIterator[GradingWorkspace]:
        """Open a fresh workspace: the pristine files, then the change, then the hidden files."""
        workspace, protection = _workspace(task), _protection(task, spec)
        async with AsyncExitStack() as stack:
            source = await self._pristine(stack, workspace)
            shown = (*_shown_mounts(workspace), *_hidden_mounts(source), *spec.mounts)
            # set-up commands and whole-box verifiers may have to install packages
            network = workspace.network if workspace.setup or workspace.whole_box else False
            files = await self._copy_files(stack, workspace, will_be_read=bool(workspace.setup))
            box_spec = await self._spec(workspace, label, files)
            box_spec = replace(box_spec, mounts=shown, network=network, grading=True)
            if files is None:
                texts = _text_mounts(stack, workspace, spec.texts)
                box_spec = replace(box_spec, mounts=(*shown, *texts))
                yield await self._open_whole_box(stack, workspace, box_spec, change, protection)
                return
            files = replace(files, texts=spec.texts)
            if not workspace.setup:
                files = await in_thread(grading.prepare_grading, files, change, protection)
                pinned = grading.pinned_mounts
                mounts = await in_thread(pinned, files, workspace.root, spec.read_once)
                box_spec = replace(box_spec, pinned=mounts)
            box = await self._open_box(stack, box_spec)
            if workspace.setup:
                await _set_up(box, workspace)
                await _check_shared(box, workspace, files)
                files = await in_thread(grading.after_set_up, files)
                files = await in_thread(grading.prepare_grading, files, change, protection)
            yield HostWorkspace(
                box=box, files=files, undone=files.undone, new_modules=files.new_modules
            )

    async def _open_whole_box(
        self,
        stack: AsyncExitStack,
        workspace: Workspace,
        spec: BoxSpec,
        change: Change | None,
        protection: Protection,
    ) -> HostWorkspace:
        """Return a grading workspace whose files all come from an image and the change of a box."""
        undone: tuple[str, ...] = ()
        if change is not None and change.archive is not None:
            covered = [mount.target for mount in spec.mounts]
            packed, gone, undone = await in_thread(
                archive.filter_for_grading, change, workspace, protection, covered
            )
            spec = replace(spec, archive=packed, gone=gone)
        box = await self._open_box(stack, spec)
        if spec.archive is None:
            await _set_up(box, workspace)  # otherwise its results are in the archive
        return HostWorkspace(box=box, files=None, undone=undone)

    async def _pristine(self, stack: AsyncExitStack, workspace: Workspace) -> Pristine:
        paths = [tree.path for tree in (*workspace.files, *workspace.hidden)]

        async def build() -> Pristine:
            return await in_thread(pristine.build, workspace, cache=self._cache)

        key = digest([workspace.identity(), paths])
        return await stack.enter_async_context(self._pristine_cache.acquire(key, build))

    async def _copy_files(
        self, stack: AsyncExitStack, workspace: Workspace, *, will_be_read: bool
    ) -> WorkspaceFiles | None:
        """Return a private copy of the files; None where they all come from an image."""
        if workspace.whole_box:
            return None
        source = await self._pristine(stack, workspace)
        folder = scratch.new_folder("room")
        stack.push_async_callback(_remove_folder, folder)
        return await in_thread(grading.copy_pristine, folder, source, will_be_read=will_be_read)

    async def _spec(
        self, workspace: Workspace, label: str, files: WorkspaceFiles | None
    ) -> BoxSpec:
        return BoxSpec(
            label=f"{self._run} {label}",
            folder=None if files is None else files.folder,
            root=workspace.root,
            workdir=workspace.start,
            image=await self._sandbox.image(workspace.image),
            environment={**_ENVIRONMENT, **workspace.environment},
            limits=workspace.limits,
        )

    async def _open_box(self, stack: AsyncExitStack, spec: BoxSpec) -> Box:
        box = await self._sandbox.open(spec)
        stack.push_async_callback(_close_box, box)
        return box


def _workspace(task: Task) -> Workspace:
    if task.workspace is None:
        raise SandboxError(f"task {task.id!r} has no workspace")
    return task.workspace


def _protection(task: Task, spec: GradingSpec) -> Protection:
    workspace = _workspace(task)
    start = "/".join(path_parts(workspace.workdir))
    tops = {top.encode() for top in ("", start, "src", f"{start}/src".lstrip("/"))}
    prompt = "\n".join(message.content for message in task.messages)
    return Protection(
        patterns=(*workspace.protected, *spec.protected),
        tops=tops | set(_python_path(workspace, spec.environment)),
        asked_for=prompt,
        trusts_system=workspace.trust_system_changes,
    )


def _python_path(workspace: Workspace, environment: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the folders of the workspace on Python's import path."""
    python_path = {**workspace.environment, **environment}.get("PYTHONPATH", "")
    for entry in filter(None, python_path.split(":")):
        folder = posixpath.normpath(posixpath.join(workspace.start, entry))
        inside = posixpath.relpath(folder, workspace.root)
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
    folder = scratch.new_folder("texts")
    stack.push_async_callback(_remove_folder, folder)
    mounts = []
    for number, (name, text) in enumerate(texts.items()):
        file = folder / str(number)
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        file.chmod(0o755)
        mounts.append(Mount(source=str(file), target=posixpath.join(workspace.root, name)))
    return mounts


def _hidden_mounts(source: Pristine) -> tuple[Mount, ...]:
    return tuple(
        Mount(source=str(folder), target=at) for at, folder in grading.hidden_outside_root(source)
    )


async def _set_up(box: Box, workspace: Workspace) -> None:
    for line in workspace.setup:
        ran = await box.run(Command(argv=("sh", "-c", line), time_s=workspace.limits.setup_s))
        if ran.code == 0:
            continue
        how = ran.stopped or f"it ended with code {ran.code}"
        output = " / ".join(for_terminal(ran.output).strip().splitlines()[-_ERROR_LINES:])
        raise SandboxError(f"the set-up command {one_line(line)!r} failed ({how}): {output}")


async def _check_shared(box: Box, workspace: Workspace, files: WorkspaceFiles) -> None:
    """Raise where the box works on a copy of the files, so that set-up results are not shared."""
    probe = f".bakeoff-{secrets.token_hex(8)}"
    (files.folder / probe).touch()
    try:
        ran = await box.run(Command(argv=("test", "-e", f"{workspace.root}/{probe}"), time_s=60.0))
    finally:
        (files.folder / probe).unlink(missing_ok=True)
    if ran.code != 0:
        raise SandboxError(
            "this sandbox works on a copy of the files, which set-up commands do not allow; do in "
            "the task's image what its `setup` does, or choose another: --sandbox docker"
        )


async def _close_box(box: Box) -> None:
    await run_to_completion(box.close())


async def _remove_folder(folder: Path) -> None:
    await in_thread(lambda _: scratch.remove_later(folder))


async def _discard(source: Pristine) -> None:
    await _remove_folder(source.folder)
