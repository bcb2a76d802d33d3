"""reward: a verifier in Harbor's manner, in a clean room; and tasks whose workspace is a whole box."""

import asyncio
import io
import os
import tarfile
from pathlib import Path

import pytest

from bakeoff._lib import scratch
from bakeoff.core.boxes import Sandbox
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.record import Score
from bakeoff.core.task import Task
from bakeoff.core.workspace import Change, Image
from bakeoff.scorers.reward import Reward
from bakeoff.workspaces.archive import count_files, graded
from bakeoff.workspaces.aside import Work
from bakeoff.workspaces.protection import Protection
from support.container_boxes import sandbox as container_sandbox
from support.container_engines import engine
from support.workspaces import (
    changed_by,
    isolating,
    kit,
    open_bench,
    outcome,
    tree,
    workspace_task,
    write,
)


def verified_by(folder: Path, script: str) -> Task:
    repo = tree(write(folder / "repo", {"a.txt": "one\n"}))
    tests = tree(write(folder / "tests", {"test.sh": script, "expected": "two\n"}), at="/tests")
    return workspace_task(repo, hidden=(tests,))


def scored(folder: Path, task: Task, work: str, boxes: Sandbox, **settings: object) -> Score:
    async def run() -> Score:
        async with open_bench(folder / "cache", boxes) as bench:
            change = await changed_by(bench, task, work)
            return await Reward(**settings).score(task, outcome(change), kit(bench))

    return asyncio.run(run())


def test_the_verifier_sees_the_change_and_its_own_files(tmp_path: Path) -> None:
    script = "cmp a.txt /tests/expected; echo $((1 - $?)) > /logs/verifier/reward.txt\n"
    task = verified_by(tmp_path, script)
    assert scored(tmp_path, task, "echo two > a.txt", isolating()).value == 1.0
    nothing = scored(tmp_path, task, "true", isolating())
    assert nothing.value == 0.0
    assert "differ" in nothing.explanation
    assert "differ" in nothing.details["output"]


@pytest.mark.parametrize(
    ("written", "value", "rewards"),
    [
        ("echo 0.25 > reward.txt", 0.25, {"reward": 0.25}),
        (
            'echo \'{"reward": 0.5, "speed": 0.1}\' > reward.json',
            0.5,
            {"reward": 0.5, "speed": 0.1},
        ),
        ('echo \'{"a": 1, "b": 0}\' > reward.json', 0.5, {"a": 1.0, "b": 0.0}),
        ("echo 1 > reward.txt; exit 3", 1.0, {"reward": 1.0}),
    ],
)
def test_rewards_are_read_in_each_form(
    tmp_path: Path, written: str, value: float, rewards: dict[str, float]
) -> None:
    task = verified_by(tmp_path, f"cd /logs/verifier; {written}\n")
    given = scored(tmp_path, task, "true", isolating())
    assert given.value == pytest.approx(value)
    assert given.details["rewards"] == rewards


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("echo out of luck", "wrote no reward.*out of luck"),
        ("echo lots > reward.txt", "no reward from 0 to 1 but 'lots'"),
        ("echo nan > reward.txt", "not from 0 to 1"),
        ("echo 7 > reward.txt", "not from 0 to 1"),
        ("echo '{}' > reward.json", "it is empty"),
        ("echo '{\"reward\": true}' > reward.json", "not a number"),
        ("ln -s /etc/passwd reward.txt", "cannot be read"),
        ("mkfifo reward.txt", "not a file"),
        ("mkdir reward.txt", "not a file"),
        ("sleep 60", "did not end within 2 s"),
    ],
)
def test_no_reward_is_a_fault_and_never_0(tmp_path: Path, written: str, why: str) -> None:
    task = verified_by(tmp_path, f"cd /logs/verifier; {written}\n")
    with pytest.raises(ScorerError, match=why):
        scored(tmp_path, task, "true", isolating(), time_s=2.0)
    mine = [path.name for path in scratch.base().iterdir() if f"-{os.getpid()}-" in path.name]
    assert not [name for name in mine if "-verifier-" in name]


def test_a_task_whose_verifier_has_no_place_is_refused_early(tmp_path: Path) -> None:
    repo = tree(write(tmp_path / "repo", {"a": ""}))
    with pytest.raises(UsageError, match="no hidden files go there; there are: none"):
        Reward().check(workspace_task(repo))
    Reward().check(verified_by(tmp_path, ""))


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_the_change_of_a_whole_box_is_verified_in_a_fresh_one(tmp_path: Path, name: str) -> None:
    where = engine(name)
    image = Image(name=where.with_python())
    script = (
        'test "$(cat /opt/made)" = made && test ! -e /etc/issue && test ! -e /opt/notes/x '
        "&& test ! -e /tests/planted && test ! -e /logs/verifier/planted\n"
        "echo $((1 - ($? > 0))) > /logs/verifier/reward.txt\n"
    )
    tests = tree(write(tmp_path / "tests", {"test.sh": script}), at="/tests")
    task = workspace_task(
        image=image,
        whole_box=True,
        root="/",
        workdir="opt",
        hidden=(tests,),
        protected=("opt/notes",),
        setup=("mkdir -p /opt/notes",),
    )
    work = "echo made > /opt/made; rm /etc/issue; echo x > /opt/notes/x; mkdir -p /tests /logs/verifier; echo > /tests/planted; echo 1 > /logs/verifier/reward.txt"
    boxes = container_sandbox(where, where.with_python())
    given = scored(tmp_path, task, work, boxes)
    assert given.value == 1.0, given
    assert "opt/notes/x" in given.details["undone"]
    assert (
        scored(tmp_path, task, "true", container_sandbox(where, where.with_python())).value == 0.0
    )


def packed(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def test_an_archive_loses_what_is_protected_and_what_would_lie_in_the_graders_places() -> None:
    names = [".bashrc", "app/tests/a", "app/b", "tests/t", "tests2/t", "logs/verifier/reward.txt"]
    archive = packed(**{name: name.encode() for name in names})
    change = Change(patch="", archive=archive, gone=("/app/tests/gone", "/app/gone"))
    protection = Protection(patterns=("tests/**",))
    rest, gone, undone = graded(Work(), change, "/app", protection, ["/tests", "/logs/verifier"])
    with tarfile.open(fileobj=io.BytesIO(rest)) as tar:
        left = {member.name: tar.extractfile(member).read().decode() for member in tar}
    assert left == {name: name for name in (".bashrc", "app/b", "tests2/t")}
    assert gone == ("/app/gone",)
    assert set(undone) == {
        "app/tests/a",
        "app/tests/gone",
        "tests/t",
        "logs/verifier/reward.txt",
    }
    assert count_files(Work(), archive) == 6
