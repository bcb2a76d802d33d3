"""Where the files of a task come from: folders, repositories, bundles; and how they are laid."""

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError
from bakeoff.core.task import Task
from bakeoff.core.workspace import Tree
from bakeoff.workspaces.pristine import fetch_repository
from bakeoff.workspaces.threads import ThreadWork
from support.workspaces import open_bench, open_room, sh, tree, workspace_task, write


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository(folder: Path, kind: str = "sha1") -> tuple[Path, str]:
    """Make a repository with two commits; return it with the first."""
    write(folder, {"a.py": "old\n", "sub/b.py": "b\n", "sub/deep/c.py": "c\n", "other/d.py": "d\n"})
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a.py")
    git(folder, "init", "-q", f"--object-format={kind}")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    first = git(folder, "rev-parse", "HEAD")
    write(folder, {"a.py": "the solution\n"})
    git(folder, "commit", "-q", "-am", "the solution")
    return folder, first


def at(path: object, commit: str, **rest: Any) -> Tree:
    return Tree(path=str(path), digest=commit, commit=commit, **rest)


def seen(task: Task, cache: Path, script: str) -> str:
    """Return what *script* prints in the agent's room."""

    async def run() -> str:
        async with open_bench(cache) as bench, open_room(bench, task) as room:
            return (await sh(room, script)).output

    return asyncio.run(run())


FILES = "find . -name .git -prune -o \\( -type f -o -type l \\) -print | sort"


def test_a_repository_is_checked_out_at_its_commit_without_its_history(tmp_path: Path) -> None:
    folder, first = repository(tmp_path / "repo")
    git(folder, "bundle", "create", "-q", str(tmp_path / "all.bundle"), "--all")
    for source in (folder, f"file://{folder}", tmp_path / "all.bundle"):
        script = "cat a.py; git log --format=%s --all; git remote; git status --short; test -x run.sh; readlink link"
        said = seen(workspace_task(at(source, first)), tmp_path / "cache", script)
        assert said == "old\nThe task\na.py\n"
    everything = "git rev-list --objects --all | wc -l; grep -rl solution . || true"
    said = seen(workspace_task(at(folder, first)), tmp_path / "cache", everything)
    assert "a.py" not in said


def test_a_repository_of_longer_names_is_read_too(tmp_path: Path) -> None:
    folder, first = repository(tmp_path / "repo", "sha256")
    assert len(first) == 64
    assert seen(workspace_task(at(folder, first)), tmp_path / "cache", "cat a.py") == "old\n"


def test_a_part_of_a_repository_can_be_chosen(tmp_path: Path) -> None:
    folder, first = repository(tmp_path / "repo")
    cache = tmp_path / "cache"
    part = workspace_task(at(folder, first, subdir="sub"))
    assert seen(part, cache, FILES) == "./b.py\n./deep/c.py\n"
    sparse = workspace_task(at(folder, first, sparse=("/sub/deep/", "/a.py")))
    assert seen(sparse, cache, FILES) == "./a.py\n./sub/deep/c.py\n"
    both = workspace_task(at(folder, first, subdir="sub", sparse=("/sub/deep/",)))
    assert seen(both, cache, FILES) == "./deep/c.py\n"
    with pytest.raises(SandboxError, match="no folder 'nowhere'"):
        seen(workspace_task(at(folder, first, subdir="nowhere")), cache, "true")
    with pytest.raises(SandboxError, match="no folder"):
        seen(workspace_task(at(folder, first, subdir="../..")), cache, "true")


@pytest.mark.parametrize(
    ("path", "commit", "why"),
    [
        ("nowhere", "0" * 40, "nowhere cannot be fetched"),
        ("repo", "0" * 40, "has no commit 0000"),
        ("repo", "main", "'main' is not a commit"),
        ("--upload-pack=touch canary", "0" * 40, "cannot be fetched"),
        ("ext::sh -c 'touch canary'", "0" * 40, "cannot be fetched"),
    ],
)
def test_what_cannot_be_fetched_is_named(
    tmp_path: Path, path: str, commit: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repository(tmp_path / "repo")
    source = path if ":" in path or path.startswith("-") else tmp_path / path
    with pytest.raises(SandboxError, match=why):
        seen(workspace_task(at(source, commit)), tmp_path / "cache", "true")
    assert not (tmp_path / "canary").exists()
    assert list((tmp_path / "cache").glob("new-*")) == []


def test_a_repository_is_fetched_once_and_then_needed_no_more(tmp_path: Path) -> None:
    folder, first = repository(tmp_path / "repo")
    task, cache = workspace_task(at(folder, first)), tmp_path / "cache"
    assert seen(task, cache, "cat a.py") == "old\n"
    folder.rename(tmp_path / "moved")
    assert seen(task, cache, "cat a.py") == "old\n"


def test_many_who_fetch_the_same_at_once_leave_one_whole_repository(tmp_path: Path) -> None:
    folder, first = repository(tmp_path / "repo")
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        places = list(
            pool.map(lambda _: fetch_repository(ThreadWork(), at(folder, first), cache), range(8))
        )
    assert len(set(places)) == 1
    assert list(cache.iterdir()) == [places[0]]
    git(places[0], "fsck")


def test_what_a_killed_fetch_left_is_taken_away_by_the_next(tmp_path: Path) -> None:
    folder, first = repository(tmp_path / "repo")
    cache = tmp_path / "cache"
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from bakeoff._lib import process_identity\nfrom bakeoff.workspaces.git import make_repository\n"
        "make_repository(Path(sys.argv[1]) / f'new-{process_identity.current()}-half')\nos.kill(os.getpid(), 9)\n"
    )
    cache.mkdir()
    died = subprocess.run([sys.executable, "-c", code, str(cache)], check=False)
    assert died.returncode == -signal.SIGKILL
    assert len(list(cache.glob("new-*"))) == 1
    place = fetch_repository(ThreadWork(), at(folder, first), cache)
    assert list(cache.iterdir()) == [place]


