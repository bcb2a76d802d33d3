"""The change of a whole box: taken out of one container, made again in another."""

import asyncio
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import BoxSpec, Mount
from bakeoff.core.workspace import BoxLimits, Image, Tree
from bakeoff.sandboxes.containers import change
from bakeoff.sandboxes.containers.sandbox import Container
from support.container_boxes import opened, sandbox, shell
from support.container_engines import Engine, engine

LIMITS = BoxLimits(memory_mb=512, processes=128, disk_mb=512)

WORK = r"""
set -e
mkdir -p /work/deep && echo new > /work/deep/file
echo changed >> /etc/hosts.allow; chmod 600 /etc/hosts.allow
rm /etc/issue; rm -r /opt; echo 'now a file' > /opt
ln -s /etc/passwd /work/link; ln /work/deep/file /work/hard
mkfifo /work/fifo
useradd -m somebody 2>/dev/null || mkdir -p /home/somebody
chown 1234:4321 /work/deep
printf 'odd' > "/work/a name with 'quotes' and ümlaut"
echo left > /tmp/left; echo left > /logs-are-kept; mkdir -p /logs; echo left > /logs/out
"""
SEEN = r"""
cat /work/deep/file; cat /opt; stat -c %a /etc/hosts.allow; tail -1 /etc/hosts.allow
readlink /work/link; stat -c '%u:%g' /work/deep; stat -c %h /work/hard
ls /work; ls -d /home/somebody
for path in /etc/issue /work/fifo /tmp/left /logs/out; do [ -e $path ] || echo no $path; done
"""


@pytest.fixture(params=["docker", "podman"])
def where(request: pytest.FixtureRequest) -> Engine:
    return engine(request.param)


@pytest.fixture
def containers(where: Engine) -> Container:
    return sandbox(where, where.with_python())


def whole(**more: object) -> BoxSpec:
    return BoxSpec(label="whole", folder=None, workdir="/", limits=LIMITS, **more)  # type: ignore[arg-type]


def test_what_was_done_in_one_box_is_there_in_another(containers: Container) -> None:
    async def scenario() -> None:
        async with opened(containers, whole()) as box:
            did = await shell(box, WORK)
            assert did.code == 0, did.output
            there = (
                await shell(box, SEEN.replace("/logs/out", "").replace("/tmp/left", ""))
            ).output
            await box.stop()
            archive, gone = await box.change()
        assert "/etc/issue" in gone
        async with opened(containers, whole(archive=archive, gone=gone)) as clean:
            seen = (await shell(clean, SEEN)).output
        lines = seen.splitlines()
        assert lines[-4:] == ["no /etc/issue", "no /work/fifo", "no /tmp/left", "no /logs/out"]
        assert lines[:7] == there.splitlines()[:7]
        assert lines[:7] == ["new", "now a file", "600", "changed", "/etc/passwd", "1234:4321", "2"]
        assert "a name with 'quotes' and ümlaut" in lines

    asyncio.run(scenario())


ODD_WORK = r"""
mkdir -p /work && cd /work
odd() { name=$(printf "$1:"); printf "$2" > "${name%:}"; }
odd 'line\nbreak' one; odd 'ends\n' two; odd 'form\ffeed' three; odd 'next\302\205line' four
odd 'line\342\200\250separator' five; odd 'cr\rx' six; odd 'two\n\nx' seven
name=$(printf 'x\nA :'); name=${name%:}; mkdir "$name"; echo eight > "$name/etc"
"""
ODD_SEEN = "ls -b /work; find /work -type f -exec md5sum {} + | sort"


