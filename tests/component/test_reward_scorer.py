"""reward: a verifier in Harbor's manner, in a clean room; and tasks whose workspace is a whole box."""

import asyncio
import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from bakeoff._lib import scratch
from bakeoff.core.errors import ScorerError, UsageError
from bakeoff.core.record import Score
from bakeoff.core.sandbox import Sandbox
from bakeoff.core.task import Task
from bakeoff.core.workspace import IN_IMAGE, Change, Image, Workspace
from bakeoff.scorers.reward import Reward
from bakeoff.workspaces.archive import count_files, filter_for_grading
from bakeoff.workspaces.protection import Protection
from bakeoff.workspaces.threads import ThreadWork
from support.container_boxes import sandbox as container_sandbox
from support.container_engines import engine
from support.workspaces import (
    changed_by,
    context,
    isolating,
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


def scored(folder: Path, task: Task, work: str, boxes: Sandbox, **settings: Any) -> Score:
    async def run() -> Score:
        async with open_bench(folder / "cache", boxes) as bench:
            change = await changed_by(bench, task, work)
            return await Reward(**settings).score(task, outcome(change), context(bench))

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


VERIFIER = """\
sh ./a.txt
cmp a.txt /tests/expected
echo $((1 - ($? > 0))) > /logs/verifier/reward.txt
"""
DURING_VERIFICATION = {
    "a reward.json beside the verifier's reward.txt": (
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json",
        "reward.json says 1 and reward.txt says 0: the lower one counts",
    ),
    "a reward, and the verifier killed before it writes its own": (
        "echo 1 > /logs/verifier/reward.txt; kill -9 $PPID",
        "the verifier was ended",
    ),
    "a reward that the verifier cannot overwrite": (
        "mkdir /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
        "cannot be read: it is not a file",
    ),
    "something that is no reward": ("echo x > /logs/verifier/reward.json", "no reward from 0 to 1"),
    "a verifier that never ends": ("kill -STOP $PPID; sleep 60", "did not end within 3 s"),
    "a verifier without memory": (
        "exec python3 -c 'import os; os.kill(os.getppid(), 9); x = [b\"x\" * 2**20 for _ in range(9000)]'",
        "the verifier was ended",
    ),
}


@pytest.mark.parametrize("trick", DURING_VERIFICATION)
def test_what_is_verified_cannot_write_its_own_reward_or_do_without_one(
    tmp_path: Path, trick: str
) -> None:
    line, why = DURING_VERIFICATION[trick]
    task = verified_by(tmp_path, VERIFIER)
    given = scored(tmp_path, task, f"cat > a.txt <<'END'\n{line}\nEND\n", isolating(), time_s=3.0)
    assert given.value == 0.0
    assert why in given.explanation


def test_two_files_that_agree_are_one_reward(tmp_path: Path) -> None:
    written = 'echo 0.5 > reward.txt; echo \'{"reward": 0.5, "speed": 0.2}\' > reward.json'
    given = scored(
        tmp_path,
        verified_by(tmp_path, f"cd /logs/verifier; {written}\n"),
        "true",
        isolating(),
    )
    assert given.value == 0.5
    assert given.details["rewards"] == {"reward": 0.5, "speed": 0.2}
    assert "lower" not in given.explanation


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


PROGRAM = "#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\nexit 0\\n"
SYSTEM_CHANGES = rf"""
rm -f /usr/bin/cmp
for name in /usr/bin/cmp /usr/local/bin/cmp /usr/local/bin/python3 /root/.local/bin/cmp; do
  mkdir -p $(dirname $name)
  printf '{PROGRAM}' > $name; chmod 755 $name
done
mv /bin/bash /bin/bash.old; printf '#!/bin/bash.old\necho 1 > /logs/verifier/reward.txt\n' > /usr/bin/bash
chmod 755 /usr/bin/bash
echo /srv/evil.so > /etc/ld.so.preload
echo 'echo 1 > /logs/verifier/reward.txt; exit' >> /root/.bashrc
mkdir -p /etc/profile.d; echo 'cmp() {{ :; }}' > /etc/profile.d/x.sh
packages=$(/usr/bin/python3 -c 'import json; print(json.__file__.rsplit("/", 2)[0])')
echo 'import os; os._exit(0)' > $packages/sitecustomize.py
mkdir -p /usr/local/lib/python3/dist-packages
echo 'import os; os._exit(0)' > /usr/local/lib/python3/dist-packages/x.pth
rm $packages/uuid.py
echo 'print("mine")' > /srv/json.py; echo > /srv/conftest.py
echo wrong > /srv/out; echo seen > /opt/mine
"""
SYSTEM_VERIFIER = """\
cd /srv
PATH=/root/.local/bin:$PATH
/usr/bin/python3 -m uuid >/dev/null && cmp out /tests/expected && test "$(cat /opt/mine)" = seen
echo $((1 - ($? > 0))) > /logs/verifier/reward.txt
"""


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_changes_of_the_system_do_not_reach_the_verifier_unless_the_task_trusts_them(
    tmp_path: Path, name: str
) -> None:
    where = engine(name)
    tests = {"test.sh": SYSTEM_VERIFIER, "expected": "right\n"}
    hidden = (tree(write(tmp_path / "tests", tests), at="/tests"),)

    def verified(work: str, **more: Any) -> Score:
        task = workspace_task(
            image=Image(name=where.with_python()),
            whole_box=True,
            hidden=hidden,
            root="/srv",
            **more,
        )
        return scored(tmp_path, task, work, container_sandbox(where, where.with_python()))

    given = verified(SYSTEM_CHANGES)
    assert given.value == 0.0, given
    assert "/tests/expected differ" in given.details["output"], given.details["output"]
    assert "trust_system_changes = true" in given.explanation
    undone = set(cast("list[str]", given.details["undone"]))
    assert undone >= {
        *("usr/bin/cmp", "usr/bin/bash", "usr/local/bin/cmp", "usr/local/bin/python3"),
        *("root/.local/bin/cmp", "root/.bashrc", "etc/ld.so.preload", "etc/profile.d/x.sh"),
        *("srv/json.py", "srv/conftest.py", "usr/local/lib/python3/dist-packages/x.pth"),
    }
    assert {path.rpartition("/")[2] for path in undone} >= {"sitecustomize.py", "uuid.py"}
    assert not undone & {"opt/mine", "srv/out"}
    honest = "echo right > /srv/out; echo seen > /opt/mine"
    assert verified(honest).value == 1.0
    trusted = verified(f"{honest}; rm /usr/bin/cmp", trust_system_changes=True)
    assert trusted.value == 0.0
    assert trusted.details["undone"] == []
    broken = verified(f"{honest}; rm /bin/sh", trust_system_changes=True)
    assert broken.value == 0.0, "a box that its change broke is no fault: that would pay"
    assert "the change breaks the box that it is graded in" in broken.explanation


LATE_WRITER = """\
cat > /opt/solution <<'END'
(while :; do echo 1 > /logs/verifier/reward.txt; done) </dev/null >/dev/null 2>&1 &
END
"""


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_reward_that_somebody_still_writes_is_not_trusted(tmp_path: Path, name: str) -> None:
    where = engine(name)
    script = "test -e /opt/solution && bash /opt/solution\necho 0 > /logs/verifier/reward.txt\n"
    task = workspace_task(
        image=Image(name=where.with_python()),
        whole_box=True,
        root="/",
        hidden=(tree(write(tmp_path / "tests", {"test.sh": script}), at="/tests"),),
    )
    boxes = container_sandbox(where, where.with_python())
    given = scored(tmp_path, task, LATE_WRITER, boxes)
    assert given.value == 0.0
    assert "written to after the verifier had ended" in given.explanation


def test_only_the_user_of_the_verifier_may_write_a_reward(tmp_path: Path) -> None:
    where = engine("podman")
    script = (
        "cd /; setpriv --reuid=1234 --clear-groups sh -c "
        '"echo \'{\\"reward\\": 1}\' > /logs/verifier/reward.json"\n'
        "echo 0.25 > /logs/verifier/reward.txt\n"
    )
    task = workspace_task(
        image=Image(name=where.with_python()),
        whole_box=True,
        root="/",
        hidden=(tree(write(tmp_path / "tests", {"test.sh": script}), at="/tests"),),
    )
    boxes = container_sandbox(where, where.with_python())
    given = scored(tmp_path, task, "true", boxes)
    assert given.details["rewards"] == {"reward": 0.25}
    assert "Permission denied" in given.details["output"]


def packed(in_image: Iterable[str] = (), links: Iterable[str] = (), **files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.pax_headers = {IN_IMAGE: "1"} if name in in_image else {}
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
            elif name in links:
                member.type, member.linkname = tarfile.SYMTYPE, content.decode()
            else:
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return buffer.getvalue()


def test_an_archive_loses_what_is_protected_and_what_would_lie_in_the_graders_places() -> None:
    names = [".bashrc", "app/tests/a", "app/b", "tests/t", "tests2/t", "logs/verifier/reward.txt"]
    archive = packed((), (), **{name: name.encode() for name in names})
    change = Change(patch="", archive=archive, gone=("/app/tests/gone", "/app/gone"))
    protection = Protection(patterns=("tests/**",))
    space = Workspace(root="/app", whole_box=True)
    rest, gone, undone = filter_for_grading(
        ThreadWork(), change, space, protection, ["/tests", "/logs/verifier"]
    )
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
    assert count_files(ThreadWork(), archive) == 6


@pytest.mark.parametrize(
    ("path", "is_held"),
    [
        ("opt/conda/bin/pytest", True),  # a new program beside those of the image
        ("opt/conda/lib/python3.12/json/__init__.py", True),
        ("opt/conda/lib/python3.12/site-packages/x.pth", True),
        ("opt/tool/bin/run", False),  # all new, and nobody's PATH
        ("opt/tool/lib/python3.12/site-packages/x.py", False),
        ("app/model.pth", False),
        ("app/bin/run", False),
        ("app/.venv/bin/python", True),
        ("app/made/bin/python", True),  # an environment, by its pyvenv.cfg
        ("app/made/pyvenv.cfg", True),
        ("etc/nginx/nginx.conf", False),
        ("etc/environment", True),
        ("home/x/.profile", True),
        ("home/x/notes", False),
        ("usr/share/nginx/html/index.html", False),
        ("lib64/ld-linux-x86-64.so.2", True),
    ],
)
def test_what_of_a_machine_decides_how_programs_start(path: str, is_held: bool) -> None:
    in_image = ("opt/conda/bin/", "opt/conda/lib/python3.12/", "app/bin/")
    files = {**dict.fromkeys(in_image, b""), "app/made/pyvenv.cfg": b"", path: b"x"}
    change = Change(patch="", archive=packed(in_image, (), **files))
    space = Workspace(root="/app", whole_box=True)
    _, _, undone = filter_for_grading(ThreadWork(), change, space, Protection(), [])
    assert (path in undone) is is_held


def test_a_link_in_the_place_of_a_folder_of_the_image_is_held_back() -> None:
    links = {"opt": b"/srv/opt", "app": b"/srv/app", "var/www": b"/srv/www"}
    archive = packed(links, links, **links)
    space = Workspace(root="/app", whole_box=True)
    _, _, undone = filter_for_grading(
        ThreadWork(), Change(patch="", archive=archive), space, Protection(), []
    )
    assert undone == ("app", "opt")