def test_a_folder_that_changed_since_the_plan_is_a_clear_fault(tmp_path: Path) -> None:
    folder = write(tmp_path / "files", {"a.txt": "planned\n"})
    task = workspace_task(tree(folder))
    (folder / "a.txt").write_text("changed\n")
    with pytest.raises(SandboxError, match=r"files is not what it was when the plan was made"):
        seen(task, tmp_path / "cache", "true")
    hidden = workspace_task(hidden=(tree(folder, at="tests"),))
    (folder / "b.txt").write_text("new\n")
    with pytest.raises(SandboxError, match="is not what it was"):
        seen(hidden, tmp_path / "cache", "true")
    scratch.remove(folder)
    with pytest.raises(SandboxError, match="is not there any more"):
        seen(task, tmp_path / "cache", "true")


def test_files_are_laid_in_order_then_removed_then_texts_written(tmp_path: Path) -> None:
    first = write(tmp_path / "1", {"a": "1\n", "b": "1\n", "docs/x.md": "1\n", "docs/y.txt": "1\n"})
    second = write(tmp_path / "2", {"b": "2\n", "c/d": "2\n"})
    task = workspace_task(
        tree(first),
        tree(second),
        tree(second, at="lib/two"),
        removed=("docs/*.md", "c"),
        texts={"c/new": "3\n", "a": "3\n"},
    )
    script = f"{FILES}; cat a b c/new"
    wanted = "./a\n./b\n./c/new\n./docs/y.txt\n./lib/two/b\n./lib/two/c/d\n3\n2\n3\n"
    assert seen(task, tmp_path / "cache", script) == wanted


@pytest.mark.parametrize(
    "rest",
    [
        {"texts": {"../out": "x"}},
        {"texts": {"/etc/out": "x"}},
        {"removed": ("../*",)},
        {"workdir": "../.."},
    ],
)
def test_nothing_is_laid_or_removed_outside_the_workspace(
    tmp_path: Path, rest: dict[str, Any]
) -> None:
    folder = write(tmp_path / "files", {"a": "1"})
    with pytest.raises(SandboxError, match=r"inside the workspace|out of the workspace"):
        seen(workspace_task(tree(folder), **rest), tmp_path / "cache", "true")


def test_a_link_in_one_tree_does_not_lead_files_of_the_next_out(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    first = write(tmp_path / "1", {"a": "1"})
    (first / "out").symlink_to(victim)
    second = write(tmp_path / "2", {"out/x": "2"})
    task = workspace_task(tree(first), tree(second), texts={"out/y": "3"})
    assert seen(task, tmp_path / "cache", "ls out") == "x\ny\n"
    assert list(victim.iterdir()) == []


def test_gits_own_folder_in_a_plain_folder_stays_behind(tmp_path: Path) -> None:
    folder, _ = repository(tmp_path / "repo")
    nested = write(folder / "vendor" / "lib", {"x.py": ""})
    git(nested, "init", "-q")
    task = workspace_task(tree(folder))
    script = "git log --format=%s; test ! -e vendor/lib/.git; cat a.py; ls vendor/lib"
    said = seen(task, tmp_path / "cache", script)
    assert said == "The task\nthe solution\nx.py\n"


def test_the_history_begins_where_the_agent_starts(tmp_path: Path) -> None:
    folder = write(tmp_path / "files", {"app/a.py": "", "data/b": ""})
    script = "pwd; git ls-files; git status --short; git rev-parse --show-toplevel"
    task = workspace_task(tree(folder), workdir="app")
    lines = seen(task, tmp_path / "cache", script).splitlines()
    assert lines[1:-1] == ["a.py"]
    assert lines[0] == lines[-1]
    assert lines[0].endswith("/app")
    empty = workspace_task(tree(folder), workdir="brand/new")
    assert (
        seen(empty, tmp_path / "cache", "git log --format=%s; git status --short") == "The task\n"
    )


def test_the_agent_can_commit(tmp_path: Path) -> None:
    folder = write(tmp_path / "files", {"a.py": "1\n"})
    script = "echo 2 > a.py; git commit -qam mine; git log --format=%s"
    assert seen(workspace_task(tree(folder)), tmp_path / "cache", script) == "mine\nThe task\n"


def test_an_equal_workspace_has_an_equal_commit(tmp_path: Path) -> None:
    for name in ("1", "2"):
        write(tmp_path / name, {"a.py": "1\n"})
    os.utime(tmp_path / "1" / "a.py", (1, 1))
    commits = {
        seen(workspace_task(tree(tmp_path / name)), tmp_path / "cache", "git rev-parse HEAD")
        for name in ("1", "2")
    }
    assert len(commits) == 1
