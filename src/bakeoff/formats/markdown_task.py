"""Reads a task in Markdown, with the folder of the same name next to it.

    fix_typo.md        what the agent is told; may begin with front matter
    fix_typo/repo/     the files to work on (or files/, or a repository in the settings, or else the
                       folder that the `**Repo**` line names: markdown_repo.py)
    fix_typo/tests/    hidden; they say whether the work is right
    fix_typo/solution.patch, or solution/

The folder may be missing. Where nothing checks the work, a judge does by the success criteria, if
the run has one; else the work stays unchecked.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bakeoff._lib.digest import digest_bytes
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec, Source
from bakeoff.core.task import ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import Tree, Workspace
from bakeoff.formats.detect import SETTINGS
from bakeoff.formats.native_task import TaskSettings, native_task
from bakeoff.formats.run_file import with_settings
from bakeoff.formats.text.convert import as_given, placed_as_given
from bakeoff.formats.text.markdown import KNOWN_KEYS, MarkdownTask, line_of_key, read_markdown_file
from bakeoff.formats.text.toml import line_of, read_toml

_CURRENT = re.compile(
    r"\.|(?:the |this |your |my )?(?:current|existing|own) (?:project|repo|repository|codebase|folder)"
    r"|(?:this|your|my) (?:project|repo|repository|codebase|folder)"
    r"|(?:the |your )?(?:current )?working (?:folder|directory)"
)
_NO_FILES = re.compile(
    r"none|n/?a|-+|–|—|(?:an? )?(?:empty|new)(?: one| folder| directory| project| repo| repository)?"
)
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", re.IGNORECASE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)]+)\)")
_REMARK = re.compile(r"\s+\([^)]*\)$")
_GIT_S = 60.0
CRITERIA = "success_criteria"
_HIDDEN = ("tests", "solution", "solution.patch", SETTINGS)


@dataclass(frozen=True, kw_only=True)
class NamedRepo:
    """A repository as settings can name it; `at` is where in the workspace its files go."""

    table: dict[str, Json]
    at: str = ""
    notice: str | None = None


def named_repo(file: MarkdownTask, path: Path) -> NamedRepo | None:
    """Return what the `**Repo**` line of the task at *path* names; None where it names no files."""
    value = _plain(file.keys.get("repo", ""))
    words = " ".join(value.lower().rstrip(".!").split()) or value
    if not value or _NO_FILES.fullmatch(words):
        return None
    if folder := _folder(value, path):
        # what the text calls `sample_project/src/x.py` must lie there
        speaks_of_it = re.search(rf"(?<![\w./-]){re.escape(folder.name)}/\w", file.text)
        at = folder.name if speaks_of_it else ""
        return NamedRepo(table={"path": str(folder)}, at=at)
    if _CURRENT.fullmatch(words):
        return _current(value, path)
    raise _unknown(value, path)


def _plain(value: str) -> str:
    """Return *value* without Markdown's marks and without a remark in brackets behind it."""
    if link := _LINK.search(value):
        value = link[1]
    return _REMARK.sub("", value.strip().strip("`*\"'").strip())


def _folder(value: str, path: Path) -> Path | None:
    """Return the folder that *value* names: `Sample project` may be written sample_project."""
    if _REMOTE.match(value) or value in {".", "./"}:
        return None
    names = dict.fromkeys((value, "_".join(value.lower().split()), "-".join(value.lower().split())))
    for place in (path.parent, Path.cwd()):
        for name in names:
            if (place / name).is_dir():
                return (place / name).resolve()
    return None


