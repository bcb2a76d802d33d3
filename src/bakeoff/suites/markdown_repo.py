"""The files that a task in Markdown names in its `**Repo**` line, where nothing else brings any.

    **Repo**: sample_project          a folder beside the task file, else in the working folder
    **Repo**: Your current project    the working folder, as it is in its last commit
    **Repo**: none                    no files, said on purpose

Anything else is refused: an agent that was promised files must not start in an empty folder.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bakeoff.config.markdown_file import MarkdownTask, line_of_key
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

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
        f"{_where(path)}: there is no folder {value!r} for the agents to work on, neither beside the "
        f"task file nor in the working folder ({places}); {_how(path)}. `**Repo**: none` says that "
        "there are no files"
    )


def _where(path: Path) -> str:
    line = line_of_key(path, "repo")
    return f"{path}{f':{line}' if line else ''}: `**Repo**`"


def _how(path: Path) -> str:
    return (
        f"put the files into {path.stem}/repo/ beside the task, or name their folder at the top of "
        "the file, between two lines of ---, as `repo: {path: ../folder}` from where the file is"
    )
