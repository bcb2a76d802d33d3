"""The front door for a task in Markdown, with the folder of the same name beside it.

    fix_typo.md        what the agent is told; may begin with front matter
    fix_typo/repo/     the files to work on (or files/, or a repository in the settings, or else the
                       folder that the `**Repo**` line names: markdown_repo.py)
    fix_typo/tests/    hidden; they say whether the work is right
    fix_typo/solution.patch, or solution/

The folder may be missing. Where nothing checks the work, a judge does by the success criteria, if
the run has one; else the work stays unchecked.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from bakeoff._lib.digest import digest_bytes
from bakeoff.config.as_given import as_given, placed_as_given
from bakeoff.config.markdown_file import KNOWN_KEYS, MarkdownTask, read_markdown_file
from bakeoff.config.toml_file import line_of, read_toml
from bakeoff.core.brief import Brief, Source
from bakeoff.core.errors import UsageError
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import Tree, Workspace
from bakeoff.suites.bakeoff_toml import with_settings
from bakeoff.suites.markdown_repo import NamedRepo, named_repo
from bakeoff.suites.native_task import SETTINGS, Settings, native_task

CRITERIA = "success_criteria"
_HIDDEN = ("tests", "solution", "solution.patch", SETTINGS)


def read_markdown_task(path: Path, overrides: Mapping[str, str] | None = None) -> Brief:
    """Return what the task at *path* asks for, as if a run file had named only it."""
    brief = read_markdown(path)
    return judged(with_settings(brief, overrides) if overrides else brief)


def read_markdown(path: Path) -> Brief:
    """Return the task at *path*, with the check that lies beside it, if there is one."""
    folder = path.with_suffix("")
    with as_given(path), as_given(folder):
        brief = _read(path.resolve())
    tasks = (placed_as_given(placed_as_given(task, path), folder) for task in brief.tasks)
    return replace(brief, tasks=tuple(tasks))


def _read(path: Path) -> Brief:
    file = read_markdown_file(path)
    folder = path.with_suffix("")
    settings = _settings(file, path, folder)
    brings_files = "repo" in settings.data or (folder / "files").is_dir()
    named = None if brings_files else named_repo(file, path)
    if named is not None:
        settings = replace(settings, data={**settings.data, "repo": named.table})
    task = native_task(folder, settings, instruction=file.text, unchecked=True)
    task = replace(
        task,
        workspace=_laid_out(task.workspace, folder, named.at if named else ""),
        name=task.name or file.title,
        category=task.category or _category(file),
        time_s=task.time_s if _says_time(file, folder) else None,  # else --timeout decides
        metadata={**_metadata(file), **task.metadata},
    )
    sources = [Source(path=str(path), digest=digest_bytes(path.read_bytes()))]
    if folder.is_dir():
        sources.append(Source(path=str(folder), digest=task.digest))
    return Brief(
        name=path.stem,
        tasks=(task,),
        sources=tuple(sources),
        notices=tuple(_notices(task, file, path, named)),
    )


def _notices(task: Task, file: MarkdownTask, path: Path, named: NamedRepo | None) -> Iterator[str]:
    if named and named.notice:
        yield named.notice
    if task.workspace and not task.workspace.files and "repo" not in file.keys:
        yield (
            f"{path.name} names no files (a `**Repo**` line, or {path.stem}/repo/): agents start in "
            "an empty folder"
        )


def _laid_out(workspace: Workspace | None, folder: Path, at: str) -> Workspace | None:
    """Return *workspace* with its repository *at* its place, and without the task's own folder in it.

    A task may lie inside the project that it is about: its tests and its solution stay hidden.
    """
    if workspace is None or not workspace.files:
        return workspace
    repo, *others = workspace.files
    removed = tuple(_own_folder(repo, folder, at)) if folder.is_dir() else ()
    files = (replace(repo, at=at), *others)
    return replace(workspace, files=files, removed=(*workspace.removed, *removed))


def _own_folder(repo: Tree, folder: Path, at: str) -> Iterator[str]:
    top = Path(repo.path, repo.subdir or "")
    if not folder.is_relative_to(top):
        return
    for hidden in (folder,) if folder != top else [folder / name for name in _HIDDEN]:
        inside = Path(at, hidden.relative_to(top)).as_posix()
        yield re.sub(r"([*?\[\\])", r"\\\1", inside)  # a name, not a pattern


def judged(brief: Brief) -> Brief:
    """Return *brief* with its criteria put to the judge, where there is one and no check."""
    if "judge" not in brief.conditions.roles:
        return brief
    return replace(brief, tasks=tuple(_judged(task) for task in brief.tasks))


def _judged(task: Task) -> Task:
    criteria = task.metadata.get(CRITERIA)
    if task.scorers or not isinstance(criteria, list | tuple) or not criteria:
        return task
    rubrics: list[Json] = [
        {"id": f"criterion-{number}", "criterion": str(criterion), "weight": 1.0}
        for number, criterion in enumerate(criteria, start=1)
    ]
    scorer = ScorerSpec(name="rubrics", settings={"rubrics": rubrics, "test_scripts": []})
    return replace(task, scorers=(scorer,))


def _settings(file: MarkdownTask, path: Path, folder: Path) -> Settings:
    """Return the settings of the task: its front matter, or the task.toml in its folder."""
    written = folder / SETTINGS
    if not written.is_file():
        data = _from_the_file(file.settings or {}, path, folder)
        settings = Settings(source=str(path), data=data, line_of=file.line_of)
    elif file.settings is not None:
        raise UsageError(f"{path}: give front matter or {folder.name}/{SETTINGS}, not both")
    else:
        data, text = read_toml(written)
        settings = Settings(source=str(written), data=data, line_of=partial(line_of, text))
    if "repo" in settings.data or not (folder / "repo").is_dir():
        return settings
    return replace(settings, data={**settings.data, "repo": {"path": "repo"}})


def _from_the_file(data: Mapping[str, Json], path: Path, folder: Path) -> Mapping[str, Json]:
    """Return front matter with the paths of its repository whole: from the file, else its folder."""
    repo = data.get("repo")
    if not isinstance(repo, Mapping):
        return data
    whole: dict[str, Json] = {}
    for key in ("path", "bundle"):
        if isinstance(value := repo.get(key), str):
            places = (path.parent / value, folder / value)
            whole[key] = str(next((place for place in places if place.exists()), places[0]))
    return {**data, "repo": {**repo, **whole}}


def _says_time(file: MarkdownTask, folder: Path) -> bool:
    if (folder / SETTINGS).is_file():
        return "time_s" in read_toml(folder / SETTINGS)[0]
    return "time_s" in (file.settings or {})


def _category(file: MarkdownTask) -> str | None:
    return file.keys.get("difficulty", "").lower() or None


def _metadata(file: MarkdownTask) -> dict[str, Json]:
    found: dict[str, Json] = {
        name: value for name, value in file.keys.items() if name in KNOWN_KEYS.values()
    }
    if criteria := list(_criteria(file)):
        found[CRITERIA] = criteria
    return found


def _criteria(file: MarkdownTask) -> Iterator[Json]:
    yield from file.criteria
    if not file.criteria and (outcome := file.sections.get("expected outcome")):
        yield outcome
