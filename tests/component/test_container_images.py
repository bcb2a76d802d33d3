"""Images: found, built once for all who ask, and a clear word where they cannot be had."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bakeoff.core.errors import UsageError
from bakeoff.core.workspace import Image, Tree
from bakeoff.sandboxes.containers.sandbox import Container
from support.container_boxes import opened, sandbox, shell, spec
from support.container_engines import BUSYBOX, Engine, engine


@pytest.fixture(params=["docker", "podman"])
def where(request: pytest.FixtureRequest) -> Engine:
    found = engine(request.param)
    found.with_busybox()
    return found


@pytest.fixture
def containers(where: Engine) -> Container:
    return sandbox(where)


def recipe(folder: Path, text: str, *, digest: str, dockerfile: str = "Dockerfile") -> Image:
    (folder / dockerfile).write_text(text)
    return Image(context=Tree(path=str(folder), digest=digest), dockerfile=dockerfile)


def test_an_image_that_is_here_is_used_by_its_name(containers: Container) -> None:
    assert asyncio.run(containers.image(Image(name=BUSYBOX))) == BUSYBOX


def test_a_task_without_an_image_gets_the_default_one(containers: Container) -> None:
    assert asyncio.run(containers.image(None)) == BUSYBOX


def test_an_image_that_cannot_be_had_is_the_users_to_fix(where: Engine) -> None:
    # nothing listens there, so no registry is asked
    name = "127.0.0.1:1/no/such:image"
    with pytest.raises(UsageError, match=r"cannot fetch the image '127.0.0.1:1/no/such:image'"):
        asyncio.run(sandbox(where).image(Image(name=name)))


def test_trials_that_need_the_same_image_wait_for_one_build(
    containers: Container, where: Engine, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("copied")
    # were it built twice at once, one of the two would not be found in the cache of layers
    text = f"FROM {BUSYBOX}\nCOPY data /data\nRUN date +%s%N > /built\n"
    image = recipe(tmp_path, text, digest=f"once-{where.name}")

    async def scenario() -> None:
        names = []

        async def ask() -> None:
            names.append(await containers.image(image))

        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(ask())
        assert len(set(names)) == 1
        folder = tmp_path / "work"
        folder.mkdir()
        async with opened(containers, spec(folder, image=names[0])) as box:
            assert (await shell(box, "cat /data")).output == "copied"
        first = where.call("image", "inspect", "--format", "{{.Id}}", names[0])
        again = await sandbox(where).image(image)
        assert where.call("image", "inspect", "--format", "{{.Id}}", again) == first

    asyncio.run(scenario())


def test_another_content_is_another_image(containers: Container, tmp_path: Path) -> None:
    one = recipe(tmp_path, f"FROM {BUSYBOX}\nRUN echo 1 > /n\n", digest="one")
    first = asyncio.run(containers.image(one))
    two = recipe(tmp_path, f"FROM {BUSYBOX}\nRUN echo 2 > /n\n", digest="two")
    assert asyncio.run(containers.image(two)) != first


def test_a_build_that_fails_shows_its_last_lines_and_the_file(
    containers: Container, tmp_path: Path
) -> None:
    text = f"FROM {BUSYBOX}\nRUN echo the reason is here && exit 7\n"
    image = recipe(tmp_path, text, digest="fails", dockerfile="Other.Dockerfile")
    with pytest.raises(UsageError) as caught:
        asyncio.run(containers.image(image))
    assert "the reason is here" in str(caught.value)
    assert f"{tmp_path}/Other.Dockerfile" in str(caught.value)


def test_a_build_without_end_is_ended(where: Engine, tmp_path: Path) -> None:
    image = recipe(tmp_path, f"FROM {BUSYBOX}\nRUN sleep 600\n", digest="endless")
    slow = Container(
        name="docker" if where.name == "docker" else "podman",
        environment=where.environment,
        build_s=3,
    )
    with pytest.raises(UsageError, match="its time was over after 3 s"):
        asyncio.run(slow.image(image))


def test_a_missing_dockerfile_is_named(containers: Container, tmp_path: Path) -> None:
    image = Image(context=Tree(path=str(tmp_path), digest="empty"))
    with pytest.raises(UsageError, match=r"there is no .*Dockerfile"):
        asyncio.run(containers.image(image))


def test_a_build_sees_nothing_of_what_is_left_out(containers: Container, tmp_path: Path) -> None:
    context = tmp_path / "context"
    (context / "evaluation").mkdir(parents=True)
    (context / "evaluation" / "test_it.py").write_text("the answer")
    (context / "shown" / "evaluation").mkdir(parents=True)
    (context / "shown" / "evaluation" / "kept").write_text("further down it is no secret")
    image = recipe(context, f"FROM {BUSYBOX}\nCOPY . /seen/\n", digest="left-out")
    image = replace(image, left_out=("evaluation", "notes.md"))

    async def scenario() -> None:
        folder = tmp_path / "work"
        folder.mkdir()
        name = await containers.image(image)
        async with opened(containers, spec(folder, image=name)) as box:
            ran = await shell(box, "cd /seen && find . -type f | sort")
            assert ran.output.split() == ["./Dockerfile", "./shown/evaluation/kept"]

    asyncio.run(scenario())
