"""Coding tasks in folders, one or many: our own, prepared ones, and Harbor's."""

from pathlib import Path

from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec, Source
from bakeoff.core.task import Task
from bakeoff.formats.detect import (
    INSTRUCTION,
    OLD_TERMINAL_BENCH,
    PREPARED_META,
    SETTINGS,
    TaskFolderFormat,
    format_of_task_folder,
    is_task_folder,
)
from bakeoff.formats.harbor import read_harbor_task
from bakeoff.formats.native_task import read_native_task
from bakeoff.formats.prepared import PreparedDir, read_prepared
from bakeoff.formats.text.convert import as_given, placed_as_given
from bakeoff.formats.text.problems import Problems
from bakeoff.formats.text.toml import read_toml


def read_tasks(path: Path) -> RunSpec:
    """Return the task in the folder *path*, or those in the folders in it.

    Folders whose name begins with a dot or an underscore are left out. What is wrong is told for
    all tasks at once.
    """
    folders = [path] if is_task_folder(path) else _task_folders(path)
    tasks: dict[str, Task] = {}
    problems = Problems()
    for folder in folders:
        with problems.gathered():
            task = read_task_folder(folder)
            if task.id in tasks:
                raise UsageError(
                    f"{folder}: task {task.id!r} is defined twice; give each its own `id`"
                )
            tasks[task.id] = task
    problems.raise_any()
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
        files = [
            file for ending in ("toml", "json", "md") for file in sorted(path.glob(f"*.{ending}"))
        ]
        hint = f"; to run a file that is in it, name the file: {files[0]}" if files else ""
        raise UsageError(
            f"{path}: there is no task in this folder; a task is a folder with an {INSTRUCTION}{hint}"
        )
    return folders


def read_task_folder(path: Path) -> Task:
    """Return the task in the folder *path*; every path in it is absolute."""
    with as_given(path):
        return placed_as_given(_read(path.resolve()), path)


def _read(path: Path) -> Task:
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder")
    has_settings = (path / SETTINGS).is_file() and not (path / PREPARED_META).is_file()
    data, text = read_toml(path / SETTINGS) if has_settings else ({}, "")
    match format_of_task_folder(path, data):
        case TaskFolderFormat.PREPARED:
            return _prepared(path)
        case TaskFolderFormat.HARBOR:
            return read_harbor_task(path, data, text)
        case TaskFolderFormat.NATIVE:
            return read_native_task(path, data, text)
        case TaskFolderFormat.OLD_TERMINAL_BENCH:
            raise UsageError(
                f"{path}: this is a task of the first Terminal-Bench ({OLD_TERMINAL_BENCH}), which "
                f"is not read here; `harbor tasks migrate -i OLD -o NEW` makes one of the newer "
                "format of it"
            )


def _prepared(path: Path) -> Task:
    task = read_prepared(PreparedDir(folder=path, shown=str(path)))
    if task.trouble is not None:
        raise UsageError(task.trouble)
    return task