def _current(value: str, path: Path) -> NamedRepo:
    """Return the working folder as its last commit has it: no secrets, no results, no leftovers."""
    here = Path.cwd()
    root, commit = _git(here, "rev-parse", "--show-toplevel"), _git(here, "rev-parse", "HEAD")
    if not root or not commit:
        raise UsageError(
            f"{_where(path)}: {value!r} is the working folder, {here}, and that is no git repository "
            f"with a commit; {_how(path)}. Or commit what is there: git init && git add -A && git commit"
        )
    table: dict[str, Json] = {"path": root, "commit": commit}
    below = here.resolve().relative_to(Path(root).resolve()).as_posix()
    if below != ".":
        table["subdir"] = below
    changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".").splitlines()
    what = "1 file has" if len(changed) == 1 else f"{len(changed)} files have"
    more = f"; {what} changes that are not committed and not part of it" if changed else ""
    notice = f"{path.name}: {value!r} is {here} at commit {commit[:12]}{more}"
    return NamedRepo(table=table, notice=notice)


def _git(folder: Path, *words: str) -> str:
    """Return what git says of *folder*; nothing where it has nothing to say or is not installed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True, text=True, timeout=_GIT_S, check=False, env=environ,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.rstrip("\n") if done.returncode == 0 else ""


def _unknown(value: str, path: Path) -> UsageError:
    if _REMOTE.match(value):
        return UsageError(
            f"{_where(path)}: {value!r} is fetched at a commit, and none is named; write at the top "
            f"of the file, between two lines of ---: repo: {{url: {value}, commit: (all 40 digits)}}"
        )
    places = " and ".join(dict.fromkeys((str(path.parent), str(Path.cwd()))))
    return UsageError(
        f"{_where(path)}: there is no folder {value!r} for the agents to work on, neither next to the "
        f"task file nor in the working folder ({places}); {_how(path)}. `**Repo**: none` says that "
        "there are no files"
    )


def _where(path: Path) -> str:
    line = line_of_key(path, "repo")
    return f"{path}{f':{line}' if line else ''}: `**Repo**`"


def _how(path: Path) -> str:
    return (
        f"put the files into {path.stem}/repo/ next to the task, or name their folder at the top of "
        "the file, between two lines of ---, as `repo: {path: ../folder}` from where the file is"
    )


def read_markdown_task(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what the task at *path* asks for, as if a run file had named only it."""
    run_spec = read_markdown(path)
    return judged(with_settings(run_spec, overrides) if overrides else run_spec)


def read_markdown(path: Path) -> RunSpec:
    """Return the task at *path*, with the check next to it, if there is one."""
    folder = path.with_suffix("")
    with as_given(path), as_given(folder):
        run_spec = _read(path.resolve())
    tasks = (placed_as_given(placed_as_given(task, path), folder) for task in run_spec.tasks)
    return replace(run_spec, tasks=tuple(tasks))


def _read(path: Path) -> RunSpec:
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
    return RunSpec(
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


def judged(run_spec: RunSpec) -> RunSpec:
    """Return *run_spec* with its criteria put to the judge, where there is one and no check."""
    if "judge" not in run_spec.conditions.roles:
        return run_spec
    return replace(run_spec, tasks=tuple(_judged(task) for task in run_spec.tasks))


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


def _settings(file: MarkdownTask, path: Path, folder: Path) -> TaskSettings:
    """Return the settings of the task: its front matter, or the task.toml in its folder."""
    written = folder / SETTINGS
    if not written.is_file():
        data = _from_the_file(file.settings or {}, path, folder)
        settings = TaskSettings(source=str(path), data=data, line_of=file.line_of)
    elif file.settings is not None:
        raise UsageError(f"{path}: give front matter or {folder.name}/{SETTINGS}, not both")
    else:
        data, text = read_toml(written)
        settings = TaskSettings(source=str(written), data=data, line_of=partial(line_of, text))
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
    metadata: dict[str, Json] = {
        name: value for name, value in file.keys.items() if name in KNOWN_KEYS.values()
    }
    if criteria := list(_criteria(file)):
        metadata[CRITERIA] = criteria
    return metadata


def _criteria(file: MarkdownTask) -> Iterator[Json]:
    yield from file.criteria
    if not file.criteria and (outcome := file.sections.get("expected outcome")):
        yield outcome