def test_a_file_with_a_line_break_in_its_name_is_not_lost(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    made = r"""RUN printf x > "$(printf '/old\nname')"; printf y > /old"""
    (tmp_path / "Dockerfile").write_text(f"FROM {where.with_python()}\n{made}\n")
    odd = Image(context=Tree(path=str(tmp_path), digest="odd names"))

    async def scenario() -> None:
        image = await containers.image(odd)
        async with opened(containers, whole(image=image)) as box:
            assert (await shell(box, ODD_WORK)).code == 0
            there = (await shell(box, ODD_SEEN)).output
            assert "line\\nbreak" in there
            await shell(box, r"""rm "$(printf '/old\nname')" """)
            await box.stop()
            archive, gone = await box.change()
        assert "/old\nname" in gone
        assert "/old" not in gone
        async with opened(containers, whole(image=image, archive=archive, gone=gone)) as clean:
            assert (await shell(clean, ODD_SEEN)).output == there
            left = await shell(clean, "cat /old; ls -b / | grep old")
            assert left.output == "yold\n"

    asyncio.run(scenario())


def test_lines_that_are_no_entries_are_part_of_a_name_or_a_warning() -> None:
    printed = (
        "WARNING: first\nA /work/line\nbreak\nA /work/x\nA \nA /work/x\nA /etc\n"
        "D /old\nname\nD /plain\nC /last\nWARNING: last\n"
    )
    found = change.read_differences(printed, own=["/ours"])
    for path in ("/work/line\nbreak", "/work/x\nA ", "/work/x\nA /etc", "/last"):
        assert path in found, path
    for path in ("/work", "/old\nname", "WARNING: first", "/work/x\nA /etc/more"):
        assert path not in found, path
    assert found.gone == ("/plain",)
    assert found.perhaps_gone == {"/old", "/old\nname"}


def test_a_link_that_became_a_folder_is_one_in_another_box_too_or_the_engine_says_no(
    containers: Container,
) -> None:
    async def scenario() -> None:
        async with opened(containers, whole()) as box:
            await shell(
                box, "rm /etc/os-release; mkdir /etc/os-release; echo x > /etc/os-release/in"
            )
            await box.stop()
            if containers.name == "podman":  # 4.3 cannot tell such a difference; a fault, no score
                with pytest.raises(SandboxError, match="podman diff"):
                    await box.change()
                return
            archive, gone = await box.change()
        async with opened(containers, whole(archive=archive, gone=gone)) as clean:
            assert (await shell(clean, "cat /etc/os-release/in")).output == "x\n"

    asyncio.run(scenario())


def test_a_box_in_which_nothing_was_done_has_no_change(containers: Container) -> None:
    async def scenario() -> None:
        async with opened(containers, whole()) as box:
            await shell(box, "cat /etc/passwd > /tmp/copy")
            await box.stop()
            archive, gone = await box.change()
        assert gone == ()
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            assert [m.name for m in packed if not m.isdir()] == []

    asyncio.run(scenario())


def test_our_own_mounts_are_no_part_of_the_change(containers: Container, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("ours")
    mount = Mount(source=str(tmp_path), target="/usr/local/ours")

    async def scenario() -> None:
        async with opened(containers, whole(mounts=(mount,))) as box:
            await shell(box, "echo theirs > /usr/local/theirs")
            await box.stop()
            archive, _ = await box.change()
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            names = packed.getnames()
        assert "usr/local/theirs" in names
        assert not [name for name in names if "ours" in name]

    asyncio.run(scenario())


def test_a_change_that_is_too_big_is_refused_with_what_to_do(where: Engine) -> None:
    containers = Container(
        name="docker" if where.name == "docker" else "podman",
        environment=where.environment,
        default_image=where.with_python(),
        most_change_mb=1,
    )

    async def scenario() -> None:
        async with opened(containers, whole()) as box:
            await shell(box, "head -c 3000000 /dev/urandom > /noise")
            await box.stop()
            with pytest.raises(SandboxError, match=r"over 1 MB.*most_change_mb"):
                await box.change()

    asyncio.run(scenario())


def test_an_export_that_is_cut_between_two_files_is_a_fault(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 512)
    whole_tar = tmp_path / "whole.tar"
    subprocess.run(["tar", "-cf", whole_tar, "-C", tmp_path, "a", "b"], check=True)

    def taken(script: str) -> bytes:
        return change.archive(
            ("sh", "-c", script, "sh", str(whole_tar)),
            environment={"PATH": "/usr/bin:/bin"},
            included=frozenset({"/a", "/b"}),
            max_mb=1,
            time_s=20,
        )[0]

    with tarfile.open(fileobj=io.BytesIO(taken('cat "$1"'))) as made:
        assert made.getnames() == ["a", "b"]
    with pytest.raises(SandboxError, match="exit code 3; its output: no room"):
        taken('head -c 1024 "$1"; echo no room >&2; exit 3')


def test_a_package_manager_can_change_owners_but_nobody_gets_more_rights(
    containers: Container,
) -> None:
    async def scenario() -> None:
        async with opened(containers, whole()) as box:
            ran = await shell(
                box,
                "touch /f && chown 33:33 /f && setpriv --reuid 33 --clear-groups id -u; "
                "mount -t tmpfs none /mnt || echo no mount; grep NoNewPrivs /proc/self/status",
            )
        assert ran.output.splitlines()[0] == "33"
        assert "no mount" in ran.output
        assert ran.output.split()[-1] == "1"

    asyncio.run(scenario())


def test_an_entrypoint_that_gives_up_is_shown_with_what_it_printed(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    entry = 'ENTRYPOINT ["sh", "-c", "echo the reason is here; exit 3"]'
    (tmp_path / "Dockerfile").write_text(f"FROM {where.with_busybox()}\n{entry}\n")
    broken = Image(context=Tree(path=str(tmp_path), digest="broken entrypoint"))

    async def scenario() -> None:
        image = await containers.image(broken)
        async with opened(containers, whole(image=image)) as box:
            with pytest.raises(SandboxError, match="the reason is here"):
                await shell(box, "true")

    asyncio.run(scenario())
