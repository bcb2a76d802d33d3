"""The front door for coding tasks: a folder each, of our own, prepared, or Harbor's; many are a suite."""

from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec, Source
from bakeoff.core.task import Task
from bakeoff.formats.harbor import is_harbor, read_harbor_task
from bakeoff.formats.native_task import INSTRUCTION, SETTINGS, read_native_task
from bakeoff.formats.prepared import PreparedDir, read_prepared
from bakeoff.formats.prepared_files import META
from bakeoff.formats.text.convert import as_given, placed_as_given
from bakeoff.formats.text.toml import read_toml

_OLD_TERMINAL_BENCH = "task.yaml"
_MARKS = (INSTRUCTION, SETTINGS, META, _OLD_TERMINAL_BENCH)


def is_task_folder(path: Path) -> bool:
    """Whether *path* is the folder of one task."""
    return path.is_dir() and any((path / mark).is_file() for mark in _MARKS)


def read_tasks(path: Path) -> RunSpec:
    """Return the task in the folder *path*, or those in the folders in it.

    Folders whose name begins with a dot or an underscore are left out. What is wrong is told for
    all tasks at once.
    """
    folders = [path] if is_task_folder(path) else _task_folders(path)
    tasks: dict[str, Task] = {}
    wrong: list[str] = []
    for folder in folders:
        try:
            task = read_task_folder(folder)
        except UsageError as error:
            wrong.append(str(error))
            continue
        if task.id in tasks:
            wrong.append(f"{folder}: task {task.id!r} is there twice; give each its own `id`")
        tasks[task.id] = task
    if wrong:
        raise UsageError("\n".join(wrong))
    sources = (
        Source(path=str(folder.resolve()), digest=task.digest)
        for folder, task in zip(folders, tasks.values(), strict=True)
    )
    return RunSpec(name=path.resolve().name, tasks=tuple(tasks.values()), sources=tuple(sources))


def _task_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder")
    folders = [
        folder
        for folder in sorted(path.iterdir())
        if not folder.name.startswith((".", "_")) and is_task_folder(folder)
    ]
    if not folders:
        files = (
            sorted(path.glob("*.toml")) + sorted(path.glob("*.json")) + sorted(path.glob("*.md"))
        )
        hint = f"; to run a file that is in it, name the file: {files[0]}" if files else ""
        raise UsageError(
            f"{path}: no task is in this folder; a task is a folder with an {INSTRUCTION}{hint}"
        )
    return folders


def read_task_folder(path: Path) -> Task:
    """Return the task in the folder *path*; every path in it is absolute."""
    with as_given(path):
        return placed_as_given(_read(path.resolve()), path)


def _read(path: Path) -> Task:
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder")
    if (path / META).is_file():
        return _prepared(path)
    if (path / _OLD_TERMINAL_BENCH).is_file() and not (path / SETTINGS).is_file():
        raise UsageError(
            f"{path}: this is a task of the first Terminal-Bench ({_OLD_TERMINAL_BENCH}), which is "
            f"not read here; `harbor tasks migrate -i OLD -o NEW` makes one of the newer format of it"
        )
    data, text = read_toml(path / SETTINGS) if (path / SETTINGS).is_file() else ({}, "")
    if is_harbor(path, data):
        return read_harbor_task(path, data, text)
    return read_native_task(path, data, text)


def _prepared(path: Path) -> Task:
    task = read_prepared(PreparedDir(folder=path, shown=str(path)))
    if task.trouble is not None:
        raise UsageError(task.trouble)
    return task
