"""What a hostile agent leaves in its folder: read without harm to the host, within a time."""

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest

from bakeoff._lib import scratch
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Sandbox
from bakeoff.core.task import Task
from bakeoff.core.workspace import Change
from bakeoff.sandboxes.host.local import Local
from support.workspaces import (
    changed_by,
    isolating,
    open_bench,
    open_room,
    sh,
    tree,
    workspace_task,
    write,
)

IGNORING = {"a.txt": "one\n", ".gitignore": "*.log\nbuild/\n"}


def repo(folder: Path, **files: str | bytes) -> Path:
    return write(folder / "repo", files or {"a.txt": "one\n"})


def taken(task: Task, script: str, cache: Path, sandbox: Sandbox | None = None) -> Change:
    """Return the change that *script* makes."""

    async def run() -> Change:
        async with open_bench(cache, sandbox) as bench:
            return await changed_by(bench, task, script)

    return asyncio.run(run())


def test_only_files_and_links_are_taken_and_the_rest_is_named(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    script = (
        "mkfifo pipe; ln -s /etc/passwd passwd; ln -s /etc etc; echo new > b.txt; mkdir -p d/e; "
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"d/sock\")'"
    )
    change = taken(task, script, tmp_path / "cache", isolating())
    assert sorted(change.left_out) == ["d/sock (a socket)", "pipe (a FIFO)"]
    assert change.files == 3
    assert "root:" not in change.patch
    assert "+/etc/passwd\n\\ No newline at end of file" in change.patch


def test_programs_that_the_agents_git_would_start_are_not_started(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    canary = tmp_path / "canary"
    evil = f"touch {canary}; true"
    script = f"""
        git config core.fsmonitor '{evil}'
        git config filter.evil.clean '{evil}; cat'
        git config filter.evil.smudge '{evil}; cat'
        git config diff.evil.textconv '{evil}; cat'
        git config diff.evil.command '{evil}'
        git config core.attributesFile "$PWD/.gitattributes"
        printf '* filter=evil diff=evil\\n' > .gitattributes
        mkdir -p .git/hooks nested
        for hook in pre-commit post-checkout post-index-change reference-transaction; do
            printf '#!/bin/sh\\n{evil}\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook
        done
        (cd nested && git init -q && git config core.fsmonitor '{evil}' && echo x > inner.txt)
        printf '[core]\\n\\tfsmonitor = {evil}\\n' > .gitconfig
        echo two >> a.txt
    """
    change = taken(task, script, tmp_path / "cache")
    assert not canary.exists()
    assert "+two" in change.patch
    assert "nested/inner.txt" in change.patch
    assert "/.git/" not in change.patch

    async def graded() -> None:
        async with (
            open_bench(tmp_path / "cache") as bench,
            bench.open_for_grading(task, change, label="x") as room,
        ):
            assert room.folder is not None
            assert (room.folder / "nested" / "inner.txt").read_text() == "x\n"
            assert not (room.folder / "nested" / ".git").exists()

    asyncio.run(graded())
    assert not canary.exists()


def test_the_agents_own_ignore_rules_hide_nothing_and_those_of_the_task_do(tmp_path: Path) -> None:
    task = workspace_task(tree(write(tmp_path / "repo", IGNORING)))
    script = """
        printf '*\\n' > .gitignore; printf '*\\n' > .git/info/exclude
        echo x > hidden.txt; echo x > x.log; mkdir build node_modules __pycache__ sub
        echo x > build/out; echo x > node_modules/m.js; echo x > __pycache__/a.pyc; echo x > sub/b.pyc
        echo x > sub/c.py
    """
    change = taken(task, script, tmp_path / "cache")
    names = {line.split(" b/")[1] for line in change.patch.splitlines() if line[:5] == "diff "}
    assert names == {".gitignore", "hidden.txt", "sub/c.py"}
    assert sorted(change.left_out) == [
        "__pycache__/ (tools leave it)",
        "build/ (a .gitignore names it)",
        "node_modules/ (tools leave it)",
        "sub/b.pyc (tools leave it)",
        "x.log (a .gitignore names it)",
    ]


def test_of_many_ignored_paths_the_first_are_named_and_crowd_out_nothing(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    script = "for n in $(seq 300); do mkdir -p d$n/node_modules; done; mkfifo zzz"
    left_out = taken(task, script, tmp_path / "cache").left_out
    assert left_out[0] == "zzz (a FIFO)"
    assert len([line for line in left_out if line.endswith("node_modules/ (tools leave it)")]) == 50
    assert left_out[-1] == "and 250 more that are ignored"


def test_what_the_task_itself_keeps_there_is_watched_although_it_is_ignored(tmp_path: Path) -> None:
    files = {**IGNORING, "build/kept": "1\n", "node_modules/m.js": "1\n", "seen.log": "1\n"}
    task = workspace_task(tree(write(tmp_path / "repo", files)))
    script = (
        "for f in build/kept node_modules/m.js seen.log; do echo 2 > $f; done; echo > build/new"
    )
    change = taken(task, script, tmp_path / "cache")
    assert change.files == 3
    assert "build/new" not in change.patch


def test_a_file_or_folder_that_its_owner_may_not_read_is_read(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    script = "mkdir d; echo x > d/f; chmod 000 d/f; chmod 000 d; echo y > g; chmod 000 g"
    change = taken(task, script, tmp_path / "cache", isolating())
    assert change.files == 2
    assert change.left_out == ()


@pytest.mark.usefixtures("files_in_memory")
def test_a_hundred_thousand_files_end_in_a_clear_fault_in_time(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    script = "python3 -c 'for n in range(100_000): open(str(n), \"w\").close()'"
    began = time.monotonic()
    with pytest.raises(SandboxError, match="changed more than 20,000 files"):
        taken(task, script, tmp_path / "cache", isolating())
    assert time.monotonic() - began < 90


@pytest.mark.usefixtures("files_in_memory")
def test_a_hundred_thousand_ignored_files_do_not_matter(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path, **{"a.txt": "one\n", ".gitignore": "junk/\n"})))
    script = (
        "mkdir junk; echo two >> a.txt; "
        'python3 -c \'for n in range(100_000): open(f"junk/{n}", "w").close()\''
    )
    assert taken(task, script, tmp_path / "cache", isolating()).files == 1


def test_files_that_are_too_large_end_in_a_clear_fault_and_are_not_read(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    with pytest.raises(SandboxError, match="changed files of more than 64 MB"):
        taken(task, "truncate -s 3G sparse", tmp_path / "cache")


def test_a_folder_nested_too_deep_is_named_and_left(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    deep = "import os\nfor n in range(3000):\n    os.mkdir('d'); os.chdir('d')\nopen('f', 'w')"
    change = taken(task, f'python3 -c "{deep}"', tmp_path / "cache", isolating())
    assert change.files == 0
    assert [line for line in change.left_out if "too deep" in line]


def test_names_that_are_no_text_come_through(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    script = "printf x > \"$(printf 'bad\\377name')\"; printf y > 'two\nlines\"quoted\"'"
    change = taken(task, script, tmp_path / "cache")
    assert change.files == 2
    change.patch.encode("ascii")


def test_a_change_that_git_cannot_carry_is_named(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    script = "ln -s x .gitmodules; ln -s \"$(printf '\\377')\" link; mkdir .GIT; echo x > .GIT/y"
    change = taken(task, script, tmp_path / "cache")
    assert change.files == 0
    assert len(change.left_out) == 2


def test_what_the_set_up_makes_is_not_the_agents_change(tmp_path: Path) -> None:
    setup = ("echo generated > made.txt; echo more >> a.txt", "mkdir -p deps; echo v1 > deps/lib")
    task = workspace_task(tree(repo(tmp_path)), setup=setup)

    async def run() -> None:
        async with open_bench(tmp_path / "cache") as bench:
            assert (await changed_by(bench, task, "true")).patch == ""
            change = await changed_by(bench, task, "echo agent >> made.txt; rm deps/lib")
            assert (change.files, change.added, change.removed) == (2, 1, 1)
            async with bench.open_for_grading(task, change, label="x") as room:
                assert room.folder is not None
                assert (room.folder / "made.txt").read_text() == "generated\nagent\n"
                assert (room.folder / "a.txt").read_text() == "one\nmore\n"
                assert not (room.folder / "deps").exists()

    asyncio.run(run())


def test_a_set_up_that_fails_is_a_fault_with_its_command_and_last_words(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)), setup=("echo no luck; exit 3",))
    with pytest.raises(
        SandboxError, match=r"set-up command 'echo no luck; exit 3' failed.*code 3.*no luck"
    ):
        taken(task, "true", tmp_path / "cache")


def test_a_daemon_does_not_change_what_was_taken(tmp_path: Path) -> None:
    task = workspace_task(tree(repo(tmp_path)))
    script = "setsid sh -c 'while :; do echo x >> a.txt; sleep 0.01; done' >/dev/null 2>&1 &"

    async def run() -> None:
        async with open_bench(tmp_path / "cache", Local()) as bench, open_room(bench, task) as room:
            await sh(room, script)
            await bench.change(task, room)
            assert room.folder is not None
            before = (room.folder / "a.txt").read_bytes()
            await asyncio.sleep(0.2)
            assert (room.folder / "a.txt").read_bytes() == before

    asyncio.run(run())


def test_a_socket_of_the_host_is_not_opened_by_name(tmp_path: Path) -> None:
    """A link to something that would block or answer is only ever read as a link."""
    task = workspace_task(tree(repo(tmp_path)))
    path = tmp_path / "host.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        os.mkfifo(tmp_path / "host.fifo")
        script = f"ln -s {path} s; ln -s {tmp_path}/host.fifo f; ln -s /dev/zero z; ln -s . loop"
        assert taken(task, script, tmp_path / "cache").files == 4


def test_nothing_is_left_when_the_bench_is_closed(tmp_path: Path) -> None:
    before = set(scratch.base().iterdir())
    taken(workspace_task(tree(repo(tmp_path))), "echo x > y", tmp_path / "cache")
    mine = [path for path in scratch.base().iterdir() if path not in before]
    assert [path for path in mine if f"-{os.getpid()}-" in path.name] == []
